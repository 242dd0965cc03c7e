"""The parts of every bound: priors, ranges of numbers, rounding that only loses; and what follows from one.

Volumes: Gaussian noise on bounded numbers, by the Wills functional of a ball and of a cube. Ranks: a lower
bound on the rank of the right person in anybody's list of guesses, which is log-rank privacy, proved.
"""

import math
from collections.abc import Callable, Sequence
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


def gaussian_ball(prior: Prior, *, dimensions: int, ratio: float, releases: int = 1) -> Bound:
    """Gaussian noise on d numbers of norm at most c: π·W^n with the Wills functional W of the ball.

    ∫ max_x N(y; x, σ²) dy over the ball C of all x is the integral of exp(-dist(y, C)² / 2σ²) / (σ√2π)^d,
    which is the sum over j of V_j(C) / (σ√2π)^j, with the intrinsic volumes V_j = binom(d, j)·κ_d /
    κ_(d-j)·c^j and κ_j the volume of the unit ball: Wills 1973 and Hadwiger 1975; Mourtada 2023,
    arXiv:2303.07279, has it as the regret of coding. It is the maximal leakage of the channel, exact if
    people fill the ball densely.

    n releases are a point of C^n, whose functional is W^n. If the SAME numbers are released n times, with
    fresh noise each, their mean says all, and one release at c·√n/σ is the bound.

    An average over people, images and noise. For the discrete Gaussian see `discrete`.

    Args:
        dimensions: d >= 1.
        ratio: c/σ >= 0: the RADIUS to the noise's standard deviation in each number.
    """
    d, n = check_count("dimensions", dimensions), check_count("releases", releases)
    scaled = check_number("ratio", ratio) / math.sqrt(2 * math.pi)
    source = "Wills functional of a ball: Wills 1973, Hadwiger 1975; Mourtada 2023"
    if not scaled or math.isinf(scaled):
        return _wills(prior, scaled, d, n, source)
    terms = [  # ln V_j / (σ√2π)^j; binom(d, j) is d! / j! (d - j)!
        math.lgamma(d + 1) - math.lgamma(j + 1) - math.lgamma(d - j + 1)
        + _log_ball(d) - _log_ball(d - j) + j * math.log(scaled)
        for j in range(1, d + 1)
    ]  # fmt: skip
    top = max(terms)
    rest = top + math.log(math.fsum(math.exp(term - top) for term in terms))
    return _wills(prior, np.logaddexp(0.0, rest).item(), d, n, source)


def gaussian_cube(prior: Prior, *, dimensions: int, ratio: float, releases: int = 1) -> Bound:
    """Gaussian noise on d numbers, each from -c to c: π·(1 + 2c / (σ√2π))^(d·n).

    The Wills functional of the cube of side 2c: see `gaussian_ball`, also for the source and the average.

    Args:
        dimensions: d >= 1.
        ratio: c/σ >= 0: half the side to the noise's standard deviation in each number.
    """
    d, n = check_count("dimensions", dimensions), check_count("releases", releases)
    logarithm = d * math.log1p(2 * check_number("ratio", ratio) / math.sqrt(2 * math.pi))
    return _wills(prior, logarithm, d, n, "Wills functional of a cube: Wills 1973; Mourtada 2023")


def discrete(bound: Bound, *, dimensions: int, step: float, releases: int = 1) -> Bound:
    """Converts a bound for Gaussian noise to the DISCRETE Gaussian on a grid: times exp(n·d·(h/σ)² / 24).

    Proof: let k be a point of the grid of step h, seen from the true one. The discrete Gaussian has there
    exp(-k²/2σ²) / Z, with h·Z >= σ√2π by Poisson's summation. The continuous one, rounded to the grid, has
    the mean of exp(-(k+u)²/2σ²) over |u| <= h/2, times h/σ√2π; by Jensen's inequality the mean is at least
    exp(-(k² + h²/12) / 2σ²). So each number's probability is at most exp(h²/24σ²) times that of rounded
    noise, and so is the chance of any adversary, times that factor for every number released. Rounding only
    loses.

    Args:
        bound: for continuous noise, of the same numbers and releases.
        dimensions: d >= 1. The numbers lie on the grid before noise is added.
        step: h/σ >= 0.
    """
    d, n = check_count("dimensions", dimensions), check_count("releases", releases)
    excess = n * d * check_number("step", step) ** 2 / 24
    if bound.chance >= 1 or excess > -math.log(bound.chance):
        return Bound(1.0, bound.source)
    return Bound(min(1.0, bound.chance * math.exp(excess) * (1 + UP)), f"{bound.source}; on a grid")


def _wills(prior: Prior, logarithm: float, dimensions: int, releases: int, source: str) -> Bound:
    best = best_guess(prior)
    # The logarithm loses as many digits as factorials do, and n multiplies the loss.
    growth = releases * logarithm * (1 + 1e-12 * (1 + dimensions))
    return bound_of(best, math.log(best) + growth, source)


def _log_ball(dimensions: int) -> float:
    """ln κ_d, of the volume of the unit ball."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)


_BLOCK = 1_000  # each of the first ranks counts by itself; the further ones in blocks of a thousandth


def log_rank(bound: Callable[[float], Bound], *, people: int, largest: float | None = None) -> float:
    """A lower bound on E[ln r] / ln N, r the rank of the right one of N people in any adversary's list.

    E[ln r] = Σ_k ln((k+1)/k) P(r > k), k from 1 to N - 1. Each bound on naming by its largest prior π is one
    on lists: with A_i = "i is among the first k", the Q(A_i) of `gaussian` sum to k, so P(r <= k) is at
    most the bound at the prior k·π; by counting, the k best of each output sum to k·M·π.

    Exact for M outputs without noise: every person is best at their likeliest output, so no adversary
    does better than among M groups of N/M people, as equal as can be. Blind guessing has ln(N!) / (N ln N).

    Source: Osia et al. 2018, Definition 10, for the measure; the above.

    Args:
        bound: π -> the upper bound on the chance to name somebody, such as named(...) of one protection,
            one number of releases and one assumption.
        people: N >= 2.
        largest: π of the likeliest person; None for 1/N.

    Raises:
        ConfigError: one person.
    """
    if check_count("people", people) < 2:
        raise ConfigError("people=1: a rank is among at least 2")
    share = 1 / people if largest is None else largest
    total, k = 0.0, 1
    while k < people and k * share < 1:
        last = min(people - 1, k + k // _BLOCK)  # P(r > k) is at least P(r > last)
        left = 1 - bound(min(1.0, last * share)).chance
        if left <= 0:
            break
        total += math.log((last + 1) / k) * left
        k = last + 1
    return total / math.log(people) * (1 - 1e-12)
