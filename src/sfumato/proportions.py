"""Shares of a count, and how sure they are."""

import math


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """95% interval of a proportion. Wilson 1927: right also near 0, where a safe setting should be.

    A trial may be a hit in part, as the mean of several draws: its variance is smaller than that of one which
    is a hit or none, so that the interval is too wide rather than too narrow.
    """
    z = 1.959964
    share = hits / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # The proportion itself lies within, also where rounding would leave an end of 0.9999999999999999.
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))
