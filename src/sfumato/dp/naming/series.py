"""n releases of one person: the factor by which they multiply the best guess, and the assumption it needs.

All factors are Σ_y max_s P_s(y) over the observed y: the exponential of the maximal leakage (Issa, Wagner &
Kamath 2020, arXiv:1807.07878), so naming is at most the factor times π. M outputs, n releases:

- "none": a sequence, M^n.
- "one image": all n show one image, and only noise differs: M, for they reveal no more than its true output.
- "shuffled": only the histogram is seen, one of binom(n + M - 1, M - 1) (the types of Csiszár).
- "exchangeable": given the person, releases are draws from a distribution θ that is theirs, or drawn once for
  them (de Finetti). Then P_s(y) <= max_θ Π θ_{y_i}, whose sum over all sequences is the Shtarkov sum C(M, n)
  of the multinomial (Shtarkov 1987). Nobody need shuffle.

A burst, images of one scene, breaks the last: 10 photographs of one smile are not 10 draws. So near copies
are ONE draw, released by any protection, and each further release of them counts in full, as in a
sequence: y = (z, w) with one release of each burst in z gives Σ_y max_s P_s(z)·P_s(w|z) <= C(M, bursts)·
M^(n - bursts). Drifting releases are not one distribution either: a statement is for a period in which θ
stays, and the factors of periods multiply.
"""

import math
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.naming.bound import UP_PER_STEP, check_count

Assumption = Literal["none", "one image", "shuffled", "exchangeable"]

ASSUMED: dict[Assumption, str] = {
    "none": "nothing is assumed of the images",
    "one image": "assumed: all releases are of one image",
    "shuffled": "assumed: they leave as one shuffled batch without times, so that nobody sees their order",
    "exchangeable": (
        "assumed: given the person, each is an independent draw from one distribution, which stays the same "
        "over all of them; near copies (a burst) are one draw"
    ),
}

COUNTED: dict[Assumption, str] = {
    "none": "counting of outputs: Smith 2009, Thm. 1",
    "one image": "outputs of one image: Issa, Wagner & Kamath 2020, Thm. 1",
    "shuffled": "counting of histograms: Smith 2009, Thm. 1",
    "exchangeable": "Shtarkov sum: Shtarkov 1987; Kontkanen & Myllymäki 2007",
}
BY_STRENGTH: tuple[Assumption, ...] = ("none", "shuffled", "exchangeable")  # each proves more
_MOST_TERMS = 1_000_000  # of a sum; with more, only the factor of a sequence is claimed
_MOST_SHUFFLED = 2_000  # flipped bits of a batch, whose sum has n³ terms
_BEYOND = 700.0  # from this logarithm on, nothing is proved for any prior


def log_factor(*, outputs: int, releases: int, assuming: Assumption) -> float:
    """ln of the factor of n releases without noise: see above. With noise on M outputs it is no larger.

    Rounded up by more than floating point loses, like `log_flipped`.

    Raises:
        ConfigError: outputs or releases below 1.
    """
    m, n = check_count("outputs", outputs), check_count("releases", releases)
    sequence = n * math.log(m)
    if assuming == "one image":
        return math.log(m)
    if assuming == "none" or n == 1:
        return sequence
    types = _log_types(m, n)
    return min(sequence, types, _log_shtarkov(m, n) if assuming == "exchangeable" else math.inf)


def log_flipped(*, flip: float, releases: int, assuming: Assumption) -> float:
    """ln of the factor of ONE bit, n times, each time flipped with probability q by itself.

    - "one image": Σ_k binom(n, k) max(q^k (1-q)^(n-k), q^(n-k) (1-q)^k), twice as often as most are right.
    - "shuffled": Σ_k max_m P(Bin(m, 1-q) + Bin(n-m, q) = k), m of the n true bits being ones.
    - "exchangeable": Σ_k binom(n, k) max θ^k (1-θ)^(n-k) over q <= θ <= 1-q: a Shtarkov sum, without noise
      that of M = 2.

    Returns:
        Infinity if there are too many terms.
    """
    q, n = flip, releases
    if n > _MOST_TERMS or (assuming == "shuffled" and n > _MOST_SHUFFLED):
        return math.inf
    match assuming:
        case "none":
            return n * math.log(2 - 2 * q)
        case "one image":
            terms = np.maximum(binomial(n, q, 1 - q), binomial(n, 1 - q, q))
        case "shuffled":
            terms = np.zeros(n + 1)
            for ones in range(n + 1):
                seen = np.convolve(binomial(ones, 1 - q, q), binomial(n - ones, q, 1 - q))
                terms = np.maximum(terms, seen)
        case "exchangeable":
            share = np.clip(np.arange(n + 1) / n, q, 1 - q)
            terms = _binomial_terms(n, share, 1 - share)
    return math.log(math.fsum(terms)) + UP_PER_STEP * n


def binomial(draws: int, success: float, failure: float) -> NDArray[np.float64]:
    """(draws + 1,) probabilities of 0 to `draws` successes; both chances, since 1 - p would lose digits."""
    shape = draws + 1
    return _binomial_terms(draws, np.full(shape, success), np.full(shape, failure))


def _binomial_terms(
    draws: int, success: NDArray[np.float64], failure: NDArray[np.float64]
) -> NDArray[np.float64]:
    """binom(n, k) p^k (1-p)^(n-k) for k from 0 to n, each with its own p; 0^0 is 1."""
    k = np.arange(draws + 1)
    factorials = np.array([math.lgamma(i + 1) for i in range(draws + 1)])
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        hit, missed = (
            np.where(count == 0, 0.0, count * np.log(chance))
            for count, chance in ((k, success), (draws - k, failure))
        )
        terms: NDArray[np.float64] = np.exp(factorials[-1] - factorials - factorials[::-1] + hit + missed)
    return terms


def _log_types(outputs: int, releases: int) -> float:
    """ln binom(n + M - 1, M - 1), as a sum that loses no digits."""
    few, many = sorted((outputs - 1, releases))
    if few > _MOST_TERMS:
        return math.inf
    return math.fsum(math.log1p(many / i) for i in range(1, few + 1))


@lru_cache(maxsize=256)
def _log_shtarkov(outputs: int, releases: int) -> float:
    """ln C(M, n): C(1) = 1, C(2) summed, C(M + 2) = C(M + 1) + n/M C(M) (Kontkanen & Myllymäki 2007)."""
    if max(outputs, releases) > _MOST_TERMS:
        return math.inf
    before, now = 0.0, log_flipped(flip=0.0, releases=releases, assuming="exchangeable")
    for m in range(1, outputs - 1):
        before, now = now, float(np.logaddexp(now, math.log(releases / m) + before))
        if now > _BEYOND:
            return math.inf
    return now + UP_PER_STEP * outputs if outputs > 1 else 0.0
