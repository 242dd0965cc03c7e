"""Proportions and their confidence intervals.

Photographs of one person are named together or not at all: of rates over people, people are the unit. All
that states or judges such a rate asks `over_people` and `upper_end_over_people`.
"""

import math
from collections.abc import Sequence

_Z = 1.959964  # 97.5% of the normal distribution


def wilson(hits: float, trials: float, z: float = _Z) -> tuple[float, float]:
    """95% interval of a proportion. Wilson 1927: right also near 0, where a safe setting should be.

    A trial may be a hit in part, as the mean of several draws: its variance is smaller than that of a whole
    hit or miss, so the interval is too wide rather than too narrow.
    """
    share = hits / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # The proportion itself lies within, also if rounding would leave an end of 0.9999999999999999.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def trials_of_people(hits: Sequence[float], probes: Sequence[float]) -> float:
    """The number of independent trials that would be as certain as several probes of each person.

    The variance is that between people (the ratio estimator of a cluster sample: Cochran 1977, Sec. 9.7).
    While few probes are hits it tells little: it counts as if one more person were named in all of theirs. So
    without a hit a person is one trial (fewer if some have more probes), and a probe is one at most.
    `hits` and `probes` are (P,), of each person, with a probe in all at least.
    """
    total, people = sum(probes), len(probes)
    share = min(1.0, sum(hits) / total)
    # Factors of the variance of independent probes: of people who are named whole, and of these.
    whole = max(1.0, sum(count * count for count in probes) / total)
    factor, independent = whole, share * (1 - share) * total
    if people > 1 and independent > 0:
        pairs = zip(hits, probes, strict=True)
        spread = people / (people - 1) * sum((right - share * count) ** 2 for right, count in pairs)
        factor = min(max(1.0, spread / independent), whole)
    rarer = min(share, 1 - share) * total
    return total * (rarer + whole) / (rarer * factor + whole * whole)


def over_people(hits: Sequence[float], probes: Sequence[float], z: float = _Z) -> tuple[float, float]:
    """95% interval, or that of z, of the share of all probes: Wilson's, for `trials_of_people`."""
    trials = trials_of_people(hits, probes)
    return wilson(min(trials, sum(hits) / sum(probes) * trials), trials, z)


def upper_end_over_people(hits: Sequence[float], probes: Sequence[float], *, error: float) -> float:
    """The bound that the true share exceeds with this probability at most: Clopper & Pearson 1934.

    It is never under that of as many people without a hit: more photographs of them show no less.
    """
    from scipy.special import betaincinv  # type: ignore[import-untyped]

    trials, people = trials_of_people(hits, probes), trials_of_people([0.0] * len(probes), probes)
    right = sum(hits) / sum(probes) * trials
    end = 1.0 if right >= trials else float(betaincinv(right + 1, trials - right, 1 - error))
    return max(end, 1 - math.pow(error, 1 / people))


def of_groups(share: float, variance: float, *, groups: int, trials: int) -> tuple[float, float]:
    """95% interval of a proportion among groups that differ, of which some were drawn.

    Source: Korn & Graubard 1998: the interval of as many trials as have this variance, fewer by the allowance
    of the t-distribution of the groups; theirs is that of Clopper & Pearson, and here it is Wilson's. `share`
    is the mean over 2 or more groups, and `variance` is of that mean. All groups count for `trials` at most.
    """
    varies = variance > 0 and 0 < share < 1  # at 0 and 1 a variance says nothing
    effective = min(share * (1 - share) / variance, trials) if varies else trials
    effective *= (_Z / _t_quantile(groups - 1)) ** 2
    return wilson(share * effective, effective)


def _t_quantile(freedom: int) -> float:
    """97.5% of Student's t. Source: Fisher & Cornish 1960; 3% too small with 2 degrees, exact with many."""
    z = _Z
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    return z + (z**3 + z) / (4 * freedom) + second + third
