"""Singling out and linkability equal the code of the paper's authors, which the CNIL validated for speech."""

import itertools

import numpy as np
import pytest
from legal_eval import linkability as their_linkability
from legal_eval import singling_out as their_singling_out
from legal_eval.io import ScoreMatrix
from legal_eval.metrics.singling_out import ConversationScores

from sfumato.assess.isolation import linkability, singling_out
from sfumato.errors import DataError

PEOPLE = 40


@pytest.fixture
def similarities() -> np.ndarray:
    """(people, people, records) similarities, higher of one's own records."""
    draw = np.random.default_rng(0)
    return draw.normal(size=(PEOPLE, PEOPLE, 4)) + 1.5 * np.eye(PEOPLE)[..., None]


@pytest.mark.parametrize("candidates", [1, 2, 7, PEOPLE])
def test_linkability_is_that_of_the_oracle(similarities, candidates):
    names = [str(person) for person in range(PEOPLE)]
    oracle = ScoreMatrix(similarities[..., 0].T, names, names, {})
    (theirs,) = their_linkability(oracle, candidates, estimator="exact")
    ours = linkability(similarities[..., 0], np.arange(PEOPLE), candidates=candidates)
    assert ours.mean() == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("people", [3, 11, PEOPLE])
def test_singling_out_is_that_of_the_oracle(similarities, people):
    tests, others = similarities[:people, :people, 0], similarities[:people, :people, 1:]
    names = [str(person) for person in range(people)]
    ends = [(3 * person, 3 * person + 3) for person in range(people)]
    oracle = ConversationScores(names, names, tests, others.reshape(people, -1), ends)
    theirs = their_singling_out(oracle, people, n_runs=1)  # all people: no draw is left to chance
    assert [[int(isolated)] for isolated in singling_out(tests, others)] == list(theirs.values())


def test_equally_similar_people_are_guessed_among():
    row = np.array([[0.5, 0.5, 0.9, 0.5, 0.1]])
    draws = list(itertools.combinations([1, 2, 3, 4], 2))
    by_hand = [0 if 2 in draw else 1 / (1 + len({1, 3} & set(draw))) for draw in draws]
    assert linkability(row, np.array([0]), candidates=3) == pytest.approx(np.mean(by_hand))
    assert linkability(np.zeros((1, 5)), np.array([3]), candidates=5) == pytest.approx(1 / 5)


def test_too_many_candidates_and_too_few_people_are_refused():
    with pytest.raises(DataError, match="candidates=6: from 1 to the 5 people there are"):
        linkability(np.zeros((1, 5)), np.array([0]), candidates=6)
    with pytest.raises(DataError, match="1 people with 0 other records: at least 2 with 1"):
        singling_out(np.zeros((1, 1)), np.zeros((1, 1, 0)))
