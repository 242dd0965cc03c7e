"""Meta-Clip as it was published, in one regime: fixed norms, and norms that adapt, from every start and at every rate.

    studies/accelerator/run.sh OUT --only clipping --workers 6

Algorithms 1 to 3 literally (`sfumato.learn.meta.inner_noise`), on Omniglot at 14x14: a task is learned in as many steps
in use as in training, and noise is what the paper's accounting (GDP) states for epsilon and all noisy steps, three for
Reptile, with 16 of 10,000 tasks a step. Nothing is proved of it. C is fixed, or the median of the first gradients, or
follows a quantile, or is learned as the paper does, or in its logarithm, from each start and at each rate; AdaClip has
each bound of its variances. Accuracy on validation characters decides between rates and bounds afterwards, for each
algorithm, and each policy has it in the course of training, too. "no noise" is C = 1 without noise.

Policies of an algorithm, a number of shots and a seed see the same tasks and the same noise, so they are trained
together: each call on the card is for all of them. It is the training of `sfumato.learn.meta`, policy by policy.
"""

import os
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import product
from math import cos, pi
from typing import Any

import torch
import unpack
from pool import Options, Task, card, options, run
from scipy.optimize import brentq
from torch import Tensor, nn
from torch.func import vmap

from sfumato import data
from sfumato.data.labelled import LabelledImages
from sfumato.dp import accounting
from sfumato.dp.accounting import Stretch
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape, seed_of
from sfumato.images import to_float
from sfumato.learn import adaptation, meta
from sfumato.learn.meta import InnerNoise, MetaConfig
from sfumato.learn.meta.inner_noise import POLICIES as POLICY_TYPES
from sfumato.learn.meta.inner_noise import AdaClip, InnerPolicy, Seen
from sfumato.learn.meta.model import inner_of_use
from sfumato.learn.tasks import Frame, Inner, Tasks, tasks_of
from sfumato.protect import parse

NETWORKS: dict[str, dict[str, Any]] = {
    "4 layers fully connected": {"meta_rate": 1e-3},  # the paper's
    "a small convolutional one": {"network": "strided", "width": 16, "meta_rate": 1e-2},
}
INNER: dict[str, dict[str, Any]] = {
    "maml": {},
    "reptile": {"inner_steps": 3, "inner_rate": 0.4, "inner_batches": 3},
    "meta-sgd": {"inner_rate": 0.1},
}
BUDGETS, DELTA, SEEDS = (9.02, 12.8), 1e-5, (0, 1, 2)
STEPS, TASKS, POOL, SIDE = 1000, 16, 10_000, 14
QUERIES, EPISODES, ON_THE_WAY = 15, 600, 150
AT_ONCE = 512  # tasks of a call, by their noisy steps: the memory of a card that eight processes share
FIXED = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
RATES = (0.05, 0.2, 1.0, 5.0)
STARTS: dict[str, dict[str, float]] = {"the median": {}} | {
    f"{at:g}": {"start": at} for at in (0.1, 1.0, 10.0)
}
POLICIES: dict[str, tuple[str, dict[str, float]]] = {
    **{f"fixed at {at:g}": ("fixed", {"clipping_norm": at}) for at in FIXED},
    "fixed at the median": ("meta-clip", {"learning_rate": 1e-12}),  # which begins there, and stays
    "quantile from the median": ("quantile", {}),
    **{f"adaclip, largest {at:g}": ("adaclip", {"largest": at}) for at in (1e-7, 1e-6, 1e-5, 1e-4)},
    **{
        f"{name} from {start}, rate {rate:g}": ("meta-clip", {"learning_rate": rate, "logarithm": log, **at})
        for (name, log), (start, at), rate in product(
            {"meta-clip": 0.0, "in the logarithm": 1.0}.items(), STARTS.items(), RATES
        )
    },
}


@dataclass
class Trained:
    """A policy in training. State: that of the policy, and its norms so far.

    Attributes:
        name: of the policy, and the epsilon.
        noise: settings of the policy, and the multiplier of its noise.
        factor: that multiplier, in units of the largest.
        policy: from the first step on.
    """

    name: str
    noise: InnerNoise
    factor: float
    policy: InnerPolicy = field(init=False)
    norms: list[float] = field(default_factory=list)

    @property
    def follows(self) -> bool:
        """Whether C depends on gradients before they are clipped."""
        return POLICY_TYPES[self.noise.clipping].follows_gradients


