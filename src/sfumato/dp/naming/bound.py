"""The parts of every bound: priors, ranges of numbers, and rounding that only loses."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import ConfigError

Prior = float | Sequence[float]  # the largest prior π, or the priors of all people

UP = 1e-10  # more than floating point loses in a few steps: a stated chance may be too large only
UP_PER_STEP = 1e-13  # and in each of many
_LEAST_PRIOR = 1e-300  # a smaller one counts as this, so that nothing underflows


class Bound(NamedTuple):
    """An upper bound on the chance, and its theorem. Bounds compare by their chances."""

    chance: float
    source: str


def least(*bounds: Bound) -> Bound:
    """The smallest of several bounds that all hold, with its source."""
    return min(bounds)


def bound_of(best: float, logarithm: float, source: str, *, steps: int = 1) -> Bound:
    """The bound with that logarithm, rounded up; at least the guess beforehand, which is always possible."""
    if logarithm >= 0:
        return Bound(1.0, source)
    slack = 1 + UP + UP_PER_STEP * steps
    return Bound(min(1.0, max(best, math.exp(logarithm)) * slack), source)


def check_prior(prior: Prior) -> float | NDArray[np.float64]:
    """Returns a largest prior that is large enough to compute with, or all priors, summing to 1."""
    if not isinstance(prior, (int, float)):
        return distribution(prior)
    if not 0 < prior <= 1:
        raise ConfigError(f"prior={prior:g}: the best guess beforehand has a chance above 0 and at most 1")
    return max(float(prior), _LEAST_PRIOR)


def best_guess(prior: Prior) -> float:
    """π, the largest prior. Raises ConfigError: see check_prior."""
    priors = check_prior(prior)
    return priors if isinstance(priors, float) else float(priors.max())


def distribution(priors: Sequence[float]) -> NDArray[np.float64]:
    """Priors of all people, as an array that sums to 1. Raises ConfigError unless they are probabilities."""
    people = np.asarray(priors, dtype=np.float64)
    if people.ndim != 1 or not len(people) or not (people >= 0).all() or not abs(people.sum() - 1) < 1e-6:
        raise ConfigError("priors: give a probability for each person, which sum to 1")
    normalised: NDArray[np.float64] = people / people.sum()
    return normalised


def check_count(name: str, count: int) -> int:
    """Returns a whole number of at least 1. Raises ConfigError otherwise."""
    if count < 1:
        raise ConfigError(f"{name}={count}: a whole number, at least 1")
    return count


def check_number(name: str, value: float) -> float:
    """Returns a number of at least 0. Raises ConfigError otherwise."""
    if not value >= 0:
        raise ConfigError(f"{name}={value:g}: a number of at least 0")
    return value
