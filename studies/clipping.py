"""Meta-Clip as it was published, in one regime: fixed norms, and norms that adapt, from every start.

    python studies/clipping.py                   # every training that has no record yet: hours on one core
    python studies/clipping.py --only meta-sgd   # of comparisons whose names begin so
    studies/accelerator/run.sh OUT --only papers   # at less noise, too: `sweep`

Algorithms 1 to 3 literally (`sfumato.learn.inner_noise`), on Omniglot at 14x14: a task is learned in as many steps
in use as in training, and noise is what the paper's accounting (GDP, by the package dp_accounting) states for epsilon and
all noisy steps, with 16 of 10,000 tasks a step. Nothing is proved of it. C is fixed, or the median of the first
gradients, or is learned as the paper does, or in its logarithm, from each start; AdaClip has no C. The rates of C and the
bound of AdaClip's variances are those with the highest accuracy on validation characters after short trainings with the
first seed; the meta-rate, 0.01 of 0.001 to 0.03, was chosen there by hand. Policies of a comparison see the same tasks and
the same noise, which is drawn once for all.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any

import torch
from rows import RESULTS, Rows
from scipy.optimize import brentq
from torch import Tensor

import sfumato
from sfumato import protect
from sfumato.data import LabelledImages, omniglot
from sfumato.dp import accounting
from sfumato.dp.accounting import Stretch
from sfumato.learn import meta
from sfumato.learn.inner_noise import InnerNoise
from sfumato.learn.meta import MetaConfig
from sfumato.learn.tasks import TaskPool

ROOT = "runs/data/omniglot"
RECORDS = Rows(RESULTS / "clipping.jsonl")
EPISODES, VALIDATED, ON_THE_WAY, QUERIES = 600, 300, 100, 15
STEPS, SHORT, TASKS, POOL, SIDE, META_RATE = 1000, 250, 16, 10_000, 14, 1e-2
PAPERS = "4 layers fully connected"
INNER: dict[str, dict[str, Any]] = {
    "maml": {},
    "reptile": {"inner_steps": 3, "inner_rate": 0.4, "inner_batches": 3},
    "meta-sgd": {"inner_rate": 0.1},
}
BUDGETS, DELTA, SEEDS = (9.02, 12.8), 1e-5, (0, 1, 2)
FIXED, LARGEST = (0.1, 0.3, 1.0, 3.0, 10.0), (1e-6, 1e-5, 1e-4)
RATES = {"maml": (0.05, 0.2, 1.0, 5.0), "meta-sgd": (1.0, 5.0, 20.0, 100.0)}
LEARNED = {"meta-clip": 0.0, "in the logarithm": 1.0}
EVERY = ("meta-clip", "in the logarithm*")
Policy = tuple[str, dict[str, float]]


@dataclass(frozen=True)
class Comparison:
    """Trainings that differ in their policy alone."""

    algorithm: str
    shot: int
    epsilon: float | None
    seed: int
    steps: int = STEPS
    multiplier: float | None = None  # of the noise, in place of an epsilon: none is stated of it

    @property
    def name(self) -> str:
        """With which the names of its records begin."""
        how = f"noise {self.multiplier:g}" if self.epsilon is None else f"{self.epsilon:g}"
        return f"{self.algorithm} {self.shot} {how} {PAPERS}, {self.steps} steps, seed {self.seed}"

    def config(self, policy: Policy) -> MetaConfig:
        """How it is trained."""
        own = INNER[self.algorithm]
        inner_steps = own.get("inner_steps", 1)
        multiplier = self.multiplier
        if self.epsilon is not None:
            multiplier = of_gdp(self.epsilon, TASKS / POOL, STEPS * inner_steps)
        noise = InnerNoise(
            noise_multiplier=multiplier, clipping=policy[0], settings=policy[1], pool_tasks=POOL, delta=DELTA
        )
        about = {"algorithm": self.algorithm, "shot": self.shot, "steps": self.steps, **own}
        usual = {"queries": 5, "tasks": TASKS, "test_steps": inner_steps, "meta_rate": META_RATE}
        return MetaConfig(inner_noise=noise, **about, **usual)


CHOICES = {algorithm: Comparison(algorithm, 1, BUDGETS[0], 0, SHORT) for algorithm in RATES}
_NORMS = ("fixed at 0.3", "fixed at 1", "fixed at 3")
FEW = (*_NORMS, "meta-clip", "in the logarithm", "in the logarithm from 0.1")
# What is compared with which seeds, in the order of its worth. Six seeds tell two points apart, three do not.
COMPARED: tuple[tuple[tuple[str, int, float], tuple[int, ...], tuple[str, ...]], ...] = (
    (("maml", 1, BUDGETS[0]), SEEDS, ("fixed at *", "adaclip", *EVERY)),
    (("maml", 1, BUDGETS[0]), (3, 4, 5), ("fixed at 0.3", "adaclip", *EVERY)),
    *((about, SEEDS, FEW) for about in product(("meta-sgd", "maml", "reptile"), (1, 5), BUDGETS)),
)


@cache
def of_gdp(epsilon: float, rate: float, steps: int) -> float:
    """The noise multiplier with which the GDP approximation states this epsilon."""

    def beyond(multiplier: float) -> float:
        return accounting.epsilon([Stretch(multiplier, rate, steps)], DELTA, "gdp") - epsilon

    return float(brentq(beyond, 0.1, 20.0))


@cache
def characters() -> LabelledImages:
    """Omniglot, small."""
    return omniglot(ROOT, size=SIDE, rotations=True)


def candidates(algorithm: str) -> dict[str, dict[str, Policy]]:
    """Of each policy with a setting to choose, those settings, for an algorithm of CHOICES."""
    found: dict[str, dict[str, Policy]] = {
        name: {
            f"{rate:g}": ("meta-clip", {"learning_rate": rate, "logarithm": log}) for rate in RATES[algorithm]
        }
        for name, log in LEARNED.items()
    }
    if algorithm == "meta-sgd":  # whose C hardly moves at the rates of MAML, but for its logarithm
        return {"meta-clip": found["meta-clip"]}
    return found | {"adaclip": {f"{largest:g}": ("adaclip", {"largest": largest}) for largest in LARGEST}}


def short(tried: dict[str, dict[str, Policy]]) -> dict[str, Policy]:
    """Candidates, by their policy and setting."""
    return {f"{name} {value}": each for name, settings in tried.items() for value, each in settings.items()}


@cache
def chosen(algorithm: str) -> dict[str, Policy]:
    """What was tried with the highest accuracy on validation characters; that of MAML for what was not."""
    found = {} if algorithm == "maml" else dict(chosen("maml"))
    for name, settings in candidates(algorithm).items() if algorithm in CHOICES else ():
        found[name] = best_of(CHOICES[algorithm], name, settings)
    return found


def best_of(choice: Comparison, name: str, settings: dict[str, Policy]) -> Policy:
    """Of a policy's candidates that one with the highest accuracy on validation characters."""
    scores = {value: RECORDS[f"{choice.name}, {name} {value}"]["validation"] for value in settings}
    return settings[max(scores, key=scores.__getitem__)]


