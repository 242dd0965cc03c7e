"""The measure of LFW: each fold is judged by a threshold that the others chose."""

import pytest
import torch
from faces_networks import verification_accuracy
from torch import Tensor


def pairs(seed: int, count: int = 400) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    same = torch.rand(count, generator=generator) < 0.5
    scores = torch.randn(count, generator=generator) + same
    return (scores * 8).round() / 8, same  # rounded, so that there are ties


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


def test_one_fold_has_no_others_to_choose_a_threshold():
    with pytest.raises(ValueError, match="two folds or more"):
        verification_accuracy(torch.ones(4), torch.ones(4).bool(), torch.zeros(4, dtype=torch.int64))
