"""Intervals of proportions: of trials, of people who are asked several times, and among groups."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from sfumato.base.proportions import of_groups, over_people, trials_of_people, upper_end_over_people, wilson

EVEN, UNEVEN = [10.0] * 20, [2.0] * 30 + [20.0] * 10


def whole(draws: np.random.Generator, probes: list[float], share: float) -> np.ndarray:
    """Each person is named on all photographs or on none."""
    return np.array(probes) * (draws.random(len(probes)) < share)


def alike(draws: np.random.Generator, probes: list[float], share: float) -> np.ndarray:
    """All people are named equally often."""
    return draws.binomial(np.array(probes).astype(int), share).astype(float)


def spread(draws: np.random.Generator, probes: list[float], share: float) -> np.ndarray:
    """People differ: named at rates of a beta distribution, most near 0 or 1."""
    rates = draws.beta(0.5 * share, 0.5 * (1 - share), len(probes))
    return draws.binomial(np.array(probes).astype(int), rates).astype(float)


def some(draws: np.random.Generator, probes: list[float], share: float) -> np.ndarray:
    """A third of the hits are guesses on anybody, the rest are people who are named whole."""
    guesses = alike(draws, probes, share / 3)
    return np.maximum(guesses, whole(draws, probes, (share - share / 3) / (1 - share / 3)))


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (50, 50), (81, 400), (0, 1), (1, 1)])
def test_the_interval_of_independent_trials_is_wilsons(hits: int, trials: int):
    exact = binomtest(hits, trials).proportion_ci(method="wilson")
    assert wilson(hits, trials) == pytest.approx((exact.low, exact.high), abs=1e-6)
    one_each = [1.0] * hits + [0.0] * (trials - hits)
    assert over_people(one_each, [1.0] * trials) == pytest.approx((exact.low, exact.high), abs=1e-6)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=30))
def test_an_interval_is_of_proportions_and_holds_the_measured_one(counts: list[tuple[int, int]]):
    hits = [min(right, probes) for right, probes in counts]
    probes = [probes for _, probes in counts]
    share = sum(hits) / sum(probes)
    for low, high in (wilson(sum(hits), sum(probes)), over_people(hits, probes)):
        assert 0 <= low <= share <= high <= 1
    assert share <= upper_end_over_people(hits, probes, error=0.01) + 1e-12


@pytest.mark.parametrize("hits", [0, 3, 20, 39, 40])
def test_people_on_one_photograph_each_have_the_upper_end_of_clopper_and_pearson(hits: int):
    exact = binomtest(hits, 40, alternative="less").proportion_ci(0.95)
    end = upper_end_over_people([1.0] * hits + [0.0] * (40 - hits), [1.0] * 40, error=0.05)
    assert end == pytest.approx(exact.high)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_before_a_hit_or_a_miss_a_person_is_one_trial_and_fewer_if_some_have_more_photographs(share: float):
    assert trials_of_people([10 * share] * 20, EVEN) == pytest.approx(20)
    uneven = trials_of_people([share * count for count in UNEVEN], UNEVEN)
    assert uneven == pytest.approx(sum(UNEVEN) ** 2 / sum(count**2 for count in UNEVEN))


def test_with_many_hits_the_variance_between_people_decides_and_one_more_person_named_whole():
    """Cochran 1977, Sec. 9.7: the share is a ratio of sums over people; here by the definition, in numpy."""
    hits, probes = np.array([8.0] * 10 + [3.0] * 10), np.full(20, 10.0)
    share = hits.sum() / probes.sum()
    variance = len(hits) * np.var(hits - share * probes, ddof=1) / probes.sum() ** 2
    factor = variance / (share * (1 - share) / probes.sum())
    rarer = min(share, 1 - share) * probes.sum()
    expected = (rarer * factor + 10 * 10) / (rarer + 10)  # the imagined person has ten photographs
    assert trials_of_people(list(hits), list(probes)) == pytest.approx(probes.sum() / expected)


@pytest.mark.parametrize("error", [0.05, 0.005])
@pytest.mark.parametrize(
    ("named", "probes", "share", "times"),
    [
        (whole, EVEN, 0.05, 1.0),  # photographs as trials: too low in 36% of studies, when nobody is hit
        (whole, EVEN, 0.2, 1.0),
        (alike, EVEN, 0.05, 1.0),
        (alike, UNEVEN, 0.2, 1.0),
        (spread, EVEN, 0.05, 1.2),
        (spread, [3.0] * 40, 0.2, 1.2),
        (some, [10.0] * 60, 0.1, 2.0),  # the worst known; photographs as trials: 40%
    ],
)
def test_the_true_share_is_above_the_upper_end_as_often_as_it_may_be(named, probes, share, times, error):
    draws, studies = np.random.default_rng(0), 2000
    above = sum(
        upper_end_over_people(named(draws, probes, share), probes, error=error) < share
        for _ in range(studies)
    )
    chance = 3 * math.sqrt(error * (1 - error) / studies)  # of these draws
    assert above / studies <= times * error + chance


@pytest.mark.parametrize("people", [20, 60, 300])
def test_what_is_answered_once_a_person_is_above_guessing_without_cause_in_a_fortieth(people: int):
    """25 photographs of each, on all of which the same is guessed; photographs as trials: 15% and more."""
    draws, studies = np.random.default_rng(people), 2000
    above = sum(
        over_people(25.0 * (draws.random(people) < 0.5), [25.0] * people)[0] > 0.5 for _ in range(studies)
    )
    assert above / studies <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / studies)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_of_none_or_all_has_the_interval_of_its_trials_whatever_its_variance(share: float):
    interval = of_groups(share, 0.01, groups=1000, trials=500)
    assert interval == of_groups(share, 0.0, groups=1000, trials=500)
    assert interval == pytest.approx(wilson(500 * share, 500), abs=1e-4)
