"""The first norm of a policy, from the norms of tasks."""

import math

import torch
from torch import Tensor

from sfumato.dp.clipping.noise import Draw, check_noise, noisy_sum
from sfumato.dp.clipping.rows import check_above_0, check_between_0_and_1
from sfumato.errors import ConfigError


def private_start(
    norms: Tensor,
    *,
    noise_multiplier: float,
    draw: Draw,
    smallest: float = 1e-3,
    largest: float = 1e3,
    bins: int = 24,
    quantile: float = 0.5,
) -> float:
    """A quantile of the norms, from a noised histogram over geometric bins.

    A task is in one bin (norms beyond the range in the first or last; NaN is in no bin): adding or removing
    it moves the counts by at most 1 in L2. All counts are one Gaussian release of sensitivity 1. Charge it:
    at rate 1 if the norms of all tasks were given. The start is the geometric middle of the bin that best
    holds the quantile of the noised counts. An edge would not do, since all norms may be in one bin, and
    every edge then splits them as badly. By default a bin ends at 1.8 times its beginning.

    Args:
        norms: (T,), of the contributions of tasks; may be empty.
        noise_multiplier: z >= 0, the standard deviation of the noise on each count.
        draw: Gaussian noise.
        smallest, largest: the range, public.
        bins: how many.
        quantile: γ in (0, 1).
    """
    check_above_0("smallest", smallest)
    check_between_0_and_1("quantile", quantile)
    if not smallest < largest < math.inf:
        raise ConfigError(f"largest={largest:g}: above smallest={smallest:g}, and finite")
    if bins < 2:
        raise ConfigError(f"bins={bins}: at least 2, or there is nothing to choose")
    check_noise(noise_multiplier)
    edges = torch.logspace(math.log10(smallest), math.log10(largest), bins + 1, dtype=torch.float64)
    known = norms.detach().to("cpu", torch.float64).flatten()
    bin_of = torch.bucketize(known[~known.isnan()], edges[1:-1])  # 0 to bins - 1
    counts = bin_of.bincount(minlength=bins).double()  # (bins,)
    noisy = noisy_sum(counts[None], noise_multiplier, draw)
    below = torch.cat([noisy.new_zeros(1), noisy.cumsum(0)])  # (bins + 1,), up to each edge
    wanted = quantile * below[-1]
    chosen = int(torch.maximum(below[:-1] - wanted, wanted - below[1:]).argmin())
    return math.sqrt(edges[chosen] * edges[chosen + 1])
