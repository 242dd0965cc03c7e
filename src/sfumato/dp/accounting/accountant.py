"""The accountant that stops a run before its budget."""

import math
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from sfumato.dp.accounting.budgets import steps_within
from sfumato.dp.accounting.costs import epsilon
from sfumato.dp.accounting.stretches import MOST_STEPS, Stretch, check_budget, check_delta, setting_of
from sfumato.dp.guarantee import round_up
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError

_STATE_VERSION = 1


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
            version, budget, delta, pool, stretches = (
                state[key] for key in ("version", "epsilon", "delta", "pool", "stretches")
            )
            if version != _STATE_VERSION:
                raise LedgerError(
                    f"the accountant's state is of version {version!r}, and this is {_STATE_VERSION}: "
                    "resume with the sfumato that wrote it"
                )
            accountant = cls(budget, delta, pool)
            for noise_multiplier, rate, steps in stretches:
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
        if self._stretches and setting_of(self._stretches[-1]) == setting_of(stretch):
            stretch = replace(stretch, steps=self._stretches.pop().steps + stretch.steps)
        self._stretches.append(stretch)

    def _refusal(self, step: Stretch) -> str:
        done = sum(stretch.steps for stretch in self._stretches)
        if done >= MOST_STEPS:
            return f"{done} steps are done, and more are not accounted for: end the run here"
        price = epsilon([*self._stretches, step], self.delta)
        what = f"noise multiplier {step.noise_multiplier:g}, rate {step.rate:g}"
        if not done:
            return (
                f"the first step alone ({what}) costs eps = {round_up(price)} at delta = {self.delta:g}, "
                f"and the budget is {self.epsilon:g}: nothing was spent; take more noise, a smaller rate or "
                "a larger budget"
            )
        return (
            f"step {done + 1} ({what}) would bring the run to eps = {round_up(price)} at delta = "
            f"{self.delta:g}, and the budget is {self.epsilon:g}: nothing was spent on it; end the run here, "
            "or calibrate the noise to the steps you need and start again"
        )
