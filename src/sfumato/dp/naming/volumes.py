"""Gaussian noise on bounded numbers: the Wills functional of a ball and of a cube."""

import math

import numpy as np

from sfumato.dp.naming.bound import (
    UP,
    Bound,
    Prior,
    best_guess,
    bound_of,
    check_count,
    check_number,
)


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
