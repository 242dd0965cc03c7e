"""Statistics over seeds, images and data sets, as the pages state them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scipy import stats


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval."""

    value: float
    low: float
    high: float


def half_width(values: Sequence[float]) -> float:
    """Of the 95% interval of a mean, by Student's t; infinite for a single value."""
    if len(values) < 2:
        return math.inf
    quantile = float(stats.t.ppf(0.975, len(values) - 1))
    return quantile * statistics.stdev(values) / math.sqrt(len(values))


def differences(values: dict[int, float], others: dict[int, float]) -> list[float]:
    """By seed, where both have it: how much the first is above the second."""
    return [value - others[seed] for seed, value in values.items() if seed in others]


def mean_of(intervals: Sequence[Interval]) -> Interval:
    """Each end by itself, on average, as over seeds of the same data."""
    return Interval(
        *(statistics.mean(getattr(each, end) for each in intervals) for end in ("value", "low", "high"))
    )


@dataclass(frozen=True)
class Gain:
    """By how much a policy is above another, over seeds: the mean, and half of its 95% interval."""

    policy: str
    group: Any
    mean: float
    half: float

    @property
    def better(self) -> bool:
        """Whether the interval is above 0."""
        return self.mean - self.half > 0

    @property
    def worse(self) -> bool:
        """Whether the interval is below 0."""
        return self.mean + self.half < 0


def gain(ours: dict[int, float], theirs: dict[int, float], *, policy: str, group: Any = None) -> Gain:
    """Of accuracies by seed over others."""
    found = differences(ours, theirs)
    return Gain(policy, group, statistics.mean(found), half_width(found))


def course(norms: Sequence[float]) -> list[float]:
    """A norm after 0, 25, 50, 75 and 100% of the steps."""
    return [norms[round(part * (len(norms) - 1))] for part in (0, 0.25, 0.5, 0.75, 1)]
