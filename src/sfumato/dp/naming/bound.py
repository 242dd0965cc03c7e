"""The parts of every bound: priors, ranges of numbers, rounding that only loses; and what follows from one.

Volumes: Gaussian noise on bounded numbers, by the Wills functional of a ball. Ranks: a lower bound on the
rank of the right person in anybody's list of guesses, which is log-rank privacy, proved. Series:

n releases of one person: the factor by which they multiply the best guess, and the assumption it needs.

All factors are Σ_y max_s P_s(y) over the observed y: the exponential of the maximal leakage (Issa, Wagner &
Kamath 2020, arXiv:1807.07878), so naming is at most the factor times π. M outputs, n releases:

- "none": a sequence, M^n.
- "one image": all n show one image, and only noise differs: M, for they reveal no more than its true output.
- "chain": given the person, one-bit answers are a first-order Markov chain, or a mixture of chains. Then
  P_s(y) is at most max Π p_ij^n_ij over chains, summed over all sequences by their first answer, its number z
  and runs a, and the runs b of the other; see `_log_chain`. Bursts are long runs. M > 2: a sequence.
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
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

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

    An average over people, images and noise. For the discrete Gaussian see `discrete`. `dimensions` is d >=
    1, `ratio` c/σ >= 0: the RADIUS to the noise's standard deviation in each number.
    """
    d, n = check_count("dimensions", dimensions), check_count("releases", releases)
    scaled = check_number("ratio", ratio) / math.sqrt(2 * math.pi)
    source, best = "Wills functional of a ball: Wills 1973, Hadwiger 1975; Mourtada 2023", best_guess(prior)
    logarithm = scaled
    if scaled and math.isfinite(scaled):
        terms = [  # ln V_j / (σ√2π)^j; binom(d, j) is d! / j! (d - j)!
            math.lgamma(d + 1) - math.lgamma(j + 1) - math.lgamma(d - j + 1)
            + _log_ball(d) - _log_ball(d - j) + j * math.log(scaled)
            for j in range(1, d + 1)
        ]  # fmt: skip
        top = max(terms)
        rest = top + math.log(math.fsum(math.exp(term - top) for term in terms))
        logarithm = np.logaddexp(0.0, rest).item()
    # The logarithm loses as many digits as factorials do, and n multiplies the loss.
    return bound_of(best, math.log(best) + n * logarithm * (1 + 1e-12 * (1 + d)), source)


def discrete(bound: Bound, *, dimensions: int, step: float, releases: int = 1) -> Bound:
    """Converts a bound for Gaussian noise to the DISCRETE Gaussian on a grid: times exp(n·d·(h/σ)² / 24).

    Proof: let k be a point of the grid of step h, seen from the true one. The discrete Gaussian has there
    exp(-k²/2σ²) / Z, with h·Z >= σ√2π by Poisson's summation. The continuous one, rounded to the grid, has
    the mean of exp(-(k+u)²/2σ²) over |u| <= h/2, times h/σ√2π; by Jensen's inequality the mean is at least
    exp(-(k² + h²/12) / 2σ²). So each number's probability is at most exp(h²/24σ²) times that of rounded
    noise, and so is the chance of any adversary, times that factor for every number released. Rounding only
    loses.

    `bound` is for continuous noise, of the same numbers and releases, d `dimensions` that lie on the grid
    before noise is added; `step` is h/σ >= 0.
    """
    d, n = check_count("dimensions", dimensions), check_count("releases", releases)
    excess = n * d * check_number("step", step) ** 2 / 24
    if bound.chance >= 1 or excess > -math.log(bound.chance):
        return Bound(1.0, bound.source)
    return Bound(min(1.0, bound.chance * math.exp(excess) * (1 + UP)), f"{bound.source}; on a grid")


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
        bound: π -> the upper bound on the chance to name somebody, by one assumption about some releases.
        people: N >= 2.
        largest: π of the likeliest person; None for 1/N.
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


Assumption = Literal["none", "one image", "chain", "shuffled", "exchangeable"]

ASSUMED: dict[Assumption, str] = {
    "none": "nothing is assumed of the images",
    "one image": "assumed: all releases are of one image",
    "chain": (
        "assumed: given the person, they are a Markov chain, in which an answer depends on the one before "
        "alone (bursts are allowed), the same over all of them; the order is seen"
    ),
    "shuffled": "assumed: they leave as one shuffled batch without times, so that nobody sees their order",
    "exchangeable": (
        "assumed: given the person, each is an independent draw from one distribution, which stays the same "
        "over all of them; near copies (a burst) are one draw"
    ),
}

