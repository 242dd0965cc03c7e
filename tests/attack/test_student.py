"""The trained adversary: a network that learns to see through a protection (attack.ensemble.by_student).

The drawn world: a person is the angle and the wavelength of stripes, whose phase differs from photograph to
photograph. All means of a person's pixels are equal, so that a linear model of pixels has nothing to find.
"""

import math
from dataclasses import replace
from functools import cache, partial

import pytest
import torch

from sfumato.attack import ensemble
from sfumato.attack.ensemble import Gallery, by_student, by_values
from sfumato.attack.reidentify import AdversaryConfig, Recognisers, StudentConfig, split_gallery
from sfumato.errors import ConfigError
from sfumato.networks import Conv4
from sfumato.networks.weights import initial_weights
from sfumato.protect import Release

SIDE, LEARNED, LOOKED_FOR, EACH = 16, 30, 12, 16
CONFIG = AdversaryConfig(steps=80, batch=64, copies=2, start="random")
TAUGHT = StudentConfig(steps=100, batch=64, minutes=60)


def stripes(people, *, seed=0):
    """(people * EACH, 1, SIDE, SIDE) uint8 photographs, and who is on them."""
    draw = torch.Generator().manual_seed(seed)
    angle, wave = math.pi * torch.rand(people, generator=draw), 3 + 5 * torch.rand(people, generator=draw)
    codes = torch.arange(people).repeat_interleave(EACH)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    along = angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y
    phase = torch.rand(len(codes), 1, 1, generator=draw)
    waves = (2 * math.pi * (along[codes] / wave[codes, None, None] + phase)).sin()
    return (127.5 + 100 * waves)[:, None].round().to(torch.uint8), codes


def shown(pixels):
    return Release(pixels.to(torch.uint8), "", (SIDE, SIDE))


def noisy(images, stream, number, *, deviation):
    draw = torch.Generator().manual_seed(1000 * stream + number)
    noise = deviation * torch.randn(images.shape, generator=draw)
    return shown((images + noise).round().clamp(0, 255))


def random_bits(images, stream, number):
    draw = torch.Generator().manual_seed(1000 * stream + number)
    return shown(255 * torch.randint(0, 2, images.shape, generator=draw))


def code(images, stream, number):
    """Two bits: whether the stripes are level, and whether they are narrow. Drawn as squares."""
    pixels = images.float()
    across, down = pixels.diff(dim=3).abs().mean((1, 2, 3)), pixels.diff(dim=2).abs().mean((1, 2, 3))
    bits = torch.stack([across > down, across + down > 90], 1)[:, :, None, None]  # (N, 2, 1, 1)
    squares = bits.expand(-1, -1, SIDE, SIDE // 2).permute(0, 2, 1, 3).reshape(-1, 1, SIDE, SIDE)
    return shown(255 * squares)


def world(release, *, is_noisy=True, mirrored=False):
    """A gallery, who its probes show, and the adversary's own networks."""
    people, codes = stripes(LOOKED_FOR, seed=1)
    others, of_others = stripes(LEARNED, seed=2)
    known, asked = split_gallery(codes, known=8, probes=8, seed=0)
    gallery = Gallery(
        known=people[known],
        names=codes[known],
        asked=people[asked],
        others=others,
        of_others=of_others,
        release=release,
        noisy=is_noisy,
        images=True,
        mirrored=mirrored,
    )

    def encoder():
        with initial_weights(0):
            return Conv4(1)

    return gallery, codes[asked], Recognisers(CONFIG, others, of_others, encoder)


def named(guesses, truth):
    """How often each classifier names the right person."""
    return {
        each.classifier: (each.identities[each.similarities.argmax(1)] == truth).double().mean().item()
        for each in guesses
    }


@cache
def teacher():
    """A network that learned people's clear photographs: the same in each world."""
    return world(random_bits)[2].train(0)


def values_of(gallery, outputs=None):
    return by_values(gallery, lambda _: {"": lambda each: each.vectors()}, copies=2, outputs=outputs)


def test_it_names_people_whom_a_linear_model_of_pixels_cannot_tell_apart():
    gallery, truth, recognisers = world(partial(noisy, deviation=150))
    values = values_of(gallery)
    made = by_student(gallery, recognisers, teacher(), TAUGHT)
    found, plda = named(made.guesses, truth), named(values.guesses, truth)["plda"]
    assert plda < 0.25
    assert found["mean"] > plda + 0.4
    # It learned to see through the noise, and did not only keep what its teacher knows of clear photographs.
    clear = by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=1, learning_rate=1e-9))
    assert found["mean"] > named(clear.guesses, truth)["mean"] + 0.05


def test_random_bits_give_guessing():
    gallery, truth, recognisers = world(random_bits)
    made = by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=40))
    found = named(made.guesses, truth)
    assert max(found.values()) < 1 / LOOKED_FOR + 3 * math.sqrt(1 / LOOKED_FOR / len(truth))


def test_on_a_code_it_is_not_ahead_of_the_table_of_outputs():
    gallery, truth, recognisers = world(code, is_noisy=False)
    values = values_of(gallery, outputs=4)
    made = by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=40))
    assert values.table.in_sample > 3 / LOOKED_FOR  # of four outputs all are in use
    # Nobody is right more often than with the most frequent person of each output.
    assert max(named(made.guesses, truth).values()) <= values.table.in_sample + 0.02


def test_the_same_seed_gives_the_same_scores():
    gallery, _, recognisers = world(partial(noisy, deviation=150), mirrored=True)
    once, again = (by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=4)) for _ in range(2))
    for one, other in zip(once.guesses, again.guesses, strict=True):
        assert torch.equal(one.similarities, other.similarities)


def test_each_pass_is_protected_anew_and_apart_from_what_others_learn_from():
    seen = []

    def release(images, stream, number):
        seen.append((stream, number))
        return noisy(images, stream, number, deviation=1)

    gallery, _, recognisers = world(release)
    batches = LEARNED * EACH // 64
    by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=2 * batches))
    passes = [number for stream, number in seen if stream == ensemble.OTHERS]
    assert len(passes) >= 2
    assert len({*passes}) == len(passes)
    assert min(passes) >= 1000  # `Gallery.learn_from` has those below


def test_it_stops_when_its_validation_is_flat_or_its_minutes_are_over_and_says_which():
    gallery, _, recognisers = world(partial(noisy, deviation=150))
    flat = by_student(
        gallery, recognisers, teacher(), replace(TAUGHT, steps=400, batch=16, learning_rate=1e-9)
    )
    assert (flat.trained["student"].flat, flat.trained["student"].minutes) == (True, None)
    brief = by_student(gallery, recognisers, teacher(), replace(TAUGHT, steps=2000, minutes=0.01))
    assert (brief.trained["student"].flat, brief.trained["student"].minutes) == (False, 0.01)
    assert brief.trained["student"].steps < 2000


@pytest.mark.parametrize(
    ("name", "value"), [("minutes", 0), ("steps", 0), ("learning_rate", -1), ("batch", 0)]
)
def test_a_training_needs_minutes_steps_and_a_rate(name, value):
    with pytest.raises(ConfigError, match=f"{name}={value}"):
        StudentConfig(**{name: value})
