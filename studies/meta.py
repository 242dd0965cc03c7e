"""Meta-learning on real Omniglot: without a promise against known accuracies, and with one, policy by policy.

    python studies/meta.py clean      # MAML and Reptile without noise: under an hour each on two cores
    python studies/meta.py private    # policies at equal bounds: some three hours on one core, in pieces
    python studies/meta.py private --only public     # the runs whose names have this in them

Stopped, it goes on with the next run, and a clean run from its checkpoint under runs/meta. Records are
studies/results/meta.jsonl. Settings of private runs were chosen on the validation characters; those of
Caltech-101 by `studies/meta_choice.py`, whose records are studies/results/meta-choice.jsonl.

Five regimes. "disjoint": a pool of 205 tasks of the training characters, without rotations; the unit is a task,
and so an image. "overlapping": 10,000 tasks drawn from all training classes, which is the rate of the paper's
accounting; a statement on a task then says little of an image, whose own bound the card has. Images are 14x14,
since noise grows with the number of parameters: 96,000 instead of 247,000. In both, nothing is learned within the
budget, and policies cannot be told apart; so the third, "narrow", has the overlapping pool, a convolutional network
of 7,300 parameters and four times the tasks of a step, which learns; and norms ten times too high beside good ones.
The fourth, "public", is how it is done today: that network begins with what it learned from drawn glyphs, which costs
no budget, and every step sees all 205 disjoint tasks, so that an image is covered by the same epsilon. "objects" is "narrow" for
photographs in the place of MiniImageNet's: Caltech-101 at 32x32, by MAML's network for MiniImageNet with 16 filters.
Its three records with the noise of a tree, where tasks take turns, are of commit 5a5f5a86. All policies of a regime are at the same PLD bound.
Meta-Clip as it was published is in `studies/clipping.py`.
"""

import argparse
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from clipping import BUDGETS, DELTA, INNER, SEEDS, omniglot_at
from rows import RESULTS, Rows

import sfumato
from sfumato import protect
from sfumato.data import LabelledImages, load
from sfumato.data.worlds.glyphs import glyphs
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig, Private

RECORDS = Rows(RESULTS / "meta.jsonl")
RUNS = Path("runs/meta")
EPISODES, QUERIES = 600, 15


@dataclass(frozen=True)
class Run:
    """One training.

    Attributes:
        name: of its record.
        config: how it is trained.
        seed: of weights and of the pool or the tasks.
        least: accuracy that is expected, from the literature; None where nothing is.
        side: of the images.
        rotations: whether turned characters are classes of their own.
        world: "omniglot"; "glyphs", 3,000 drawn characters by 12 hands each; or "caltech101".
        about: what the docs group runs by.
    """

    name: str
    config: MetaConfig
    seed: int = 0
    least: float | None = None
    side: int = 28
    rotations: bool = True
    world: str = "omniglot"
    about: dict[str, Any] = field(default_factory=dict)


CLEAN = (
    Run(
        "maml-fully-connected-1shot",
        MetaConfig(algorithm="maml", shot=1, queries=5, steps=60_000, tasks=16, shifts=2),
        least=0.88,
    ),
    Run(
        "maml-strided-5shot",
        MetaConfig(
            algorithm="maml", network="strided", shot=5, queries=5, steps=8_000, tasks=8, precision="auto"
        ),
        least=0.98,
    ),
    Run(
        "reptile-strided-5shot",
        MetaConfig(
            algorithm="reptile",
            network="strided",
            shot=5,
            queries=5,
            inner_steps=5,
            inner_rate=0.4,
            inner_batches=5,
            test_steps=20,
            steps=6_000,
            tasks=5,
            precision="auto",
        ),
        least=0.97,
    ),
)


def policies(norm: float, *, largest: float) -> dict[str, tuple[str, dict[str, float]]]:
    """Every clipping policy and its settings, fixed at a norm or starting there.

    Args:
        norm: C.
        largest: that of AdaClip which in the end is about the same norm; see dp.clipping.AdaClip.
    """
    return {
        "fixed": ("fixed", {"clipping_norm": norm}),
        "adaclip": ("adaclip", {"largest": largest}),
        "quantile": ("quantile", {"start": norm}),
        "meta-clip": ("meta-clip", {"start": norm, "bound": 1.0}),
    }


