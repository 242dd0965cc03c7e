"""Budgets at their edges: what just fits, and what is a hair too much."""

import math

import pytest

from sfumato.device.ledger.budgets import Budget
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import ConfigError


def hides(pixels: int) -> Guarantee:
    return Guarantee(definition="pure", value=1.0, pixels=pixels, whole_image=100.0, source="a test")


@pytest.mark.parametrize(
    ("spent", "cost", "fits"),
    [(0.2, 0.1, True), (0.3, 0.0, True), (0.0, 0.3, True), (0.3, 1e-8, False), (0.2, 0.10001, False)],
)
def test_what_rounding_leaves_fits_and_what_is_more_does_not(spent: float, cost: float, fits: bool):
    refusal = Budget.parse("epsilon=0.3").refusal(
        spent, cost, "this image", "sfumato ledger budget {}".format
    )
    assert (refusal is None) is fits


def test_an_infinite_sum_fits_no_budget():
    refusal = Budget.parse("rho=1").refusal(math.inf, 0.0, "this image", "sfumato ledger budget {}".format)
    assert refusal is not None
    assert refusal.startswith("nothing is left for this image")


@pytest.mark.parametrize(
    ("proved", "budgeted", "cost"), [(4, 3, 1), (4, 4, 1), (4, 5, 2), (4, 8, 2), (4, 9, 3)]
)
def test_a_guarantee_costs_a_step_for_each_of_its_pixels_that_a_budget_asks_for(
    proved: int, budgeted: int, cost: float
):
    assert Budget.parse(f"epsilon=10,pixels={budgeted}").cost([hides(proved)]) == cost


@pytest.mark.parametrize(
    ("period", "days"), [("day", 1), ("week", 7), ("month", 30), ("year", 365), ("ever", math.inf)]
)
def test_a_period_ends_so_many_days_ago(period: str, days: float):
    budget = Budget.parse(f"naming=1%,of=1000,per={period}")
    assert budget.since(1e9) == 1e9 - days * 24 * 60 * 60
    assert Budget.parse("bits=4").since(1e9) == -math.inf


NOT_SUMS = ["epsilon=0", "epsilon=-1", "epsilon=1,delta=1", "rho=1e18", "bits=nan", "releases=inf"]
NO_SHARES = ["naming=100%,of=1000", "naming=0%,of=1000", "naming=1%,of=100", "naming=90%,of=1", "naming=1%"]


@pytest.mark.parametrize("words", [*NOT_SUMS, "mu=1e-200", *NO_SHARES])
def test_numbers_that_no_sum_can_hold_and_shares_that_guessing_names_are_refused(words: str):
    with pytest.raises(ConfigError, match=r"budget|delta"):
        Budget.parse(words)


def test_a_share_above_guessing_is_a_budget_of_its_bits():
    assert Budget.parse("naming=2%,of=100").amount == pytest.approx(1)
    assert Budget.parse("naming=0.04,of=100").amount == pytest.approx(2)
