"""What a release proves about who it shows: the most that anybody's chance to name the person can be.

The adversary knows everything but the person and the noise: the protection, all photographs, what each
person is likely to release. Person i is theirs with probability π_i beforehand, and their best guess with π
= max π_i: 1/N for N equally likely people. From the releases y of one person they guess, and are right with

    Σ_i π_i P_i(they guess i) <= Σ_y max_i π_i P_i(y),

where P_i(y) is an average over what person i may release, and over the noise. Every function bounds this
number. It bounds as well the guessing of any other secret whose best guess beforehand is π.

It is an AVERAGE over people and over releases. A rare output may name its person, though the average is
small: what is proved of one output is max_i π_i P_i(y) / P(y), which can be 1.

Releases are those of one person, of the same image or of different ones, with fresh noise for each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.errors import ConfigError

Prior = float | Sequence[float]  # the largest prior π, or the priors of all people

_UP = 1e-10  # more than floating point loses in a few steps: a stated chance may be too large only
_UP_PER_STEP = 1e-13  # and in each of many
_LEAST_PRIOR = 1e-300  # a smaller one counts as this, so that nothing underflows
_MOST_DRAWS = 100_000  # of a binomial that is summed term by term
_MOST_PIECES = 10_000_000  # that are sorted; of more, only the largest prior counts
_NOTHING = 0.999  # from here on a bound says nothing that is worth a sentence


class Bound(NamedTuple):
    """The most that the chance can be, and the theorem that says so. Bounds compare by their chances."""

    chance: float
    source: str


# Noiseless outputs, and noise that lies.


def counting(prior: Prior, *, outputs: int, releases: int = 1) -> Bound:
    """M possible outputs: at most the sum of the M largest priors, at most M·π. n releases have M^n outputs.

    Source: Σ_y max_i π_i P_i(y) <= Σ_y max over a set of M people at most (Smith 2009, "On the foundations
    of quantitative information flow", Theorem 1 for equally likely people). Exact for outputs without
    noise, M of which single out a person.

    Args:
        prior: π, or the priors of all people.
        outputs: M, at least 1; 2^b for b bits.
        releases: n, at least 1.

    Raises:
        ConfigError: a number out of range.
    """
    priors, n = _beforehand(prior), _count("releases", releases)
    growth = n * math.log(_count("outputs", outputs))
    if isinstance(priors, float):
        return _bound(priors, growth + math.log(priors), "counting of outputs: Smith 2009, Thm. 1")
    # A power of integers that is large beyond use is not taken.
    largest = len(priors) if growth > math.log(len(priors)) + 1 else outputs**n
    total = float(np.sort(priors)[::-1][:largest].sum())
    return _bound(float(priors.max()), math.log(total), "counting of outputs: the sum of the largest priors")


def randomised_response(prior: Prior, *, outputs: int, epsilon: float, releases: int = 1) -> Bound:
    """k-ary randomised response, n times: the truth with a = e^ε / (e^ε + k - 1), else another word.

    At most (k·a)^n·π, by maximal leakage, and less where π is above k^-n. Against the uniform distribution
    over the k^n outputs, the likelihood of a person's true words depends on how many of n words they match,
    Binomial(n, a) against Binomial(n, 1/k). The most powerful test at level π (Neyman & Pearson) is the
    bound 1 - f(π) of `gaussian`; with all priors, the levels of all people, which sum to at most 1, are
    spent where they gain most.

    Source: Warner 1965; Kairouz, Oh & Viswanath 2016 (k-ary); as a bound on guessing, Polyanskiy, Poor &
    Verdú 2010, Sec. III-E (the meta-converse). An average over people, over all words, and over the lies.

    Args:
        prior: π, or the priors of all people.
        outputs: k >= 1 words.
        epsilon: ε >= 0, of one word; infinite for no lies.
        releases: n >= 1 words that a person releases.

    Raises:
        ConfigError: a number out of range.
    """
    k, n = _count("outputs", outputs), _count("releases", releases)
    lies = (k - 1) * math.exp(-_number("epsilon", epsilon))  # of all words together, to the truth
    chances = (1 / (1 + lies), lies / (1 + lies)), (1 / k, 1 - 1 / k)
    return _tested(prior, n, *chances, "randomised response: Polyanskiy, Poor & Verdú 2010, Sec. III-E")


def flipped_bits(prior: Prior, *, bits: int, flip: float, releases: int = 1) -> Bound:
    """b bits, each flipped with probability p by itself: randomised response over 2 words, n·b times.

    At most (2 - 2p)^(n·b)·π, and less where π is above 2^-(n·b); exact for all 2^b codes equally likely. Of
    what it is an average: see `randomised_response`.

    Args:
        prior: π, or the priors of all people.
        bits: b >= 1.
        flip: p from 0, for none, to 0.5, where nothing is left of the bit.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    if not 0 <= flip <= 0.5:
        raise ConfigError(f"flip={flip:g}: a bit is flipped with a probability from 0 to 0.5")
    draws = _count("bits", bits) * _count("releases", releases)
    source = "bits flipped by chance: Polyanskiy, Poor & Verdú 2010, Sec. III-E"
    return _tested(prior, draws, (1 - flip, flip), (0.5, 0.5), source)


def leakage(prior: Prior, *, channel: ArrayLike, releases: int = 1) -> Bound:
    """Any protection of few outputs, by its table: π·(Σ_y max_x p(y|x))^n.

    Source: Issa, Wagner & Kamath 2020, arXiv:1807.07878, Theorem 1: the logarithm of the sum is the maximal
    leakage, the most by which the guessing of ANY function of the image gains; over releases it adds up.
    An average over people, outputs and noise, for the worst of all secrets.

    Args:
        prior: π, or the priors of all people, of which only the largest counts.
        channel: (X, Y), p(y|x) of each image, or each class of images that are treated alike.
        releases: n >= 1.

    Raises:
        ConfigError: rows that are no probabilities, or a number out of range.
    """
    rows, best = _channel(channel), _best(prior)
    exponent = _count("releases", releases) * math.log(rows.max(axis=0).sum())
    source = "maximal leakage: Issa, Wagner & Kamath 2020, Thm. 1"
    return _bound(best, math.log(best) + max(0.0, exponent), source, steps=releases)


# Gaussian noise on what is bounded.


def gaussian_ball(prior: Prior, *, dimensions: int, ratio: float, releases: int = 1) -> Bound:
    """Gaussian noise on d numbers of norm at most c: π·W^n with the Wills functional W of the ball.

    ∫ max_x N(y; x, σ²) dy over the ball C of all x is the integral of exp(-dist(y, C)² / 2σ²) / (σ√2π)^d,
    which is the sum over j of V_j(C) / (σ√2π)^j, with the intrinsic volumes V_j = binom(d, j)·κ_d /
    κ_(d-j)·c^j and κ_j the volume of the unit ball: Wills 1973 and Hadwiger 1975; Mourtada 2023,
    arXiv:2303.07279, has it as the regret of coding. It is the maximal leakage of the channel, exact where
    people fill the ball densely.

    n releases are a point of C^n, whose functional is W^n. Only where the SAME numbers are released n times,
    with fresh noise each, their mean says all, and one release at c·√n/σ is the bound.

    An average over people, images and noise. For the discrete Gaussian see `discrete`.

    Args:
        prior: π, or the priors of all people, of which only the largest counts.
        dimensions: d >= 1.
        ratio: c/σ >= 0: the RADIUS to the noise's standard deviation in each number.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    d, n = _count("dimensions", dimensions), _count("releases", releases)
    scaled = _number("ratio", ratio) / math.sqrt(2 * math.pi)
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
        prior: π, or the priors of all people, of which only the largest counts.
        dimensions: d >= 1.
        ratio: c/σ >= 0: half the side to the noise's standard deviation in each number.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    d, n = _count("dimensions", dimensions), _count("releases", releases)
    logarithm = d * math.log1p(2 * _number("ratio", ratio) / math.sqrt(2 * math.pi))
    return _wills(prior, logarithm, d, n, "Wills functional of a cube: Wills 1973; Mourtada 2023")


def discrete(bound: Bound, *, dimensions: int, step: float, releases: int = 1) -> Bound:
    """A bound for Gaussian noise, made one for the DISCRETE Gaussian on a grid: times exp(n·d·(h/σ)² / 24).

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
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    d, n = _count("dimensions", dimensions), _count("releases", releases)
    excess = n * d * _number("step", step) ** 2 / 24
    if bound.chance >= 1 or excess > -math.log(bound.chance):
        return Bound(1.0, bound.source)
    return Bound(min(1.0, bound.chance * math.exp(excess) * (1 + _UP)), f"{bound.source}; on a grid")


# Differential privacy from a centre.


def gaussian(prior: Prior, *, mu: float, releases: int = 1) -> Bound:
    """μ-GDP against a fixed reference: Φ(Φ^-1(π) + μ√n).

    Let Q be ANY distribution of outputs, the same for all people, and f a trade-off function such that
    every P_i(A) <= 1 - f(Q(A)) for all A. The events A_i = "they guess i" are disjoint, so that Σ π_i
    Q(A_i) <= π; as 1 - f is concave and grows, Σ π_i P_i(A_i) <= Σ π_i (1 - f(Q(A_i))) <= 1 - f(π).
    Gaussian noise has f(x) = Φ(Φ^-1(1 - x) - μ).

    Source: after Hayes, Mahloujifar & Balle 2023, arXiv:2302.07225, Theorem 2; composition: Dong, Roth & Su
    2022, Corollary 3.3. An average over people, images and noise.

    Args:
        prior: π, or the priors of all people, of which only the largest counts.
        mu: μ >= 0 between the reference and every image: for numbers of norm at most c the RADIUS c/σ, with
            noise around 0 as the reference; where only pairs of images are known, the μ between any two.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    best = _best(prior)
    shift = _number("mu", mu) * math.sqrt(_count("releases", releases))
    source = "f-DP from a centre: after Hayes, Mahloujifar & Balle 2023, Thm. 2"
    if best == 1 or math.isinf(shift):
        return Bound(1.0, source)
    normal = NormalDist()
    chance = normal.cdf(normal.inv_cdf(best) + shift)
    return _bound(best, math.log(chance) if chance else -math.inf, source)


def discrete_mu(*, radius: float, variance: float, step: float) -> float | None:
    """The μ for `gaussian` of DISCRETE Gaussian noise, against noise around a centre: c / √(σ² - 16h²).

    Proof: let c be within the radius of the centre, in steps h of the grid, and round a draw of N(c, σ² - 16)
    to the grid by discrete Gaussian noise of variance 16 about it. By Poisson's summation its normaliser is
    4√2π times a number within 1 ± ε of 1, ε < 3·e^(-32π²) < 1e-136, wherever the grid lies; and two Gaussian
    densities convolve to one: the result is that of N(c, σ²) at the points of the grid, but for that factor.
    The discrete Gaussian, whose normaliser is at least σ√2π, is nowhere likelier than 1 + ε times that. So it
    is a function of continuous noise of variance σ² - 16, but for (1 + ε)^(n·d), which no number of releases
    and dimensions makes as large as what is added for rounding.

    Source: the above; Micciancio & Regev 2007, Lemma 3.3, and Peikert 2010, Theorem 3.1, have its parts.

    Args:
        radius: c >= 0, of all that is released from the centre, in L2 norm; both lie on the grid.
        variance: σ² > 0, of the noise on each number.
        step: h > 0, of the grid.

    Returns:
        μ, or None where the noise has a deviation of 4 steps or less: the grid is too coarse for this.
    """
    left = variance - 16 * step**2
    return _number("radius", radius) / math.sqrt(left) * (1 + 1e-12) if left > 0 else None


def pure(prior: Prior, *, epsilon: float, releases: int = 1) -> Bound:
    """ε-DP, local to the person: min(e^ε π, 1 - e^-ε (1 - π)) for one release; n releases exactly.

    By `gaussian` with the trade-off function of ε-DP. Of all that is ε-DP n times over, n answers to one
    question with lies tell most, Binomial(n, 1 / (1 + e^-ε)) against Binomial(n, 1 / (1 + e^ε)), whose most
    powerful test at level π is the bound: Kairouz, Oh & Viswanath 2015, Theorem 3.3, also where later
    releases depend on earlier ones. With all priors, the levels are spent as in `randomised_response`.

    Source: the average and the proof of `gaussian`.

    Args:
        prior: π, or the priors of all people.
        epsilon: ε >= 0 between the reference and every image, or between any two images.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    lie = math.exp(-_number("epsilon", epsilon))
    truth = (1 / (1 + lie), lie / (1 + lie))
    source = "pure DP from a centre: Kairouz, Oh & Viswanath 2015, Thm. 3.3"
    return _tested(prior, _count("releases", releases), truth, truth[::-1], source)


def concentrated(prior: Prior, *, rho: float, releases: int = 1) -> Bound:
    """ρ-zCDP: exp(-(√L - √(nρ))²) with L = ln 1/π where nρ < L; nothing beyond.

    Proof: for a reference Q with Rényi divergences D_α(P_i || Q) <= ρα, and any event A, P_i(A)^α
    Q(A)^(1-α) <= e^((α-1) D_α), so that P_i(A) <= (e^(ρα) Q(A))^((α-1)/α), concave in Q(A). Averaged over
    people as in `gaussian`, the chance is at most exp((ρα - L)(α-1)/α) = exp(ρα - ρ - L + L/α) for every α
    > 1. The least is at α = √(L/ρ), which is above 1 where ρ < L: exp(2√(ρL) - ρ - L). n releases have nρ
    (Bun & Steinke 2016, Lemma 1.7).

    Source: the above; the inequality is Bun & Steinke 2016, Sec. 1. An average over people, images and noise.

    Args:
        prior: π, or the priors of all people, of which only the largest counts.
        rho: ρ >= 0 between the reference and every image, or between any two images.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    best = _best(prior)
    total, limit = _number("rho", rho) * _count("releases", releases), -math.log(best)
    source = "zCDP from a centre: Bun & Steinke 2016, by Rényi divergences"
    if not total < limit:
        return Bound(1.0, source)
    return _bound(best, -((math.sqrt(limit) - math.sqrt(total)) ** 2), source)


def approximate(prior: Prior, *, epsilon: float, delta: float, releases: int = 1) -> Bound:
    """(ε, δ)-DP: min(e^(nε) π + nδ, 1 - e^(-nε) (1 - nδ - π)).

    By `gaussian` with the trade-off function of (ε, δ)-DP (Wasserman & Zhou 2010; Dong, Roth & Su 2022, Eq.
    (3)), and basic composition (Dwork & Roth 2014, Theorem 3.16). An average over people, images and noise.

    Args:
        prior: π, or the priors of all people, of which only the largest counts.
        epsilon: ε >= 0 between the reference and every image, or between any two images.
        delta: δ from 0 to 1, likewise.
        releases: n >= 1.

    Raises:
        ConfigError: a number out of range.
    """
    best, n = _best(prior), _count("releases", releases)
    if not 0 <= delta <= 1:
        raise ConfigError(f"delta={delta:g}: it lies from 0 to 1")
    total, lost = n * _number("epsilon", epsilon), n * delta
    source = "(eps, delta)-DP from a centre: Dong, Roth & Su 2022, Eq. (3)"
    first = math.exp(total) * best + lost if total < -math.log(best) else 1.0
    second = math.exp(-total) * (lost + best) - math.expm1(-total)
    return _bound(best, math.log(min(1.0, first, second)), source)


# All of them together.


def least(*bounds: Bound) -> Bound:
    """The smallest of several that hold, with its source: each holds, so that all do."""
    return min(bounds)


def exact(priors: Sequence[float], channel: ArrayLike) -> float:
    """What the best adversary reaches on this very table, neither more nor less: Σ_y max_s p(s)·p(y|s).

    Args:
        priors: (S,), p(s) of each person.
        channel: (S, Y), p(y|s) of what each person releases, whole series of releases included.

    Raises:
        ConfigError: what is no probability, or another number of people.
    """
    people, rows = _distribution(priors), _channel(channel)
    if len(people) != len(rows):
        raise ConfigError(f"{len(people)} priors for {len(rows)} people: give a row of the channel to each")
    return min(1.0, float((people[:, None] * rows).max(axis=0).sum()))


@dataclass(frozen=True, kw_only=True)
class Naming:
    """What is proved of naming a person from their releases. str() says it in a sentence.

    Attributes:
        chance: the most that anybody's chance can be, on average over people and noise; 1 for nothing.
        prior: the chance of the best guess beforehand.
        candidates: of how many equally likely people; None where another prior was given.
        releases: of that person.
        source: the theorem.
    """

    chance: float
    prior: float
    candidates: int | None
    releases: int
    source: str

    def __str__(self) -> str:
        if self.candidates is not None:
            return sentence([self])
        guessed = f"guessed beforehand with at most {_percent(self.prior)}"
        if self.chance >= _NOTHING:
            return f"nothing is proved of naming a person who is {guessed}"
        return f"{_times([self])} the right person, {guessed}, {_from(self)}"


def sentence(namings: Sequence[Naming]) -> str:
    """One sentence on several numbers of equally likely people, for the same number of releases."""
    nothing = [naming for naming in namings if naming.chance >= _NOTHING]
    proved = [naming for naming in namings if naming.chance < _NOTHING]
    parts = []
    if proved:
        people = _listed([f"{naming.candidates:,}" for naming in proved], "and")
        parts.append(f"{_times(proved)} the right one of {people} equally likely people {_from(proved[0])}")
    if nothing:
        people = _listed([f"{naming.candidates:,}" for naming in nothing], "or")
        parts.append(f"nothing is proved of naming somebody among {people} people")
    return "; ".join(parts)


def prior_of(candidates: int | None, prior: Prior | None) -> Prior:
    """1/N of N candidates, or the prior that was given in their place. Raises ConfigError: none or both."""
    if (candidates is None) == (prior is None):
        raise ConfigError("naming: give a number of candidates, or a prior in its place")
    if prior is not None:
        return prior
    assert candidates is not None
    return 1 / _count("candidates", candidates)


def stated(bound: Bound, *, candidates: int | None, prior: Prior | None, releases: int) -> Naming:
    """A bound as a statement; candidates or prior as `prior_of` takes them."""
    best = _best(prior_of(candidates, prior))
    return Naming(
        chance=bound.chance, prior=best, candidates=candidates, releases=releases, source=bound.source
    )


def _times(namings: Sequence[Naming]) -> str:
    chances = _listed([_percent(naming.chance) for naming in namings], "and")
    return f"at most {chances} of the times, whatever they know, somebody names"


def _from(naming: Naming) -> str:
    releases = f"{naming.releases:,} release{'s' * (naming.releases != 1)}"
    return f"from {releases} (on average over people and noise)"


def _listed(words: Sequence[str], conjunction: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {conjunction} {words[-1]}"


def _percent(chance: float) -> str:
    """Two significant digits, three near 1, not below the chance but for what floating point added to it."""
    upwards = Context(prec=2 if chance < 0.9 else 3, rounding=ROUND_CEILING)
    rounded = upwards.create_decimal_from_float(100 * chance * (1 - 1e-8))
    return f"{rounded.normalize():f}%"


# The parts.


def _bound(best: float, logarithm: float, source: str, *, steps: int = 1) -> Bound:
    """The bound of that logarithm, rounded up; never below the guess beforehand, which is always possible."""
    if logarithm >= 0:
        return Bound(1.0, source)
    slack = 1 + _UP + _UP_PER_STEP * steps
    return Bound(min(1.0, max(best, math.exp(logarithm)) * slack), source)


def _wills(prior: Prior, logarithm: float, dimensions: int, releases: int, source: str) -> Bound:
    best = _best(prior)
    # The logarithm loses digits to those of factorials, and those are multiplied by n.
    growth = releases * logarithm * (1 + 1e-12 * (1 + dimensions))
    return _bound(best, math.log(best) + growth, source)


def _log_ball(dimensions: int) -> float:
    """ln κ_d, of the volume of the unit ball."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2 + 1)


def _tested(
    prior: Prior, draws: int, truth: tuple[float, float], reference: tuple[float, float], source: str
) -> Bound:
    """The power of the best test of Binomial(draws, truth) against Binomial(draws, reference) at level π.

    Both are (p, 1 - p), since the difference would lose the digits of a p near 1. A truth above the reference
    makes the likelihood ratio grow with the number of successes. With all priors: Σ π_i·power(level_i), the
    levels summing to 1 and spent on the steepest pieces, of which the power function is made, first.
    """
    priors = _beforehand(prior)
    best = priors if isinstance(priors, float) else float(priors.max())
    if draws > _MOST_DRAWS:  # nothing is claimed of so many
        return Bound(1.0, source)
    gains, widths = _binomial(draws, *truth), _binomial(draws, *reference)
    if isinstance(priors, float) or len(priors) * len(gains) > _MOST_PIECES:
        power = _filled(widths, gains, best)
    else:
        power = _filled(np.tile(widths, len(priors)), np.outer(priors, gains).ravel(), 1.0)
    return _bound(best, math.log(power) if power else -math.inf, source, steps=draws)


def _binomial(draws: int, success: float, failure: float) -> NDArray[np.float64]:
    """(draws + 1,) probabilities of 0 to `draws` successes."""
    if not success or not failure:
        certain = np.zeros(draws + 1)
        certain[draws if success else 0] = 1
        return certain
    k = np.arange(draws + 1)
    factorials = np.array([math.lgamma(i + 1) for i in range(draws + 1)])
    logarithms = factorials[-1] - factorials - factorials[::-1]
    logarithms += k * math.log(success) + (draws - k) * math.log(failure)
    with np.errstate(under="ignore"):
        probabilities: NDArray[np.float64] = np.exp(logarithms)
    return probabilities


def _filled(widths: NDArray[np.float64], gains: NDArray[np.float64], room: float) -> float:
    """The most gain from pieces, whole or in part, whose widths sum to at most `room`."""
    some = gains > 0
    widths, gains = widths[some], gains[some]
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        order = np.argsort(-gains / widths, kind="stable")  # a piece of no width is free
        widths, gains = widths[order], gains[order]
        before = np.concatenate([[0.0], np.cumsum(widths)[:-1]])
        left = np.maximum(room - before, 0.0)
        share = np.where(left >= widths, 1.0, left / np.where(widths > 0, widths, 1.0))
        return float((share * gains).sum())


def _beforehand(prior: Prior) -> float | NDArray[np.float64]:
    """A largest prior that is large enough to compute with, or the priors of all people, summing to 1."""
    if not isinstance(prior, (int, float)):
        return _distribution(prior)
    if not 0 < prior <= 1:
        raise ConfigError(f"prior={prior:g}: the best guess beforehand has a chance above 0 and at most 1")
    return max(float(prior), _LEAST_PRIOR)


def _best(prior: Prior) -> float:
    priors = _beforehand(prior)
    return priors if isinstance(priors, float) else float(priors.max())


def _distribution(priors: Sequence[float]) -> NDArray[np.float64]:
    people = np.asarray(priors, dtype=np.float64)
    if people.ndim != 1 or not len(people) or not (people >= 0).all() or not abs(people.sum() - 1) < 1e-6:
        raise ConfigError("priors: give a probability for each person, which sum to 1")
    normalised: NDArray[np.float64] = people / people.sum()
    return normalised


def _channel(channel: ArrayLike) -> NDArray[np.float64]:
    rows = np.asarray(channel, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not (rows >= 0).all() or not (abs(rows.sum(1) - 1) < 1e-6).all():
        raise ConfigError("channel: give a row of probabilities, which sum to 1, for each image or person")
    normalised: NDArray[np.float64] = rows / rows.sum(1, keepdims=True)
    return normalised


def _count(name: str, count: int) -> int:
    if count < 1:
        raise ConfigError(f"{name}={count}: a whole number, at least 1")
    return count


def _number(name: str, value: float) -> float:
    if not value >= 0:
        raise ConfigError(f"{name}={value:g}: a number of at least 0")
    return value
