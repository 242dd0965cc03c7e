"""How often people were named, and how sure that is: against exact intervals and enumeration."""

import math
from itertools import combinations
from types import SimpleNamespace as Of
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from sfumato.study.hits import Hits, fewest, hits_of, whole_percents


def of_people(hits: list[float], each: float = 1.0) -> Hits:
    return Hits(tuple(map(float, hits)), (each,) * len(hits), seeds=1)


# Trials and intervals


@pytest.mark.parametrize(("right", "probes"), [(0, 40), (3, 40), (20, 40), (39, 40), (1, 1000)])
def test_people_on_one_photograph_each_are_independent_trials(right: int, probes: int):
    hits = of_people([1] * right + [0] * (probes - right))
    assert hits.trials == pytest.approx(probes)
    exact = binomtest(right, probes, alternative="less").proportion_ci(0.95)  # Clopper & Pearson
    assert hits.upper_end(0.05) == pytest.approx(exact.high)
    wilson = binomtest(right, probes).proportion_ci(0.95, method="wilson")
    assert hits.interval == (pytest.approx(wilson.low, abs=1e-6), pytest.approx(wilson.high, abs=1e-6))


def test_photographs_of_one_person_count_as_the_variance_between_people_says():
    """Cochran 1977, Sec. 9.7: the share is a ratio of sums over people; here by the definition, in numpy."""
    hits = np.array([8.0] * 10 + [3.0] * 10)
    probes = np.full(20, 10.0)
    share = hits.sum() / probes.sum()
    residuals = hits - share * probes
    variance = len(hits) * np.var(residuals, ddof=1) / probes.sum() ** 2
    made = Hits(tuple(hits), tuple(probes), seeds=1)
    assert made.trials == pytest.approx(share * (1 - share) / variance)
    assert 20 < made.trials < 200


def test_people_with_unequal_numbers_of_photographs_weigh_as_these_do():
    hits, probes = np.array([9.0, 1.0, 2.0, 0.0, 5.0]), np.array([12.0, 4.0, 6.0, 9.0, 7.0])
    share = 17 / 38
    variance = 5 / 4 * sum((hits - share * probes) ** 2) / 38**2
    made = Hits(tuple(hits), tuple(probes), seeds=1)
    assert made.share == pytest.approx(share)
    assert made.trials == pytest.approx(max(5, share * (1 - share) / variance))


def test_a_person_is_one_trial_at_least_and_a_photograph_one_at_most():
    together = Hits((10.0, 0.0, 0.0, 0.0), (10.0,) * 4, seeds=1)
    assert together.trials == 4
    alike = Hits((5.0, 5.0, 5.0, 5.0), (10.0,) * 4, seeds=1)  # people differ less than chance would have it
    assert alike.trials == 40


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_seeds_add_no_trials(seeds: int):
    one = Hits((3.0, 1.0, 0.0, 2.0), (4.0,) * 4, seeds=1)
    more = Hits(*(tuple(count * seeds for count in counts) for counts in (one.hits, one.probes)), seeds=seeds)
    assert more.trials == pytest.approx(one.trials)
    none = Hits((0.0,) * 4, (4.0 * seeds,) * 4, seeds=seeds)
    assert none.trials == 16


def test_of_people_who_are_not_apart_each_photograph_is_a_trial():
    assert Hits((2.0,), (40.0,), seeds=2).trials == 20
    assert not Hits((2.0,), (40.0,), seeds=2).apart
    assert Hits((2.0, 0.0), (20.0, 20.0), seeds=2).apart


def test_who_is_always_named_may_always_be():
    assert of_people([1] * 8).upper_end(0.05) == 1


@settings(deadline=None)
@given(
    hits=st.lists(st.integers(0, 5), min_size=2, max_size=12),
    errors=st.tuples(st.floats(1e-4, 0.2), st.floats(1e-4, 0.2)),
)
def test_the_upper_end_is_above_the_share_and_grows_with_the_certainty(
    hits: list[int], errors: tuple[float, float]
):
    made = of_people(hits, 5)
    small, large = (made.upper_end(error) for error in sorted(errors))
    assert made.share <= large + 1e-12
    assert large <= small <= 1


def test_halves_are_every_second_person():
    made = Hits((1.0, 2.0, 3.0, 4.0, 5.0), (5.0, 6.0, 7.0, 8.0, 9.0), seeds=1, folds=3)
    first, second = made.half(0), made.half(1)
    assert (first.hits, first.probes) == ((1.0, 3.0, 5.0), (5.0, 7.0, 9.0))
    assert (second.hits, second.probes) == ((2.0, 4.0), (6.0, 8.0))
    assert (first.seeds, second.folds) == (1, 3)
    alone = Hits((1.0,), (5.0,), seeds=1)
    assert alone.half(0) is alone.half(1) is alone