POLICIES = policies(10.0, largest=3e-3)
AT_ONE = policies(1.0, largest=4e-4)
NARROW = AT_ONE | {
    "fixed, C ten times too high": ("fixed", {"clipping_norm": 10.0}),
    "quantile, from ten times too high": ("quantile", {"start": 10.0}),
    "meta-clip, from ten times too high": ("meta-clip", {"start": 10.0, "bound": 1.0}),
}
OBJECTS = {name: AT_ONE[name] for name in ("fixed", "quantile")}
PUBLIC = AT_ONE | {"automatic": ("automatic", {})}
INNER_NOISE = 0.02  # of sound Meta-Clip: the deviation of the mean update's noise, in units of C


@dataclass(frozen=True)
class Regime:
    """A pool of tasks, and what learns from it how.

    Attributes:
        pool_tasks: of an overlapping pool; None for the 205 disjoint ones.
        policies: clipping and its settings, under the name that the docs give it.
        config: settings of MetaConfig.
        budgets, shots: at which MAML is trained with three seeds.
        side: of the images.
        open: settings of the run without a promise, on endless tasks, where they are others; None for the same.
        world: see Run.
    """

    pool_tasks: int | None
    policies: dict[str, tuple[str, dict[str, float]]]
    config: dict[str, Any]
    budgets: tuple[float, ...] = (BUDGETS[0],)
    shots: tuple[int, ...] = (1,)
    side: int = 14
    open: dict[str, Any] | None = None
    world: str = "omniglot"

    @property
    def rate(self) -> float:
        """The rate at which a task is drawn."""
        return float(self.config["tasks"] / (self.pool_tasks or 205))


NARROW_CONFIG: dict[str, Any] = {
    "network": "strided",
    "width": 16,
    "steps": 100,
    "tasks": 64,
    "meta_rate": 1e-2,
}
PAPERS: dict[str, Any] = {"steps": 500, "tasks": 16, "meta_rate": 1e-3}
REGIMES = {
    "disjoint": Regime(None, POLICIES, PAPERS),
    "overlapping": Regime(10_000, POLICIES, PAPERS),
    "narrow": Regime(10_000, NARROW, NARROW_CONFIG),
    "public": Regime(
        None,
        PUBLIC,
        {
            "network": "strided",
            "width": 16,
            "steps": 60,
            "tasks": 205,
            "meta_rate": 3e-3,
            "start": str(RUNS / "public-strided-1shot.safetensors"),
        },
        budgets=(9.02, 3.0),
        side=28,
        open={"steps": 3_000, "tasks": 16, "shifts": 2},
    ),
    "objects": Regime(
        10_000,
        OBJECTS,
        NARROW_CONFIG | {"network": "convolutional"},
        shots=(1, 5),
        side=32,
        world="caltech101",
    ),
}
START = Run(
    "public-strided-1shot",
    MetaConfig(network="strided", width=16, steps=6_000, tasks=16, meta_rate=3e-3, shifts=2),
    world="glyphs",
)


def private(regime: str, algorithm: str, shot: int, epsilon: float, policy: str, seed: int) -> Run:
    """One private training; "none" is the same without clipping and noise, "untrained" a step of nothing."""
    chosen = REGIMES[regime]
    settings: Private | None = None
    if policy in chosen.policies:
        clipping, norms = chosen.policies[policy]
        settings = Private(
            epsilon=epsilon,
            delta=DELTA,
            clipping=clipping,
            settings=norms,
            pool_tasks=chosen.pool_tasks,
            inner_noise=INNER_NOISE if (regime, clipping) == ("public", "meta-clip") else 0.0,
        )
    changed: dict[str, Any] = {
        "untrained": {"steps": 1, "meta_rate": 1e-12},
        "none": chosen.open or {},
    }
    config = MetaConfig(
        algorithm=algorithm,
        shot=shot,
        queries=5,
        private=settings,
        **INNER[algorithm] | chosen.config | changed.get(policy, {}),
    )
    return Run(
        f"private-{algorithm}-{shot}shot-{epsilon:g}-{regime}-{policy.replace(', ', '-').replace(' ', '-')}-{seed}",
        config,
        seed=seed,
        side=chosen.side,
        rotations=chosen.pool_tasks is not None or (chosen.open is not None and policy == "none"),
        world=chosen.world,
        about={"regime": regime, "algorithm": algorithm, "shot": shot, "epsilon": epsilon, "policy": policy},
    )


