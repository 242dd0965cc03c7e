"""Classifiers of vectors: textbook ones, and logistic regression on frozen features beside scikit-learn's."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from sfumato.errors import DataError
from sfumato.learn import of_vectors
from sfumato.learn.of_vectors import STRENGTHS, logistic_regression


def people(*, count: int, images: int, apart: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Four numbers of each image, near those of its person: (count * images, 4) and who it is."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(count).repeat_interleave(images)
    centres = apart * torch.randn(count, 4, generator=generator)
    return centres[codes] + 0.1 * torch.randn(len(codes), 4, generator=generator), codes


def test_people_who_are_far_apart_are_all_named():
    numbers, codes = people(count=5, images=20, apart=10)
    model = of_vectors.train(numbers, codes)
    assert model.validation == 1
    assert model.classify(numbers).equal(codes)


def test_where_most_people_are_on_one_image_nobody_is_warned():
    # Every warning is an error here. Such people are classes, and no slip of who calls.
    numbers, codes = people(count=40, images=1, apart=1)
    validation = people(count=40, images=2, apart=1)
    assert of_vectors.train(numbers, codes, validation=validation).validation > 1 / 40


@pytest.mark.parametrize(
    ("numbers", "codes", "words"),
    [
        (torch.full((4, 2), torch.nan), torch.tensor([0, 1, 0, 1]), "not finite"),
        (torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64), "1 classes: at least 2"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(numbers, codes, words):
    with pytest.raises(DataError, match=words):
        of_vectors.train(numbers, codes)


def test_what_a_machine_learns_from_does_not_depend_on_the_order_of_classes(monkeypatch):
    """Its rows are limited, and data is sorted by class: the first rows are of one class or two."""
    monkeypatch.setattr(of_vectors, "_MOST", 40)
    monkeypatch.setattr(of_vectors, "_kinds", lambda *, forests: {MACHINE: kinds(forests=forests)[MACHINE]})
    numbers, codes = people(count=6, images=40, apart=10)
    model = of_vectors.train(numbers, codes, validation=people(count=6, images=5, apart=10))
    assert model.validation == 1
    assert model.name == "support vector machine, of 40 of 240 drawn by class"


MACHINE, kinds = "support vector machine", of_vectors._kinds


# Logistic regression on the outputs of a frozen encoder


@pytest.fixture(scope="module")
def blobs() -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes of 150, 40 and 10 points in 6 dimensions, which overlap."""
    draw = torch.Generator().manual_seed(0)
    codes = torch.arange(3).repeat_interleave(torch.tensor([150, 40, 10]))
    centres = torch.randn(3, 6, generator=draw)
    return centres[codes] + torch.randn(200, 6, generator=draw), codes


def test_it_is_that_of_scikit_learn_with_balanced_classes(blobs, monkeypatch: pytest.MonkeyPatch):
    features, codes = blobs
    monkeypatch.setattr("sfumato.learn.of_vectors.STRENGTHS", (0.1,))
    weights, biases, _ = logistic_regression([features], codes, 3, (features, codes))
    theirs = by_scikit_learn(0.1, features, codes)
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
    theirs = [by_scikit_learn(strength, features, mixed) for strength in STRENGTHS]
    shares = [each.score(features.double().numpy(), codes.numpy()) for each in theirs]
    assert accuracy == pytest.approx(max(shares), abs=0.006)


def test_without_others_it_is_trained_on_all_images(blobs):
    features, codes = blobs
    weights, _, accuracy = logistic_regression([features], codes, 3, seed=3)
    assert 0.5 < accuracy <= 1
    chosen = [by_scikit_learn(strength, features, codes).coef_ for strength in STRENGTHS]
    nearest = min(np.abs(weights.numpy() - coefficients).max() for coefficients in chosen)
    assert nearest < 1e-3


def by_scikit_learn(strength: float, features: torch.Tensor, codes: torch.Tensor) -> LogisticRegression:
    # There the penalty is 1/2 beside C times the SUM of the losses.
    theirs = LogisticRegression(C=1 / (strength * 200), class_weight="balanced", tol=1e-10, max_iter=10_000)
    return theirs.fit(features.double().numpy(), codes.numpy())