def policies(best: dict[str, Policy], names: tuple[str, ...]) -> dict[str, Policy]:
    """Those of some names, of which some have settings that were chosen."""
    known: dict[str, Policy] = {
        **{f"fixed at {norm:g}": ("fixed", {"clipping_norm": norm}) for norm in FIXED},
        "fixed at the median": ("meta-clip", {"learning_rate": 1e-12}),  # which begins there, and stays
        **best,
    }
    if "in the logarithm" in best:
        kind, settings = best["in the logarithm"]
        known |= {f"in the logarithm from {at:g}": (kind, settings | {"start": at}) for at in (0.1, 10.0)}
    return {name: policy for name, policy in known.items() if any(fnmatchcase(name, each) for each in names)}


class Beside(meta.Training):
    """A training that takes its noise and the first norms from those beside it, if they have drawn them: the same."""

    drawn: dict[str, tuple[int, Tensor]]

    def _once(self, what: str, make: Callable[[], Tensor]) -> Tensor:
        if self.drawn.get(what, (-1,))[0] != self.run.epoch:
            self.drawn[what] = self.run.epoch, make()
        return self.drawn[what][1]

    def _normal(self, tasks: int, generator: torch.Generator) -> Tensor:
        return self._once("noise", lambda: super(Beside, self)._normal(tasks, generator))

    def _inner_norms(self, pool: TaskPool) -> Tensor:
        return self._once("norms", lambda: super(Beside, self)._inner_norms(pool))

    def state_nothing(self) -> None:
        """Leaves out what accounting states: at little noise it is infinite, and takes ten seconds a time."""
        noise = self._task_noise
        assert noise is not None
        nothing = {"epsilon": None, "conditional": {"gdp": None, "pld": None}}
        noise.card = lambda _: {"norm": noise.policy.norm, **nothing}  # type: ignore[method-assign]


