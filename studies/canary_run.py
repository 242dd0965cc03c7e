"""A canary in private meta-training, over many runs: one task, whose presence in the pool an adversary detects.

For `run_audits.audit_runs`. The neighbours are those of the promise, one task added or removed: a pool whose
only task is the canary, and an empty one. Both share what the promise calls public: the size of the pool, the
rate, and the divisor of sums. An empty entry is drawn like any other, and then gives no
task: not a blank one, which would still count as one within the norm of a quantile. Other tasks would only
hide the canary, so no other task is the worst case; this does not show how tasks affect each other.

All images of the canary are the same: neither the drawn images nor the order of the labels
changes its contribution, which pushes the network towards equal odds.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages
from sfumato.learn import meta
from sfumato.learn.canaries import expect, fill_pool, with_noise
from sfumato.learn.meta import MetaConfig
from sfumato.protect import parse

_CANARY = 0  # its index in the pool: all are alike
_WHITE = 255
_TINY = 1e-12  # a deviation without noise: scores are huge then, and finite


def white(config: MetaConfig, *, places: int, image: tuple[int, int, int]) -> LabelledImages:
    """White images for a pool of this many tasks, just enough for the way, shot and queries.

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
    network's first parameters (the seed) and every noised update. So they have the parameters of each step,
    since the optimiser is a function of these and the clipping norm, which the promise covers.
    The score is the sum over steps of the log likelihood ratio of the update with and without the canary.

    Args:
        config: with `private`; noise is calibrated once if none is given.
        places: of the pool, public.
        image: (C, H, W) of the images; small ones are quick.
        seed: of the weights.

    Raises:
        ConfigError: nothing is promised, tasks overlap, the first norm is fitted to them, or `meta.train`
            refuses.
    """
    config = with_noise(config, places)
    data, protection = white(config, places=places, image=image), parse("none")

    def run(inserted: bool) -> float:
        training = meta.Training(data, protection, config, "class", seed, image)
        taken = torch.zeros(places, dtype=torch.bool)
        taken[_CANARY] = inserted
        promise = fill_pool(training, taken)
        adversary = _Adversary(promise.rate)
        while training.done < config.steps:
            idle, shifts, spread = expect(training, promise, torch.tensor([_CANARY]))
            if not training.step():
                break
            adversary.look(training.update, idle, shifts[0], spread)
        return adversary.score

    return run


class _Adversary:
    """Adds up the evidence of the updates. State: the score, and the noise of earlier steps."""

    def __init__(self, rate: float) -> None:
        self.score = 0.0
        self._rate = torch.tensor(rate, dtype=torch.float64)
        self._earlier: list[Tensor] = []  # (P,) each of norm 1, at right angles

    def look(self, update: Tensor, idle: Tensor, shift: Tensor, spread: Tensor) -> None:
        """Adds one step: (P,) each: the update, its mean without the canary, the canary's part, deviations.

        ln(1 - q + q e^(<x, d> - |d|^2 / 2)), x and d in deviations of the noise. Reused noise
        would go unnoticed: so x also counts without its part along earlier steps, scaled to
        the length of noise if it is short, which changes next to nothing if noise is fresh.
        """
        spread = spread.clamp(min=_TINY)
        x, d = (update.double() - idle) / spread, shift / spread
        fresh = x
        for earlier in self._earlier:
            fresh = fresh - (fresh @ earlier) * earlier
        length = fresh.norm().clamp(min=_TINY)
        stretch = (len(x) ** 0.5 / length).clamp(min=1)
        left = stretch * (fresh @ d)
        if stretch > 2:  # old noise is gone: the rest shows the canary in the step where it came or went
            left = left.abs()
        ratio = torch.logaddexp(
            (1 - self._rate).log(), self._rate.log() + torch.maximum(x @ d, left) - d @ d / 2
        )
        self.score += ratio.item()
        self._earlier.append(fresh / length)
