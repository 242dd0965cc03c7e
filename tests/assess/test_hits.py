"""How often people were named, and how sure that is: person by person."""

from types import SimpleNamespace as Of
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.assess.hits import Hits, fewest, hits_of, whole_percents
from sfumato.base.proportions import over_people, upper_end_over_people


def of_people(hits: list[float], each: float = 1.0) -> Hits:
    return Hits(tuple(map(float, hits)), (each,) * len(hits), seeds=1)


# Intervals (see tests/base/test_proportions.py)


@pytest.mark.parametrize("seeds", [1, 2, 5])
@pytest.mark.parametrize("hits", [(3.0, 1.0, 0.0, 2.0), (0.0,) * 4])
def test_seeds_that_ask_for_the_same_people_make_nothing_more_certain(hits: tuple[float, ...], seeds: int):
    more = Hits(tuple(count * seeds for count in hits), (4.0 * seeds,) * 4, seeds=seeds)
    assert more.interval == pytest.approx(over_people(hits, [4.0] * 4))
    assert more.upper_end(0.05) == pytest.approx(upper_end_over_people(hits, [4.0] * 4, error=0.05))


def test_who_is_always_named_may_always_be():
    assert of_people([1] * 8).upper_end(0.05) == 1


@given(
    hits=st.lists(st.integers(0, 5), min_size=2, max_size=12),
    errors=st.tuples(st.floats(1e-4, 0.2), st.floats(1e-4, 0.2)),
)
def test_the_upper_end_is_above_the_share_and_grows_with_the_certainty(hits, errors):
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


# From records


def score(classifier: str, hits: tuple[int, ...] | None, top1: float = 0.5) -> Any:
    return Of(classifier=classifier, hits=hits, top1=top1)


def result(*scores: Any, people: tuple[int, ...] | None = (2, 2), identities: int = 2) -> Any:
    return Of(scores=scores, people=people, identities=identities)


def test_hits_of_seeds_are_added_up_person_by_person():
    made = hits_of([result(score("svm", (1, 2))), result(score("svm", (0, 2)))])
    assert made == {"svm": Hits((1.0, 4.0), (4.0, 4.0), seeds=2)}


@pytest.mark.parametrize("folds", [False, True])
def test_a_classifier_that_a_seed_lacks_is_judged_by_those_that_have_it(folds: bool):
    seeds = [result(score("svm", (1, 2)), score("table", (2, 2))), result(score("rbf", (0, 2)))]
    made = hits_of(seeds, folds=folds)
    assert {name: hits.share for name, hits in made.items()} == {"svm": 0.75, "table": 1.0, "rbf": 0.5}
    assert all(hits.upper_end(0.01) > hits.share or hits.share == 1 for hits in made.values())


@pytest.mark.parametrize("people", [(5, 5), None])
def test_where_only_a_sum_is_known_a_person_counts_as_one_trial(people: tuple[int, ...] | None):
    made = hits_of([result(score("svm", None, 0.25), people=people)])["svm"]
    assert made.share == 0.25
    assert len(made.probes) == 2
    assert made.upper_end(0.05) > 0.6


def test_people_of_folds_and_of_seeds_with_others_stand_beside_each_other():
    made = hits_of([result(score("svm", (1, 2))), result(score("svm", (0, 2)), people=(3, 1))], folds=True)
    assert made == {"svm": Hits((1.0, 2.0, 0.0, 2.0), (2.0, 2.0, 3.0, 1.0), seeds=1, folds=2)}
    others = hits_of([result(score("svm", (1, 2))), result(score("svm", (1,)), people=(2,))])
    assert others == {"svm": Hits((1.0, 2.0, 1.0), (2.0, 2.0, 2.0), seeds=1, folds=2)}
