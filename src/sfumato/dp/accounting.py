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
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np

from sfumato.dp.guarantee import round_up
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError, did_you_mean, needs_extra

AccountantName = Literal["pld", "rdp", "gdp"]

# The error of floating point in δ, in convolutions by FFT, was measured against the closed form of the
# Gaussian mechanism, for 10^3 to 10^6 steps and grids of 1e-2 to 4e-6: at worst 6e-17 a step too little. We
# subtract five times as much from δ: nothing at δ = 1e-5, and a third of δ at the ends of the ranges here.
MOST_STEPS = 10**6
SMALLEST_DELTA = 1e-9
_ROUNDING, _ROUNDING_PER_STEP = 1e-12, 3e-16

# The grid of privacy losses. Rounding adds about steps * interval^2 / 2 to ε.
_LOOSENESS = 1e-4
_STEP_SIZE, _MIXTURE_SIZE, _TOTAL_SIZE = 150_000, 20_000, 500_000  # points, at most: they take time
_FINEST, _COARSEST = 1e-6, 10.0
_REACH = 10.0  # standard deviations of the noise that are kept: the rest, e^-50, counts as revealed
_RARE = 1e-25  # a rarer number of tasks drawn together counts as all of them

_EXTRA = "accounting for private training", "private"
_STATE_VERSION = 1


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
        if not (self.noise_multiplier >= 0 and math.isfinite(self.noise_multiplier)):
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


_Steps = dict[tuple[float, float], int]  # (noise_multiplier, rate) -> steps


def epsilon(stretches: Sequence[Stretch], delta: float, accountant: AccountantName = "pld") -> float:
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
    steps = _by_setting(stretches, delta)
    return by_name[accountant](steps, delta) if steps else 0.0


def image_epsilon(tasks: int, stretches: Sequence[Stretch], delta: float) -> float:
    """The ε of an IMAGE that occurs in up to `tasks` tasks of a pool whose tasks overlap: an upper bound.

    Neighbours are a pool and the one without the image and without all tasks that it occurs in. Of these k
    tasks Binomial(k, q) are drawn into a step, and each moves the sum by C at most: a mixture of Gaussians,
    which dominates the release (Choquette-Choo et al. 2024, "Privacy Amplification for Matrix Mechanisms",
    Corollary 4.7), also for images in fewer tasks. Composed as a PLD, on a coarser grid than for
    `epsilon`: 0.02% above the truth for 1000 steps at rate 0.016, 0.5% for 10,000 at 0.0016.
    It says nothing about pools in which another image replaces it in those tasks.

    Args:
        tasks: k >= 1, a public bound on the number of tasks with the same image.
        stretches: as for `epsilon`; their σ stays in units of the clipping norm of one task.
        delta: δ, from 1e-9 to below 1.

    Returns:
        ε >= 0; with k = 1 that of `epsilon`.

    Raises:
        ConfigError: k is below 1, or `epsilon` refuses its arguments.
    """
    if not (1 <= tasks < math.inf and tasks == int(tasks)):
        raise ConfigError(f"tasks={tasks}: an image that counts occurs in at least 1 task, a whole number")
    steps = _by_setting(stretches, delta)
    return _pld_epsilon(steps, delta, tasks=int(tasks)) if steps else 0.0


def calibrate(
    budget_epsilon: float, delta: float, rate: float, steps: int, spent: Sequence[Stretch] = ()
) -> float:
    """The least noise multiplier of four significant digits with which the steps stay within a budget.

    Promise: the PLD ε of the result is at most the budget; that of the next smaller such number, which is
    less than 0.1% smaller, is above.

    Args:
        budget_epsilon: ε > 0 to stay within, with that of other steps, `spent`.

    Returns:
        σ, from 0.01 to 1000, in units of the clipping norm.

    Raises:
        ConfigError: no noise of up to 1000 norms is enough, or 0.01 would do: a budget that promises nothing.
    """
    check_budget(budget_epsilon)
    asked = Stretch(1.0, rate, steps)
    if spent and (cost := epsilon(spent, delta)) >= budget_epsilon:
        raise ConfigError(
            f"eps = {round_up(cost)} at delta = {delta:g} is spent before the first step, of a budget of "
            f"{budget_epsilon:g}: spend less on it, or take a larger budget"
        )

    def is_enough(index: int) -> bool:
        made = replace(asked, noise_multiplier=_four_digits(index))
        return epsilon([*spent, made], delta) <= budget_epsilon

    last = 5 * 9000  # of 1000 norms
    index = bisect.bisect_left(range(last + 1), True, key=is_enough)
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
    return _four_digits(index)


def steps_within(
    budget_epsilon: float,
    delta: float,
    noise_multiplier: float,
    rate: float,
    spent: Sequence[Stretch] = (),
) -> int:
    """How many more steps a budget allows, by PLD, from 0 to 10^6.

    Promise: that many fit, and one more does not, or would make more than 10^6 in all.
    """
    check_budget(budget_epsilon)
    _by_setting(spent, delta)

    def is_too_much(index: int) -> bool:  # steps, less one
        return epsilon([*spent, Stretch(noise_multiplier, rate, index + 1)], delta) > budget_epsilon

    room = MOST_STEPS - sum(stretch.steps for stretch in spent)
    if room < 1 or is_too_much(0):
        return 0
    return bisect.bisect_left(range(room), True, key=is_too_much)


def _four_digits(index: int) -> float:
    """The numbers of four significant digits in a row: 0.01, 0.01001, ... 0.09999, 0.1, 0.1001, ..."""
    decade, digits = divmod(index, 9000)
    return float(f"{1000 + digits}e{decade - 5}")


@dataclass(frozen=True)
class Spent:
    """The cost of a run to a task so far, by each accountant; in words by str().

    Attributes:
        pld: ε, an upper bound: the number to state.
        rdp: ε, a looser upper bound.
        gdp: ε by a central limit theorem, which may be below the truth.
        delta: δ of all three.
    """

    pld: float
    rdp: float
    gdp: float
    delta: float

    def __str__(self) -> str:
        return (
            f"hides any 1 task at eps = {round_up(self.pld)} ((eps, delta)-DP at delta = "
            f"{round_up(self.delta)}; PLD, an upper bound); RDP, a looser bound: {round_up(self.rdp)}; "
            f"GDP, an approximation that may be below the truth: {self.gdp:.3g}"
        )


