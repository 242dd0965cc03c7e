"""Ordinary classifiers: what they are shown, which epoch is kept, and what their accuracy is of."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import DataError
from sfumato.learn import adversarial_mask, classifier
from sfumato.learn.classifier import ClassifierConfig, ClassifierModel, evaluate, train
from sfumato.networks import ConvNet8
from sfumato.networks.classifiers import CLASSIFIERS
from sfumato.protect import Protection, Release, parse

TINY = ClassifierConfig(epochs=4, batch=16, precision="float32")
CLEAR = parse("none")


def world(count: int = 48, seed: int = 0, classes: int = 3, side: int = 16) -> LabelledImages:
    """Noise, but for one corner of 4x4 pixels, whose colour is the class."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)
    codes = torch.arange(count) % classes
    images[:, :, :4, :4] = (255 * torch.eye(3, dtype=torch.uint8))[codes][:, :, None, None]
    return LabelledImages("corners", images, {"colour": Label(codes, ("red", "green", "blue")[:classes])})


def trained(
    protection: Protection = CLEAR,
    config: ClassifierConfig = TINY,
    data: LabelledImages | None = None,
    **more,
) -> ClassifierModel:
    return train(world() if data is None else data, protection, config, target="colour", **more)


def same(one: ClassifierModel, other: ClassifierModel) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


