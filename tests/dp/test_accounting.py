import logging
import math
import re
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.stats import binom, norm

from sfumato.dp import accounting
from sfumato.dp.accounting import Accountant, Stretch, calibrate, epsilon, steps_within
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError, MissingExtraError

DELTA = 1e-5

# noise multiplier, rate, steps, and their PRV, RDP and GDP in issue 5.
PUBLISHED = [
    (0.5, 0.0016, 10_000, 7.40, 8.75, 5.26),
    (0.7, 0.032, 200, 7.04, 8.15, 5.26),
    (1.0, 0.032, 2000, 9.68, 10.5, 9.24),
    (1.0, 1.0, 1, 4.38, 4.73, 6.01),
]


def of_gaussian(mu: float, delta: float = DELTA) -> float:
    """ε by dp.guarantee, which shares no code with the accountants."""
    promise = Guarantee(definition="gaussian", value=mu, pixels=1, whole_image=mu, source="")
    return promise.to("approximate", delta=delta).value


def of_one_step(noise: float, rate: float, delta: float = DELTA) -> float:
    """ε of one sampled Gaussian step, both directions, from the two-point integral in closed form."""

    def removed(eps: float) -> float:
        cut = noise**2 * math.log((math.expm1(eps) + rate) / rate) + 0.5
        drawn = rate * norm.sf((cut - 1) / noise)
        return drawn - (math.expm1(eps) + rate) * norm.sf(cut / noise)

    def added(eps: float) -> float:
        inside = (math.exp(-eps) - 1 + rate) / rate
        if inside <= 0:
            return 0.0
        cut = noise**2 * math.log(inside) + 0.5
        with_it = (1 - rate) * norm.cdf(cut / noise) + rate * norm.cdf((cut - 1) / noise)
        return norm.cdf(cut / noise) - math.exp(eps) * with_it

    def too_much(eps: float) -> float:
        return max(removed(eps), added(eps)) - delta

    return brentq(too_much, 1e-12, 500, xtol=1e-12) if too_much(1e-12) > 0 else 0.0


# Against numbers and implementations of others.


@pytest.mark.parametrize(("noise", "rate", "steps", "pld", "rdp", "gdp"), PUBLISHED)
def test_the_three_accountants_give_the_values_of_issue_5(noise, rate, steps, pld, rdp, gdp):
    stretches = [Stretch(noise, rate, steps)]
    for accountant, value, rel in (("pld", pld, 0.003), ("rdp", rdp, 0.003), ("gdp", gdp, 0.001)):
        assert epsilon(stretches, DELTA, accountant) == pytest.approx(value, rel=rel)


@pytest.mark.parametrize("stretches", [[(0.7, 0.032, 200)], [(1.0, 0.016, 1000), (0.8, 0.03, 300)]])
def test_pld_lies_between_the_bounds_that_opacus_proves_for_prv(stretches):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of opacus, at its import, too
        from opacus.accountants import PRVAccountant

        prv = PRVAccountant()
        prv.history = stretches
        discrete = prv._get_dprv(eps_error=0.01, delta_error=1e-8)
        lower, _, upper = discrete.compute_epsilon(DELTA, 1e-8, 0.01)
    assert lower <= epsilon([Stretch(*stretch) for stretch in stretches], DELTA) <= upper


@pytest.mark.parametrize(("noise", "rate", "steps"), [row[:3] for row in PUBLISHED])
def test_rdp_is_that_of_opacus_or_just_above(noise, rate, steps):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants.analysis import rdp as opacus_rdp
    orders = [1 + x / 10 for x in range(1, 100)] + list(range(11, 64))
    divergences = opacus_rdp.compute_rdp(q=rate, noise_multiplier=noise, steps=steps, orders=orders)
    theirs, _ = opacus_rdp.get_privacy_spent(orders=orders, rdp=divergences, delta=DELTA)
    # At fractional orders dp-accounting adds the terms of a series that opacus subtracts: never less.
    assert theirs * (1 - 1e-9) <= epsilon([Stretch(noise, rate, steps)], DELTA, "rdp") <= theirs * 1.002


# Against closed forms, by bounds that must hold: never below the truth, and little above it.


@settings(max_examples=15, deadline=None)
@given(noise=st.floats(0.4, 5), rate=st.floats(0.001, 0.999), delta=st.sampled_from([1e-3, 1e-5, 1e-8]))
def test_pld_of_one_step_is_just_above_the_exact_value(noise, rate, delta):
    exact = of_one_step(noise, rate, delta)
    assert exact <= epsilon([Stretch(noise, rate, 1)], delta) <= exact * 1.002 + 1e-4


