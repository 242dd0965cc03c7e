"""Agreement: rank correlations and their intervals, metrics among themselves, and annotators."""

import math
import random
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato.assess.agreement import (
    Correlation,
    RankCorrelations,
    krippendorff_alpha,
    majority,
    rank_correlations,
    split_half_reliability,
)
from sfumato.errors import DataError

# Scores of 14 models with ties, as whole per cents of people are.
PEOPLE = [0.91, 0.33, 0.33, 0.12, 0.0, 0.0, 0.0, 0.45, 0.5, 0.71, 0.68, 0.12, 0.25, 0.8]
SCORES = [21.5, 14.0, 15.5, 12.0, 9.0, 11.0, 9.0, 13.0, 18.0, 17.0, 22.0, 14.0, 10.0, 19.0]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def distinct_enough(values: list[int]) -> bool:
    return len(set(values)) > 1


few_levels = st.lists(st.integers(0, 4), min_size=3, max_size=20)


# Rank correlations


@given(st.data())
@settings(max_examples=50, deadline=None)
def test_correlations_are_those_of_scipy_with_ties(data: st.DataObject):
    scores = data.draw(few_levels.filter(distinct_enough))
    same_length = st.lists(st.integers(0, 4), min_size=len(scores), max_size=len(scores))
    people = data.draw(same_length.filter(distinct_enough))
    found = rank_correlations(scores, people, generator=seeded())
    assert found.spearman.value == pytest.approx(stats.spearmanr(scores, people).statistic, abs=1e-12)
    assert found.kendall.value == pytest.approx(stats.kendalltau(scores, people).statistic, abs=1e-12)


def test_the_interval_is_between_percentiles_of_correlations_of_models_drawn_again():
    found = rank_correlations(SCORES, PEOPLE, generator=seeded())
    scores, people = np.array(SCORES), np.array(PEOPLE)
    rows = np.random.default_rng(1).integers(14, size=(1000, 14))
    for ours, oracle in ((found.spearman, stats.spearmanr), (found.kendall, stats.kendalltau)):
        values = [oracle(scores[row], people[row]).statistic for row in rows]
        # 1,000 resamples place the lower end, the less certain one, within about 0.02.
        assert (ours.low, ours.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.1)


def test_with_the_papers_14_models_a_correlation_is_known_to_about_0_3():
    noise = torch.randn(14, generator=seeded(3))
    people = torch.arange(14.0)
    found = rank_correlations(people + 4 * noise, people, generator=seeded()).kendall
    assert 0.5 < found.value < 0.75
    assert 0.2 < (found.high - found.low) / 2 < 0.4


def test_the_sign_is_that_of_the_paper_equal_rankings_correlate_fully_and_infinity_ranks_highest():
    other = rank_correlations(SCORES, PEOPLE, generator=seeded())
    found = rank_correlations([-each for each in SCORES], PEOPLE, generator=seeded())
    assert found.kendall.value == -other.kendall.value < 0
    assert (found.kendall.low, found.kendall.high) == pytest.approx((-other.kendall.high, -other.kendall.low))
    equal = rank_correlations(PEOPLE, [2 * each for each in PEOPLE], generator=seeded())
    for each in (equal.spearman, equal.kendall):
        assert (each.value, each.low, each.high) == pytest.approx((1, 1, 1))
    perfect, highest = (
        rank_correlations([*SCORES[:-1], last], PEOPLE, generator=seeded()) for last in (math.inf, 1000.0)
    )
    assert perfect == highest


def test_resamples_without_two_different_models_are_left_out_and_counted():
    found = rank_correlations([1, 2, 3], [1, 2, 3], generator=seeded())
    # 3 of the 27 ways to draw 3 models draw one of them three times.
    assert found.left_out == pytest.approx(3 / 27, abs=0.015)  # 4 deviations of 10,000 draws
    assert rank_correlations(SCORES, PEOPLE, generator=seeded()).left_out == 0


def test_the_generator_decides_the_interval_and_nothing_else_moves():
    before = torch.random.get_rng_state()
    first = rank_correlations(SCORES, PEOPLE, generator=seeded(5))
    assert first == rank_correlations(SCORES, PEOPLE, generator=seeded(5))
    assert first != rank_correlations(SCORES, PEOPLE, generator=seeded(6))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_result_reads_as_a_line():
    result = RankCorrelations(Correlation(-0.8637, -0.95, -0.6), Correlation(-0.7143, -0.9, -0.4), 14, 0.0)
    assert str(result) == "Spearman -0.86 (-0.95 to -0.60), Kendall -0.71 (-0.90 to -0.40); 14 models"


@pytest.mark.parametrize(
    ("scores", "people", "message"),
    [
        ([1, 2, 3], [1, 2, 3, 4], "3 scores and 4 of people: give one of each"),
        ([1, 2], [1, 2], r"scores: \(2,\) scores: a ranking needs those of 3 models or more"),
        ([1, 2, math.nan], [1, 2, 3], "scores: the score of model 2 is not a number"),
        ([1, 2, 3], [0.5, 0.5, 0.5], "people: all 3 models score 0.5, which ranks none of them"),
    ],
)
def test_scores_that_rank_nothing_are_named(scores: list, people: list, message: str):
    with pytest.raises(DataError, match=message):
        rank_correlations(scores, people, generator=seeded())


