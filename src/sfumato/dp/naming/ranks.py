"""A lower bound on the rank of the right person in anybody's list of guesses: log-rank privacy, proved."""

import math
from collections.abc import Callable

from sfumato.dp.naming.bound import Bound, check_count
from sfumato.errors import ConfigError

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
