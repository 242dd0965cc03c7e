"""Budgets: what words mean, what a release costs, and what just fits or is a hair too much."""

import math

import pytest
from charges import guarantee
from scipy.stats import norm

from sfumato.device.ledger.budgets import PERIODS, Budget
from sfumato.errors import BudgetExceededError, ConfigError


@pytest.mark.parametrize(
    ("words", "definition", "amount", "pixels"),
    [
        ("epsilon=10", "pure", 10, 1),
        ("epsilon=0.5,pixels=4", "pure", 0.5, 4),
        ("mu=2", "gaussian", 4, 1),  # squares are added up
        (" pixels=16 , rho=1 ", "concentrated", 1, 16),
        ("rho=1e-3", "concentrated", 0.001, 1),
        (" bits=6.5 ", "bits", 6.5, 1),
    ],
)
def test_a_budget_is_read_from_words(words: str, definition: str, amount: float, pixels: int):
    budget = Budget.parse(words)
    assert (budget.definition, budget.amount, budget.pixels) == (definition, pytest.approx(amount), pixels)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "'' is not KEY=NUMBER above 0: write epsilon=10, epsilon=10,delta=1e-6, mu=2 or rho=1"),
        ("epsilon=one", "'epsilon=one' is not KEY=NUMBER above 0"),
        ("epsilon=-1", "'epsilon=-1' is not KEY=NUMBER above 0"),
        ("epsilon=nan", "'epsilon=nan' is not KEY=NUMBER above 0"),
        ("epsilon=inf", "'epsilon=inf' is not KEY=NUMBER above 0"),
        ("epsilon=1,delta=0", "'delta=0' is not KEY=NUMBER above 0"),
        ("epsilon=1,delta=1", "give a delta above 0 and below 1"),
        ("epsilon=1,pixels=0", "'pixels=0' is not KEY=NUMBER above 0"),
        ("epsilon=1,pixels=1.5", "pixels=1.5 is not a whole number"),
        ("pixels=4", "write epsilon=10"),
        ("rho=1,epsilon=1", "write epsilon=10"),
        ("epsilon=1,epsilon=2", "epsilon"),  # which of the two is meant?
        ("mu=1e200", "mu"),  # its square is no number
        ("mu=1e-200", "mu"),  # its square is 0, a budget that nothing fits
        ("epsilon=1,pixels=1e30", "pixels"),  # more than a database can hold, or an image has
        ("releases=1.5", "releases=1.5 is not a whole number"),
        ("releases=2,pixels=4", "a number of releases takes no number of pixels"),
        ("bits=64,epsilon=1", "or bits=64, or releases=5"),
        ("naming=1%,of=1000,per=decade", "per=day, week, month, quarter or year"),
        ("naming=1%,of=1000,bits=3", "assuming=none, chain, shuffled or exchangeable"),
        ("naming=100%,of=1000", "assuming=none, chain, shuffled or exchangeable"),
        ("naming=1%,of=50", "to guess among 50 people names 2% already: allow more, or say that there are"),
    ],
)
def test_a_malformed_budget_is_refused_by_message(words: str, message: str):
    with pytest.raises(ConfigError) as raised:
        Budget.parse(words)
    assert message in str(raised.value)


