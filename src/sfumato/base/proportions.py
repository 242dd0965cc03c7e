"""Proportions and their confidence intervals."""

import math


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """95% interval of a proportion. Wilson 1927: right also near 0, where a safe setting should be.

    A trial may be a hit in part, as the mean of several draws: its variance is smaller than that of a whole
    hit or miss, so the interval is too wide rather than too narrow.
    """
    z = 1.959964
    share = hits / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # The proportion itself lies within, also if rounding would leave an end of 0.9999999999999999.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def of_groups(share: float, variance: float, *, groups: int, trials: int) -> tuple[float, float]:
    """95% interval of a proportion among groups that differ, of which some were drawn.

    Source: Korn & Graubard 1998: the interval of as many trials as have this variance, fewer by the allowance
    of the t-distribution of the groups; theirs is that of Clopper & Pearson, and here it is Wilson's.

    Args:
        share: the mean over the groups.
        variance: of that mean.
        groups: how many, 2 or more.
        trials: the most that all groups count for.
    """
    varies = variance > 0 and 0 < share < 1  # at 0 and 1 a variance says nothing
    effective = min(share * (1 - share) / variance, trials) if varies else trials
    effective *= (1.959964 / _t_quantile(groups - 1)) ** 2
    return wilson(share * effective, effective)


def _t_quantile(freedom: int) -> float:
    """97.5% of Student's t. Source: Fisher & Cornish 1960; 3% too small with 2 degrees, exact with many."""
    z = 1.959964
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )
