"""Releases of a study: those of a trained protection are made once."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.errors import SpecError
from sfumato.networks.code import make_code_network
from sfumato.protect import Release, parse
from sfumato.protect.answer import AnswerRelease
from sfumato.protect.release import KINDS
from sfumato.protect.vectors import BitsRelease
from sfumato.study.lab.lab import Remembering, open_protection

NOISE = seeded_noise(0)
DRAW = torch.Generator().manual_seed(0)
SPECS = ["mask:artefact=one.safetensors", "mask:artefact=two.safetensors"]


@dataclass
class Inverted:
    """A stand-in for a trained mask: the colours of an image inverted, of which the upper half is shown."""

    spec: str = SPECS[0]
    seen: list[int] = field(default_factory=list)

    cell = 1
    draws_noise = False

    def made_of(self) -> str:
        return "ab" * 32

    def release(self, images: Tensor, noise: Noise) -> Release:
        if images.shape[2] < 4:
            raise SpecError("too small")
        self.seen.append(len(images))
        shown = torch.zeros(len(images), 1, *images.shape[2:], dtype=torch.bool)
        shown[:, :, : images.shape[2] // 2] = True
        return Release((255 - images) * shown, self.spec, (images.shape[2], images.shape[3]), shown=shown)

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> None:
        return


@dataclass
class Fixed:
    """A stand-in for an encoder: an image of grey level i has the i-th release."""

    made: Any
    seen: list[int] = field(default_factory=list)

    draws_noise = False
    outputs = 4

    def release(self, images: Tensor, noise: Noise) -> Any:
        self.seen.append(len(images))
        return self.made.rows(images[:, 0, 0, 0].tolist())


def pictures(*values: int, side: int = 4) -> Tensor:
    """One flat grey image for each value."""
    return torch.tensor(values, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, side, side).clone()


def test_images_that_were_released_before_are_not_released_again():
    once = Inverted()
    remembering = Remembering(once)
    remembering.release(pictures(1, 2, 3), NOISE)
    remembering.release(pictures(3, 4, 1, 4), NOISE)
    assert once.seen == [3, 1]


def test_codes_and_answers_are_remembered_as_pixels_are():
    for release in (
        BitsRelease(torch.tensor([[True, False], [False, False], [True, True]]), "code:artefact=a"),
        AnswerRelease(torch.tensor([2, 0, 1]), "answer:artefact=a", ("a", "b", "c")),
    ):
        once = Fixed(release)
        remembering = Remembering(once)
        remembering.release(pictures(0, 1), NOISE)
        again = remembering.release(pictures(2, 1, 0), NOISE)
        assert torch.equal(again.values, release.values[[2, 1, 0]])
        assert again.spec == release.spec
        assert remembering.outputs == 4
        assert once.seen == [2, 1]


def test_the_releases_are_those_of_the_protection_in_the_order_of_the_images():
    remembering = Remembering(Inverted())
    remembering.release(pictures(7, 8), NOISE)
    for images in (pictures(9, 8, 7, 8), pictures(8), pictures(7, side=6)):
        found, wanted = remembering.release(images, NOISE), Inverted().release(images, NOISE)
        assert torch.equal(found.values, wanted.values)
        assert torch.equal(found.shown, wanted.shown)
        assert (found.spec, found.size, found.cell) == (wanted.spec, wanted.size, wanted.cell)


def test_what_a_noisy_code_encodes_is_remembered_and_its_noise_is_drawn_anew(tmp_path):
    network = make_code_network("conv4", (3, 16, 16), dimension=3, seed=0)
    path = tmp_path / "numbers.safetensors"
    card = {"kind": "code", "config": {"encoder": "conv4", "numbers": 3}, "shape": [3, 16, 16]}
    artefacts.save(path, {f"network.{name}": part for name, part in network.state_dict().items()}, card)
    plain: Any = parse(f"code:artefact={path},norm=1,noise=0.1", takes=KINDS)
    remembering = open_protection(plain.spec)
    images = torch.randint(0, 256, (5, 3, 16, 16), dtype=torch.uint8, generator=DRAW)
    for seed, rows in ((0, [0, 1, 2]), (1, [4, 2, 2, 0]), (2, [3])):
        values = remembering.release(images[rows], seeded_noise(seed)).values
        assert torch.equal(values, plain.release(images[rows], seeded_noise(seed)).values)
    again = remembering.release(images[:1].repeat(2, 1, 1, 1), seeded_noise(0)).values
    assert not torch.equal(again[0], again[1])
    path.unlink()  # nothing is read or encoded again
    assert len(remembering.release(images, seeded_noise(3)).values) == 5


def test_what_is_done_to_a_release_stays_there():
    remembering = Remembering(Inverted())
    remembering.release(pictures(7), NOISE).values.fill_(0)
    remembering.release(pictures(7), NOISE).shown.fill_(False)
    found = remembering.release(pictures(7), NOISE)
    assert found.values.max() == 248
    assert found.shown.any()


def test_what_does_not_fit_is_released_anew():
    once = Inverted()
    one = 3 * 16 + 16  # values and mask of an image, in bytes
    remembering = Remembering(once, room=2 * one)
    for _ in range(2):
        found = remembering.release(pictures(1, 2, 3), NOISE)
        assert torch.equal(found.values, Inverted().release(pictures(1, 2, 3), NOISE).values)
    assert once.seen == [3, 1]


def test_no_images_and_wrong_ones_are_the_protections_business():
    remembering = Remembering(Inverted())
    assert len(remembering.release(pictures(), NOISE).values) == 0
    with pytest.raises(SpecError, match="too small"):
        remembering.release(pictures(1, side=2), NOISE)


def test_a_protection_without_artefact_is_left_as_it_is():
    for spec in ("none", "blur:radius=2", "dp-pix:cell=2,epsilon=3"):
        assert open_protection(spec) == parse(spec)
