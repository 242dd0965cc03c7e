import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from sfumato.assess.recognition import (
    Verification,
    chance,
    cumulative_match,
    identification,
    identification_ranks,
    verification,
)
from sfumato.base.proportions import over_people
from sfumato.errors import DataError


def pairs(seed, count=400):
    generator = torch.Generator().manual_seed(seed)
    same = torch.rand(count, generator=generator) < 0.5
    scores = torch.randn(count, generator=generator) + same
    return (scores * 8).round() / 8, same  # rounded, so that there are ties


@given(st.integers(0, 100))
def test_area_and_true_accept_rates_are_those_of_an_independent_library(seed):
    scores, same = pairs(seed, 3000)
    found = verification(scores, same)
    assert found.auc == pytest.approx(roc_auc_score(same.numpy(), scores.numpy()))
    false, true, _ = roc_curve(same.numpy(), scores.numpy(), drop_intermediate=False)
    assert found.tar_at_far == {
        name: pytest.approx(true[false <= rate].max()) for name, rate in (("1e-2", 0.01), ("1e-3", 0.001))
    }
    assert verification(same.double(), same) == Verification(1, {"1e-2": 1, "1e-3": 1})


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


def test_a_first_guess_that_ties_is_not_right_and_of_equal_ones_the_rank_is_the_mean():
    tie = torch.tensor([[0.9, 0.9, 0.1]])
    assert identification(tie, torch.arange(3), torch.tensor([0])).top1 == 0
    ranks = identification_ranks(torch.ones(2, 6), torch.arange(6), torch.tensor([0, 5]))
    assert ranks.tolist() == [3.5, 3.5]
    assert cumulative_match(ranks, 1) == 0


def test_identification_counts_the_right_names_among_the_first_guesses():
    identities = torch.arange(20)
    similarities = -torch.arange(20.0).expand(6, 20)  # each time 0 is named first, then 1, and so on
    found = identification(similarities, identities, torch.tensor([0, 0, 4, 5, 9, 10]))
    assert (found.top1, found.top5, found.top10) == pytest.approx((2 / 6, 3 / 6, 5 / 6))
    assert (found.low, found.high) == over_people([2, 0, 0, 0, 0], [2, 1, 1, 1, 1])
    of_three = identification(torch.randn(8, 3), torch.arange(3), torch.arange(8) % 3)
    assert of_three.top5 == of_three.top10 == 1


def test_chance_is_that_of_naming_whoever_is_asked_about_most():
    assert chance(torch.tensor([7, 7, 7, 2, 5])) == 3 / 5
    assert chance(torch.arange(30).repeat(4)) == pytest.approx(1 / 30)


def test_the_match_curve_counts_those_among_the_first_k():
    ranks = torch.tensor([1.0, 1.0, 2.0, 5.0])
    assert [cumulative_match(ranks, k) for k in (1, 2, 4, 5)] == [0.5, 0.75, 0.75, 1.0]


def test_what_cannot_be_measured_is_refused():
    one = torch.ones(4)
    with pytest.raises(DataError, match="pairs of one person and pairs of two"):
        verification(one, one.bool())
    with pytest.raises(DataError, match="not in the gallery"):
        identification(torch.ones(1, 2), torch.arange(2), torch.tensor([7]))