def sweep(
    noise: float, seed: int, names: tuple[str, ...], device: torch.device, *, steps: int = STEPS
) -> None:
    """Policies of MAML at another noise than that of an epsilon; each seed chooses their settings for itself."""
    about = Comparison("maml", 1, None, seed, steps, noise)
    choice, best = replace(about, steps=max(4, steps * SHORT // STEPS)), {}
    for name, settings in candidates("maml").items():
        if any(fnmatchcase(name, each) for each in names):
            measure(choice, short({name: settings}), device)
            best[name] = best_of(choice, name, settings)
    measure(about, policies(best, names), device)


def measure(comparison: Comparison, policies: dict[str, Policy], device: torch.device) -> None:
    """Train every policy that has no record, test on characters that nothing was trained on, and write the records."""
    known = set(RECORDS)
    names = {name: f"{comparison.name}, {name}" for name in policies}
    if known.issuperset(names.values()):
        return
    loaded, drawn, trainings = characters(), {}, {}
    ways: dict[str, list[float]] = {name: [] for name in policies if names[name] not in known}
    clean, seed = protect.parse("none"), comparison.seed
    for name in ways:
        config = comparison.config(policies[name])
        trainings[name] = Beside(loaded.split("train"), clean, config, "class", seed, device=device)
        trainings[name].drawn = drawn
        if comparison.epsilon is None:
            trainings[name].state_nothing()

    def accuracy(name: str, split: str, episodes: int) -> tuple[float, float]:
        model, asked = trainings[name].model(), loaded.split(split)
        found = meta.evaluate(model, asked, queries=QUERIES, episodes=episodes, seed=seed)
        return round(found.mean, 5), round(found.half_width, 5)

    quarter = comparison.steps // 4
    for done in range(1, comparison.steps + 1):
        for training in trainings.values():
            training.step()
        if done % quarter == 0 and done < comparison.steps:
            for name in trainings:
                ways[name].append(accuracy(name, "validation", ON_THE_WAY)[0])
            print(f"{comparison.name}: {done}", ways, flush=True)
    for name, training in trainings.items():
        mean, half_width = accuracy(name, "test", EPISODES)
        moved = (*training.norms[:: max(1, comparison.steps // 50)], training.norms[-1])
        made_by = {"threads": torch.get_num_threads(), "version": sfumato.__version__, "data": loaded.digest}
        RECORDS[names[name]] = {
            **asdict(comparison),
            "network": PAPERS,
            "policy": name,
            "validation": accuracy(name, "validation", VALIDATED)[0],
            "on_the_way": ways[name],
            "accuracy": mean,
            "half_width": half_width,
            "test": {"episodes": EPISODES, "queries": QUERIES},
            **made_by,
            "noise": training.model().card["inner_noise"],
            "norms": [float(f"{norm:.3g}") for norm in moved],
        }


def main() -> None:
    """Choose settings, and run what has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--only", default="", help="of comparisons whose names begin so")
    asked.add_argument("--device", default="cpu", help="a device of PyTorch")
    options = asked.parse_args()
    device = torch.device(options.device)
    for algorithm, choice in CHOICES.items():
        measure(choice, short(candidates(algorithm)), device)
    for about, seeds, names in COMPARED:
        for seed in seeds:
            comparison = Comparison(*about, seed)
            if comparison.name.startswith(options.only):
                measure(comparison, policies(chosen(comparison.algorithm), names), device)


if __name__ == "__main__":
    main()
