"""The total cost of noisy steps on sampled tasks, and the accountant that stops a run before its budget.

A step draws every task of the pool independently with a public probability, clips the contribution of each
drawn task to an L2 norm of C, sums, and adds Gaussian noise to the sum. Neighbours are pools that
differ by one task, added or removed; both directions are covered. An empty draw is a step like any other.

Three accountants answer the same question, by Google's dp-accounting. PLD (privacy loss distributions,
pessimistically rounded: Doroshenko et al. 2022, "Connect the Dots") is an upper bound, and the number to
state. RDP (Mironov et al. 2019) is a looser upper bound by another method: a cross-check. GDP (Dong, Roth &
Su 2022, Sec. 5; Bu et al. 2020) is a central limit theorem: it may lie below the truth, and is never stated
as a bound.

All of them hold for settings that are fixed beforehand or chosen by public events. Noise or rates that are
chosen by looking at noisy results need a privacy filter, which a PLD is not.
"""

import bisect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import Any, Literal

import numpy as np

from sfumato.dp.guarantee import round_up
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError, did_you_mean, needs_extra

_Accountant = Literal["pld", "rdp", "gdp"]

# The error of floating point in δ, in convolutions by FFT, was measured against the closed form of the
# Gaussian mechanism, for 10^3 to 10^6 steps and grids of 1e-2 to 4e-6: at worst 6e-17 a step too little. We
# subtract five times as much from δ: nothing at δ = 1e-5, and a third of δ at the ends of the ranges here.
MOST_STEPS = 10**6
SMALLEST_DELTA = 1e-9
_ROUNDING, _ROUNDING_PER_STEP = 1e-12, 3e-16

# The grid of privacy losses. Rounding adds about steps * interval^2 / 2 to ε.
_LOOSENESS = 1e-4
_STEP_SIZE, _TOTAL_SIZE = 150_000, 500_000  # points, at most: they take time
_FINEST, _COARSEST = 1e-6, 10.0
_REACH = 10.0  # standard deviations of the noise that are kept: the rest, e^-50, counts as revealed

_EXTRA = "accounting for private training", "private"


@dataclass(frozen=True)
class Stretch:
    """Equal steps.

    Attributes:
        noise_multiplier: σ >= 0, the standard deviation of the noise on the sum in units of C. Releases from
            one and the same draw of tasks are one Gaussian release of 1 / σ^2 = the sum of their 1 / σ^2.
            0 hides nothing.
        rate: 0 < q <= 1, the probability with which a task is in a step, independently of all others.
        steps: T, from 1 to 10^6.
    """

    noise_multiplier: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise ConfigError(
                f"noise_multiplier is a number from 0 (no privacy), in units of the clipping norm, "
                f"got {self.noise_multiplier}: about 1 is usual, and calibrate() finds what a budget needs"
            )
        if not 0 < self.rate <= 1:
            raise ConfigError(
                f"rate is above 0 and at most 1 (every task in every step), got {self.rate}: "
                "give tasks a step / tasks in the pool"
            )
        if not (1 <= self.steps <= MOST_STEPS and self.steps == int(self.steps)):
            raise ConfigError(
                f"steps is a whole number from 1 to {MOST_STEPS}, got {self.steps}: leave out a stretch "
                "without steps; with more the floating-point error is not known to be harmless"
            )

    def of_group(self, tasks: int) -> "Stretch":
        """Steps that cost one task what these cost k tasks together, added or removed: an upper bound.

        With probability 1 - (1 - q)^k some of them are drawn, and these move the sum by k·C at most: to move
        it by less reveals less (Choquette-Choo et al. 2024, Corollary 4.7, has the exact mixture).
        """
        drawn = -math.expm1(tasks * math.log1p(-self.rate)) if self.rate < 1 else 1.0
        return Stretch(self.noise_multiplier / tasks, drawn, self.steps)


_Steps = dict[tuple[float, float], int]  # (noise_multiplier, rate) -> steps


