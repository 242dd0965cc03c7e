"""Releases of a period whose number is bounded whatever the images are: nothing is assumed of them.

A rule that shows one of B outputs in a period multiplies the best guess by at most B, and by B^P in P periods
(`counting`): for every history of images, bursts and drift included, and whatever was asked. Two such rules:

- a rounded histogram: n answers with M values, sent as shares in L-ths. B = `count_histograms`;
- rare alarms: at most k among n dated slots. B = `count_alarms`.

What is seen beside the output, such as that or when something leaves, must not depend on the images.

A third rule bounds the posterior of EVERY person, not only the average: outputs that many people share. If
N people are equally likely, and an output has a chance of at least β on average over them, then that of any
of them given that output is P_s(y) / Σ_t P_t(y) <= 1 / (Nβ): `bound_posterior`.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sfumato.dp.naming.bound import check_count, lower_limit
from sfumato.errors import ConfigError


def count_histograms(values: int, parts: int) -> int:
    """B = binom(L + M - 1, M - 1): the histograms of L parts over M values."""
    return math.comb(check_count("parts", parts) + check_count("values", values) - 1, values - 1)


def round_shares(counts: Sequence[int], parts: int) -> list[int]:
    """Rounds shares to multiples of 1/L by largest remainders; ties go to the first value.

    Each share moves by less than 1/L; of two values by at most 1/(2L). No rule that reports shares of two
    values within 1/(2L) with a probability of 1 - δ multiplies a guess by less than (1 - δ)·L; here it is
    L + 1.

    Args:
        counts: how often each of M values occurred, n >= 1 in all.
        parts: L >= 1.

    Returns:
        M numbers of parts, whose sum is L.
    """
    total = sum(counts)
    if total < 1 or min(counts) < 0:
        raise ConfigError(f"counts={list(counts)}: give numbers of answers, with at least one answer in all")
    shares = [count * check_count("parts", parts) // total for count in counts]
    by_remainder = sorted(range(len(counts)), key=lambda value: (-(counts[value] * parts % total), value))
    for value in by_remainder[: parts - sum(shares)]:
        shares[value] += 1
    return shares


def number_histogram(shares: Sequence[int]) -> int:
    """Numbers a histogram among all of its parts and values, in the order of its entries: 0 to B - 1."""
    number, left = 0, sum(shares)
    for rest, share in zip(range(len(shares) - 1, 0, -1), shares, strict=False):
        number += sum(count_histograms(rest, left - less) for less in range(share))
        left -= share
    return number


def histogram_of(number: int, *, values: int, parts: int) -> list[int]:
    """Returns the histogram with a number, see number_histogram. Raises ConfigError if there is none."""
    if not 0 <= number < count_histograms(values, parts):
        raise ConfigError(
            f"histogram={number}: of {parts} parts and {values} values there are "
            f"{count_histograms(values, parts):,}, from 0"
        )
    shares: list[int] = []
    for rest in range(values - 1, 0, -1):
        share = 0
        while parts > share and number >= (ways := count_histograms(rest, parts - share)):
            number, share = number - ways, share + 1
        shares.append(share)
        parts -= share
        if not parts:
            return shares + [0] * rest
    return [*shares, parts]


def count_alarms(most: int, slots: int) -> int:
    """B = Σ_{j<=k} binom(n, j): at most k alarms in n slots, each slot with one or none."""
    k, n = check_count("most", most), check_count("slots", slots)
    return sum(math.comb(n, alarms) for alarms in range(min(k, n) + 1))


def bound_posterior(people: int, share: float, likeliest: float = 1.0) -> float:
    """p / (Nβ): the most that any output makes any of N equally likely people likely; 1 if β is 0."""
    return min(1.0, likeliest / (check_count("people", people) * share)) if share > 0 else 1.0


class Shared(NamedTuple):
    """Outputs that many people share: a rule, and β, which is wrong with a chance of at most δ."""

    rule: NDArray[np.generic]  # (L - 1,) edges for numpy.searchsorted; or (K,) what is sent for each code
    share: float  # β, at least 0, of the population from which the reference was drawn independently


def share_levels(reference: ArrayLike, *, levels: int, delta: float) -> Shared:
    """Cuts numbers into L levels of equal shares of a public reference of m people.

    β is the least share of a level in the reference, 1/L without ties, less 2√(ln(2/δ) / 2m): by the
    inequality of Dvoretzky, Kiefer & Wolfowitz with Massart's constant, twice for the ends of a level.
    `reference` is (m,) numbers, one of each person; 0 < δ < 1.
    """
    known = np.sort(np.asarray(reference, dtype=np.float64))
    edges = known[np.arange(1, levels) * len(known) // levels]
    counts = np.bincount(np.searchsorted(edges, known, "right"), minlength=check_count("levels", levels))
    off = 2 * math.sqrt(math.log(2 / delta) / (2 * len(known)))
    return Shared(edges, max(0.0, counts.min() / len(known) - off))


def share_codes(reference: ArrayLike, vectors: ArrayLike, *, least: float, delta: float) -> Shared:
    """Sends no rare code: one that less than a share of a public reference has becomes the nearest other.

    Of equally near ones the smallest. β is the limit of Clopper & Pearson 1934 below the rarest of the codes
    that are sent, at δ/K, for all K codes at once; what becomes one of them only adds to it.

    `reference` is (m,) whole numbers below K, `vectors` (K, D), what each code means: signs, or a word.
    Raises ConfigError if no code is so frequent.
    """
    known, meant = np.asarray(reference, dtype=np.int64), np.asarray(vectors, dtype=np.float64)
    counts = np.bincount(known, minlength=len(meant))
    sent = np.flatnonzero(counts >= max(1, least * len(known)))
    if not len(sent):
        raise ConfigError(
            f"common={least:g}: the most frequent code has {counts.max() / len(known):.3g} of the reference: "
            "ask for less, or train fewer bits"
        )
    apart = np.square(meant[sent]).sum(1) - 2 * meant @ meant[sent].T  # (K, sent)
    rarest = int(counts[sent].min())
    return Shared(sent[apart.argmin(axis=1)], lower_limit(rarest, len(known), alpha=delta / len(meant)))