COUNTED: dict[Assumption, str] = {
    "none": "counting of outputs: Smith 2009, Thm. 1",
    "one image": "outputs of one image: Issa, Wagner & Kamath 2020, Thm. 1",
    "chain": "Shtarkov sum of a Markov chain: Shtarkov 1987",
    "shuffled": "counting of histograms: Smith 2009, Thm. 1",
    "exchangeable": "Shtarkov sum: Shtarkov 1987; Kontkanen & Myllymäki 2007",
}
BY_STRENGTH: tuple[Assumption, ...] = ("none", "chain", "shuffled", "exchangeable")  # each proves more
_MOST_TERMS = 1_000_000  # of a sum; with more, only the factor of a sequence is claimed
_MOST_SHUFFLED = 2_000  # flipped bits of a batch, whose sum has n³ terms, or answers of a chain
_BEYOND = 700.0  # from this logarithm on, nothing is proved for any prior


def log_factor(*, outputs: int, releases: int, assuming: Assumption) -> float:
    """ln of the factor of n releases without noise: see above. With noise on M outputs it is no larger.

    Rounded up by more than floating point loses, like `log_flipped`.
    """
    m, n = check_count("outputs", outputs), check_count("releases", releases)
    sequence = n * math.log(m)
    if assuming == "one image":
        return math.log(m)
    if assuming == "none" or n == 1:
        return sequence
    if assuming == "chain":
        return min(sequence, _log_chain(n) if m == 2 else math.inf)
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
        case "none" | "chain":  # a chain with flips is none
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
            terms = binomial(n, share, 1 - share)
    return math.log(math.fsum(terms)) + UP_PER_STEP * n


def binomial(draws: int, success: ArrayLike, failure: ArrayLike) -> NDArray[np.float64]:
    """binom(n, k) p^k (1-p)^(n-k) for k from 0 to n, of one p or each its own; 0^0 is 1.

    Both chances are given, since 1 - p would lose digits.
    """
    k, factorials = np.arange(draws + 1), _log_factorials(draws)
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        hit, missed = (
            np.where(count == 0, 0.0, count * np.log(chance))
            for count, chance in ((k, success), (draws - k, failure))
        )
        terms: NDArray[np.float64] = np.exp(factorials[-1] - factorials - factorials[::-1] + hit + missed)
    return terms


@lru_cache(maxsize=16)
def _log_factorials(most: int) -> NDArray[np.float64]:
    return np.array([math.lgamma(i + 1) for i in range(most + 1)])


def lower_limit(hits: int, trials: int, *, alpha: float) -> float:
    """A limit that lies below the probability of a hit with confidence 1 - alpha (Clopper & Pearson 1934).

    The largest p with P(Binomial(trials, p) >= hits) <= alpha, by bisection from below.
    """
    low, high = 0.0, hits / trials
    for _ in range(60 if hits else 0):
        p = (low + high) / 2
        tail = binomial(trials, p, 1 - p)[hits:].sum()
        low, high = (p, high) if tail <= alpha else (low, p)
    return low


def upper_limit(hits: int, trials: int, *, alpha: float) -> float:
    """A limit that lies above the probability of a hit with confidence 1 - alpha (Clopper & Pearson 1934)."""
    return 1 - lower_limit(trials - hits, trials, alpha=alpha)


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


@lru_cache(maxsize=256)
def _log_chain(releases: int) -> float:
    """ln of 2 Σ_z Σ_a Σ_b binom(z-1, a-1) binom(n-z-1, b-1) Π_ij (n_ij / n_i.)^n_ij, b being a - 1 or a.

    From the first answer to itself there are n_00 = z - a steps, to the other n_01 = b, back n_10 = a - 1,
    and n_11 = n - z - b; 0^0 = 1.
    """
    n = releases
    if n > _MOST_SHUFFLED:
        return math.inf
    logarithm = _log_factorials(n)
    steps = np.arange(n + 1) * np.log(np.maximum(np.arange(n + 1), 1))  # k ln k
    total = [1.0]  # z = n: one run
    for z in range(1, n):
        for before in (0, 1):  # b = a - before
            a = np.arange(1 + before, min(z, n - z + before) + 1)
            b, left = a - before, z - a
            ways = logarithm[z - 1] - logarithm[a - 1] - logarithm[left]
            ways = ways + logarithm[n - z - 1] - logarithm[b - 1] - logarithm[n - z - b]
            likeliest = steps[left] + steps[b] - steps[left + b] + steps[a - 1] + steps[n - z - b]
            total += np.exp(ways + likeliest - steps[a - 1 + n - z - b]).tolist()
    return math.log(2 * math.fsum(total)) + UP_PER_STEP * n
