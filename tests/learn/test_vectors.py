"""sfumato.learn.vectors: textbook classifiers of numbers, bits and answers."""

import pytest
import torch

from sfumato.errors import DataError
from sfumato.learn import vectors


def people(*, count: int, images: int, apart: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Four numbers of each image, near those of its person: (count * images, 4) and who it is."""
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(count).repeat_interleave(images)
    centres = apart * torch.randn(count, 4, generator=generator)
    return centres[codes] + 0.1 * torch.randn(len(codes), 4, generator=generator), codes


def test_people_who_are_far_apart_are_all_named():
    numbers, codes = people(count=5, images=20, apart=10)
    model = vectors.train(numbers, codes)
    assert model.validation == 1
    assert model.classify(numbers).equal(codes)


def test_where_most_people_are_on_one_image_nobody_is_warned():
    # Every warning is an error here. Such people are classes, and no slip of who calls.
    numbers, codes = people(count=40, images=1, apart=1)
    validation = people(count=40, images=2, apart=1)
    assert vectors.train(numbers, codes, validation=validation).validation > 1 / 40


@pytest.mark.parametrize(
    ("numbers", "codes", "words"),
    [
        (torch.full((4, 2), torch.nan), torch.tensor([0, 1, 0, 1]), "not finite"),
        (torch.zeros(10, 2), torch.zeros(10, dtype=torch.int64), "1 classes: at least 2"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(numbers, codes, words):
    with pytest.raises(DataError, match=words):
        vectors.train(numbers, codes)


def test_what_a_machine_learns_from_does_not_depend_on_the_order_of_classes(monkeypatch):
    """Its rows are limited, and data is sorted by class: the first rows are of one class or two."""
    monkeypatch.setattr(vectors, "_MOST", 40)
    monkeypatch.setattr(vectors, "_kinds", lambda *, forests: {MACHINE: kinds(forests=forests)[MACHINE]})
    numbers, codes = people(count=6, images=40, apart=10)
    model = vectors.train(numbers, codes, validation=people(count=6, images=5, apart=10))
    assert model.validation == 1
    assert model.name == "support vector machine, of 40 of 240 drawn by class"


MACHINE, kinds = "support vector machine", vectors._kinds
