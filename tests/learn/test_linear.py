"""Logistic regression on frozen features, beside scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sfumato.learn.linear import STRENGTHS, logistic_regression


@pytest.fixture(scope="module")
def blobs() -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes of 150, 40 and 10 points in 6 dimensions, which overlap."""
    draw = torch.Generator().manual_seed(0)
    codes = torch.arange(3).repeat_interleave(torch.tensor([150, 40, 10]))
    centres = torch.randn(3, 6, generator=draw)
    return centres[codes] + torch.randn(200, 6, generator=draw), codes


def test_it_is_that_of_scikit_learn_with_balanced_classes(blobs, monkeypatch: pytest.MonkeyPatch):
    features, codes = blobs
    monkeypatch.setattr("sfumato.learn.linear.STRENGTHS", (0.1,))
    weights, biases, _ = logistic_regression([features], codes, 3, (features, codes))
    # There the penalty is 1/2 beside C times the SUM of the losses.
    theirs = LogisticRegression(C=1 / (0.1 * 200), class_weight="balanced", tol=1e-10, max_iter=10_000)
    theirs.fit(features.double().numpy(), codes.numpy())
    np.testing.assert_allclose(weights.numpy(), theirs.coef_, atol=2e-4)
    shift = biases.numpy() - theirs.intercept_  # a constant for all classes changes nothing
    np.testing.assert_allclose(shift, shift.mean(), atol=2e-4)


def test_other_images_choose_the_strength(blobs):
    features, codes = blobs
    draw = torch.Generator().manual_seed(1)
    # Labels of training points are drawn anew: whatever follows them closely is worse on the true ones.
    wrong = torch.randint(3, (200,), generator=draw)
    mixed = torch.where(torch.rand(200, generator=draw) < 0.6, wrong, codes)
    *_, accuracy = logistic_regression([features], mixed, 3, (features, codes))
    shares = []
    for strength in STRENGTHS:
        theirs = LogisticRegression(C=1 / (strength * 200), class_weight="balanced", max_iter=10_000)
        shares.append(theirs.fit(features.numpy(), mixed.numpy()).score(features.numpy(), codes.numpy()))
    assert accuracy == pytest.approx(max(shares), abs=0.006)


def test_without_others_it_is_trained_on_all_images(blobs):
    features, codes = blobs
    weights, _, accuracy = logistic_regression([features], codes, 3, seed=3)
    assert 0.5 < accuracy <= 1
    chosen = [logistic_regression_of(strength, features, codes) for strength in STRENGTHS]
    nearest = min(np.abs(weights.numpy() - coefficients).max() for coefficients in chosen)
    assert nearest < 1e-3


def logistic_regression_of(strength: float, features: torch.Tensor, codes: torch.Tensor) -> np.ndarray:
    theirs = LogisticRegression(C=1 / (strength * 200), class_weight="balanced", tol=1e-10, max_iter=10_000)
    return theirs.fit(features.double().numpy(), codes.numpy()).coef_