def private_runs() -> list[Run]:
    """In the order of what matters: three seeds of MAML first, then the rest where something is learned."""
    listed = [
        private(regime, "maml", shot, epsilon, policy, seed)
        for regime in REGIMES
        for shot in REGIMES[regime].shots
        for epsilon in REGIMES[regime].budgets
        for seed in SEEDS
        for policy in ("untrained", "none", *REGIMES[regime].policies)
    ]
    listed += [
        private("narrow", algorithm, shot, epsilon, policy, seed)
        for seed in SEEDS
        for epsilon in BUDGETS
        for shot in (1, 5)
        for algorithm in INNER
        for policy in ("untrained", "none", *POLICIES)
    ]
    # What no budget bounds is run once.
    kept = [run for run in listed if run.config.private is not None or run.about["epsilon"] == BUDGETS[0]]
    return list({run.name: run for run in kept}.values())


@cache
def loaded_world(world: str, side: int, rotations: bool) -> LabelledImages:
    """The images of a Run.world."""
    match world:
        case "glyphs":
            return glyphs(classes=3000, drawers=12, size=28, seed=1_000_003)
        case "caltech101":
            return load("table:runs/data/caltech101/table.csv", size=side)
    return omniglot_at(side, rotations)


def asked_world(run: Run) -> LabelledImages:
    """Where a run is tested: a start that learned from glyphs on characters of Omniglot."""
    return loaded_world("omniglot" if run.world == "glyphs" else run.world, run.side, True)


def measure(run: Run) -> None:
    """Train, test on characters that nothing was trained on, and write the record, unless it is there."""
    if run.name in RECORDS:
        return
    if run.config.start is not None and not Path(run.config.start).exists():
        # Its record stays when runs/ is cleaned, and the weights go.
        RECORDS.pop(START.name, None)
        measure(START)
    loaded = loaded_world(run.world, run.side, run.rotations)
    checkpoint = RUNS / f"{run.name}.checkpoint"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    resumed = checkpoint.exists()
    started = time.perf_counter()

    def progress(done: int, total: int) -> None:
        if done % 200 == 0:
            print(f"{run.name}: {done} of {total}, {time.perf_counter() - started:.0f} s", flush=True)

    model = meta.train(
        loaded.split("train"),
        protect.parse("none"),
        run.config,
        seed=run.seed,
        # A private run that is stopped starts anew: its checkpoints are large, and it takes a minute.
        checkpoint=checkpoint if run.config.private is None else None,
        progress=progress,
    )
    seconds = time.perf_counter() - started
    model.save(RUNS / f"{run.name}.safetensors")
    card = dict(model.card)
    if card["privacy"] is not None:
        card["privacy"] = {key: each for key, each in card["privacy"].items() if key != "classes"}
    test = asked_world(run).split("test")
    tested = meta.evaluate(model, test, queries=QUERIES, episodes=EPISODES, seed=run.seed)
    RECORDS[run.name] = {
        "name": run.name,
        "seed": run.seed,
        "least": run.least,
        "data": loaded.digest,
        "accuracy": tested.mean,
        "half_width": tested.half_width,
        "test": {"episodes": EPISODES, "queries": QUERIES},
        "seconds": None if resumed else round(seconds, 1),
        "threads": torch.get_num_threads(),
        "version": sfumato.__version__,
        "about": run.about,
        "norms": [round(norm, 5) for norm in model.norms[:: max(1, len(model.norms) // 50)]],
        "card": card,
    }
    print(f"{run.name}: {tested}", flush=True)


def main() -> None:
    """Run what is asked for and has no record yet."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("which", choices=["clean", "private"])
    asked.add_argument("--only", help="of runs whose names have this in them")
    options = asked.parse_args()
    for run in CLEAN if options.which == "clean" else private_runs():
        if options.only is None or options.only in run.name:
            measure(run)


if __name__ == "__main__":
    main()
