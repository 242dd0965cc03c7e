"""Stretches of equal steps, and their checks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sfumato.errors import ConfigError

# The error of floating point in δ, in convolutions by FFT, was measured against the closed form of the
# Gaussian mechanism, for 10^3 to 10^6 steps and grids of 1e-2 to 4e-6: at worst 6e-17 a step too little. We
# subtract five times as much from δ: nothing at δ = 1e-5, and a third of δ at the ends of the ranges here.
MOST_STEPS = 10**6
SMALLEST_DELTA = 1e-9

Steps = dict[tuple[float, float], int]  # (noise_multiplier, rate) -> steps


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


def setting_of(stretch: Stretch) -> tuple[float, float]:
    """The noise multiplier and the rate of a stretch."""
    return stretch.noise_multiplier, stretch.rate


def by_setting(stretches: Sequence[Stretch]) -> Steps:
    """Adds up equal stretches, in one order: composition has none, and its rounding should not either."""
    steps: Steps = {}
    for stretch in stretches:
        steps[setting_of(stretch)] = steps.get(setting_of(stretch), 0) + stretch.steps
    return dict(sorted(steps.items()))


def check_stretches(stretches: Sequence[Stretch], delta: float) -> None:
    """Raise ConfigError for more steps than can be accounted for, or a δ that is out of range."""
    check_delta(delta)
    total = sum(stretch.steps for stretch in stretches)
    if total > MOST_STEPS:
        raise ConfigError(f"{total} steps: at most {MOST_STEPS} can be accounted for, take fewer")


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