class Counted:
    """A protection that darkens, keeps its releases, and brightens all by a draw where it has noise."""

    cell = 1
    spec = "counted"

    def __init__(self, *, draws_noise: bool) -> None:
        self.draws_noise = draws_noise
        self.released: list[Release] = []

    def release(self, images, noise) -> Release:
        drawn = int(noise.laplace((1,), scale=Fraction(1000))[0]) % 100 if self.draws_noise else 0
        self.released.append(Release((images // 2 + drawn).to(torch.uint8), self.spec, (16, 16)))
        return self.released[-1]

    def guarantee(self, shape, pixels=None) -> None:
        return None


# What it learns


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("predictor", {}),
        ("conv4", {}),
        ("lenet", {"learning_rate": 0.03, "epochs": 40}),  # sigmoids, whose weights start far out
        ("convnet8", {}),
        ("resnet20", {}),
        ("resnet20", {"optimiser": "sgd", "learning_rate": 0.1}),
    ],
)
def test_a_classifier_learns_what_tells_the_classes_and_names_new_images_of_them(
    network: str, settings: dict, monkeypatch: pytest.MonkeyPatch
):
    # In a time for tests: tests/networks/test_victims.py has the sizes that a user gets.
    monkeypatch.setitem(CLASSIFIERS, "convnet8", partial(ConvNet8, width=8))
    model = trained(config=replace(TINY, network=network, **({"epochs": 15} | settings)))
    accuracy = evaluate(model, world(60, seed=1), target="colour")
    assert accuracy.mean > 0.9
    assert accuracy.chance == pytest.approx(1 / 3)
    assert accuracy.spec == "none"


def test_what_a_protection_hides_is_not_learned():
    model = trained(parse("block:share=1"), replace(TINY, epochs=10))
    hidden = evaluate(model, world(60, seed=1), target="colour")
    assert hidden.mean == pytest.approx(1 / 3)  # all images are black: one class is named


def test_trained_on_clean_images_it_is_tested_on_released_ones():
    model = trained(config=replace(TINY, epochs=15))
    test = world(60, seed=1)
    released = evaluate(model, test, target="colour", protection=parse("block:share=1"))
    assert (released.mean, released.spec) == (pytest.approx(1 / 3), "block:share=1")
    assert evaluate(model, test, target="colour").mean > released.mean


def test_the_interval_is_wilsons_over_images():
    model, test = trained(config=replace(TINY, epochs=1)), world(60, seed=1)
    accuracy = evaluate(model, test, target="colour")
    hits = int((model.classify(test.images) == test.label("colour").codes).sum())
    exact = binomtest(hits, 60).proportion_ci(method="wilson")
    assert (accuracy.mean, accuracy.images) == (hits / 60, 60)
    assert (accuracy.low, accuracy.high) == pytest.approx((exact.low, exact.high), abs=1e-6)
    assert str(accuracy) == (
        f"{100 * hits / 60:.1f}% ({100 * exact.low:.1f} to {100 * exact.high:.1f}; 60 images, none)"
    )


# Variants


@pytest.mark.parametrize("varied", [{"policy": "ats"}, {"flips": True, "shifts": 2}])
def test_what_is_varied_was_released_before(varied: dict):
    protection = Counted(draws_noise=False)
    plain, others = (trained(protection, replace(TINY, **each)) for each in ({}, varied))
    assert [torch.equal(each.values, world().images // 2) for each in protection.released] == [True, True]
    assert not same(plain, others)


# Optimisers


def test_sgd_is_that_of_the_paper_and_its_rate_falls_to_0_along_a_cosine(monkeypatch: pytest.MonkeyPatch):
    made, rates = [], []

    class Watched(torch.optim.SGD):
        def __init__(self, parameters, lr, **settings):
            made.append((lr, settings))
            super().__init__(parameters, lr, **settings)

        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "SGD", Watched)
    trained(config=replace(TINY, optimiser="sgd", learning_rate=0.1))
    assert made == [(0.1, {"momentum": 0.9, "weight_decay": 5e-4, "nesterov": True})]
    cosine = [0.1 * (1 + math.cos(math.pi * step / 12)) / 2 for step in range(12)]
    assert rates == pytest.approx(cosine)


# Releases


@pytest.mark.parametrize(("draws_noise", "releases"), [(False, 1), (True, 4)])
def test_images_are_released_once_or_in_every_epoch_where_noise_is_drawn(draws_noise: bool, releases: int):
    protection = Counted(draws_noise=draws_noise)
    trained(protection)
    assert len(protection.released) == releases
    different = {release.values.sum().item() for release in protection.released}
    assert len(different) == releases


def test_noise_of_the_test_is_that_of_no_epoch_and_of_no_validation():
    protection = Counted(draws_noise=True)
    model = trained(protection, validation=world(9, seed=2))
    evaluate(model, world(), target="colour", protection=protection)
    assert len(protection.released) == 6  # validation, 4 epochs, test
    clean = [world(9, seed=2), *[world()] * 5]
    drawn = [
        (release.values - data.images // 2).unique().tolist()
        for release, data in zip(protection.released, clean, strict=True)
    ]
    assert len({tuple(each) for each in drawn}) == 6


def test_of_a_shape_it_sees_which_pixels_are_there_and_nothing_else(tmp_path: Path):
    mask = adversarial_mask.MaskConfig(keep=0.25, epochs=1, masker_width=4, levels=1, precision="float32")
    adversarial_mask.train(world(), mask, target="colour").save(tmp_path / "m.safetensors")
    protection = parse(f"mask:artefact={tmp_path / 'm.safetensors'}")
    released = protection.release(world().images, seeded_noise(0))
    shapes = released.shapes()
    assert (shapes.shape, shapes.dtype) == ((48, 3, 16, 16), torch.uint8)
    assert set(shapes.unique().tolist()) == {0, 255}
    assert ((shapes == 255).sum((1, 2, 3)) == 3 * 64).all()
    assert torch.equal(shapes[:, :1] == 255, released.shown)
    model = trained(protection, shapes=True)
    by_hand = trained(data=replace(world(), images=shapes))
    assert same(model, by_hand)
    assert evaluate(model, world(), target="colour").mean == pytest.approx(
        (by_hand.classify(shapes) == world().label("colour").codes).double().mean().item()
    )


def test_a_protection_that_shows_all_pixels_has_no_shape():
    with pytest.raises(DataError, match="blur:radius=1 shows all pixels: its releases have no shape"):
        trained(parse("blur:radius=1"), shapes=True)


# Mistakes


def test_data_that_cannot_work_is_named():
    with pytest.raises(DataError, match="'colour' has 1 class in 48 training images, and a classifier needs"):
        trained(data=world(classes=1))
    with pytest.raises(DataError, match=r"corners: images of 8x8: .* halves them 4 times"):
        trained(data=world(side=8))
    with pytest.raises(DataError, match=r"corners: images of 8x8: .* least 9x9"):
        trained(config=replace(TINY, network="convnet8"), data=world(side=8))
    with pytest.raises(DataError, match="1 classes of 'colour', such as 'blue', are in no training image"):
        evaluate(trained(data=world(classes=2)), world(), target="colour")
    with pytest.raises(DataError, match="images of 3x32x32: this classifier was trained on 3x16x16"):
        evaluate(trained(), world(side=32), target="colour")


def test_an_accuracy_has_halves_of_every_second_image():
    guesses, codes = torch.tensor([0, 1, 0, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 1, 1])
    accuracy = classifier.Accuracy.of(guesses, codes, "none")
    assert (accuracy.mean, accuracy.chance) == (4 / 6, 0.5)
    assert [mean for mean, _, _ in accuracy.halves] == [1.0, 1 / 3]
    interval = binomtest(1, 3).proportion_ci(method="wilson")
    assert accuracy.halves[1][1:] == pytest.approx((interval.low, interval.high), abs=1e-6)
    assert classifier.Accuracy.of(guesses[:1], codes[:1], "none").halves == ()