# Reliability


def latent(models: int, judgements: int, noise: float, seed: int = 0) -> torch.Tensor:
    """What models are worth, each judgement with an error of its own. (n, J)"""
    worth = torch.randn(models, 1, generator=seeded(seed), dtype=torch.float64)
    return worth + noise * torch.randn(models, judgements, generator=seeded(seed + 1), dtype=torch.float64)


def test_two_judgements_have_the_reliability_of_spearman_and_brown():
    judged = latent(30, 2, 1.0)
    found = split_half_reliability(judged, generator=seeded())
    r = stats.spearmanr(*judged.T).statistic
    assert found.spearman.value == pytest.approx(2 * r / (1 + r))
    tau = stats.kendalltau(*judged.T).statistic
    normal = math.sin(math.pi * tau / 2)  # of a normal pair with this tau
    assert found.kendall.value == pytest.approx(2 / math.pi * math.asin(2 * normal / (1 + normal)))


def test_reliability_foretells_how_far_as_many_other_judgements_rank_alike():
    # The oracle: a second campaign of as many judgements, of the same models.
    models, judgements, noise = 150, 10, 2.0
    worth = torch.randn(models, 1, generator=seeded(), dtype=torch.float64)
    first, second = (
        worth + noise * torch.randn(models, judgements, generator=seeded(seed), dtype=torch.float64)
        for seed in (1, 2)
    )
    found = split_half_reliability(first, generator=seeded())
    again = stats.kendalltau(first.mean(1), second.mean(1)).statistic
    assert found.kendall.value == pytest.approx(again, abs=0.1)  # 150 models leave a deviation of 0.03
    # And Cronbach's alpha, the mean over all cuts in half, of the same judgements.
    alpha = judgements / (judgements - 1) * (1 - first.var(0).sum() / first.sum(1).var())
    assert found.spearman.value == pytest.approx(alpha.item(), abs=0.06)


def test_judgements_that_are_all_alike_are_fully_reliable_and_noise_is_not():
    equal = torch.arange(6.0).repeat(4, 1).T
    found = split_half_reliability(equal, generator=seeded())
    assert (found.kendall.value, found.kendall.low, found.kendall.high) == pytest.approx((1, 1, 1))
    noise = split_half_reliability(torch.randn(60, 8, generator=seeded()), generator=seeded())
    assert abs(noise.kendall.value) < 0.25


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        (torch.zeros(5), r"judgements of shape \(5,\): give \(models, judgements\)"),
        (torch.zeros(2, 5), "of 3 models or more"),
        (torch.zeros(5, 1), "2 judgements or more of each"),
        (torch.full((5, 4), math.nan), "are not finite: leave out incomplete columns"),
        (torch.ones(5, 4), "is the same for all 5 models"),
    ],
)
def test_judgements_that_rank_nothing_are_named(judged: torch.Tensor, message: str):
    with pytest.raises(DataError, match=message):
        split_half_reliability(judged, generator=seeded())


# Annotators

_ = None
# The reliability data of Krippendorff 2011, Sec. C: 4 observers, 12 units, some without an answer.
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3],
    [_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _],
]
UNITS = list(zip(*OBSERVERS, strict=True))


def test_alpha_is_that_of_krippendorffs_worked_example_and_of_the_coincidence_matrix():
    assert krippendorff_alpha(UNITS) == pytest.approx(0.743, abs=0.0005)
    coincidences = np.zeros((5, 5))
    for unit in UNITS:
        given_answers = [answer for answer in unit if answer is not None]
        for one, other in permutations(given_answers, 2):
            coincidences[one - 1, other - 1] += 1 / (len(given_answers) - 1)
    totals = coincidences.sum(1)
    n = totals.sum()
    agreed, by_chance = np.trace(coincidences), (totals * (totals - 1)).sum()
    expected = ((n - 1) * agreed - by_chance) / (n * (n - 1) - by_chance)
    assert krippendorff_alpha(UNITS) == pytest.approx(expected, abs=1e-12)


def test_alpha_is_1_where_all_agree_0_where_all_guess_and_below_where_two_always_disagree():
    names = ["cat", "dog", "cannot tell"]
    assert krippendorff_alpha([[name] * 5 for name in names]) == 1
    draw = random.Random(0)
    guesses = [[draw.choice(names) for _ in range(5)] for _ in range(4000)]
    assert krippendorff_alpha(guesses) == pytest.approx(0, abs=0.02)  # 5 deviations of 40,000 pairs
    assert krippendorff_alpha([[True, False], [False, True]]) < 0
    for answers in ([], [[None, 1], [2, None]], [[1, 1], [1, 1]]):  # without two answers or two values
        assert krippendorff_alpha(answers) is None


@pytest.mark.parametrize(
    ("answers", "most"),
    [("aaabb", "a"), ("aabb", None), ("b", "b"), ("", None), (["cat", "cat", "dog", "elk", "none"], None)],
)
def test_the_majority_is_more_than_half_of_the_answers(answers: Sequence[str], most: str | None):
    assert majority(answers) == most
