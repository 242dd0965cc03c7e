"""The noise that a budget needs, and the number of steps that it allows."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from sfumato.dp.accounting.costs import epsilon
from sfumato.dp.accounting.cross_checks import gaussian_mu, gdp_square
from sfumato.dp.accounting.stretches import MOST_STEPS, Stretch, check_budget, check_stretches
from sfumato.dp.guarantee import round_up
from sfumato.errors import ConfigError

_LEAST_NOISE, _MOST_NOISE = 0.01, 1000.0  # the range that `calibrate` searches


def calibrate(
    budget_epsilon: float, delta: float, rate: float, steps: int, spent: Sequence[Stretch] = ()
) -> float:
    """The least noise multiplier of four significant digits with which the steps stay within a budget.

    Promise: the PLD ε of the result is at most the budget; that of the next smaller such number, which is
    less than 0.1% smaller, is above.

    Args:
        budget_epsilon: ε > 0 to stay within.
        delta: δ, from 1e-9 to below 1.
        rate: q in (0, 1].
        steps: T, from 1 to 10^6.
        spent: other steps that the budget has to cover.

    Returns:
        σ, from 0.01 to 1000, in units of the clipping norm.

    Raises:
        ConfigError: no noise of up to 1000 norms is enough, or 0.01 would do: a budget that promises nothing.
    """
    check_budget(budget_epsilon)
    asked = Stretch(1.0, rate, steps)
    check_stretches([*spent, asked], delta)
    if spent and (cost := epsilon(spent, delta)) >= budget_epsilon:
        raise ConfigError(
            f"eps = {round_up(cost)} at delta = {delta:g} is spent before the first step, of a budget of "
            f"{budget_epsilon:g}: spend less on it, or take a larger budget"
        )

    def price(index: int) -> float:  # falls with the noise, and so rises with -index
        return epsilon([*spent, replace(asked, noise_multiplier=_four_digits(-index))], delta)

    left = _remainder(budget_epsilon, delta, spent) or gaussian_mu(budget_epsilon, delta) ** 2 / 100
    guess = 1 / math.sqrt(math.log1p(left / (steps * rate * rate)))
    last = _index(_MOST_NOISE)
    index = -_last_that_fits(price, budget_epsilon, low=-last - 1, high=1, guess=-_index(guess), stride=50)
    if index > last:
        raise ConfigError(
            f"not even noise of {_MOST_NOISE:g} clipping norms keeps {steps} steps at rate {rate:g} within "
            f"eps = {budget_epsilon:g} at delta = {delta:g}: take a larger budget, fewer steps or a smaller "
            "rate"
        )
    if index <= 0:
        raise ConfigError(
            f"eps = {budget_epsilon:g} at delta = {delta:g} allows {steps} steps at rate {rate:g} with noise "
            f"of {_LEAST_NOISE:g} clipping norms: such a budget promises nothing, take a smaller one"
        )
    return _four_digits(index)


def steps_within(
    budget_epsilon: float,
    delta: float,
    noise_multiplier: float,
    rate: float,
    spent: Sequence[Stretch] = (),
) -> int:
    """How many more steps a budget allows, by PLD.

    Promise: that many fit, and one more does not, or would make more than 10^6 in all.

    Args:
        budget_epsilon: ε > 0 to stay within, including `spent`.
        delta: δ, from 1e-9 to below 1.
        noise_multiplier: σ of the further steps, in units of the clipping norm.
        rate: q of the further steps, in (0, 1].
        spent: the steps before.

    Returns:
        0 to 10^6; 0 if the budget is spent already.
    """
    check_budget(budget_epsilon)
    step = Stretch(noise_multiplier, rate, 1)
    check_stretches(spent, delta)
    room = MOST_STEPS - sum(stretch.steps for stretch in spent)

    def price(steps: int) -> float:
        return epsilon([*spent, replace(step, steps=steps)], delta)

    if room < 1 or price(1) > budget_epsilon:
        return 0
    per_step = gdp_square(noise_multiplier, rate)
    left = _remainder(budget_epsilon, delta, spent)
    guess = int(min(max(1.0, left / per_step), room)) if per_step else room
    return _last_that_fits(
        price, budget_epsilon, low=1, high=room + 1, guess=guess, stride=max(1, guess // 20)
    )


def _remainder(budget_epsilon: float, delta: float, spent: Sequence[Stretch]) -> float:
    """The part of μ^2 that is left, approximately: 0 or more, for first guesses."""
    squares = (stretch.steps * gdp_square(stretch.noise_multiplier, stretch.rate) for stretch in spent)
    return max(0.0, gaussian_mu(budget_epsilon, delta) ** 2 - sum(squares))


def _last_that_fits(
    price: Callable[[int], float], budget: float, *, low: int, high: int, guess: int, stride: int
) -> int:
    """The n with price(n) <= budget < price(n + 1). It trusts that low fits and that high does not.

    A price takes up to seconds: the secant of its logarithm needs few of them; halving is for the rest.
    """
    known: list[tuple[int, float]] = []
    n = guess
    for attempt in range(200):
        if high - low < 2:
            break
        n = min(max(n, low + 1), high - 1)
        cost = price(n)
        low, high = (n, high) if cost <= budget else (low, n)
        known.append((n, math.log(cost / budget) if 0 < cost < math.inf else math.nan))
        if attempt == 0:
            n += stride if cost <= budget else -stride
            continue
        (before, above), (last, here) = known[-2:]
        slope = (here - above) / (last - before) if last != before else math.nan
        n = (low + high) // 2
        if slope > 0 and math.isfinite(here) and attempt < 20:
            n = math.floor(min(max(last - here / slope, low), high))
    return low


def _four_digits(index: int) -> float:
    """The numbers of four significant digits in a row: 0.01, 0.01001, ... 0.09999, 0.1, 0.1001, ..."""
    decade, digits = divmod(index, 9000)
    return float(f"{1000 + digits}e{decade - 5}")


def _index(value: float) -> int:
    """The index of the first number of four digits, from 0.01 on, that is not below the value."""
    value = min(max(value, _LEAST_NOISE), _MOST_NOISE)
    decade = math.floor(math.log10(value) + 1e-12) + 2
    return 9000 * decade + math.ceil(value / 10.0 ** (decade - 5) * (1 - 1e-12)) - 1000
