"""The same scenes with other people: what differs is who is shown."""

import pytest
import torch

from sfumato import data
from sfumato.data.worlds import same_scenes
from sfumato.errors import DataError


@pytest.fixture(scope="module")
def training() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=16).split("train")


def test_in_one_scene_the_background_is_the_same_and_people_differ(training: data.LabelledImages):
    images = same_scenes.draw_sets(training)(torch.Generator().manual_seed(0))  # (P, S, C, H, W)
    assert images.shape == (len(training.classes("identity")), 32, 3, 16, 16)
    assert (images[..., 0, 0] == images[:1, ..., 0, 0]).all()  # a corner shows nobody
    assert (images[:, 0] != images[0, 0]).flatten(1).any(1)[1:].all()


def test_nobody_else_is_drawn(training: data.LabelledImages):
    who = training.label("identity").codes
    two = training.rows(torch.isin(who, who.unique()[:2]).nonzero().flatten())
    assert same_scenes.draw_sets(two)(torch.Generator().manual_seed(0)).shape[0] == 2


def test_other_images_are_refused(training: data.LabelledImages):
    with pytest.raises(DataError, match="glyphs: the same scenes are drawn"):
        same_scenes.draw_sets(data.load("glyphs"))
    with pytest.raises(DataError, match="two people"):
        same_scenes.draw_sets(training.rows(torch.tensor([0])))