@pytest.mark.parametrize(("noise", "steps"), [(1.0, 1), (0.5, 3), (8.0, 100), (100.0, 10_000)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_without_sampling_pld_is_just_above_gaussian_dp(noise, steps, delta):
    exact = of_gaussian(math.sqrt(steps) / noise, delta)
    assert exact <= epsilon([Stretch(noise, 1.0, steps)], delta) <= exact * 1.001


@pytest.mark.parametrize(
    ("noise", "steps", "delta"),
    [(10.0, 100, 1e-9), (100.0, 10_000, 1e-5), (100.0, 10_000, 1e-9), (1000.0, 1_000_000, 1e-9)],
)
def test_what_is_composed_by_fft_is_just_above_gaussian_dp(noise, steps, delta):
    # A rate so near to 1 that ε is the same, but the closed form is not used; to the ends of both ranges.
    composed = epsilon([Stretch(noise, 1 - 1e-9, steps)], delta)
    assert 0 <= composed / of_gaussian(1.0, delta) - 1 <= 0.01


# Properties.


SAMPLED = st.builds(Stretch, st.floats(0.6, 4), st.floats(0.005, 0.3), st.integers(1, 60))


@settings(max_examples=10, deadline=None)
@given(
    stretch=SAMPLED,
    noise=st.floats(1.01, 2),
    rate=st.floats(1.01, 3),
    steps=st.integers(1, 60),
    delta=st.floats(0.01, 0.9),
)
def test_less_noise_more_sampling_more_steps_and_a_smaller_delta_never_cost_less(
    stretch, noise, rate, steps, delta
):
    z, q, t = stretch.noise_multiplier, stretch.rate, stretch.steps
    cost = epsilon([stretch], DELTA)
    for worse in (Stretch(z / noise, q, t), Stretch(z, q * rate, t), Stretch(z, q, t + steps)):
        assert epsilon([worse], DELTA) >= cost * (1 - 1e-3)  # the grid may change between the two
    assert epsilon([stretch], DELTA * delta) >= cost * (1 - 1e-3)
    assert cost <= epsilon([stretch], DELTA, "rdp")


@pytest.mark.parametrize("mu", [1e5, 1e6, 1e9, 1e200, math.inf])
def test_by_the_limit_so_little_noise_hides_nothing_or_states_more_than_half_the_square(mu):
    """ε of a Gaussian mechanism is above μ²/2 for δ below a half; μ itself is not an ε."""
    noise = math.sqrt(1 / math.log1p(mu * mu)) if mu < math.inf else 0.01
    assert epsilon([Stretch(noise, 1.0, 1)], DELTA, "gdp") >= mu * mu / 2.001


def test_gdp_states_less_than_the_truth_where_noise_is_small_and_steps_are_seldom():
    # The trap: 5.26 of GDP, where PRV in opacus proves at least 7.38 and PLD at most 7.39.
    stretches = [Stretch(0.5, 0.0016, 10_000)]
    assert epsilon(stretches, DELTA, "gdp") < 0.75 * epsilon(stretches, DELTA)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_stretches_add_up_no_steps_cost_nothing_and_one_without_noise_hides_nothing(accountant):
    parts = [Stretch(1.0, 0.02, 30), Stretch(2.0, 0.1, 5), Stretch(1.0, 0.02, 70)]
    joined = [Stretch(2.0, 0.1, 5), Stretch(1.0, 0.02, 100)]
    assert epsilon(parts, DELTA, accountant) == epsilon(joined, DELTA, accountant)
    assert epsilon([], DELTA, accountant) == 0
    assert epsilon([*parts, Stretch(0.0, 0.001, 1)], DELTA, accountant) == math.inf


def test_stretches_of_different_settings_compose_like_one_of_nearly_the_same():
    mixed = epsilon([Stretch(1.0, 0.02, 50), Stretch(1.0 + 1e-9, 0.02, 50)], DELTA)
    assert mixed == pytest.approx(epsilon([Stretch(1.0, 0.02, 100)], DELTA), rel=1e-3)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
@pytest.mark.parametrize(
    "stretch", [(1e-6, 0.5, 1), (0.05, 0.01, 100), (0.1, 0.5, 10**6), (1e5, 1e-4, 10), (20, 1e-3, 100)]
)
def test_extreme_settings_give_a_number_or_infinity(stretch, accountant):
    assert epsilon([Stretch(*stretch)], DELTA, accountant) >= 0


def test_steps_that_hardly_reveal_anything_are_not_charged_for_the_grid():
    # 1.7e-6 is what a δ at ε = 0 could be; the library's own grid of 1e-4 would say 0.023.
    assert epsilon([Stretch(1.0, 1e-6, 10**6)], DELTA) < 0.004


def test_orders_that_do_not_converge_are_dropped_in_silence(caplog, capfd):
    with caplog.at_level(logging.DEBUG):
        epsilon([Stretch(0.7, 0.032, 200)], DELTA, "rdp")  # orders 1.1 and 1.2
    assert not caplog.records
    assert capfd.readouterr().err == ""
    assert not logging.getLogger("absl").filters


# Calibration.


@pytest.mark.parametrize(
    ("budget", "rate", "steps"), [(2.0, 0.1, 200), (9.02, 0.032, 100), (0.05, 0.01, 1000), (30.0, 0.5, 4)]
)
def test_calibrated_noise_fits_the_budget_and_a_thousandth_less_does_not(budget, rate, steps):
    noise = calibrate(budget, DELTA, rate, steps)
    assert epsilon([Stretch(noise, rate, steps)], DELTA) <= budget
    assert epsilon([Stretch(noise * 0.99899, rate, steps)], DELTA) > budget


def test_calibrated_noise_of_one_plain_release_is_that_of_the_analytic_gaussian_mechanism():
    exact = 1 / brentq(lambda mu: of_gaussian(mu) - 2.0, 0.1, 2)
    assert exact <= calibrate(2.0, DELTA, 1.0, 1) <= exact * 1.002


# How much fits, and the accountant.


def opened(budget, delta=DELTA, *, pool=240, noise=1.0, rate=0.05):
    return Accountant(budget, delta, pool, noise_multiplier=noise, rate=rate)


@pytest.mark.parametrize(("budget", "noise", "rate"), [(7.0, 0.7, 0.032), (1.0, 1.0, 0.016), (4.0, 5.0, 1.0)])
def test_so_many_steps_fit_and_one_more_does_not(budget, noise, rate):
    steps = steps_within(budget, DELTA, noise, rate)
    assert steps >= 1
    assert epsilon([Stretch(noise, rate, steps)], DELTA) <= budget
    assert epsilon([Stretch(noise, rate, steps + 1)], DELTA) > budget


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.5, 0), (0.0, 0.01, 0), (1000.0, 0.001, 10**6)])
def test_nothing_fits_that_costs_more_than_the_budget_and_no_more_than_can_be_accounted_for(
    noise, rate, steps
):
    assert steps_within(1.0, DELTA, noise, rate) == steps