def tasks() -> list[Task]:
    """The paper's network first, with one shot, then with five, then the small network. Reptile has a training for each
    epsilon, since its steps take three times as long."""
    one, two = [[epsilon] for epsilon in BUDGETS], [[*BUDGETS]]
    kinds: list[tuple[int, str, list[float]]] = [
        *product((1,), ("maml", "meta-sgd"), two),
        *product((1,), ("reptile",), one[:1]),
        *product((5,), ("maml", "meta-sgd"), two),
    ]
    rest = [*product((5,), ("reptile",), one), *product((1,), ("reptile",), one[1:])]
    listed = [
        {"network": network, "algorithm": algorithm, "shot": shot, "epsilon": epsilon, "seed": seed}
        for network, some in (*product(NETWORKS, [kinds]), *product(NETWORKS, [rest]))
        for (shot, algorithm, epsilon), seed in product(some, SEEDS)
    ]
    return [Task(", ".join(map(str, settings.values())), settings) for settings in listed]


def work(task: Task, given: Options) -> dict[str, Any]:
    """Train every policy, and test on classes that nothing was trained on."""
    small = given.scale < 1
    only = (lambda name: "rate" not in name or name.endswith("rate 1")) if small else bool
    return Together(task.settings, _drawings(given), small=small, only=only).measured()


@cache
def _drawings(given: Options) -> LabelledImages:
    path = given.out / "data" / f"omniglot-{SIDE}.pickle"
    if not path.exists():
        drawings = data.omniglot(given.out / "data" / "omniglot", size=SIDE)
        path.write_bytes(pickle.dumps(drawings))
    found: LabelledImages = pickle.loads(path.read_bytes())
    return found


@cache
def of_gdp(epsilon: float, steps: int) -> float:
    """The multiplier of the noise with which the paper's accounting states this epsilon."""

    def beyond(multiplier: float) -> float:
        stretches = [Stretch(multiplier, TASKS / POOL, steps)]
        return accounting.epsilon(stretches, DELTA, "gdp") - epsilon

    return float(brentq(beyond, 0.1, 20.0))


def policies(epsilons: list[float], steps: int) -> list[Trained]:
    """Those of every epsilon, for a training with so many noisy steps; those that follow gradients first."""
    multipliers = {epsilon: of_gdp(epsilon, steps) for epsilon in epsilons}
    most = max(multipliers.values())
    found = [
        Trained(f"{epsilon:g}: {name}", InnerNoise(noise_multiplier=sigma, clipping=kind, settings=own), sigma / most)
        for (epsilon, sigma), (name, (kind, own)) in product(multipliers.items(), POLICIES.items())
    ]  # fmt: skip
    still = InnerNoise(noise_multiplier=1e-9, clipping="fixed", settings={"clipping_norm": 1.0})
    return sorted([*found, Trained("no noise", still, 0.0)], key=lambda each: not each.follows)


