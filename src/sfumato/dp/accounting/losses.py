"""Privacy loss distributions: the cost of steps, as an upper bound that may be stated."""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from sfumato.dp.accounting.stretches import Steps
from sfumato.errors import needs_extra

EXTRA = "accounting for private training", "private"

_ROUNDING, _ROUNDING_PER_STEP = 1e-12, 3e-16  # subtracted from δ, see stretches

# The grid of privacy losses. Rounding adds about steps * interval^2 / 2 to ε.
_LOOSENESS = 1e-4
_STEP_SIZE, _MIXTURE_SIZE, _TOTAL_SIZE = 150_000, 20_000, 500_000  # points, at most: they take time
_FINEST, _COARSEST = 1e-6, 10.0
_REACH = 10.0  # standard deviations of the noise that are kept: the rest, e^-50, counts as revealed
_RARE = 1e-25  # a rarer number of tasks drawn together counts as all of them


def pld_epsilon(steps: Steps, delta: float, *, tasks: int) -> float:
    """ε, composed of privacy loss distributions, for an image in up to `tasks` tasks: an upper bound."""
    if any(noise == 0 for noise, _ in steps):
        return math.inf
    # Without sampling the steps are one Gaussian of k^2 T / σ^2, exactly.
    full = sum(n * (tasks / noise) ** 2 for (noise, rate), n in steps.items() if rate == 1)
    parts = {(noise, rate, tasks): n for (noise, rate), n in steps.items() if rate < 1}
    if full:
        parts[1 / math.sqrt(full), 1.0, 1] = 1
    interval = _interval(parts)
    if interval > _COARSEST:
        return math.inf
    # Far out in the tails exponentials overflow to the infinity, and underflow to the 0, that they stand for.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        losses = [_step_loss(*part, interval).self_compose(n) for part, n in parts.items()]
        total = losses[0]
        for loss in losses[1:]:
            total = total.compose(loss)
        kept_back = _ROUNDING + _ROUNDING_PER_STEP * sum(parts.values())
        bound = float(total.get_epsilon_for_delta(delta - kept_back))
    return math.inf if math.isnan(bound) else bound


@lru_cache(maxsize=16)
def _step_loss(noise_multiplier: float, rate: float, tasks: int, interval: float) -> Any:
    """The privacy loss distribution of one step, as a PrivacyLossDistribution."""
    with needs_extra(*EXTRA):
        from dp_accounting.pld import privacy_loss_distribution as pld
        from scipy.stats import binom  # type: ignore[import-untyped]
    if tasks == 1:
        return pld.from_gaussian_mechanism(
            noise_multiplier, sampling_prob=rate, value_discretization_interval=interval
        )
    likely = _likely_tasks(rate, tasks)
    counts = list(range(likely + 1))
    probabilities = binom.pmf(counts, tasks, rate).tolist()
    if likely < tasks:
        # More tasks at once can only reveal more: moving the tail up keeps the bound, cutting it would not.
        counts.append(tasks)
        probabilities.append(float(binom.sf(likely, tasks, rate)))
    return pld.from_mixture_gaussian_mechanism(
        noise_multiplier, counts, probabilities, value_discretization_interval=interval
    )


def _likely_tasks(rate: float, tasks: int) -> int:
    """The most of an image's tasks in one step that need to be told apart."""
    if tasks == 1:
        return 1
    with needs_extra(*EXTRA):
        from scipy.stats import binom
    return max(1, min(tasks, int(binom.isf(_RARE, tasks, rate))))


def _interval(parts: Mapping[tuple[float, float, int], int]) -> float:
    """The grid of the privacy losses: fine enough to be tight, coarse enough to compute. A power of 2.

    Any interval gives a bound: the losses are rounded pessimistically. The library's fixed 1e-4 would take
    gigabytes if ε is large, and overstate ε tenfold if single steps reveal next to nothing.
    """
    steps = sum(parts.values())
    finest, coarsest = math.sqrt(_LOOSENESS / steps), _FINEST
    mean = variance = widest = 0.0
    for (noise, rate, tasks), n in parts.items():
        shift = _likely_tasks(rate, tasks) / noise  # in standard deviations of the noise
        unsampled = shift * shift / 2 + _REACH * shift  # the largest loss, were the image's tasks all drawn
        chance = min(1.0, tasks * rate)
        widest_here = math.log1p(chance * math.expm1(unsampled)) if unsampled < 700 else unsampled
        # The mean loss, by convexity; or by the chi-square divergence, if that is less.
        kl = tasks * rate * (1 - rate + tasks * rate) / (2 * noise * noise)
        if tasks == 1 and shift < 20:
            kl = min(kl, rate * rate * math.expm1(shift * shift))
        mean, variance = mean + n * kl, variance + n * kl * (shift * shift / 2 + 2)
        widest = max(widest, widest_here)
        finest = min(finest, tasks * rate / noise / 16)  # a small part of a step's own spread
        coarsest = max(coarsest, widest_here / (_STEP_SIZE if tasks == 1 else _MIXTURE_SIZE))
    coarsest = max(coarsest, (mean + 8 * math.sqrt(variance) + widest) / _TOTAL_SIZE)
    return max(2.0 ** math.floor(math.log2(finest)), 2.0 ** math.ceil(math.log2(coarsest)))