def epsilon(stretches: Sequence[Stretch], delta: float, accountant: _Accountant = "pld") -> float:
    """The ε that stretches of steps cost a task at δ, together.

    Args:
        stretches: in any order, since composition has none; no stretch costs 0.
        delta: δ, from 1e-9 to below 1.
        accountant: "pld" to state, "rdp" to check it, "gdp" to compare with papers that state it.

    Returns:
        ε >= 0; infinity without noise, or if the bound is beyond all use (about 10^6).

    Raises:
        ConfigError: δ is out of range, there are more than 10^6 steps, or no such accountant.
        MissingExtraError: dp-accounting is not installed.
    """
    by_name = {"pld": _pld_epsilon, "rdp": _rdp_epsilon, "gdp": _gdp_epsilon}
    if accountant not in by_name:
        raise ConfigError(f"no accountant is called {accountant!r}: {did_you_mean(accountant, by_name)}")
    check_delta(delta)
    added: _Steps = {}
    for stretch in stretches:
        setting = stretch.noise_multiplier, stretch.rate
        added[setting] = added.get(setting, 0) + stretch.steps
    if (total := sum(added.values())) > MOST_STEPS:
        raise ConfigError(f"{total} steps: at most {MOST_STEPS} can be accounted for, take fewer")
    # In one order: composition has none, and its rounding should not either.
    return by_name[accountant](dict(sorted(added.items())), delta) if added else 0.0


@cache
def calibrate(budget_epsilon: float, delta: float, rate: float, steps: int) -> float:
    """The least noise multiplier of four significant digits, from 0.01 to 1000, that stays within a budget.

    Promise: the PLD ε of the result is at most the budget; that of the next smaller such number, which is
    less than 0.1% smaller, is above.

    Raises:
        ConfigError: no noise of up to 1000 norms is enough, or 0.01 would do: a budget that promises nothing.
    """
    check_budget(budget_epsilon)

    def noise(index: int) -> float:  # 0.01, 0.01001, ... 0.09999, 0.1, 0.1001, ...
        decade, digits = divmod(index, 9000)
        return float(f"{1000 + digits}e{decade - 5}")

    def excess(index: int) -> float:  # above 0 where the noise is too little
        spent = epsilon([Stretch(noise(index), rate, steps)], delta)
        return math.log(spent / budget_epsilon) if spent else -math.inf

    last = 5 * 9000  # of 1000 norms
    index = _first_within(last + 1, 2 * 9000, excess)
    if index > last:
        raise ConfigError(
            f"not even noise of 1000 clipping norms keeps {steps} steps at rate {rate:g} within "
            f"eps = {budget_epsilon:g} at delta = {delta:g}: take a larger budget, fewer steps or a smaller "
            "rate"
        )
    if index == 0:
        raise ConfigError(
            f"eps = {budget_epsilon:g} at delta = {delta:g} allows {steps} steps at rate {rate:g} with noise "
            f"of 0.01 clipping norms: such a budget promises nothing, take a smaller one"
        )
    return noise(index)


def _first_within(count: int, start: int, excess: Callable[[int], float]) -> int:
    """The least index whose excess, which falls, is at most 0, by the Illinois method, or the count."""
    low, high, at, step, was = -1, count, start, 2048, 0.0
    below = above = math.inf  # the excess at both ends, without sign
    while high - low > 1:
        found = excess(at)
        again = 2 if found * was > 0 else 1  # an end that stays counts half, or it would stay for long
        if found <= 0:
            high, above, below = at, -found, below / again
        else:
            low, below, above = at, found, above / again
        was = found
        if math.isfinite(below + above):
            at = low + round(below / (below + above) * (high - low))
        else:
            step *= 2
            at += step if found > 0 else -step
        at = min(max(at, low + 1), high - 1)
    return high


@cache
def steps_within(budget_epsilon: float, delta: float, noise_multiplier: float, rate: float) -> int:
    """How many steps a budget allows, by PLD, from 0 to 10^6: that many fit, and one more does not."""
    check_budget(budget_epsilon)

    def is_too_much(index: int) -> bool:  # steps, less one
        return epsilon([Stretch(noise_multiplier, rate, index + 1)], delta) > budget_epsilon

    ends = (min(2**n, MOST_STEPS) - 1 for n in range(21))  # doubled: accounts of many steps take the longest
    high = next(filter(is_too_much, ends), MOST_STEPS)
    low = high // 2 if high < MOST_STEPS else high
    return bisect.bisect_left(range(high), True, low, key=is_too_much)