class Together:
    """Trainings that differ in their policy alone. State: parameters, the optimiser, and the policies."""

    def __init__(
        self,
        settings: dict[str, Any],
        drawings: LabelledImages,
        *,
        small: bool = False,
        only: Callable[[str], bool] = bool,
        device: torch.device | None = None,
    ) -> None:
        own, steps = INNER[settings["algorithm"]], 2 if small else STEPS
        learned_in = own.get("inner_steps", 1)
        self.trained = [each for each in policies(settings["epsilon"], STEPS * learned_in) if only(each.name)]
        self._small, self._drawings, self._seed = small, drawings, settings["seed"]
        self._at_once = AT_ONCE if learned_in == 1 else AT_ONCE // 2
        self.config = MetaConfig(
            algorithm=settings["algorithm"],
            shot=settings["shot"],
            queries=5,
            steps=steps,
            tasks=TASKS,
            test_steps=learned_in,
            inner_noise=InnerNoise(
                noise_multiplier=of_gdp(min(settings["epsilon"]), STEPS * learned_in),
                clipping="fixed",
                settings={"clipping_norm": 1.0},
                pool_tasks=100 if small else POOL,
                delta=DELTA,
            ),
            **own,
            **NETWORKS[settings["network"]],
        )
        self._device = device or card()
        torch.backends.cudnn.benchmark = False  # the number of tasks differs from step to step
        # It draws tasks and noise, and has the network; its parameters stay as they are.
        self._drawn = meta.Training(
            drawings.split("train"),
            parse("none"),
            self.config,
            "class",
            self._seed,
            tuple(drawings.images.shape[1:]),
            device=self._device,
        )
        self._learner = self._drawn._learner
        self._inner = self._drawn._task_noise.inner
        count = len(self.trained)
        self.starts = nn.Parameter(self._drawn._start.detach().repeat(count, 1))  # (n, D)
        self._optimiser = torch.optim.Adam([self.starts], lr=self.config.meta_rate)
        self._factors = torch.tensor([each.factor for each in self.trained], device=self._device)
        self._follow = sum(each.follows for each in self.trained)

    def measured(self) -> dict[str, Any]:
        """Train, and measure on validation and test classes."""
        began, ways = time.perf_counter(), []
        self.begin()
        for done in range(self.config.steps):
            if done % max(1, self.config.steps // 4) == 0:
                ways.append(self.accuracies("validation", ON_THE_WAY)[0])
            self.step(done)
        trained = time.perf_counter() - began
        found = {split: self.accuracies(split, EPISODES) for split in ("validation", "test")}
        return {
            "noise_multiplier": round(self._inner.noise_multiplier, 5),
            "seconds_of_training": round(trained, 1),
            "policies": {
                each.name: {
                    **{split: [means[i], halves[i]] for split, (means, halves) in found.items()},
                    "on_the_way": [means[i] for means in ways],
                    "norms": [float(f"{norm:.3g}") for norm in (*each.norms[:: max(1, len(each.norms) // 10)], each.norms[-1])],
                }
                for i, each in enumerate(self.trained)
            },
        }  # fmt: skip

    def begin(self) -> None:
        """C is the median of the norms of the first epoch if it has no start."""
        norms = []
        for some in self._drawn._all(self._drawn._task_noise._pool):
            norms.append(self._firsts(self.starts[:1].detach(), some)[0].double().norm(dim=1))
        median = float(torch.cat(norms).quantile(0.5))
        for each in self.trained:
            each.policy = each.noise.policy(median)

    def step(self, done: int) -> None:
        """One meta-step of every training, on the same tasks."""
        drawn = self._drawn
        order = torch.Generator().manual_seed(seed_of(self._seed, done))
        rows = drawn._task_noise.draw(self.config.shape, order)
        some = drawn._tasks(rows, seeded_noise(self._seed, done), order)
        normal = drawn._normal(len(some), order)
        starts, norms = self.starts.detach(), self._norms()
        for each, norm in zip(self.trained, norms.tolist(), strict=True):
            each.norms.append(norm)
        directions, slopes, first = [], [], 0
        for policies, frames in self._parts():
            many = len(policies)
            at = slice(first, first + many)
            contributed = self._contributions(
                torch.cat([starts[at], norms[at, None]], 1), some, normal, self._factors[at], frames
            )
            finite = contributed[:, :, :-1].isfinite().all(2, keepdim=True)
            directions.append(torch.where(finite, contributed[:, :, :-1], 0.0).sum(1) / TASKS)
            slopes.append(contributed[:, :, -1])
            first += many
        follow = self._firsts(starts[: self._follow], some) if self._follow else None
        self._choose(normal[:, 0], torch.cat(slopes).cpu(), follow)
        rate = self.config.meta_rate * (1 + cos(pi * done / self.config.steps)) / 2
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self.starts.grad = torch.cat(directions)
        self._optimiser.step()

    def _choose(self, normal: Tensor, slopes: Tensor, follow: Tensor | None) -> None:
        """The next C of each, by the (T, P) noise, (n, T) derivatives, and first gradients of those that follow them."""
        for i, each in enumerate(self.trained):
            sigma = each.noise.noise_multiplier
            if isinstance(each.policy, AdaClip) and follow is not None:
                with self._device:
                    _learn_moments(each.policy, follow[i], normal, sigma)
                continue
            # A quantile needs the norms alone.
            gradients = follow[i].double().norm(dim=1, keepdim=True).cpu() if each.follows else slopes[:0, :0]
            each.policy.learn(Seen(gradients, slopes[:0, :0], slopes[i], sigma, float(TASKS)))

    def accuracies(self, split: str, episodes: int) -> tuple[list[float], list[float]]:
        """Mean accuracy of each on tasks of new classes, and half of its interval."""
        asked = self._drawings.split(split)
        shape = Shape(way=self.config.way, shot=self.config.shot, queries=QUERIES)
        episodes = 4 if self._small else episodes
        rows = Sampler(asked.label("class"), shape).draw(episodes, torch.Generator().manual_seed(self._seed))
        use, draws = inner_of_use(self.config, 1.0), torch.Generator(self._device).manual_seed(self._seed)
        starts, norms, right = self.starts.detach(), self._norms(), []
        together = max(1, self._at_once // len(self.trained))
        for some_rows in rows.split(together):
            images = asked.images[some_rows.flatten()].to(self._device)
            some = tasks_of(to_float(images).unflatten(0, some_rows.shape), self.config.shot)
            normal = torch.randn(
                len(some), use.steps, self._learner.size, generator=draws, device=self._device
            )
            first = 0
            found = []
            for policies, frames in self._parts():
                at = slice(first, first + len(policies))
                one = partial(self._right, use)
                found.append(
                    self._of_each(
                        one,
                        torch.cat([starts[at], norms[at, None]], 1),
                        some,
                        normal,
                        self._factors[at],
                        frames,
                    )[..., 0]
                )
                first += len(policies)
            right.append(torch.cat(found))
        shares = torch.cat(right, 1).double().cpu()  # (n, episodes)
        half = 1.96 * shares.std(1) / shares.shape[1] ** 0.5
        return [round(each, 5) for each in shares.mean(1).tolist()], [
            round(each, 5) for each in half.tolist()
        ]

    def _norms(self) -> Tensor:
        return self.starts.new_tensor([each.policy.norm for each in self.trained])

    def _parts(self) -> Iterator[tuple[list[Trained], tuple[Tensor, Tensor] | None]]:
        """Policies with coordinates of their own, and the others."""
        framed, plain = self.trained[: self._follow], self.trained[self._follow :]
        if framed:
            size, shifts, scales = self._learner.size, [], []
            for each in framed:
                with self._device:
                    frame = each.policy.frame(size)
                shifts.append(torch.zeros(size, device=self._device) if frame is None else frame.shift)
                scales.append(torch.ones(size, device=self._device) if frame is None else frame.scale)
            yield framed, (torch.stack(shifts), torch.stack(scales))
        if plain:
            yield plain, None

    def _contributions(
        self,
        vectors: Tensor,
        some: Tasks,
        normal: Tensor,
        factors: Tensor,
        frames: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Of (n, D + 1) starts and norms -> (n, T, D + 1)."""

        def one(frame: Frame | None, vector: Tensor, *task: Tensor) -> Tensor:
            of_task = adaptation._contribution(self._learner, self._inner, frame, adaptation._trace)
            return of_task(vector, *task)

        return self._of_each(one, vectors, some, normal, factors, frames)

    def _right(self, use: Inner, frame: Frame | None, vector: Tensor, *task: Tensor) -> Tensor:
        """The share of queries that are named rightly after learning. -> (1,)"""
        support, labels, queries, asked, noise = task
        parameters, rates = adaptation._rates(self._learner, vector, use)
        for (images, names), drawn in zip(use.parts(support, labels), noise, strict=True):
            found = adaptation._trace(partial(self._learner.loss, images=images, labels=names), parameters)
            parameters = parameters - rates * adaptation._clip_and_noise(found, vector[-1], drawn, use, frame)
        named = self._learner.logits(parameters, queries).argmax(1)
        return (named == asked).float().mean()[None]

    def _firsts(self, starts: Tensor, some: Tasks) -> Tensor:
        """First inner gradients, as they are. (n, D) -> (n, T, P)."""

        def one(_: Frame | None, vector: Tensor, *task: Tensor) -> Tensor:
            support, labels, queries, asked, _ = task
            if self._inner.algorithm == "reptile":
                support, labels = torch.cat([support, queries]), torch.cat([labels, asked])
            images, names = next(self._inner.parts(support, labels))
            loss = partial(self._learner.loss, images=images, labels=names)
            return adaptation._trace(loss, vector[: self._learner.size])

        still = starts.new_zeros(len(some), 1, 1)
        return self._of_each(one, starts, some, still, starts.new_ones(len(starts)), None)

    def _of_each(
        self,
        one: Any,
        vectors: Tensor,
        some: Tasks,
        normal: Tensor,
        factors: Tensor,
        frames: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """`one` of each training and each task, in one call. -> (n, T, ...)."""
        many, count = len(vectors), len(some)
        if not count:
            return vectors.new_zeros(many, 0, vectors.shape[1])
        noise = (factors[:, None, None, None] * normal).flatten(0, 1)
        parts = [part.repeat(many, *(1 for _ in part.shape[1:])) for part in some.parts]
        each = [vectors.repeat_interleave(count, 0), *parts, noise]
        if frames is None:
            found = vmap(partial(one, None), chunk_size=self._at_once)(*each)
        else:
            wide = [frame.to(vectors).repeat_interleave(count, 0) for frame in frames]
            found = vmap(
                lambda shift, scale, *rest: one(Frame(shift, scale), *rest), chunk_size=self._at_once
            )(*wide, *each)
        return found.unflatten(0, (many, count)).detach()


def _learn_moments(policy: AdaClip, gradients: Tensor, normal: Tensor, sigma: float) -> None:
    """What AdaClip learns of (T, P) gradients, on the card: rows of `dp.clipping` go to the processor."""
    if not len(gradients):
        return
    shift, scale = policy._moments.frame(gradients.shape[1])
    rows = (gradients - shift) / scale
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1)
    policy._moments.learn(scale * (rows + sigma * normal).mean(0), sigma / len(gradients) ** 0.5)


def main() -> int:
    """Unpack the drawings, and do what there is time for."""
    os.environ.setdefault(
        "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
    )  # sizes differ from step to step
    given = options(__doc__)
    chosen = tasks() if given.scale == 1 else [task for task in tasks() if task.settings["seed"] == 0]
    unpack.UNPACKERS["omniglot"](given.data, given.out / "data" / "omniglot")
    _drawings(given)
    return run("clipping", chosen, work, given)


if __name__ == "__main__":
    raise SystemExit(main())
