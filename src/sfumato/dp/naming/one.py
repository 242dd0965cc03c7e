"""One release: few outputs, with or without noise; and differential privacy from a centre.

Outputs: counting, randomised response. Centre: one reference, the same for all people.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.dp.naming.bound import (
    COUNTED,
    Assumption,
    Bound,
    Prior,
    best_guess,
    binomial,
    bound_of,
    check_count,
    check_number,
    check_prior,
    distribution,
    least,
    log_factor,
    log_flipped,
)
from sfumato.errors import ConfigError

MOST_OUTPUTS = 2**12  # of a table of people
_MOST_DRAWS = 100_000  # of a binomial that is summed term by term
_MOST_PIECES = 10_000_000  # that are sorted; with more, only the largest prior counts


def counting(prior: Prior, *, outputs: int, releases: int = 1, assuming: Assumption = "none") -> Bound:
    """M possible outputs: at most the sum of the M largest priors, at most M·π. n releases have M^n outputs.

    The factor M^n is less if more is assumed, see `bound`; F need not be whole. For Q(y) = max_i P_i(y) / F,
    a distribution, P_i(A) <= min(1, F·Q(A)): the Q(A_i) of "they guess i" sum to 1, and Σ π_i P_i(A_i) is
    largest if each of the F largest priors has 1/F of it.

    Source: Smith 2009, "On the foundations of quantitative information flow", Theorem 1 for equally likely
    people. Exact for outputs without noise, if M of them single out a person.
    """
    priors, n = check_prior(prior), check_count("releases", releases)
    growth = log_factor(outputs=outputs, releases=n, assuming=assuming)
    source = COUNTED[assuming] if n > 1 else COUNTED["none"]
    if isinstance(priors, float):
        return bound_of(priors, growth + math.log(priors), source, steps=n)
    count = math.exp(min(growth, math.log(len(priors))))
    total = _fill(np.full(len(priors), 1 / count), priors, 1.0)
    return bound_of(float(priors.max()), math.log(total), f"{source}, the largest priors", steps=n)


def randomised_response(
    prior: Prior, *, outputs: int, epsilon: float, releases: int = 1, assuming: Assumption = "none"
) -> Bound:
    """k-ary randomised response, n times: the truth with a = e^ε / (e^ε + k - 1), else another word.

    At most (k·a)^n·π, by maximal leakage, and less if π is above k^-n. Against the uniform distribution
    over the k^n outputs, the likelihood of a person's true words depends on how many of n words they match,
    Binomial(n, a) against Binomial(n, 1/k). The most powerful test at level π (Neyman & Pearson) is the
    bound 1 - f(π) of `gaussian`; with all priors, the levels of all people, which sum to at most 1, are
    spent on the largest gains. If more is assumed: see `flipped_bits`.

    Source: Warner 1965; Kairouz, Oh & Viswanath 2016 (k-ary); as a bound on guessing, Polyanskiy, Poor &
    Verdú 2010, Sec. III-E (the meta-converse). An average over people, over all words, and over the lies.

    `outputs` is k >= 1, `epsilon` is that of one word, infinite for no lies.
    """
    k, n = check_count("outputs", outputs), check_count("releases", releases)
    lies = (k - 1) * math.exp(-check_number("epsilon", epsilon))  # of all words together, to the truth
    chances = (1 / (1 + lies), lies / (1 + lies)), (1 / k, 1 - 1 / k)
    test = best_test(prior, n, *chances, "randomised response: Polyanskiy, Poor & Verdú 2010, Sec. III-E")
    flipped = log_flipped(flip=chances[0][1], releases=n, assuming=assuming) if k == 2 else math.inf
    return _least(prior, test, flipped, outputs=k, releases=n, assuming=assuming)


def flipped_bits(
    prior: Prior, *, bits: int, flip: float, releases: int = 1, assuming: Assumption = "none"
) -> Bound:
    """b bits, each flipped with probability p independently: randomised response over 2 words, n·b times.

    At most (2 - 2p)^(n·b)·π, and less if π is above 2^-(n·b); exact for all 2^b codes equally likely. For the
    average see `randomised_response`. Under an assumption about n releases, the least of that, of
    the count without noise, and of log_flipped: for one image with any b, otherwise for one bit. `flip` is p
    from 0, without noise, to 0.5, which erases the bit.
    """
    if not 0 <= flip <= 0.5:
        raise ConfigError(f"flip={flip:g}: a bit is flipped with a probability from 0 to 0.5")
    draws = check_count("bits", bits) * check_count("releases", releases)
    source = "bits flipped by chance: Polyanskiy, Poor & Verdú 2010, Sec. III-E"
    test = best_test(prior, draws, (1 - flip, flip), (0.5, 0.5), source)
    flipped = math.inf
    if bits == 1 or assuming == "one image":
        flipped = bits * log_flipped(flip=flip, releases=releases, assuming=assuming)
    return _least(prior, test, flipped, outputs=2**bits, releases=releases, assuming=assuming)


def _least(
    prior: Prior, bound: Bound, flipped: float, *, outputs: int, releases: int, assuming: Assumption
) -> Bound:
    """The least of a bound without assumptions, the count, and the factor of flips, a logarithm."""
    if assuming == "none" or releases == 1:
        return bound
    best = best_guess(prior)
    counted = counting(prior, outputs=outputs, releases=releases, assuming=assuming)
    flips = bound_of(best, math.log(best) + flipped, f"flips: {COUNTED[assuming]}", steps=releases)
    return least(bound, counted, flips)


def of_each(priors: Sequence[float], channel: ArrayLike) -> NDArray[np.float64]:
    """How often the best adversary on a table is right about each person.

    On average over priors it is Σ_y max_s p(s)·p(y|s), which every bound is above. People who are equally
    likely at an output are named in turn. The largest is the worst person: a bound on the average says
    nothing about them.

    (S,) p(s) of each person, and (S, Y) p(y|s) of their releases, also of whole series -> (S,) chances.
    """
    people, rows = distribution(priors), np.asarray(channel, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not (rows >= 0).all() or not (abs(rows.sum(1) - 1) < 1e-6).all():
        raise ConfigError("channel: give a row of probabilities, which sum to 1, for each image or person")
    if len(people) != len(rows):
        raise ConfigError(f"{len(people)} priors for {len(rows)} people: give a row of the channel to each")
    rows = rows / rows.sum(1, keepdims=True)
    joint = people[:, None] * rows
    likeliest = joint >= joint.max(axis=0) * (1 - 1e-9)  # ties, despite rounding
    chances: NDArray[np.float64] = (rows * likeliest / likeliest.sum(axis=0)).sum(axis=1)
    return chances


def best_test(
    prior: Prior, draws: int, truth: tuple[float, float], reference: tuple[float, float], source: str
) -> Bound:
    """The power of the best test of Binomial(draws, truth) against Binomial(draws, reference) at level π.

    Both are (p, 1 - p), since the difference would lose the digits of a p near 1. A truth above the reference
    makes the likelihood ratio grow with the number of successes. With all priors: Σ π_i·power(level_i); the
    levels sum to 1 and are spent on the steepest pieces of the power function first.
    """
    priors = check_prior(prior)
    best = priors if isinstance(priors, float) else float(priors.max())
    if draws > _MOST_DRAWS:  # nothing is claimed for more
        return Bound(1.0, source)
    gains, widths = binomial(draws, *truth), binomial(draws, *reference)
    if isinstance(priors, float) or len(priors) * len(gains) > _MOST_PIECES:
        power = _fill(widths, gains, best)
    else:
        power = _fill(np.tile(widths, len(priors)), np.outer(priors, gains).ravel(), 1.0)
    return bound_of(best, math.log(power) if power else -math.inf, source, steps=draws)


def _fill(widths: NDArray[np.float64], gains: NDArray[np.float64], room: float) -> float:
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


def gaussian(prior: Prior, *, mu: float, releases: int = 1) -> Bound:
    """μ-GDP against a fixed reference: Φ(Φ^-1(π) + μ√n).

    Let Q be ANY distribution of outputs, the same for all people, and f a trade-off function such that
    every P_i(A) <= 1 - f(Q(A)) for all A. The events A_i = "they guess i" are disjoint, so Σ π_i
    Q(A_i) <= π; as 1 - f is concave and grows, Σ π_i P_i(A_i) <= Σ π_i (1 - f(Q(A_i))) <= 1 - f(π).
    Gaussian noise has f(x) = Φ(Φ^-1(1 - x) - μ).

    Source: after Hayes, Mahloujifar & Balle 2023, arXiv:2302.07225, Theorem 2; composition: Dong, Roth & Su
    2022, Corollary 3.3. An average over people, images and noise.

    Args:
        mu: μ >= 0 between the reference and every image. For numbers of norm at most c it is the RADIUS c/σ,
            with noise around 0 as the reference; if only pairs of images are known, the μ between any two.
    """
    best = best_guess(prior)
    shift = check_number("mu", mu) * math.sqrt(check_count("releases", releases))
    source = "f-DP from a centre: after Hayes, Mahloujifar & Balle 2023, Thm. 2"
    if best == 1 or math.isinf(shift):
        return Bound(1.0, source)
    normal = NormalDist()
    chance = normal.cdf(normal.inv_cdf(best) + shift)
    return bound_of(best, math.log(chance) if chance else -math.inf, source)


def discrete_mu(*, radius: float, variance: float, step: float) -> float | None:
    """The μ for `gaussian` of DISCRETE Gaussian noise, against noise around a centre: c / √(σ² - 16h²).

    Proof: let c be within the radius of the centre, in steps h of the grid, and round a draw of N(c, σ² - 16)
    to the grid by discrete Gaussian noise of variance 16 about it. By Poisson's summation its normaliser is
    4√2π times a number within 1 ± ε of 1, ε < 3·e^(-32π²) < 1e-136, for any position of the grid; and two
    Gaussian densities convolve to one: the result is that of N(c, σ²) at the points of the grid, but for that
    factor. The discrete Gaussian, whose normaliser is at least σ√2π, is nowhere likelier than 1 + ε times
    that. So it is a function of continuous noise of variance σ² - 16, but for (1 + ε)^(n·d), which stays
    below the margin for rounding for any number of releases and dimensions.

    Source: the above; Micciancio & Regev 2007, Lemma 3.3, and Peikert 2010, Theorem 3.1, have its parts.

    Args:
        radius: c >= 0, the L2 distance of all releases from the centre; both lie on the grid.
        variance: σ² > 0, of the noise on each number.
        step: h > 0, of the grid.

    Returns:
        μ, or None if the noise has a deviation of 4 steps or less: the grid is too coarse for this.
    """
    left = variance - 16 * step**2
    return check_number("radius", radius) / math.sqrt(left) * (1 + 1e-12) if left > 0 else None


def pure(prior: Prior, *, epsilon: float, releases: int = 1) -> Bound:
    """ε-DP, local to the person: min(e^ε π, 1 - e^-ε (1 - π)) for one release; n releases exactly.

    By `gaussian` with the trade-off function of ε-DP. Among all mechanisms that are ε-DP n times over, n
    answers to one question with lies reveal most, Binomial(n, 1 / (1 + e^-ε)) against Binomial(n, 1 / (1 +
    e^ε)), whose most powerful test at level π is the bound: Kairouz, Oh & Viswanath 2015, Theorem 3.3, also
    if later releases depend on earlier ones. With all priors, the levels are spent as in
    `randomised_response`.

    Source: the average and the proof of `gaussian`; ε is between the reference and every image, or between
    any two images, as ρ and δ are below.
    """
    lie = math.exp(-check_number("epsilon", epsilon))
    truth = (1 / (1 + lie), lie / (1 + lie))
    source = "pure DP from a centre: Kairouz, Oh & Viswanath 2015, Thm. 3.3"
    return best_test(prior, check_count("releases", releases), truth, truth[::-1], source)


def concentrated(prior: Prior, *, rho: float, releases: int = 1) -> Bound:
    """ρ-zCDP: exp(-(√L - √(nρ))²) with L = ln 1/π if nρ < L; nothing beyond.

    Proof: for a reference Q with Rényi divergences D_α(P_i || Q) <= ρα, and any event A, P_i(A)^α
    Q(A)^(1-α) <= e^((α-1) D_α), so P_i(A) <= (e^(ρα) Q(A))^((α-1)/α), concave in Q(A). Averaged over
    people as in `gaussian`, the chance is at most exp((ρα - L)(α-1)/α) = exp(ρα - ρ - L + L/α) for every α
    > 1. The least is at α = √(L/ρ), which is above 1 if ρ < L: exp(2√(ρL) - ρ - L). n releases have nρ
    (Bun & Steinke 2016, Lemma 1.7).

    Source: the above; the inequality is Bun & Steinke 2016, Sec. 1. An average over people, images and noise.
    """
    best = best_guess(prior)
    total, limit = check_number("rho", rho) * check_count("releases", releases), -math.log(best)
    source = "zCDP from a centre: Bun & Steinke 2016, by Rényi divergences"
    if not total < limit:
        return Bound(1.0, source)
    return bound_of(best, -((math.sqrt(limit) - math.sqrt(total)) ** 2), source)


def approximate(prior: Prior, *, epsilon: float, delta: float, releases: int = 1) -> Bound:
    """(ε, δ)-DP: min(e^(nε) π + nδ, 1 - e^(-nε) (1 - nδ - π)).

    By `gaussian` with the trade-off function of (ε, δ)-DP (Wasserman & Zhou 2010; Dong, Roth & Su 2022, Eq.
    (3)), and basic composition (Dwork & Roth 2014, Theorem 3.16). An average over people, images and noise.
    """
    best, n = best_guess(prior), check_count("releases", releases)
    if not 0 <= delta <= 1:
        raise ConfigError(f"delta={delta:g}: it lies from 0 to 1")
    total, lost = n * check_number("epsilon", epsilon), n * delta
    source = "(eps, delta)-DP from a centre: Dong, Roth & Su 2022, Eq. (3)"
    first = math.exp(total) * best + lost if total < -math.log(best) else 1.0
    second = math.exp(-total) * (lost + best) - math.expm1(-total)
    return bound_of(best, math.log(min(1.0, first, second)), source)
