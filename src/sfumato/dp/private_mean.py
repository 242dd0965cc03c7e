"""Noise on the mean of few vectors, or on one, that hides which photographs were shots."""

import math

from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ConfigError


def mean_sensitivity(shot: int, *, clipping_norm: float) -> float:
    """The L2 distance that the mean of K vectors, of norms up to c, moves when one is replaced: 2c / K.

    Raises:
        ConfigError: K below 1, or c not above 0.
    """
    if shot < 1 or not 0 < clipping_norm < math.inf:
        raise ConfigError(f"shot={shot}, clipping_norm={clipping_norm:g}: at least 1, and above 0")
    return 2 * clipping_norm / shot


def mean_guarantee(shot: int, *, clipping_norm: float, sigma: float) -> Guarantee:
    """The guarantee of the mean of K clipped vectors with noise: mu-GDP with mu = 2c / (K sigma).

    Neighbours are two sets of K shots of which one differs (Dong, Roth & Su 2022, Theorem 2.7). K is public,
    and so is who is enrolled.
    """
    if not 0 < sigma < math.inf:
        raise ConfigError(f"sigma={sigma:g}: above 0; without noise nothing is promised")
    mu = mean_sensitivity(shot, clipping_norm=clipping_norm) / sigma
    source = "Gaussian mechanism: Dong, Roth & Su 2022, Thm. 2.7"
    return Guarantee(definition="gaussian", value=mu, pixels=1, whole_image=mu, source=source)


def sigma_for(shot: int, *, clipping_norm: float, epsilon: float, delta: float) -> float:
    """The least standard deviation, but for 1 in a million, whose `mean_guarantee` is (eps, delta)-DP.

    Raises:
        ConfigError: epsilon not above 0, or delta not in (0, 1).
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise ConfigError(f"epsilon={epsilon:g}, delta={delta:g}: above 0, and delta below 1")
    unit = mean_sensitivity(shot, clipping_norm=clipping_norm)

    def costs(sigma: float) -> float:
        stated = mean_guarantee(shot, clipping_norm=clipping_norm, sigma=sigma)
        return stated.to("approximate", delta=delta).value

    low = high = unit
    while costs(high) > epsilon:
        high *= 2
    while costs(low) <= epsilon:
        low /= 2
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if costs(middle) <= epsilon else (middle, high)
    return high
