"""Singling out and linkability on similarities, by definitions that the CNIL validated for speech.

Source: Vauquier, Srivastava, Hosseini & Vincent 2025, "Legally validated evaluation framework for voice
anonymization" (Interspeech). They need NumPy alone.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import DataError

BY_LUCK = math.exp(-1)  # how often a predicate isolates somebody that is true of 1 person in N at random


def linkability(
    similarities: NDArray[np.float64], right: NDArray[np.int64], *, candidates: int
) -> NDArray[np.float64]:
    """The chance to link each probe to the right one of N' people, who are drawn at random. -> (m,).

    Their mean is the linkability of the paper, over all draws of the N' - 1 others. Equally similar people
    are guessed among: the paper counts none of them as linked, its authors' code all of them.

    Args:
        similarities: (m, I) of each probe to each person.
        right: (m,) the person of each probe, a column.
        candidates: N', from 1 to I.
    """
    others, drawn = similarities.shape[1] - 1, candidates - 1
    if not 0 <= drawn <= others:
        raise DataError(f"candidates={candidates}: from 1 to the {others + 1} people there are")
    own = np.take_along_axis(similarities, right[:, None], axis=1)
    above = (similarities > own).sum(1)
    equal = (similarities == own).sum(1) - 1
    chances = {
        counts: _chance(others - sum(counts), counts[1], drawn, others)
        for counts in {*zip(above.tolist(), equal.tolist(), strict=True)}
    }
    return np.array([chances[counts] for counts in zip(above.tolist(), equal.tolist(), strict=True)])


def _chance(below: int, equal: int, drawn: int, others: int) -> float:
    """The chance that nobody above is drawn, and that a guess among the right one and equals is right.

    With T equals drawn it is E[1 / (1 + T)], a sum of hypergeometric terms, in exact integers.
    """
    ways = math.comb(equal + below + 1, drawn + 1) - math.comb(below, drawn + 1)
    return float(Fraction(ways, (equal + 1) * math.comb(others, drawn)))


def singling_out(tests: NDArray[np.float64], calibration: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether the predicate of each person is true of exactly one test record of anybody. -> (P,).

    The predicate: more similar to what is known of the person than a threshold, halfway between the M-th and
    the next of the similarities to other records, so that it is true of 1 in N of them.

    Args:
        tests: (P, N) similarity of what is known of each of P people to a record of each of N people.
        calibration: (P, N, M) the same for M other records of each of the N.
    """
    people, records = calibration.shape[1:]
    if people < 2 or records < 1:
        raise DataError(f"{people} people with {records} other records: at least 2 with 1")
    ordered = np.sort(calibration.reshape(len(calibration), -1), axis=1)
    thresholds = (ordered[:, -records - 1] + ordered[:, -records]) / 2
    isolated: NDArray[np.bool_] = (tests > thresholds[:, None]).sum(1) == 1
    return isolated
