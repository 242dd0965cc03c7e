"""Differential privacy from a centre: one reference, the same for all people."""

import math
from statistics import NormalDist

from sfumato.dp.naming.bound import (
    Bound,
    Prior,
    best_guess,
    bound_of,
    check_count,
    check_number,
)
from sfumato.dp.naming.outputs import best_test
from sfumato.errors import ConfigError


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

    Source: the average and the proof of `gaussian`.

    Args:
        epsilon: ε >= 0 between the reference and every image, or between any two images.
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

    Args:
        rho: ρ >= 0 between the reference and every image, or between any two images.
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

    Args:
        epsilon: ε >= 0 between the reference and every image, or between any two images.
        delta: δ from 0 to 1, likewise.
    """
    best, n = best_guess(prior), check_count("releases", releases)
    if not 0 <= delta <= 1:
        raise ConfigError(f"delta={delta:g}: it lies from 0 to 1")
    total, lost = n * check_number("epsilon", epsilon), n * delta
    source = "(eps, delta)-DP from a centre: Dong, Roth & Su 2022, Eq. (3)"
    first = math.exp(total) * best + lost if total < -math.log(best) else 1.0
    second = math.exp(-total) * (lost + best) - math.expm1(-total)
    return bound_of(best, math.log(min(1.0, first, second)), source)
