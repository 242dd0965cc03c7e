"""The glyph world: repeatable, nested, split by whole characters, neither trivial nor hopeless."""

import pytest
import torch
from layouts import by_split, nearest_prototype

from sfumato.data.worlds.glyphs import characters, glyphs
from sfumato.errors import ConfigError


def test_the_same_seed_gives_the_same_bytes_and_another_other_characters():
    world, other = glyphs(classes=12, drawers=3), glyphs(classes=12, drawers=3, seed=1)
    assert glyphs(classes=12, drawers=3).digest == world.digest
    assert (world.images != other.images).flatten(1).any(1).all()


def test_a_larger_world_begins_with_the_smaller_one():
    small, large = glyphs(classes=10, drawers=4), glyphs(classes=70, drawers=4)
    assert torch.equal(large.images[:40], small.images)
    assert torch.equal(large.label("class").codes[:40], small.label("class").codes)


def test_every_drawer_draws_every_character_once():
    world = glyphs(classes=5, drawers=3)
    pairs = torch.stack([world.label("class").codes, world.label("drawer").codes], 1)
    assert len(world) == 15
    assert len(pairs.unique(dim=0)) == 15
    assert set(world.labels) == {"class", "drawer"}
    assert world.label("class").names[4] == "character-0004"


def test_splits_hold_whole_characters_and_cover_the_world():
    classes = by_split(glyphs(classes=100, drawers=2), "class")
    assert {name: len(members) for name, members in classes.items()} == {
        "train": 64,
        "validation": 16,
        "test": 20,
    }
    assert len(set.union(*classes.values())) == 100


@pytest.mark.parametrize("size", [16, 28, 64, 256])
def test_glyphs_are_white_ink_on_black_at_any_size(size: int):
    images = glyphs(classes=8, drawers=2, size=size).images
    assert images.shape == (16, 1, size, size)
    assert images.dtype == torch.uint8
    ink = (images > 127).float().mean((1, 2, 3))
    assert ink.min() > 0.01  # a dot would be no letter
    assert ink.max() < 0.5
    assert (images.flatten(1).amax(1) > 200).all()


def test_a_character_has_one_to_four_strokes_and_fills_its_square():
    knots, _, present = characters(300, seed=0)
    assert set(present.sum(1).tolist()) == {1, 2, 3, 4}
    extent = knots.masked_fill(~present[..., None, None], 0.0).abs().amax((1, 2, 3))
    assert torch.allclose(extent, torch.ones(300), atol=1e-5)


def test_pixels_tell_some_of_the_character_but_not_all():
    """Nearest mean of 5 images, 5 ways: chance is 0.20, and a network should have something to add."""
    world = glyphs(classes=100, drawers=10)
    assert 0.5 < nearest_prototype(world.images, world.label("class").codes) < 0.95


def test_drawers_differ_in_hand():
    """The pen is the drawer's: two drawings by one hand have more similar amounts of ink than by two."""
    ink = glyphs(classes=200, drawers=6).images.float().mean((1, 2, 3)).view(200, 6)
    relative = ink / ink.mean(1, keepdim=True)  # characters need more or less of it
    between_drawers, within_drawer = relative.mean(0).std(), relative.std(0).mean() / 200**0.5
    assert between_drawers > 4 * within_drawer


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": 0}, "classes is at least 1, got 0: ask for"),
        ({"drawers": 0}, "drawers is at least 1, got 0: ask for"),
        ({"size": 15}, "size is 16 to 256 pixels, got 15: draw at"),
        ({"size": 257}, "size is 16 to 256 pixels, got 257: draw at"),
        ({"seed": -1}, "seed is at least 0, got -1: a world is named by a whole number"),
    ],
)
def test_numbers_that_cannot_work_are_refused(settings: dict[str, int], message: str):
    with pytest.raises(ConfigError, match=message):
        glyphs(**settings)
