"""The same scenes with other people: their cost, and what a training with it promises."""

from dataclasses import replace

import pytest
import torch

from sfumato import data
from sfumato.data.worlds import same_scenes
from sfumato.errors import ConfigError
from sfumato.learn import code
from sfumato.learn.code import CodeConfig, height, shift


@pytest.fixture(scope="module")
def training() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=16).split("train")


@pytest.fixture(scope="module")
def scenes(training: data.LabelledImages) -> same_scenes.Sets:
    return same_scenes.draw_sets(training)


def test_the_shift_of_people_is_estimated_without_bias():
    draw = torch.Generator().manual_seed(0)
    common = torch.randn(300, 1, 20, 4, generator=draw)  # of the scenes, and without effect
    chance = torch.randn(300, 12, 20, 4, generator=draw)
    people = 0.3 * torch.randn(300, 12, 1, 4, generator=draw)
    without = torch.stack([shift(codes) for codes in common + chance])
    planted = torch.stack([shift(codes) for codes in common + chance + people])
    assert without.mean().item() == pytest.approx(0, abs=0.003)
    assert planted.mean().item() == pytest.approx(0.09, abs=0.006)


def test_the_cost_rises_from_a_fifth_of_the_training_to_its_half():
    assert [height(done) for done in (0.0, 0.2, 0.35, 0.5, 1.0)] == pytest.approx([0, 0, 0.5, 1, 1])


def test_codes_trained_with_the_same_scenes_differ_less_between_people(
    training: data.LabelledImages, scenes: same_scenes.Sets
):
    settings = CodeConfig(bits=8, way=4, shot=2, queries=2, epochs=10, episodes_per_epoch=3)
    images = scenes(torch.Generator().manual_seed(0))
    shifts = []
    for weight, sets in ((0, None), (1, scenes)):
        config = replace(settings, same_scenes=weight)
        model = code.train(training, config, target="headwear", same_scenes=sets)
        shifts.append(shift(model.codes(images.flatten(0, 1)).unflatten(0, images.shape[:2])).item())
    assert shifts[1] < shifts[0] / 4


@pytest.mark.parametrize("weight", [0, 1])
def test_a_weight_and_images_are_given_together(
    training: data.LabelledImages, scenes: same_scenes.Sets, weight: int
):
    config = CodeConfig(bits=8, same_scenes=weight)
    with pytest.raises(ConfigError, match=f"same_scenes={weight} and .*give both, or neither"):
        code.train(training, config, target="headwear", same_scenes=None if weight else scenes)
