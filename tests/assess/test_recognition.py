import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve
from torch.nn import functional

from sfumato.assess.recognition import (
    area_under_curve,
    cumulative_match,
    identification_ranks,
    true_accept_rate,
    verification_accuracy,
)
from sfumato.errors import DataError


def pairs(seed, count=400):
    generator = torch.Generator().manual_seed(seed)
    same = torch.rand(count, generator=generator) < 0.5
    scores = torch.randn(count, generator=generator) + same
    return (scores * 8).round() / 8, same  # rounded, so that there are ties


@given(st.integers(0, 100))
def test_the_area_is_that_of_an_independent_library(seed):
    scores, same = pairs(seed)
    assert area_under_curve(scores, same) == pytest.approx(roc_auc_score(same.numpy(), scores.numpy()))


@given(st.integers(0, 100), st.sampled_from([0.0, 0.01, 0.1, 0.5]))
def test_the_true_accept_rate_is_a_point_of_the_independent_curve(seed, rate):
    scores, same = pairs(seed)
    false, true, _ = roc_curve(same.numpy(), scores.numpy(), drop_intermediate=False)
    assert true_accept_rate(scores, same, false_accept_rate=rate) == pytest.approx(true[false <= rate].max())


def test_a_perfect_recogniser_verifies_everything():
    scores, same = torch.tensor([0.9, 0.8, 0.1, 0.0]).repeat(5), torch.tensor([1, 1, 0, 0]).bool().repeat(5)
    folds = torch.arange(5).repeat_interleave(4)
    assert verification_accuracy(scores, same, folds).tolist() == [1.0] * 5
    assert area_under_curve(scores, same) == 1
    assert true_accept_rate(scores, same, false_accept_rate=0) == 1


def test_the_threshold_is_chosen_on_the_other_folds():
    # On fold 1 the best threshold is 0.9 or above 0.5; on fold 0 it is 0.3: each is judged by the other's.
    scores = torch.tensor([0.3, 0.1, 0.9, 0.5])
    same = torch.tensor([True, False, True, False])
    accuracies = verification_accuracy(scores, same, torch.tensor([0, 0, 1, 1]))
    assert accuracies.tolist() == [0.5, 0.5]


def test_verification_accuracy_agrees_with_a_plain_loop_over_thresholds():
    scores, same = pairs(3)
    folds = torch.arange(len(scores)) % 4
    for fold, found in enumerate(verification_accuracy(scores, same, folds).tolist()):
        rest = folds != fold
        best = max(scores[rest].tolist(), key=lambda t: ((scores[rest] >= t) == same[rest]).sum().item())
        right = [((scores[~rest] >= t) == same[~rest]).double().mean().item() for t in scores[rest].tolist()]
        count = ((scores[rest] >= best) == same[rest]).sum()
        equally_good = [
            r
            for t, r in zip(scores[rest].tolist(), right, strict=True)
            if ((scores[rest] >= t) == same[rest]).sum() == count
        ]
        assert any(found == pytest.approx(r) for r in equally_good)


def test_ranks_agree_with_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    gallery, probes = (functional.normalize(torch.randn(n, 5, generator=generator)) for n in (30, 12))
    known, asked = torch.arange(30) % 7 * 10, torch.arange(12) % 7 * 10
    expected = []
    for probe, truth in zip(probes, asked.tolist(), strict=True):
        nearest = {code: (gallery[known == code] @ probe).max().item() for code in known.unique().tolist()}
        expected.append(1 + sum(value > nearest[truth] + 1e-6 for value in nearest.values()))
    assert identification_ranks(gallery, known, probes, asked).tolist() == expected


def test_an_encoder_that_tells_nobody_apart_gets_the_mean_rank():
    same = torch.ones(6, 1)
    ranks = identification_ranks(same, torch.arange(6), same[:2], torch.tensor([0, 5]))
    assert ranks.tolist() == [3.5, 3.5]
    assert cumulative_match(ranks, 1) == 0


def test_the_match_curve_counts_those_among_the_first_k():
    ranks = torch.tensor([1.0, 1.0, 2.0, 5.0])
    assert [cumulative_match(ranks, k) for k in (1, 2, 4, 5)] == [0.5, 0.75, 0.75, 1.0]


def test_what_cannot_be_measured_is_refused():
    one = torch.ones(4)
    with pytest.raises(DataError, match="pairs of one person and pairs of two"):
        area_under_curve(one, one.bool())
    with pytest.raises(DataError, match="two folds or more"):
        verification_accuracy(one, one.bool(), torch.zeros(4, dtype=torch.int64))
    with pytest.raises(DataError, match="from 0 to below 1"):
        true_accept_rate(one, torch.tensor([True, False, True, False]), false_accept_rate=1.0)
    with pytest.raises(DataError, match="not in the gallery"):
        identification_ranks(torch.ones(2, 1), torch.arange(2), torch.ones(1, 1), torch.tensor([7]))
