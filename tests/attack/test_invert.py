"""What a feature tells of an image comes back, and the average if it tells nothing."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sfumato import data
from sfumato.attack.invert import InversionConfig, Inverter, train_inverter
from sfumato.errors import DataError, ImageError

SMALL = InversionConfig(steps=200, batch=32, learning_rate=3e-3, width=8)
FEW = InversionConfig(steps=3, batch=4, width=2)


@pytest.fixture(scope="module")
def faces() -> tuple[Tensor, Tensor]:
    """200 faces of 20 people to learn from, and 40 of 4 others."""
    images = data.load("faces", identities=24, images_per_identity=10, headwear=12, size=24).images
    return images[:200], images[200:]


@pytest.fixture(scope="module")
def trained(faces: tuple[Tensor, Tensor]) -> Inverter:
    return train_inverter(coarse(faces[0]), faces[0], SMALL)


def coarse(images: Tensor) -> Tensor:
    """The means of 4x4 pixels, as a vector an image."""
    return functional.avg_pool2d(images.float(), 4).flatten(1)


def error(guesses: Tensor, images: Tensor) -> float:
    """The mean squared error, in grey levels."""
    return (guesses.float() - images.float()).square().mean().item()


def pairs(count: int = 6, channels: int = 1, size: tuple[int, int] = (8, 8)) -> tuple[Tensor, Tensor]:
    """Random features of 5 numbers, and random images."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, channels, *size), generator=generator).to(torch.uint8)
    return torch.randn(count, 5, generator=generator), images


def test_strangers_come_back_from_coarse_pixels_each_from_their_own_feature(faces, trained: Inverter):
    others, asked = faces
    found = trained.restore(coarse(asked))
    assert error(found, asked) < 0.6 * error(others.float().mean(0), asked)  # 0.49 of it, with this seed
    assert error(found, asked) < 0.6 * error(found.roll(10, dims=0), asked)  # those of the next person


def test_features_that_tell_nothing_give_the_average_of_the_training_images(faces):
    others = faces[0]
    average = others.float().mean(0)
    guesses = train_inverter(torch.zeros(len(others), 3), others, SMALL).restore(torch.zeros(2, 3))
    assert torch.equal(guesses[0], guesses[1])
    assert error(guesses[0], average) < 0.05 * error(average, others)


def test_the_scale_and_the_place_of_features_do_not_matter(faces):
    others, asked = faces
    settings = InversionConfig(steps=20, batch=16, width=4)
    first, second = (
        train_inverter(scale * coarse(others).double() + 1e6, others, settings).restore(
            scale * coarse(asked).double() + 1e6
        )
        for scale in (1, 2**20)
    )
    assert error(first, second) < 1  # as far as rounding goes


def test_two_pairs_are_enough_to_begin():
    images = torch.randint(0, 256, (2, 1, 8, 8), dtype=torch.uint8)
    assert train_inverter(torch.eye(2), images, FEW).restore(torch.eye(2)).shape == images.shape


def test_a_number_that_never_changed_but_by_rounding_does_not_outweigh_the_others():
    features, images = pairs()
    features[:, 0] = 0.1
    inverter = train_inverter(features, images, FEW)
    moved = features.clone()
    moved[:, 0] += 1e-6
    assert (inverter.restore(features).int() - inverter.restore(moved).int()).abs().max() <= 1


def attacker(**options):
    """What it guesses from what it was trained on."""
    features, images = pairs(channels=3, size=(16, 16))
    return train_inverter(features, images, FEW, **options).restore(features)


def test_a_seed_repeats_and_nobody_elses_random_state_moves():
    before = torch.random.get_rng_state()
    one, same, other = (attacker(seed=seed) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(before, torch.random.get_rng_state())


def test_progress_counts_the_steps():
    told = []
    attacker(progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_given_is_not_changed_and_no_features_give_no_images(dtype: torch.dtype):
    features, images = pairs()
    features = features.to(dtype)
    copies = features.clone(), images.clone()
    inverter = train_inverter(features, images, FEW)
    assert inverter.restore(features).shape == images.shape
    assert inverter.restore(features[:0]).shape == (0, 1, 8, 8)
    assert torch.equal(features, copies[0])
    assert torch.equal(images, copies[1])


IMAGES, NOTHING = torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.zeros(0, 1, 8, 8, dtype=torch.uint8)


@pytest.mark.parametrize(
    ("features", "images", "error", "message"),
    [
        (torch.zeros(0, 5), NOTHING, DataError, "at least 2 features and their images, got 0"),
        (torch.zeros(1, 5), IMAGES[:1], DataError, "at least 2 features and their images, got 1"),
        (torch.zeros(5, 5), IMAGES, DataError, "5 features for 6 images: give the feature of each image"),
        (torch.zeros(6), IMAGES, DataError, r"features are \(N, D\) numbers, got"),
        (torch.zeros(6, 0), IMAGES, DataError, r"features are \(N, D\) numbers, got"),
        (torch.zeros(6, 5, 1), IMAGES, DataError, r"features are \(N, D\) numbers, got"),
        (torch.zeros(6, 5), IMAGES[..., :6], DataError, "images of 8x6: .*: load them at 8x8"),
        (torch.zeros(6, 5), IMAGES.float(), ImageError, "uint8"),
    ],
)
def test_pairs_that_cannot_be_learnt_from_are_refused(features, images, error, message: str):
    with pytest.raises(error, match=message):
        train_inverter(features, images, FEW)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_or_of_another_dimension_are_refused(bad: float):
    features, images = pairs()
    inverter = train_inverter(features, images, FEW)
    with pytest.raises(DataError, match="features of 4 numbers: this decoder was trained on features of 5"):
        inverter.restore(torch.zeros(2, 4))
    features[2, 1] = features[4, 0] = bad
    message = "2 of 6 features have numbers that are not finite, the first in row 2"
    with pytest.raises(DataError, match=message):
        train_inverter(features, images, FEW)
    with pytest.raises(DataError, match=message):
        inverter.restore(features)