class Accountant:
    """Counts the steps of a run, equal ones, and refuses the one that would pass the budget.

    Attributes:
        done: how many were charged: the state of a checkpoint.
    """

    def __init__(
        self, epsilon: float, delta: float, pool: int, *, noise_multiplier: float, rate: float
    ) -> None:
        """Open an account of ε > 0 at δ, below 1 / pool, for steps of a Stretch.

        `pool`: how many tasks there are: public, or a public bound from above.

        Raises:
            ConfigError: a budget or a pool that cannot work, or a δ that could publish a task.
        """
        check_budget(epsilon)
        check_delta(delta)
        if not (1 <= pool < math.inf and pool == int(pool)):
            raise ConfigError(f"pool={pool}: a pool has at least 1 task, a whole number")
        if delta * pool >= 1:
            raise ConfigError(
                f"delta={delta:g} with a pool of {pool} tasks: at 1 / pool = {1 / pool:g} or above, to "
                f"publish a task in clear would count as private: take less, such as {1 / (10 * pool):.1g}"
            )
        self.epsilon, self.delta = float(epsilon), float(delta)
        self._step = Stretch(float(noise_multiplier), float(rate), 1)
        self.done = 0

    @cached_property
    def _most(self) -> int:
        """The steps that fit; it takes up to seconds."""
        return steps_within(self.epsilon, self.delta, self._step.noise_multiplier, self._step.rate)

    def step(self) -> None:
        """Charge one step. Call it BEFORE any private task is drawn for that step.

        Raises:
            BudgetExceededError: the step does not fit; nothing was charged, and it must not be taken.
        """
        if self.done >= self._most:
            raise BudgetExceededError(self._refusal())
        self.done += 1

    @property
    def stretches(self) -> list[Stretch]:
        """The steps so far."""
        return [replace(self._step, steps=self.done)] if self.done else []

    def cost(self, accountant: _Accountant = "pld") -> float:
        """The ε of all steps so far; this takes seconds."""
        return epsilon(self.stretches, self.delta, accountant)

    def restore(self, done: int) -> None:
        """Continues to count after so many steps. Raises LedgerError: they cost more than the budget."""
        if not 0 <= done <= self._most:
            raise LedgerError(
                f"the checkpoint holds {done} steps, and the budget of eps = {self.epsilon:g} allows "
                f"{self._most}: it was changed, or is not of this run; resume from another checkpoint"
            )
        self.done = done

    def _refusal(self) -> str:
        if self.done >= MOST_STEPS:
            return f"{self.done} steps are done, and more are not accounted for: end the run here"
        price = round_up(epsilon([replace(self._step, steps=self.done + 1)], self.delta))
        setting = f"noise multiplier {self._step.noise_multiplier:g}, rate {self._step.rate:g}"
        at = f"eps = {price} at delta = {self.delta:g}, and the budget is {self.epsilon:g}: nothing was spent"
        if not self.done:
            more = "take more noise, a smaller rate or a larger budget"
            return f"the first step alone ({setting}) costs {at}; {more}"
        return (
            f"step {self.done + 1} ({setting}) would bring the run to {at} on it; end the run here, or "
            "calibrate the noise to the steps you need and start again"
        )


def check_delta(delta: float) -> None:
    """Raise ConfigError for a δ that is out of range."""
    if not SMALLEST_DELTA <= delta < 1:
        raise ConfigError(
            f"delta={delta:g}: give one from {SMALLEST_DELTA:g}, below which floating point is not trusted, "
            "to below 1; well below 1 / tasks in the pool is usual"
        )


