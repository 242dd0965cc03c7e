"""A canary in private meta-training: one task by which an adversary tells whether it was in the pool.

For `dp.audit.audit_runs`. The neighbours are those of the promise, one task added or removed: a pool whose
only task is the canary, and an empty one. What stays the same in both is what the promise calls public: the
number of places of the pool, the rate, and the number that sums are divided by. An empty place is drawn like
any other, and then no task comes from it: not a blank one, which would still count as one within the norm of
a quantile. Other tasks would only hide the canary, so that none is the worst case; what tasks do to each
other is not seen this way.

All images of the canary are the same, so that neither which of them are drawn nor in which order the classes
are labelled changes what it contributes: to push the network towards equal odds.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp import accounting
from sfumato.dp.clipping import ClippingPolicy
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Shape
from sfumato.errors import ConfigError
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig
from sfumato.learn.task_pool import TaskPool
from sfumato.protect import parse

_CANARY = 0  # its place in the pool: all are alike
_WHITE = 255
_TINY = 1e-12  # a deviation where there is no noise: scores are huge then, and finite


@dataclass(frozen=True)
class _Places(TaskPool):
    """A pool whose places are all empty but perhaps one. A child, since that is what `Promise` takes."""

    taken: bool

    def draw(self, numbers: Tensor, shape: Shape, generator: torch.Generator) -> Tensor:
        """See TaskPool.draw; empty places give no row."""
        present = numbers[numbers == _CANARY] if self.taken else numbers[:0]
        return super().draw(present, shape, generator)


def white(config: MetaConfig, *, places: int, image: tuple[int, int, int]) -> LabelledImages:
    """White images for a pool of so many places, just enough for the way, shot and queries.

    Args:
        config: of the training.
        places: of the pool, 2 or more.
        image: (C, H, W).
    """
    shape = config.shape
    classes, each = places * shape.way, shape.shot + shape.queries
    codes = torch.arange(classes).repeat_interleave(each)
    images = torch.full((len(codes), *image), _WHITE, dtype=torch.uint8)
    return LabelledImages("canary", images, {"class": Label(codes, tuple(str(c) for c in range(classes)))})


def canary_run(
    config: MetaConfig, *, places: int, image: tuple[int, int, int] = (1, 6, 6), seed: int = 0
) -> Callable[[bool], float]:
    """A private training for `audit_runs`: with the canary or without -> the adversary's score.

    The training is that of `meta.train`, without its card. The adversary knows the code, every setting, the
    network's first parameters (the seed) and every noised update; so he has the parameters of each step, for
    the optimiser is a function of these, and the clipping norm of a covered policy, which the promise covers.
    The score is the sum over steps of the log likelihood ratio of the update with and without the canary.

    Args:
        config: with `private`; noise is calibrated once where none is given.
        places: of the pool, public.
        image: (C, H, W) of the images; small ones are quick.
        seed: of the weights.

    Raises:
        ConfigError: nothing is promised, tasks overlap, the first norm is sought among them, or what
            `meta.train` refuses.
    """
    private = config.private
    if private is None or private.pool_tasks is not None or private.seeks_start:
        raise ConfigError(
            "a canary is for private training on tasks that share no class, from a public clipping norm: "
            "set `private`, without pool_tasks or start_noise, and a start among its settings"
        )
    if private.noise_multiplier is None:
        noise = accounting.calibrate(
            private.epsilon, private.delta, min(1.0, config.tasks / places), config.steps
        )
        config = replace(config, private=replace(private, noise_multiplier=noise))
    data, protection = white(config, places=places, image=image), parse("none")

    def run(inserted: bool) -> float:
        updates: list[Tensor] = []
        training = meta.Training(
            data, protection, config, "class", seed, image, lambda update, _: updates.append(update)
        )
        promise = training._promise
        assert promise is not None
        promise.pool = _Places(promise.pool.tasks, promise.pool.overlap, inserted)
        adversary = _Adversary(promise._rate)
        while training.done < config.steps:
            expected = _expected(training, promise)
            if not training.step():
                break
            adversary.look(updates[-1], *expected)
        return adversary.score

    return run


class _Adversary:
    """Adds up what the updates say of the canary. State: the score, and the noise of earlier steps."""

    def __init__(self, rate: float) -> None:
        self.score = 0.0
        self._rate = torch.tensor(rate, dtype=torch.float64)
        self._earlier: list[Tensor] = []  # (P,) each of norm 1, at right angles

    def look(self, update: Tensor, idle: Tensor, shift: Tensor, spread: Tensor) -> None:
        """One step: (P,) each, what was released, its mean without the canary, what it adds, deviations.

        ln(1 - q + q e^(<x, d> - |d|^2 / 2)), x and d in deviations of the noise. Noise that was used before
        would go unnoticed: so x is looked at as well without its part along earlier steps, brought back to
        the length of noise if it is short, which changes next to nothing where noise is fresh.
        """
        spread = spread.clamp(min=_TINY)
        x, d = (update.double() - idle) / spread, shift / spread
        fresh = x
        for earlier in self._earlier:
            fresh = fresh - (fresh @ earlier) * earlier
        length = fresh.norm().clamp(min=_TINY)
        stretch = (len(x) ** 0.5 / length).clamp(min=1)
        left = stretch * (fresh @ d)
        if stretch > 2:  # old noise is gone: what is left tells the canary where it came, and where it went
            left = left.abs()
        ratio = torch.logaddexp(
            (1 - self._rate).log(), self._rate.log() + torch.maximum(x @ d, left) - d @ d / 2
        )
        self.score += ratio.item()
        self._earlier.append(fresh / length)


def _expected(training: meta.Training, promise: meta.Promise) -> tuple[Tensor, Tensor, Tensor]:
    """Of the next update, (P,) each: its mean without the canary, what the canary adds, its deviations."""
    config, policy = training._config, promise.policy
    inner = replace(config.inner, clipping_norm=policy.norm) if promise.follows_norm else config.inner
    places = TaskPool(promise.pool.tasks, promise.pool.overlap)
    draws = torch.Generator().manual_seed(0)
    rows = places.draw(torch.tensor([_CANARY]), config.shape, draws)
    found = training._contributions(rows, seeded_noise(0), inner, draws)  # (1, D)
    slopes = found[:, -1] if promise.follows_norm else None
    if promise.follows_norm:
        found = found[:, :-1]

    def update(count: int, noise: float) -> Tensor:
        own: ClippingPolicy = copy.deepcopy(policy)
        return own.step(
            found[:count],
            noise_multiplier=promise._noise,
            public_count=promise._rate * len(promise.pool),
            draw=lambda shape, std: torch.full(shape, noise * std, dtype=torch.float64),
            derivatives=None if slopes is None else slopes[:count],
        ).update

    idle = update(0, 0.0)
    return idle, update(1, 0.0) - idle, update(0, 1.0) - idle
