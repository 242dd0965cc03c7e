"""Statistics over seeds, images and data sets, as the pages state them."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

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


def mean_of(intervals: Sequence[Interval]) -> Interval:
    """Each end by itself, on average, as over seeds of the same data."""
    return Interval(
        *(statistics.mean(getattr(each, end) for each in intervals) for end in ("value", "low", "high"))
    )