def check_budget(epsilon: float) -> None:
    """Raise ConfigError for a budget that is not an ε above 0."""
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"the budget is an epsilon above 0, got {epsilon:g}: 1 to 10 is usual")


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ whose Gaussian mechanism has that ε at δ."""
    with needs_extra(*_EXTRA):
        from dp_accounting import get_sigma_gaussian
    return 1 / float(get_sigma_gaussian(epsilon, delta))


def _pld_epsilon(steps: _Steps, delta: float) -> float:
    """ε, composed of privacy loss distributions: an upper bound."""
    if any(noise == 0 for noise, _ in steps):
        return math.inf
    # Without sampling the steps are one Gaussian of T / σ^2, exactly.
    full = sum(n / noise**2 for (noise, rate), n in steps.items() if rate == 1)
    parts = {setting: n for setting, n in steps.items() if setting[1] < 1}
    if full:
        parts[1 / math.sqrt(full), 1.0] = 1
    interval = _interval(parts)
    if interval > _COARSEST:
        return math.inf
    # Far out in the tails exponentials overflow to the infinity, and underflow to the 0, that they stand for.
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        total, *others = [_step_loss(*part, interval).self_compose(n) for part, n in parts.items()]
        for loss in others:
            total = total.compose(loss)
        kept_back = _ROUNDING + _ROUNDING_PER_STEP * sum(parts.values())
        bound = float(total.get_epsilon_for_delta(delta - kept_back))
    return math.inf if math.isnan(bound) else bound


@lru_cache(maxsize=16)
def _step_loss(noise_multiplier: float, rate: float, interval: float) -> Any:
    """The privacy loss distribution of one step, as a PrivacyLossDistribution."""
    with needs_extra(*_EXTRA):
        from dp_accounting.pld import privacy_loss_distribution as pld
    return pld.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=rate, value_discretization_interval=interval
    )


def _interval(parts: _Steps) -> float:
    """The grid of the privacy losses: fine enough to be tight, coarse enough to compute. A power of 2.

    Any interval gives a bound: the losses are rounded pessimistically. The library's fixed 1e-4 would take
    gigabytes if ε is large, and overstate ε tenfold if single steps reveal next to nothing.
    """
    finest, coarsest = math.sqrt(_LOOSENESS / sum(parts.values())), _FINEST
    mean = variance = widest = 0.0
    for (noise, rate), n in parts.items():
        shift = 1 / noise  # in standard deviations of the noise
        unsampled = shift * shift / 2 + _REACH * shift  # the largest loss, were the task drawn
        widest_here = math.log1p(rate * math.expm1(unsampled)) if unsampled < 700 else unsampled
        kl = rate * shift * shift / 2  # the mean loss, by convexity; or by the chi-square divergence
        if shift < 20:
            kl = min(kl, rate * rate * math.expm1(shift * shift))
        mean, variance = mean + n * kl, variance + n * kl * (shift * shift / 2 + 2)
        widest = max(widest, widest_here)
        finest = min(finest, rate * shift / 16)  # a small part of a step's own spread
        coarsest = max(coarsest, widest_here / _STEP_SIZE)
    coarsest = max(coarsest, (mean + 8 * math.sqrt(variance) + widest) / _TOTAL_SIZE)
    return max(2.0 ** math.floor(math.log2(finest)), 2.0 ** math.ceil(math.log2(coarsest)))


def _rdp_epsilon(steps: _Steps, delta: float) -> float:
    """ε by Rényi differential privacy: an upper bound."""
    with needs_extra(*_EXTRA):
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant, compute_epsilon
    if any(noise == 0 for noise, _ in steps):
        return math.inf
    # absl logs that the series of a fractional order did not converge; that order is left out, which can only
    # loosen the bound. Without fractional orders it would be loose at ε of 5 and more (10.2 for 8.77).
    logger = logging.getLogger("absl")
    logger.addFilter(_did_converge)
    accountant = RdpAccountant()
    try:
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            for (noise, rate), n in steps.items():
                event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
                accountant.compose(event, n)
            # Each step's divergence is rounded to about 1e-15; 0 or less would count as perfect privacy.
            divergences = np.maximum(accountant.rdp, 0) + 1e-14 * sum(steps.values())
            bound, _ = compute_epsilon(accountant.orders, divergences, delta)
    finally:
        logger.removeFilter(_did_converge)
    return float(bound)


def _did_converge(record: logging.LogRecord) -> bool:
    return "failed to converge" not in record.getMessage()


def _gdp_epsilon(steps: _Steps, delta: float) -> float:
    """ε by a central limit theorem: may be below the truth; infinity for a μ of a million or more."""
    with needs_extra(*_EXTRA):
        from dp_accounting import get_epsilon_gaussian
    square = 0.0  # μ^2, that of each step in the limit of many
    for (noise, rate), n in steps.items():
        exponent = 1 / noise**2 if noise > 0.05 else math.inf
        square += n * rate * rate * math.expm1(exponent) if exponent < 700 else math.inf
    if square == 0:
        return 0.0
    return float(get_epsilon_gaussian(1 / math.sqrt(square), delta)) if square < 1e12 else math.inf