class Accountant:
    """Counts the steps of a run and refuses the one that would pass the budget.

    State: the stretches so far, and how many further steps of the last kind are known to fit. Not safe to
    share between threads. A change of noise or rate takes up to seconds, a further step of the same kind
    microseconds.
    """

    def __init__(self, epsilon: float, delta: float, pool: int) -> None:
        """Open an account.

        Args:
            epsilon: ε > 0, the most that the run may cost a task, by PLD.
            delta: δ, from 1e-9 to below 1 / pool.
            pool: how many tasks the pool has: public, or a public bound from above.

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
        self.epsilon, self.delta, self.pool = float(epsilon), float(delta), int(pool)
        self._stretches: list[Stretch] = []
        self._kind: tuple[float, float] | None = None  # the noise and rate that `_left` is about
        self._left = 0

    def step(self, noise_multiplier: float, rate: float) -> None:
        """Charge one step. Call it BEFORE any private task is drawn for that step.

        Raises:
            BudgetExceededError: the step does not fit; nothing was charged, and it must not be taken.
        """
        if self._kind != (noise_multiplier, rate):
            self._left = steps_within(self.epsilon, self.delta, noise_multiplier, rate, self._stretches)
            self._kind = (noise_multiplier, rate)
        if self._left < 1:
            raise BudgetExceededError(self._refusal(Stretch(noise_multiplier, rate, 1)))
        self._charge(Stretch(float(noise_multiplier), float(rate), 1))
        self._left -= 1

    def cost(self) -> Spent:
        """The cost of all steps so far, by each accountant; this takes seconds."""
        return Spent(
            pld=epsilon(self._stretches, self.delta),
            rdp=epsilon(self._stretches, self.delta, "rdp"),
            gdp=epsilon(self._stretches, self.delta, "gdp"),
            delta=self.delta,
        )

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """The steps so far; consecutive equal steps are one stretch."""
        return tuple(self._stretches)

    @property
    def state(self) -> dict[str, Any]:
        """Everything that `resume` needs, fit for JSON; every checkpoint of the run keeps it."""
        return {
            "version": _STATE_VERSION,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "pool": self.pool,
            "stretches": [list(astuple(stretch)) for stretch in self._stretches],
        }

    @classmethod
    def resume(cls, state: Mapping[str, Any]) -> Self:
        """Continues to count from `state`.

        Raises:
            LedgerError: the state is damaged, of another version, or costs more than its own budget.
        """
        try:
            if (version := state["version"]) != _STATE_VERSION:
                raise LedgerError(
                    f"the accountant's state is of version {version!r}, and this is {_STATE_VERSION}: "
                    "resume with the sfumato that wrote it"
                )
            accountant = cls(state["epsilon"], state["delta"], state["pool"])
            for noise_multiplier, rate, steps in state["stretches"]:
                accountant._charge(Stretch(noise_multiplier, rate, steps))
            cost = epsilon(accountant._stretches, accountant.delta)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LedgerError(
                f"the accountant's state is damaged ({type(error).__name__}: {error}): resume from an older "
                "checkpoint; without it the cost of the run is not known"
            ) from error
        if cost > accountant.epsilon:
            raise LedgerError(
                f"the accountant's state holds steps that cost eps = {round_up(cost)}, more than its "
                f"budget of {accountant.epsilon:g}: it was changed, or is not of this run; resume from "
                "another checkpoint"
            )
        return accountant

    def _charge(self, stretch: Stretch) -> None:
        last = self._stretches[-1] if self._stretches else None
        if last is not None and replace(last, steps=stretch.steps) == stretch:
            stretch = replace(stretch, steps=self._stretches.pop().steps + stretch.steps)
        self._stretches.append(stretch)

    def _refusal(self, step: Stretch) -> str:
        done = sum(stretch.steps for stretch in self._stretches)
        if done >= MOST_STEPS:
            return f"{done} steps are done, and more are not accounted for: end the run here"
        price = round_up(epsilon([*self._stretches, step], self.delta))
        setting = f"noise multiplier {step.noise_multiplier:g}, rate {step.rate:g}"
        if not done:
            return (
                f"the first step alone ({setting}) costs eps = {price} at delta = {self.delta:g}, and the "
                f"budget is {self.epsilon:g}: nothing was spent; take more noise, a smaller rate or a larger "
                "budget"
            )
        return (
            f"step {done + 1} ({setting}) would bring the run to eps = {price} at delta = {self.delta:g}, "
            f"and the budget is {self.epsilon:g}: nothing was spent on it; end the run here, or calibrate "
            "the noise to the steps you need and start again"
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
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise ConfigError(f"the budget is an epsilon above 0, got {epsilon:g}: 1 to 10 is usual")


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ whose Gaussian mechanism has that ε at δ."""
    with needs_extra(*_EXTRA):
        from dp_accounting import get_sigma_gaussian
    return 1 / float(get_sigma_gaussian(epsilon, delta))