# More people


def test_among_more_people_guessing_and_naming_are_rarer():
    """Twice the people of whom as many are named: half the share of twice the probes."""
    made = Hits((1.0, 0.0, 2.0), (4.0, 4.0, 4.0), seeds=1)
    twice = made.of_more(2)
    assert len(twice.probes) == 6
    assert sum(twice.hits) == sum(made.hits)
    assert twice.share == pytest.approx(made.share / 2)


@pytest.mark.parametrize("most", [2, 7, 10, 100])
@pytest.mark.parametrize("least", range(1, 110, 3))
def test_the_fewest_are_those_of_a_search_one_by_one(least: int, most: int):
    by_one = next((times for times in range(2, most + 1) if times >= least), None)
    asked: list[int] = []

    def keeps(times: int) -> bool:
        asked.append(times)
        return times >= least

    assert fewest(keeps, most=most) == by_one
    assert all(2 <= times <= most for times in asked)


@pytest.mark.parametrize(
    ("share", "percents"),
    [(0.0, 0.0), (0.07, 0.07), (0.0701, 0.08), (0.29, 0.29), (0.991, 1.0), (1.0, 1.0), (1.2, 1.0)],
)
def test_whole_percents_are_no_lower(share: float, percents: float):
    assert whole_percents(share) == pytest.approx(percents, abs=1e-12)


# Counting


@settings(deadline=None)
@given(
    probes=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    outputs=st.integers(1, 8),
    folds=st.integers(1, 2),
)
def test_counting_allows_the_best_choice_of_as_many_people_as_outputs(
    probes: list[int], outputs: int, folds: int
):
    """By enumeration: whoever answers one person for each output is right on the probes of these people."""
    size = min(len(probes), outputs * folds)
    best = max(sum(chosen) for chosen in combinations(probes, size)) / sum(probes)
    made = Hits((0.0,) * len(probes), tuple(map(float, probes)), seeds=1, folds=folds)
    assert made.by_counting(outputs) == pytest.approx(best)


# From records


def score(classifier: str, hits: tuple[int, ...] | None, top1: float = 0.5) -> Any:
    return Of(classifier=classifier, hits=hits, top1=top1)


def result(*scores: Any, people: tuple[int, ...] | None = (2, 2), probes: int = 4) -> Any:
    return Of(scores=scores, people=people, probes=probes)


def test_hits_of_seeds_are_added_up_person_by_person():
    made = hits_of([result(score("svm", (1, 2))), result(score("svm", (0, 2)))])
    assert made == {"svm": Hits((1.0, 4.0), (4.0, 4.0), seeds=2)}


def test_a_classifier_that_a_seed_lacks_has_no_hits():
    made = hits_of([result(score("svm", (1, 2)), score("table", (2, 2))), result(score("svm", (0, 2)))])
    assert set(made) == {"svm"}


def test_without_probes_nothing_is_known():
    assert hits_of([result(score("svm", (1, 2))), result(score("svm", (1, 2)), probes=0)]) == {}


@pytest.mark.parametrize(
    ("people", "hits"), [((2, 2), None), ((1, 3), (1, 1)), (None, (1, 1))], ids=["hits", "others", "none"]
)
def test_where_people_are_not_apart_or_not_the_same_their_photographs_are_counted_together(
    people: tuple[int, ...] | None, hits: tuple[int, ...] | None
):
    made = hits_of([result(score("svm", (1, 2), 0.75)), result(score("svm", hits, 0.25), people=people)])
    assert made == {"svm": Hits((0.75 * 4 + 0.25 * 4,), (8.0,), seeds=2)}


def test_people_of_folds_stand_beside_each_other():
    made = hits_of([result(score("svm", (1, 2))), result(score("svm", (0, 2)), people=(3, 1))], folds=True)
    assert made == {"svm": Hits((1.0, 2.0, 0.0, 2.0), (2.0, 2.0, 3.0, 1.0), seeds=1, folds=2)}


def test_folds_whose_people_are_not_recorded_are_counted_together():
    made = hits_of([result(score("svm", (1, 2), 0.75)), result(score("svm", None, 0.5))], folds=True)
    assert made == {"svm": Hits((5.0,), (8.0,), seeds=2)}
    assert math.isclose(made["svm"].share, 0.625)
