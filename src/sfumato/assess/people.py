"""People's recognition: how often they named distorted photographs correctly.

Source: Geirhos et al. 2018, "Generalisation in humans and deep neural networks", NeurIPS, and the answers
published with it (github.com/rgeirhos/generalisation-humans-DNNs, CC BY 4.0; changed: counted). Photographs
of 224 x 224 pixels from ImageNet were shown for 200 ms, nearly all in grey, and people chose one of 16
classes. An answer that was not given in time counts as wrong.
"""

import math
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sfumato.base.files import read_table
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, DataError, did_you_mean

CHANCE = 1 / 16
SIDE = 224  # of the photographs, in pixels
CONTRAST = 0.3  # of the photographs with noise

# Numbers of right answers, by the filter's standard deviation in pixels and by the noise's half width. With
# them a report can compare with people without the file of all answers.
_LOW_PASS = {0.0: 825, 1.0: 776, 3.0: 689, 5.0: 560, 7.0: 466, 10.0: 300, 15.0: 178, 40.0: 74}
_LOW_PASS_TRIALS = 960
_NOISE = {0.0: 644, 0.03: 637, 0.05: 625, 0.1: 601, 0.2: 487, 0.35: 365, 0.6: 134, 0.9: 48}
_NOISE_TRIALS = 800

_COLUMNS = ("experiment", "condition", "trials", "correct")


@dataclass(frozen=True)
class Condition:
    """One distortion at one strength: the numbers of answers, over all classes, and of right answers.

    Attributes:
        experiment: the kind of distortion, such as "lowpass".
        condition: its strength as in the file, such as "7", "c05" or "inf".
    """

    experiment: str
    condition: str
    correct: int
    trials: int

    @property
    def share(self) -> float:
        """The share recognised."""
        return self.correct / self.trials

    @property
    def interval(self) -> tuple[float, float]:
        """Its 95% interval; answers of one person are assumed independent."""
        return wilson(self.correct, self.trials)


@dataclass(frozen=True)
class Recognition:
    """All conditions of the file, in its order."""

    conditions: tuple[Condition, ...]

    def of(self, experiment: str) -> tuple[Condition, ...]:
        """Return the conditions of one experiment. Raises ConfigError if there is none."""
        found = tuple(one for one in self.conditions if one.experiment == experiment)
        if not found:
            known = {one.experiment for one in self.conditions}
            raise ConfigError(f"no experiment {experiment!r}: {did_you_mean(experiment, known)}")
        return found


def read(path: str | os.PathLike[str]) -> Recognition:
    """Read and add up the answers, a CSV with a row for each experiment, condition, person and class.

    Raises:
        DataError: the file cannot be read, lacks a column, has no rows, or has a count that is not a number.
    """
    path = Path(path)
    counts: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    try:
        header, rows = read_table(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    if missing := [name for name in _COLUMNS if name not in header]:
        raise DataError(
            f"{path}: no column {missing[0]!r}: give the CSV of answers with the columns "
            f"{', '.join(_COLUMNS)}"
        )
    for line, row in rows:
        correct, trials = _counts(row, line)
        together = counts[row["experiment"], row["condition"]]
        together[0] += correct
        together[1] += trials
    if not counts:
        raise DataError(f"{path}: no rows: give the CSV of answers, not only its header")
    return Recognition(
        tuple(Condition(*key, correct=correct, trials=trials) for key, (correct, trials) in counts.items())
    )


def _counts(row: Mapping[str, str], where: str) -> tuple[int, int]:
    try:
        correct, trials = int(row["correct"]), int(row["trials"])
    except ValueError as error:
        raise DataError(f"{where}: correct and trials are whole numbers ({error})") from error
    if not 0 <= correct <= trials or trials == 0:
        raise DataError(f"{where}: {correct} right of {trials} trials: from 0 to all of at least one trial")
    return correct, trials


@dataclass(frozen=True)
class Recognised:
    """People's recognition at a comparable setting.

    Attributes:
        share, low, high: of photographs, and its 95% interval.
        beyond: whether the setting is stronger than all measured ones; the share is then an upper bound, that
            of the strongest of them.
        compared: the comparable distortion, in words.
    """

    share: float
    low: float
    high: float
    beyond: bool
    compared: str

    @property
    def sentence(self) -> str:
        """A sentence for a report."""
        about = "no more than about" if self.beyond else "about"
        share, low, high = (f"{100 * value:.0f}" for value in (self.share, self.low, self.high))
        return (
            f"at this setting people recognised {about} {share}% ({low} to {high}) of photographs of "
            f"16 classes; chance {100 * CHANCE:.0f}%"
        )


def at_blur(radius: float, *, side: int) -> Recognised:
    """Return people's recognition of photographs blurred as much, relative to size, as an image.

    A Gaussian of standard deviation r pixels in an image S pixels wide is one of 224 r / S in the photographs
    of the experiment. It is a comparison, not the experiment: the details that an image of S pixels lacks
    already, and its colour, are not counted.

    Between measured conditions, shares and the ends of their intervals are interpolated, linearly
    in the logarithm of the deviation; below the weakest, linearly in the deviation itself.

    Args:
        radius: r, standard deviation of the blur in pixels, at least 0.
        side: S, width of the image in pixels.
    """
    if not radius >= 0 or side < 1:
        raise ConfigError(
            f"radius={radius:g}, side={side}: a radius of at least 0, a side of at least 1 pixel"
        )
    deviation = radius * SIDE / side
    compared = f"a blur of {deviation:.3g} pixels in a photograph of {SIDE} × {SIDE}"
    return _interpolate(_LOW_PASS, _LOW_PASS_TRIALS, deviation, compared)


def at_noise(sigma: float) -> Recognised:
    """Return people's recognition of photographs with as much noise, relative to contrast.

    The experiment added uniform noise in [-w, w], of standard deviation w / sqrt(3), to photographs at a
    contrast of 30%: a ratio of w / (0.3 sqrt(3)). Noise of standard deviation sigma grey levels on a
    photograph at full contrast has the ratio sigma / 255. So w = 0.3 sqrt(3) sigma / 255. It is a comparison,
    not the experiment: Gaussian noise has other tails, sums are clamped elsewhere, and the noise of a small
    image, shown as large as a photograph, is coarser and hides more.

    Interpolated as in `at_blur`.

    Args:
        sigma: standard deviation of the noise in grey levels (0 to 255), at least 0.
    """
    if not sigma >= 0:
        raise ConfigError(f"sigma={sigma:g}: a standard deviation is at least 0")
    width = CONTRAST * math.sqrt(3) * sigma / 255
    compared = f"uniform noise of ±{width:.2g} at a contrast of {100 * CONTRAST:.0f}%"
    return _interpolate(_NOISE, _NOISE_TRIALS, width, compared)


def _interpolate(counts: Mapping[float, int], trials: int, strength: float, compared: str) -> Recognised:
    """Interpolate between two measured conditions; shares fall monotonically, so no smoothing is needed."""
    measured = sorted(counts)
    shares = [(counts[one] / trials, *wilson(counts[one], trials)) for one in measured]
    if strength > measured[-1]:
        return Recognised(*shares[-1], beyond=True, compared=compared)
    place = min(bisect_right(measured, strength), len(measured) - 1)
    weaker, stronger = measured[place - 1], measured[place]
    weight = math.log(strength / weaker) / math.log(stronger / weaker) if weaker else strength / stronger
    share, low, high = (
        (1 - weight) * one + weight * other
        for one, other in zip(shares[place - 1], shares[place], strict=True)
    )
    return Recognised(share, low, high, beyond=False, compared=compared)
