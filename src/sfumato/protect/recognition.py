"""Whether a release has its noise, by the law of that noise: see `Protection.suspicious`."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.protect.release import Release

_GRID = 0.5  # steps, in grey levels, of the clean values about which the noise is checked
_MANY = 200.0  # steps in a standard deviation; with more, whole numbers are as good as real ones
_LEVELS = (0.02, 0.1, 0.3, 0.6)  # levels of the probability of such near values, for which shares are checked

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Law:
    """The law of the noise on a released value, in grey levels, before it is rounded and clamped.

    `steps`: noise is a whole number of such parts of a grey level, if it is drawn for the sum of that many
    pixels; None for real numbers.
    """

    kind: Literal["laplace", "normal"]
    scale: float  # of Laplace noise, or the standard deviation
    steps: int | None = None

    def below(self, values: Floats) -> Floats:
        """The probability of noise below each of some numbers."""
        if self.steps is None:
            return self._real(values)
        # Noise of k steps is below v if k <= most.
        most = np.ceil(values * self.steps) - 1
        scale = self.scale * self.steps
        if self.kind == "laplace":  # P(k) ~ exp(-|k| / scale)
            ratio = math.exp(-1 / scale)
            below_zero = np.exp(np.minimum(most, 0) / scale) / (1 + ratio)
            above_zero = 1 - np.exp(-(np.maximum(most, 0) + 1) / scale) / (1 + ratio)
            laplace: Floats = np.where(most < 0, below_zero, above_zero)
            return laplace
        if scale > _MANY:  # the sum over whole numbers is the integral, but for 1 / (24 scale^2)
            return self._real((most + 0.5) / self.steps)
        reach = math.ceil(12 * scale) + 1
        whole = np.arange(-reach, reach + 1)
        weights = np.exp(-((whole / scale) ** 2) / 2)
        shares = np.concatenate([[0.0], weights.cumsum() / weights.sum()])
        normal: Floats = shares[np.clip(most + reach + 1, 0, len(whole)).astype(np.int64)]
        return normal

    def _real(self, values: Floats) -> Floats:
        if self.kind == "normal":
            import torch  # here: releasing does not need it

            normal: Floats = torch.special.ndtr(torch.from_numpy(values / self.scale)).numpy()
            return normal
        tail = np.exp(-np.abs(values) / self.scale) / 2
        return np.where(values < 0, tail, 1 - tail)


def lacks_noise(release: Release, law: Law, *, false_alarm: float) -> str | None:
    """Says which image of a release evidently lacks the noise of a law; None if none does.

    It checks each image, and all together: a few small ones say more together than each does. See chances.
    `false_alarm`: the largest probability that it names an image with that noise.
    """
    alone, together = chances(release, law)
    if min(together, alone.min(initial=1.0)) <= false_alarm / 2:
        return f"image {int(alone.argmin()) + 1} has less noise than that has"
    return None


def chances(release: Release, law: Law) -> tuple[Floats, float]:
    """Upper bounds on the probability that a release with the noise of a law looks so much as if it had none.

    Source: ours. Every other value, as on a chessboard, is predicted from its four neighbours, and in a
    further channel also from the differences of earlier channels to theirs. Whatever the image shows, the
    noise on a value is independent of its prediction, so it comes this near with a probability of at most
    u, the largest over all clean values; and among n values, one after another, a share this large has u <= p
    with a probability of at most exp(-n·KL(share || p)) (Chernoff 1952, Hoeffding 1963). Two kinds are
    counted: all values, and those that no end of the range has clamped; each at a few levels of p. The
    smallest of these probabilities counts, times their number (Bonferroni). An honest release thus gets x or
    less with a chance of at most x, whatever it shows. Only whole cells count: border cells have more noise,
    and are few. -> (N,) for each image, and for all images as one; 1 if there is nothing to predict from.
    """
    rows, columns = (side // release.cell for side in release.size)
    values = release.array[:, :, :rows, :columns]  # (N, C, h, w)
    evidence, together = np.zeros(len(values)), 0.0
    if min(rows, columns) >= 2:
        odd = np.indices((rows, columns)).sum(0) % 2 == 1
        released, predicted = values[:, :, odd], _predictions(values)[:, :, odd]  # (N, C, n)
        distances = np.abs(released.astype(np.int16) - predicted)
        free = (released > 0) & (released < 255)
        for near, counted in (
            (_nearness(law, clamped=True)[distances, predicted], np.ones_like(free)),
            (_nearness(law, clamped=False)[distances, predicted], free),
        ):
            counts = counted.sum((1, 2))
            for level in _LEVELS:
                close = ((near <= level) & counted).sum((1, 2))
                pairs = zip(close.tolist(), counts.tolist(), strict=True)
                evidence = np.maximum(evidence, [_evidence(*pair, level) for pair in pairs])
                together = max(together, _evidence(int(close.sum()), int(counts.sum()), level))
    tests = 2 * len(_LEVELS)
    return np.minimum(1.0, tests * np.exp(-evidence)), min(1.0, tests * math.exp(-together))


def _predictions(values: NDArray[np.uint8]) -> NDArray[np.int16]:
    """The expected value of each of (N, C, h, w) values: see chances."""
    edged = np.pad(values.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")
    around = edged[:, :, :-2, 1:-1] + edged[:, :, 2:, 1:-1] + edged[:, :, 1:-1, :-2] + edged[:, :, 1:-1, 2:]
    around /= 4
    beyond = values - around
    for channel in range(1, values.shape[1]):
        around[:, channel] += beyond[:, :channel].mean(1)
    return around.round().clip(0, 255).astype(np.int16)


def _evidence(close: int, count: int, level: float) -> float:
    """n·KL(share || p), in nats, if the share is above p; else 0."""
    share = close / max(count, 1)
    if share <= level:
        return 0.0
    rest = (1 - share) * math.log((1 - share) / (1 - level)) if share < 1 else 0.0
    return count * (share * math.log(share / level) + rest)


@lru_cache(maxsize=16)
def _nearness(law: Law, *, clamped: bool) -> Floats:
    """(256, 256): the largest probability of a released value within a distance (row) of a number (column).

    1 replaces a value that is above the highest level for all numbers: no level needs it. `clamped`: among
    all values; otherwise among those between 1 and 254.
    """
    clean = np.arange(0, 255 + _GRID, _GRID)[:, None]
    edges = law.below(np.arange(255) + 0.5 - clean)  # below 0.5, ..., below 254.5
    levels = np.diff(edges, axis=1, prepend=0, append=1)  # (x, 256): the probability of each released value
    if not clamped:
        levels[:, [0, 255]] = 0
        levels /= levels.sum(1, keepdims=True).clip(1e-300)
    below = np.pad(levels.cumsum(1), ((0, 0), (256, 255)), mode="edge")
    below[:, :256] = 0
    nearness = np.ones((256, 256))
    within = np.empty((len(clean), 256))
    for distance in range(256):
        # Column 256 + k of `below` has the values up to k. A slice is several times as fast as an index.
        np.subtract(
            below[:, 256 + distance : 512 + distance],
            below[:, 255 - distance : 511 - distance],
            out=within,
        )
        within.max(0, out=nearness[distance])
        if nearness[distance].min() > _LEVELS[-1]:
            break
    return nearness