@pytest.mark.parametrize("words", ["epsilon=1,delta=1e-6", "epsilon=10,delta=1e-6", "epsilon=0.1,delta=0.01"])
def test_an_epsilon_delta_budget_becomes_the_largest_rho_that_implies_it(words: str):
    epsilon, delta = (float(part.partition("=")[2]) for part in words.split(","))
    budget = Budget.parse(words)
    assert budget.definition == "concentrated"
    implied = guarantee("concentrated", budget.amount).to("approximate", delta=delta)
    more = guarantee("concentrated", budget.amount * (1 + 1e-9)).to("approximate", delta=delta)
    assert implied.value <= epsilon < more.value
    # Bun & Steinke 2016, Prop. 1.3: ε = ρ + 2 sqrt(ρ ln(1/δ)), a simpler bound, allows less.
    log = math.log(1 / delta)
    assert budget.amount > (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2


def mu_of(epsilon: float) -> float:
    """ε-DP as μ-GDP, Dong, Roth & Su 2022: from SciPy's normal distribution."""
    return float(-2 * norm.ppf(1 / (1 + math.exp(epsilon))))


@pytest.mark.parametrize(
    ("definition", "value", "words", "cost"),
    [
        ("pure", 3, "epsilon=10", 3),
        ("pure", 3, "mu=2", mu_of(3) ** 2),
        ("pure", 1, "rho=1", 0.5),  # ε^2 / 2
        ("pure", 3, "rho=1", 3),  # ε, where that is less
        ("pure", 1, "epsilon=1,delta=1e-6", 0.5),
        ("gaussian", 2, "mu=1", 4),
        ("gaussian", 2, "rho=1", 2),  # μ^2 / 2
        ("gaussian", 2, "epsilon=1,delta=1e-6", 2),
        ("concentrated", 0.7, "rho=1", 0.7),
        ("concentrated", 0.7, "epsilon=1,delta=1e-6", 0.7),
    ],
)
def test_the_cost_is_in_the_currency_of_the_budget(definition: str, value: float, words: str, cost: float):
    assert Budget.parse(words).cost([guarantee(definition, value)]) == pytest.approx(cost, rel=1e-9)


@pytest.mark.parametrize(
    ("definition", "words"),
    [("gaussian", "epsilon=1"), ("concentrated", "epsilon=1"), ("concentrated", "mu=1")],
)
def test_what_no_theorem_converts_is_refused(definition: str, words: str):
    with pytest.raises(BudgetExceededError, match=r"no theorem leads from .*; budgets in rho, or in epsilon"):
        Budget.parse(words).cost([guarantee(definition, 0.1)])


def test_what_nothing_is_proved_of_fits_no_budget():
    with pytest.raises(BudgetExceededError, match="nothing is proved of it, so no budget can hold it"):
        Budget.parse("epsilon=1000000").cost([])


@pytest.mark.parametrize(
    ("words", "least", "larger"),
    [
        ("releases=30", 31, "releases=60"),
        ("releases=5", 17, "releases=20"),
        ("bits=64", 70, "bits=128"),
        ("delta=1e-6,epsilon=10", 0.1, "delta=1e-6,epsilon=20"),
        ("mu=2,pixels=4", 5, "mu=4,pixels=4"),
    ],
)
def test_a_larger_budget_is_of_the_same_kind_and_holds_what_was_asked(words: str, least: float, larger: str):
    budget = Budget.parse(words)
    assert budget.larger(least) == larger
    assert Budget.parse(larger).amount >= least


@pytest.mark.parametrize(
    ("spent", "cost", "fits"),
    [(0.2, 0.1, True), (0.3, 0.0, True), (0.0, 0.3, True), (0.3, 1e-8, False), (0.2, 0.10001, False)],
)
def test_what_rounding_leaves_fits_and_what_is_more_does_not(spent: float, cost: float, fits: bool):
    assert (Budget.parse("epsilon=0.3").refusal(spent, cost, "this image", str) is None) is fits


@pytest.mark.parametrize(
    ("proved", "budgeted", "cost"), [(4, 3, 1), (4, 4, 1), (4, 5, 2), (4, 8, 2), (4, 9, 3)]
)
def test_a_guarantee_costs_a_step_for_each_of_its_pixels_that_a_budget_asks_for(
    proved: int, budgeted: int, cost: float
):
    budget, known = Budget.parse(f"epsilon=10,pixels={budgeted}"), guarantee("pure", 1, pixels=proved)
    assert budget.cost([known]) == cost
    assert budget.cost([guarantee("pure", 5), known]) == min(cost, 5 * budgeted)  # the best counts


def test_a_period_ends_so_many_days_ago():
    for period, days in {"day": 1, "week": 7, "month": 30, "year": 365, "ever": math.inf}.items():
        budget = Budget.parse(f"naming=1%,of=1000,per={period}")
        assert PERIODS[budget.period] == days * 24 * 60 * 60


def test_a_share_above_guessing_is_a_budget_of_its_bits():
    assert Budget.parse("naming=2%,of=100").amount == pytest.approx(1)
    assert Budget.parse("naming=0.04,of=100").amount == pytest.approx(2)