def test_the_accountant_takes_as_many_steps_as_fit_and_stops_before_the_next_also_when_resumed(monkeypatch):
    account, fit = opened(2.0), steps_within(2.0, DELTA, 1.0, 0.05)
    for steps in (fit + 1, -1):
        message = f"holds {steps} steps, and the budget of eps = 2 allows {fit}"
        with pytest.raises(LedgerError, match=message):
            account.restore(steps)
    with monkeypatch.context() as patch:  # a further step asks for no price: that takes seconds
        patch.setattr(accounting, "epsilon", None)
        for _ in range(fit):
            account.step()
    message = rf"step {fit + 1} \(noise multiplier 1, rate 0.05\) would"
    for _ in range(2):
        with pytest.raises(BudgetExceededError, match=message):
            account.step()
        assert account.stretches == [Stretch(1.0, 0.05, fit)]
        account.restore(fit - 1)
        account.step()
    assert account.cost() <= 2.0


def test_a_budget_below_one_step_is_refused_at_once_with_the_price_of_one_step():
    account = opened(1.0, rate=0.5)
    with pytest.raises(BudgetExceededError, match="1: nothing was spent; take more noise") as refused:
        account.step()
    first = r"the first step alone \(noise multiplier 1, rate 0.5\) costs eps = ([\d.]+) at"
    said = re.match(first, str(refused.value))
    assert 0 <= float(said[1]) - of_one_step(1.0, 0.5) <= 0.02  # rounded up
    assert account.stretches == []


@pytest.mark.parametrize(("accountant", "price"), [("pld", 4.38), ("rdp", 4.73), ("gdp", 6.01)])
def test_what_is_spent_is_what_the_steps_cost(accountant, price):
    account = opened(5.0, rate=1.0)
    assert account.cost(accountant) == 0
    account.step()
    assert account.cost(accountant) == pytest.approx(price, rel=0.002)


