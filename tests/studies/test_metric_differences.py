"""studies/metric_differences.py: differences of metrics and their intervals, and metrics among themselves."""

import numpy as np
import pytest
import torch
from metric_differences import Ranked, mean_difference, metric_matrix
from scipy import stats

from sfumato.errors import DataError

# Scores of 14 models with ties, as whole per cents of people are.
PEOPLE = [0.91, 0.33, 0.33, 0.12, 0.0, 0.0, 0.0, 0.45, 0.5, 0.71, 0.68, 0.12, 0.25, 0.8]
SCORES = [21.5, 14.0, 15.5, 12.0, 9.0, 11.0, 9.0, 13.0, 18.0, 17.0, 22.0, 14.0, 10.0, 19.0]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# The difference of two metrics


def test_the_difference_of_two_metrics_is_that_of_their_correlations_by_scipy():
    other = [each % 7 for each in SCORES]
    found = mean_difference([Ranked(SCORES, other, PEOPLE)], generator=seeded())
    one, two = (stats.kendalltau(each, PEOPLE).statistic for each in (SCORES, other))
    assert found.value == pytest.approx(one - two)


def test_the_interval_of_a_difference_draws_the_same_models_for_both_metrics():
    found = mean_difference(
        [Ranked(SCORES, (other := [-each for each in SCORES]), PEOPLE)], generator=seeded()
    )
    scores, others, people = np.array(SCORES), np.array(other), np.array(PEOPLE)
    values = [
        stats.kendalltau(scores[row], people[row]).statistic
        - stats.kendalltau(others[row], people[row]).statistic
        for row in np.random.default_rng(1).integers(14, size=(1000, 14))
    ]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(values, [0.025, 0.975])), abs=0.1)
    same = mean_difference([Ranked(SCORES, [2 * each for each in SCORES], PEOPLE)], generator=seeded())
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_a_difference_is_of_the_same_models():
    with pytest.raises(DataError, match="14, 3, 14 scores, others and people: give one of each"):
        mean_difference([Ranked(SCORES, [1, 2, 3], PEOPLE)], generator=seeded())


def test_a_mean_difference_is_that_of_the_data_sets_and_its_interval_draws_models_within_each():
    other = [each % 7 for each in SCORES]
    sets = [Ranked(SCORES, other, PEOPLE), Ranked(other[::-1], SCORES[::-1], PEOPLE)]
    found = mean_difference(sets, generator=seeded())
    rng, values = np.random.default_rng(1), []

    def difference(one: list[float], two: list[float], rows) -> float:
        people = np.array(PEOPLE)[rows]
        first, second = (stats.kendalltau(np.array(each)[rows], people).statistic for each in (one, two))
        return first - second

    for _ in range(300):
        rows, others = rng.integers(14, size=(2, 14))
        values.append((difference(SCORES, other, rows) + difference(other[::-1], SCORES[::-1], others)) / 2)
    everyone = range(14)
    assert found.value == pytest.approx(
        (difference(SCORES, other, everyone) + difference(other[::-1], SCORES[::-1], everyone)) / 2
    )
    assert (found.low, found.high) == pytest.approx(tuple(np.nanquantile(values, [0.025, 0.975])), abs=0.05)


def test_a_mean_difference_needs_a_data_set():
    with pytest.raises(DataError, match="no data set to average over"):
        mean_difference([], generator=seeded())


# Metrics among themselves


def test_the_matrix_has_kendalls_tau_of_every_pair():
    scores = {"psnr": SCORES, "ssim": PEOPLE, "mse": [-each for each in SCORES]}
    matrix = metric_matrix(scores)
    assert matrix.names == ("psnr", "ssim", "mse")
    expected = [[stats.kendalltau(a, b).statistic for b in scores.values()] for a in scores.values()]
    assert torch.allclose(matrix.kendall, torch.tensor(expected, dtype=torch.float64), atol=1e-12)


def test_metrics_of_different_models_are_not_compared():
    with pytest.raises(DataError, match=r"metrics of different models: \{'psnr': 14, 'ssim': 3\}"):
        metric_matrix({"psnr": SCORES, "ssim": [1, 2, 3]})
