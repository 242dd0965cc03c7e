"""The two other accountants: by Rényi divergences, a looser bound, and by a central limit theorem."""

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from sfumato.dp.accounting.losses import EXTRA
from sfumato.dp.accounting.stretches import Steps
from sfumato.errors import needs_extra


def rdp_epsilon(steps: Steps, delta: float) -> float:
    """ε by Rényi differential privacy: an upper bound."""
    with needs_extra(*EXTRA):
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant, compute_epsilon
    if any(noise == 0 for noise, _ in steps):
        return math.inf
    accountant = RdpAccountant()
    with _drop_unconverged_orders(), np.errstate(over="ignore", under="ignore", divide="ignore"):
        for (noise, rate), n in steps.items():
            event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
            accountant.compose(event, n)
        # Each step's divergence is rounded to about 1e-15; 0 or less would count as perfect privacy.
        divergences = np.maximum(accountant.rdp, 0) + 1e-14 * sum(steps.values())
        bound, _ = compute_epsilon(accountant.orders, divergences, delta)
    return float(bound)


@contextmanager
def _drop_unconverged_orders() -> Iterator[None]:
    """Hides the warning that the series of a fractional order did not converge: that order is left out.

    Every order by itself gives a bound, so leaving one out can only loosen the least of them. Without
    fractional orders nothing would be logged, but they make the bound tight at ε of 5 and more (7.40 by PLD
    is 8.77 with them and 10.2 without).
    """
    logger = logging.getLogger("absl")

    def about_something_else(record: logging.LogRecord) -> bool:
        return "failed to converge" not in record.getMessage()

    logger.addFilter(about_something_else)
    try:
        yield
    finally:
        logger.removeFilter(about_something_else)


def gdp_epsilon(steps: Steps, delta: float) -> float:
    """ε by a central limit theorem: may be below the truth; infinity for a μ of a million or more."""
    with needs_extra(*EXTRA):
        from dp_accounting import get_epsilon_gaussian
    mu = math.sqrt(sum(n * gdp_square(noise, rate) for (noise, rate), n in steps.items()))
    if mu == 0:
        return 0.0
    return float(get_epsilon_gaussian(1 / mu, delta)) if mu < 1e6 else math.inf


def gdp_square(noise_multiplier: float, rate: float) -> float:
    """μ^2 of one step in the limit of many."""
    exponent = 1 / noise_multiplier**2 if noise_multiplier > 0.05 else math.inf
    return rate * rate * math.expm1(exponent) if exponent < 700 else math.inf


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ whose Gaussian mechanism has that ε at δ: the start of a search."""
    with needs_extra(*EXTRA):
        from dp_accounting import get_sigma_gaussian
    return 1 / float(get_sigma_gaussian(epsilon, delta))
