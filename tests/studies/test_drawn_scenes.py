"""The world of scenes: repeatable, nested, split by whole things, whose background says nothing of them."""

import torch
from drawn_start import scenes
from layouts import assert_independent, by_split


def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_things():
    world = scenes(things=6, images_per_thing=2, size=32)
    assert scenes(things=6, images_per_thing=2, size=32).digest == world.digest
    other = scenes(things=6, images_per_thing=2, size=32, seed=1)
    assert (world.images != other.images).flatten(1).any(1).all()


def test_a_larger_world_begins_with_the_smaller_one():
    small = scenes(things=5, images_per_thing=3, size=32)
    large = scenes(things=40, images_per_thing=3, size=32)
    assert torch.equal(large.images[:15], small.images)
    assert torch.equal(large.label("background").codes[:15], small.label("background").codes)


def test_an_image_does_not_depend_on_those_drawn_with_it():
    """Layers are painted over those images alone in which they are seen; chunks end where they may."""
    alone = scenes(things=1, images_per_thing=1, size=256)
    assert torch.equal(scenes(things=9, images_per_thing=1, size=256).images[:1], alone.images)


def test_splits_hold_whole_things_and_cover_the_world():
    things = by_split(scenes(things=50, images_per_thing=2, size=16), "class")
    assert {name: len(members) for name, members in things.items()} == {
        "train": 32,
        "validation": 8,
        "test": 10,
    }
    assert len(set.union(*things.values())) == 50


def test_which_background_is_behind_says_nothing_of_the_thing():
    world = scenes(things=20, images_per_thing=60, backgrounds=4, size=16)
    assert_independent(world.label("class").codes, world.label("background").codes)


def test_things_can_be_told_apart_in_part_by_their_pixels():
    """Nearest mean of 5 middles, 20 ways: chance is 0.05, and a network should have much to add."""
    middles = scenes(things=20, images_per_thing=15, size=32).images[:, :, 8:24, 8:24].float()
    images = torch.nn.functional.avg_pool2d(middles, 8).view(20, 15, -1)
    means = images[:, :5].mean(1)
    guesses = torch.cdist(images[:, 5:].flatten(0, 1), means).argmin(1).view(20, 10)
    accuracy = (guesses == torch.arange(20)[:, None]).float().mean()
    assert 0.08 < accuracy < 0.7


def test_power_falls_with_frequency_as_in_photographs():
    """The power of a photograph at frequency f is near 1/f^2: eight times f has some 64 times less power."""
    images = scenes(things=60, images_per_thing=4, size=64).images.float().mean(1)
    window = torch.hann_window(64)[:, None] * torch.hann_window(64)
    spectrum = torch.fft.fft2((images - images.mean((1, 2), keepdim=True)) * window).abs().square().mean(0)
    frequency = torch.fft.fftfreq(64) * 64
    radius = (frequency[:, None].square() + frequency.square()).sqrt().round()
    low, high = (spectrum[radius == f].mean() for f in (2, 16))
    assert 8**1.5 < low / high < 8**3