# An image in several tasks.


@pytest.mark.parametrize(("noise", "rate", "tasks"), [(1.0, 0.016, 2), (0.6, 0.3, 3), (90.0, 0.5, 200)])
def test_a_group_of_tasks_costs_no_less_than_the_exact_mixture(noise, rate, tasks):
    """ε of one step for an image in k tasks, both directions, by summing densities on a fine grid."""
    x = np.linspace(-12 * noise, tasks + 12 * noise, 60_001)
    plain = norm.pdf(x, 0, noise)
    weights = binom.pmf(range(tasks + 1), tasks, rate)
    mixed = sum(weight * norm.pdf(x, n, noise) for n, weight in enumerate(weights))

    def too_much(eps: float) -> float:
        removed = np.maximum(0, mixed - math.exp(eps) * plain).sum()
        added = np.maximum(0, plain - math.exp(eps) * mixed).sum()
        return max(removed, added) * (x[1] - x[0]) - DELTA

    exact = brentq(too_much, 1e-3, 60, xtol=1e-9)
    stretch = Stretch(noise, rate, 1)
    assert exact <= epsilon([stretch.of_group(tasks)], DELTA)
    assert stretch.of_group(1).rate == pytest.approx(rate)
    assert Stretch(8.0, 1.0, 9).of_group(4) == Stretch(2.0, 1.0, 9)  # if it is in every step


# What is refused.


@pytest.mark.parametrize(
    ("stretch", "message"),
    [
        ((-0.1, 0.1, 1), "noise_multiplier is a number from 0"),
        ((math.inf, 0.1, 1), "noise_multiplier is a number from 0"),
        ((math.nan, 0.1, 1), "noise_multiplier is a number from 0"),
        ((1.0, 0.0, 1), "rate is above 0 and at most 1 .* got 0.0: give tasks a step / tasks in the pool"),
        ((1.0, 1.01, 1), "rate is above 0 and at most 1"),
        ((1.0, 0.1, 0), "steps is a whole number from 1 to 1000000, got 0: leave out"),
        ((1.0, 0.1, 1.5), "steps is a whole number"),
        ((1.0, 0.1, 10**6 + 1), "steps is a whole number"),
    ],
)
def test_a_stretch_that_cannot_be_is_refused(stretch, message):
    with pytest.raises(ConfigError, match=message):
        Stretch(*stretch)


@pytest.mark.parametrize(
    ("budget", "delta", "message"),
    [(1.0, delta, r"delta=.* from 1e-09") for delta in (0.0, 1e-10, 1.0, -1e-5, math.nan)]
    + [(budget, DELTA, "the budget is an epsilon above 0") for budget in (0.0, -1.0, math.inf, math.nan)],
)
def test_a_budget_or_delta_out_of_range_is_refused(budget, delta, message):
    asks = [
        lambda: calibrate(budget, delta, 0.1, 1),
        lambda: steps_within(budget, delta, 1.0, 0.1),
        lambda: opened(budget, delta),
    ]
    for ask in [*asks, *([lambda: epsilon([Stretch(1.0, 0.1, 1)], delta)] if budget == 1 else [])]:
        with pytest.raises(ConfigError, match=message):
            ask()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: calibrate(0.001, 1e-9, 1.0, 100_000), "not even noise of 1000 clipping norms keeps 100000"),
        (lambda: calibrate(1e5, DELTA, 1.0, 1), "noise of 0.01 clipping norms: such a budget promises"),
        (lambda: epsilon([Stretch(1, 1, 10**6), Stretch(2, 1, 1)], DELTA), "1000001 steps: at most 1000000"),
        (lambda: epsilon([], DELTA, "pdl"), "no accountant is called 'pdl': did you mean 'pld'"),
        (lambda: opened(1.0, pool=0), "pool=0: a pool has at least 1 task"),
        (lambda: opened(1.0, pool=100_000), "to publish a task in clear would count as private"),
        (lambda: opened(1.0, pool=200_000), "to publish a task in clear would count as private"),
    ],
)
def test_what_no_noise_keeps_or_nobody_can_account_for_is_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()


def test_the_extra_is_named_where_the_library_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    message = r"needs dp_accounting: .*pip install -c constraints.txt -e '\.\[private\]'"
    with pytest.raises(MissingExtraError, match=message):
        epsilon([Stretch(1.0, 0.1, 1)], DELTA, "gdp")
