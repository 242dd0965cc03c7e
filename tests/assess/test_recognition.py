import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from sfumato.assess.recognition import (
    area_under_curve,
    chance,
    cumulative_match,
    identification,
    identification_ranks,
    true_accept_rate,
    verification,
    verification_accuracy,
)
from sfumato.base.proportions import over_people
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


@pytest.mark.parametrize("seed", range(3))
def test_a_verification_has_the_area_and_both_points_of_the_curve(seed):
    scores, same = pairs(seed, 3000)
    judged = verification(scores, same)
    assert judged.auc == area_under_curve(scores, same)
    assert judged.tar_at_far == {
        name: true_accept_rate(scores, same, false_accept_rate=rate)
        for name, rate in (("1e-2", 0.01), ("1e-3", 0.001))
    }


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


def guesses(probes=40, *, seed=0):
    """Similarities of probes to a dozen identities whose codes have gaps, with ties; and who they are."""
    generator = torch.Generator().manual_seed(seed)
    identities = torch.arange(12) * 10 + 3
    places = torch.randint(0, 12, (probes,), generator=generator)
    similarities = torch.randn(probes, 12, generator=generator)
    similarities[torch.arange(probes), places] += 1
    return (similarities * 4).round() / 4, identities, identities[places]


@given(st.integers(0, 100))
def test_ranks_agree_with_a_plain_loop(seed):
    similarities, identities, truth = guesses(seed=seed)
    expected = []
    for row, who in zip(similarities.tolist(), truth.tolist(), strict=True):
        right = row[identities.tolist().index(who)]
        first = 1 + sum(value > right for value in row)
        last = sum(value >= right for value in row)
        expected.append((first + last) / 2)
    assert identification_ranks(similarities, identities, truth).tolist() == expected


def test_an_encoder_that_tells_nobody_apart_gets_the_mean_rank():
    ranks = identification_ranks(torch.ones(2, 6), torch.arange(6), torch.tensor([0, 5]))
    assert ranks.tolist() == [3.5, 3.5]
    assert cumulative_match(ranks, 1) == 0


def test_a_first_guess_that_ties_is_not_right():
    tie = torch.tensor([[0.9, 0.9, 0.1]])
    assert identification(tie, torch.arange(3), torch.tensor([0])).top1 == 0


def test_identification_counts_the_right_names_among_the_first_guesses():
    identities = torch.arange(20)
    similarities = -torch.arange(20.0).expand(6, 20)  # each time 0 is named first, then 1, and so on
    found = identification(similarities, identities, torch.tensor([0, 0, 4, 5, 9, 10]))
    assert (found.top1, found.top5, found.top10) == pytest.approx((2 / 6, 3 / 6, 5 / 6))
    assert (found.low, found.high) == over_people([2, 0, 0, 0, 0], [2, 1, 1, 1, 1])


def test_everybody_is_among_the_first_five_of_three():
    found = identification(torch.randn(8, 3), torch.arange(3), torch.arange(8) % 3)
    assert found.top5 == found.top10 == 1


def test_chance_is_that_of_naming_whoever_is_asked_about_most():
    assert chance(torch.tensor([7, 7, 7, 2, 5])) == 3 / 5
    assert chance(torch.arange(30).repeat(4)) == pytest.approx(1 / 30)


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
        identification(torch.ones(1, 2), torch.arange(2), torch.tensor([7]))
