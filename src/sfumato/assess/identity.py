"""What releases tell of who they show, in bits, and how sure anybody can be of one of them.

Bits of identity are log2 N minus the cross-entropy, in bits, of an adversary's posterior about the right one
of N people: a lower bound on the information of a release, which is at most b for a code of b bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from sfumato.base.proportions import trials_of_people

SUREST = 0.01  # of all namings, which an adversary may choose by how sure they are
_TEMPERATURES = np.logspace(-2, 2, 41)
# Of the uniform distribution in the posterior. Never 0: ruling out the right person costs infinitely much.
_UNIFORM = np.array([1e-4, 1e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0])
_CALIBRATED = 1_000  # releases at most, of each half


@dataclass(frozen=True)
class Posterior:
    """What an adversary with calibrated probabilities believes of each of m releases."""

    bits: np.ndarray  # (m,) log2 of N times the probability of the right person
    largest: np.ndarray  # (m,) the probability of the likeliest
    right: np.ndarray  # (m,) how often naming the likeliest is right: a share if several are equally likely

    def surest(self, share: float = SUREST) -> np.ndarray:
        """(m,) bool, the releases with the surest namings: that share, and all as sure as the last."""
        count = max(1, round(share * len(self.largest)))
        least = np.partition(self.largest, -count)[-count]
        return np.asarray(self.largest >= least * (1 - 1e-9))


def calibrate(scores: Sequence[ArrayLike], right: ArrayLike, half: ArrayLike) -> Posterior:
    """Turn scores into probabilities: on each half of the people as the other half is best described.

    Each half chooses one adversary for the other, a temperature t and a share u of the uniform distribution,
    so that the posterior (1 - u)·softmax(t·scores) + u/N has the least cross-entropy. Nothing is chosen where
    it is measured, so scores that say nothing give 0 bits but for chance. With nobody in a half it is 1/N.

    Takes (m, N) scores of each adversary, of any scale, higher for who is likelier; (m,) int64 columns of the
    right person; and (m,) bool, whether a release shows a person of the second half.
    """
    columns, second = np.asarray(right), np.asarray(half, dtype=bool)
    first: np.ndarray = np.asarray(scores[0], np.float64)
    probabilities = np.full_like(first, 1 / first.shape[1])
    for measured in (second, ~second):
        rows = np.flatnonzero(~measured)
        if not len(rows) or not measured.any():
            continue
        rows = rows[:: -(-len(rows) // _CALIBRATED)]
        fits = [_fit(np.asarray(each, np.float64)[rows], columns[rows]) for each in scores]
        best = min(range(len(fits)), key=lambda number: fits[number][0])
        _, temperature, uniform = fits[best]
        likely = _softmax(temperature * np.asarray(scores[best], np.float64)[measured])
        probabilities[measured] = (1 - uniform) * likely + uniform / likely.shape[1]
    largest = probabilities.max(1)
    likeliest = probabilities >= largest[:, None] * (1 - 1e-9)
    own = np.arange(len(columns)), columns
    bits = np.log2(probabilities[own] * probabilities.shape[1])
    return Posterior(bits, largest, likeliest[own] / likeliest.sum(1))


def _fit(scores: np.ndarray, right: np.ndarray) -> tuple[float, float, float]:
    """Return the least cross-entropy, in nats, and the temperature and the uniform share that have it."""
    spread = float(scores.std(1).mean()) or 1.0
    own, best = np.arange(len(right)), (np.inf, 0.0, 1.0)
    for temperature in _TEMPERATURES / spread:
        likely = _softmax(temperature * scores)[own, right][:, None]
        costs = -np.log((1 - _UNIFORM) * likely + _UNIFORM / scores.shape[1]).mean(0)
        best = min(best, (float(costs.min()), float(temperature), float(_UNIFORM[costs.argmin()])))
    return best


def _softmax(logits: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    shares: np.ndarray = exponents / exponents.sum(1, keepdims=True)
    return shares


def by_person(
    scores: Sequence[ArrayLike], right: ArrayLike, people: ArrayLike, half: ArrayLike | None = None
) -> dict[str, list[float]]:
    """Summarise the posterior of `calibrate` for each person, by ascending code of (m,) `people`.

    `bits` are means; `surest` counts the right ones of the surest namings, `surest_of` all of these. Without
    `half` every second person is in the second half.
    """
    codes, rows = np.unique(np.asarray(people), return_inverse=True)
    posterior = calibrate(scores, right, rows % 2 == 1 if half is None else half)
    surest, count = posterior.surest(), len(codes)
    bits = np.bincount(rows, posterior.bits, count) / np.bincount(rows, minlength=count)
    return {
        "bits": bits.round(4).tolist(),
        "surest": np.bincount(rows, posterior.right * surest, count).round(4).tolist(),
        "surest_of": np.bincount(rows[surest], minlength=count).tolist(),
    }


def mean_over_people(values: Sequence[float], weights: Sequence[float]) -> tuple[float, float, float]:
    """The weighted mean of a value of each person, and its 95% interval over people, by Student's t.

    Source of the variance, that of a ratio of sums: Cochran 1977, Sec. 9.7. For one person it is infinite.
    """
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    each, counts = np.asarray(values, float), np.asarray(weights, float)
    mean = float(each @ counts / counts.sum())
    if len(each) < 2:
        return mean, -np.inf, np.inf
    spread = float((((each - mean) * counts) ** 2).sum()) * len(each) / (len(each) - 1)
    half = float(stdtrit(len(each) - 1, 0.975)) * spread**0.5 / float(counts.sum())
    return mean, mean - half, mean + half


def precision(right: Sequence[float], namings: Sequence[float]) -> tuple[float, float, float]:
    """The right share of people's namings, with its 95% interval over people (Clopper & Pearson 1934)."""
    from scipy.special import betaincinv

    known = [(hits, count) for hits, count in zip(right, namings, strict=True) if count]
    own, counts = zip(*known, strict=True)
    trials, share = trials_of_people(own, counts), sum(own) / sum(counts)
    hits = share * trials
    low = 0.0 if hits <= 0 else float(betaincinv(hits, trials - hits + 1, 0.025))
    high = 1.0 if hits >= trials else float(betaincinv(hits + 1, trials - hits, 0.975))
    return share, min(low, share), max(high, share)
