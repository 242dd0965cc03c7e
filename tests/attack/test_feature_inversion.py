"""Feature inversion: what a feature tells of an image comes back, and where it tells nothing, the average."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from sfumato import data
from sfumato.attack.undo import InversionConfig, Inverter
from sfumato.attack.undo import train_inverter as train
from sfumato.errors import ConfigError, DataError, ImageError

SMALL = InversionConfig(steps=200, batch=32, learning_rate=3e-3, width=8)
FEW = InversionConfig(steps=3, batch=4, width=2)


@pytest.fixture(scope="module")
def faces() -> tuple[Tensor, Tensor]:
    """200 faces of 20 people to learn from, and 40 of 4 others."""
    images = data.load("faces", identities=24, images_per_identity=10, headwear=12, size=24).images
    return images[:200], images[200:]


@pytest.fixture(scope="module")
def trained(faces: tuple[Tensor, Tensor]) -> Inverter:
    return train(coarse(faces[0]), faces[0], SMALL)


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


# What comes back


def test_strangers_come_back_from_coarse_pixels(faces, trained: Inverter):
    others, asked = faces
    average = error(others.float().mean(0), asked)
    assert error(trained.restore(coarse(asked)), asked) < 0.6 * average  # 0.49 of it, with this seed


def test_each_feature_gives_its_own_image(faces, trained: Inverter):
    asked = faces[1]
    guesses = trained.restore(coarse(asked))
    assert error(guesses, asked) < 0.6 * error(guesses.roll(10, dims=0), asked)  # those of the next person


def test_features_that_tell_nothing_give_the_average_of_the_training_images(faces):
    others = faces[0]
    average = others.float().mean(0)
    guesses = train(torch.zeros(len(others), 3), others, SMALL).restore(torch.zeros(2, 3))
    assert torch.equal(guesses[0], guesses[1])
    assert error(guesses[0], average) < 0.05 * error(average, others)


def test_the_scale_and_the_place_of_features_do_not_matter(faces):
    others, asked = faces
    settings = InversionConfig(steps=20, batch=16, width=4)
    first, second = (
        train(scale * coarse(others).double() + 1e6, others, settings).restore(
            scale * coarse(asked).double() + 1e6
        )
        for scale in (1, 2**20)
    )
    assert error(first, second) < 1  # as far as rounding goes


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(8, 8), (12, 20), (28, 8)])
def test_grey_and_colour_images_of_any_allowed_sides(channels: int, size: tuple[int, int]):
    features, images = pairs(channels=channels, size=size)
    guesses = train(features, images, FEW).restore(features[:5])
    assert guesses.shape == (5, channels, *size)
    assert guesses.dtype == torch.uint8


def test_two_pairs_can_be_learnt_by_heart():
    features = torch.tensor([[0.0], [1.0]])
    images = torch.tensor([30, 220], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 8, 8)
    config = InversionConfig(steps=200, batch=8, learning_rate=3e-3, width=4)
    assert (
        error(train(features, images, config).restore(features), images) < 100
    )  # 190 levels lie between them


def test_a_number_that_never_changed_but_by_rounding_does_not_outweigh_the_others():
    features, images = pairs()
    features[:, 0] = 0.1
    inverter = train(features, images, FEW)
    moved = features.clone()
    moved[:, 0] += 1e-6
    assert (inverter.restore(features).int() - inverter.restore(moved).int()).abs().max() <= 1


def test_no_features_give_no_images():
    features, images = pairs()
    assert train(features, images, FEW).restore(features[:0]).shape == (0, 1, 8, 8)


# How it runs


def test_a_seed_repeats():
    features, images = pairs()
    one, same, other = (train(features, images, FEW, seed=seed).restore(features) for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_nobody_elses_random_state_moves():
    features, images = pairs()
    before = torch.random.get_rng_state()
    train(features, images, FEW).restore(features)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_given_is_not_changed(dtype: torch.dtype):
    features, images = pairs()
    features = features.to(dtype)
    copies = features.clone(), images.clone()
    train(features, images, FEW).restore(features)
    assert torch.equal(features, copies[0])
    assert torch.equal(images, copies[1])


def test_progress_counts_the_steps():
    told = []
    train(*pairs(), FEW, progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps=0: at least 1"),
        ({"batch": 0}, "batch=0: at least 1"),
        ({"learning_rate": math.inf}, "learning_rate=inf: above 0"),
        ({"width": 0}, "width=0: at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message: str):
    with pytest.raises(ConfigError, match=message):
        InversionConfig(**settings)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_pairs_are_refused(count: int):
    with pytest.raises(DataError, match=f"at least 2 features and their images, got {count}"):
        train(*pairs(count), FEW)


def test_features_of_other_images_are_refused():
    features, images = pairs()
    with pytest.raises(DataError, match="5 features for 6 images: give the feature of each image, in order"):
        train(features[:5], images, FEW)


def test_features_of_another_dimension_are_refused():
    inverter = train(*pairs(), FEW)
    with pytest.raises(DataError, match="features of 4 numbers: this decoder was trained on features of 5"):
        inverter.restore(torch.zeros(2, 4))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_features_that_are_not_finite_are_refused(bad: float):
    features, images = pairs()
    inverter = train(features, images, FEW)
    features[2, 1] = features[4, 0] = bad
    message = "2 of 6 features have numbers that are not finite, the first in row 2"
    with pytest.raises(DataError, match=message):
        train(features, images, FEW)
    with pytest.raises(DataError, match=message):
        inverter.restore(features)


@pytest.mark.parametrize("shape", [(6,), (6, 0), (6, 5, 1)])
def test_what_is_no_vector_an_image_is_refused(shape: tuple[int, ...]):
    with pytest.raises(DataError, match=r"features are \(N, D\) numbers, got"):
        train(torch.zeros(shape), pairs()[1], FEW)


def test_images_of_other_sides_are_refused():
    with pytest.raises(DataError, match=r"images of 8x30: .*: load them at 8x32"):
        train(*pairs(size=(8, 30)), FEW)


def test_floats_are_no_images():
    features, images = pairs()
    with pytest.raises(ImageError, match="uint8"):
        train(features, images.float(), FEW)