def _by_setting(stretches: Sequence[Stretch], delta: float) -> _Steps:
    """Adds up equal stretches, in one order: composition has none, and its rounding should not either.

    Raises:
        ConfigError: more steps than can be accounted for, or a δ that is out of range.
    """
    check_delta(delta)
    steps: _Steps = {}
    for stretch in stretches:
        setting = stretch.noise_multiplier, stretch.rate
        steps[setting] = steps.get(setting, 0) + stretch.steps
    if (total := sum(steps.values())) > MOST_STEPS:
        raise ConfigError(f"{total} steps: at most {MOST_STEPS} can be accounted for, take fewer")
    return dict(sorted(steps.items()))


def _pld_epsilon(steps: _Steps, delta: float, *, tasks: int = 1) -> float:
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
        total, *others = [_step_loss(*part, interval).self_compose(n) for part, n in parts.items()]
        for loss in others:
            total = total.compose(loss)
        kept_back = _ROUNDING + _ROUNDING_PER_STEP * sum(parts.values())
        bound = float(total.get_epsilon_for_delta(delta - kept_back))
    return math.inf if math.isnan(bound) else bound


@lru_cache(maxsize=16)
def _step_loss(noise_multiplier: float, rate: float, tasks: int, interval: float) -> Any:
    """The privacy loss distribution of one step, as a PrivacyLossDistribution."""
    with needs_extra(*_EXTRA):
        from dp_accounting.pld import privacy_loss_distribution as pld
        from scipy.stats import binom  # type: ignore[import-untyped]
    grid = {"value_discretization_interval": interval}
    if tasks == 1:
        return pld.from_gaussian_mechanism(noise_multiplier, sampling_prob=rate, **grid)
    likely = _likely_tasks(rate, tasks)
    counts = list(range(likely + 1))
    probabilities = binom.pmf(counts, tasks, rate).tolist()
    if likely < tasks:
        # More tasks at once can only reveal more: moving the tail up keeps the bound, cutting it would not.
        counts.append(tasks)
        probabilities.append(float(binom.sf(likely, tasks, rate)))
    return pld.from_mixture_gaussian_mechanism(noise_multiplier, counts, probabilities, **grid)


def _likely_tasks(rate: float, tasks: int) -> int:
    """The most of an image's tasks in one step that need to be told apart."""
    if tasks == 1:
        return 1
    with needs_extra(*_EXTRA):
        from scipy.stats import binom
    return max(1, min(tasks, int(binom.isf(_RARE, tasks, rate))))


def _interval(parts: Mapping[tuple[float, float, int], int]) -> float:
    """The grid of the privacy losses: fine enough to be tight, coarse enough to compute. A power of 2.

    Any interval gives a bound: the losses are rounded pessimistically. The library's fixed 1e-4 would take
    gigabytes if ε is large, and overstate ε tenfold if single steps reveal next to nothing.
    """
    finest, coarsest = math.sqrt(_LOOSENESS / sum(parts.values())), _FINEST
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


def _rdp_epsilon(steps: _Steps, delta: float) -> float:
    """ε by Rényi differential privacy: an upper bound."""
    with needs_extra(*_EXTRA):
        import dp_accounting
        from dp_accounting.rdp import RdpAccountant, compute_epsilon
    if any(noise == 0 for noise, _ in steps):
        return math.inf
    # absl logs that the series of a fractional order did not converge; that order is left out. Every order by
    # itself gives a bound, so leaving one out can only loosen the least of them. Without fractional orders
    # nothing would be logged, but they make the bound tight at ε of 5 and more (7.40 by PLD is 8.77 with them
    # and 10.2 without).
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
    mu = math.sqrt(sum(n * _gdp_square(noise, rate) for (noise, rate), n in steps.items()))
    if mu == 0:
        return 0.0
    return float(get_epsilon_gaussian(1 / mu, delta)) if mu < 1e6 else math.inf


def _gdp_square(noise_multiplier: float, rate: float) -> float:
    """μ^2 of one step in the limit of many."""
    exponent = 1 / noise_multiplier**2 if noise_multiplier > 0.05 else math.inf
    return rate * rate * math.expm1(exponent) if exponent < 700 else math.inf
