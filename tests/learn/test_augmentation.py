"""Variants of training images, against Pillow, PyTorch's own resizing, and NumPy's Dirichlet draws."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn import functional

from sfumato.learn import augmentation
from sfumato.learn.augmentation import POLICIES, apply, augment

ATS = ["ats-3-1-7", "ats-43-18-18"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int = 64, height: int = 32, width: int = 32, seed: int = 1) -> torch.Tensor:
    return torch.randint(20, 200, (count, 3, height, width), generator=seeded(seed), dtype=torch.uint8)


def pillow(image: torch.Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def translated(image: Image.Image, across: float, down: float) -> Image.Image:
    """By shares of the sides, as the code published with ATS calls Pillow."""
    matrix = (1, 0, across * image.width, 0, 1, down * image.height)
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=(0, 0, 0))


def by_pillow(image: Image.Image, policy: str) -> list[torch.Tensor]:
    """What a policy may make of an image, one for each choice of directions."""
    unit = 150 / 331 / 9
    if policy == "ats-3-1-7":
        made = [
            translated(ImageOps.invert(translated(image, 9 * x * unit, 0)), 0, 2 * y * unit)
            for x in (-1, 1)
            for y in (-1, 1)
        ]
    else:
        made = [
            ImageOps.autocontrast(ImageOps.autocontrast(translated(image, 0, 3 * y * unit))) for y in (-1, 1)
        ]
    return [tensor(each) for each in made]


# Moved and mirrored


def test_moves_and_mirrors_are_those_that_trained_models_were_made_with():
    images = torch.arange(2 * 1 * 3 * 4, dtype=torch.uint8).reshape(2, 1, 3, 4)
    moved = [[[9, 10, 11, 11], [9, 10, 11, 11], [9, 10, 11, 11]]]
    mirrored_and_moved = [[[18, 17, 16, 16], [22, 21, 20, 20], [22, 21, 20, 20]]]
    assert augment(images, seeded(1), flips=True, shifts=2).tolist() == [moved, mirrored_and_moved]


def test_a_warp_is_a_linear_map_about_the_middle_of_entries_up_to_what_is_asked_for():
    along = torch.arange(32) - 15.5
    ramps = torch.stack([along.expand(32, 32), along[:, None].expand(32, 32)])  # across, and down
    warped = augment(ramps.expand(400, 2, 32, 32), seeded(), warps=0.2)
    middle = warped[..., 8:24, 8:24].double()  # where no edge is repeated
    down, across = torch.meshgrid(along[8:24].double(), along[8:24].double(), indexing="ij")
    places = torch.stack([across.flatten(), down.flatten()], 1)  # (256, 2)
    seen = middle.flatten(2).movedim(2, 1)  # (400, 256, 2)
    maps = torch.linalg.pinv(places) @ seen  # (400, 2, 2)
    assert torch.allclose(places @ maps, seen, atol=1e-3)
    added = maps - torch.eye(2, dtype=torch.float64)
    assert added.abs().max() <= 0.2 + 1e-4
    assert (added.amax(0) > 0.19).all()
    assert (added.amin(0) < -0.19).all()


def test_a_warp_keeps_the_type_and_what_has_one_value():
    images = torch.full((4, 3, 8, 10), 90, dtype=torch.uint8)
    assert torch.equal(augment(images, seeded(), warps=0.4), images)


# Policies


@pytest.mark.parametrize("policy", ATS)
@pytest.mark.parametrize(("height", "width"), [(32, 32), (21, 30)])
def test_a_policy_makes_what_its_operations_of_pillow_make_in_all_directions(
    policy: str, height: int, width: int
):
    images, directions = noise(height=height, width=width), set()
    for image, mine in zip(images, apply(images, policy, seeded()), strict=True):
        # Pillow computes 255 as 254.99..., which it cuts, for some ranges.
        furthest = [(mine.int() - each.int()).abs().max() for each in by_pillow(pillow(image), policy)]
        assert min(furthest) <= 1
        directions.add(furthest.index(min(furthest)))
    assert directions == set(range(len(furthest)))


def test_of_32_pixels_9_ninths_are_15_and_2_are_3():
    white = torch.full((16, 1, 32, 32), 255, dtype=torch.uint8)
    made = apply(white, "ats-3-1-7", seeded())[:, 0]  # black comes in, all is inverted, black comes in
    assert (made.amax(1) == 255).sum(1).tolist() == [15] * 16
    assert (made.amax(2) == 0).sum(1).tolist() == [3] * 16


def test_the_hybrid_takes_each_image_through_one_of_the_two():
    images = noise(200)
    made = apply(images, "ats", seeded())
    first = 0
    for image, mine in zip(images, made, strict=True):
        close = [
            min((mine.int() - each.int()).abs().max() for each in by_pillow(pillow(image), policy)) <= 1
            for policy in ATS
        ]
        assert sum(close) == 1
        first += close[0]
    assert 70 < first < 130  # binomial of 200 and 1/2: more than four deviations on both sides


@pytest.mark.parametrize("policy", POLICIES)
def test_floats_are_changed_as_bytes_are(policy: str):
    images = noise(32)
    made = apply(images, policy, seeded())
    floats = apply(images / 255, policy, seeded())
    assert made.dtype == torch.uint8
    assert (made / 255 - floats).abs().max() <= 1.001 / 255
    assert 0 <= floats.min() <= floats.max() <= 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_generator_decides_all_and_images_are_left_as_they_are(policy: str):
    images = noise(8)
    assert torch.equal(apply(images, policy, seeded()), apply(images, policy, seeded()))
    assert torch.equal(images, noise(8))
    assert torch.equal(apply(images, policy, seeded()), apply(images, policy, seeded(1))) == (
        policy == "none"
    )


def test_none_draws_nothing():
    generator = seeded()
    apply(noise(4), "none", generator)
    assert torch.equal(generator.get_state(), seeded().get_state())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_of_no_images_gives_none(policy: str):
    assert apply(noise(0), policy, seeded()).shape == (0, 3, 32, 32)


def test_a_flat_channel_keeps_its_grey_where_contrast_is_stretched():
    images = noise(4)
    images[:, 1] = 77
    made = augmentation._autocontrast(images, seeded())
    assert (made[:, 1] == 77).all()
    assert made[:, 0].amin((1, 2)).tolist() == [0] * 4
    assert made[:, 0].amax((1, 2)).tolist() == [255] * 4


def test_a_part_enlarged_is_what_pytorch_makes_of_it():
    images = noise(3, 20, 32) / 255
    start, length = torch.tensor([[0.0], [4.0], [25.0]]), torch.tensor([[32.0], [11.0], [7.0]])
    made = augmentation._stretch(images, start, length, axis=3)
    for image, mine, first, many in zip(images, made, start.int(), length.int(), strict=True):
        part = image[None, :, :, first : first + many]
        torch.testing.assert_close(mine[None], functional.interpolate(part, (20, 32), mode="bilinear"))


def test_crops_have_the_areas_and_the_shapes_that_are_drawn():
    # On ramps along both axes, the slopes of a crop tell its sides.
    side = 64
    ramp = torch.arange(1.0 * side)
    both = torch.stack([ramp[:, None].expand(side, side), ramp.expand(side, side)])
    made = augmentation._crop(both.expand(1000, 2, side, side), seeded())
    height = made[:, 0, 33, 0] - made[:, 0, 32, 0]  # as a share of the side
    width = made[:, 1, 0, 33] - made[:, 1, 0, 32]
    area, ratio = height * width, width / height
    pixel = 1 / side  # to which sides are rounded: of the smallest, 0.24, it is 7%
    assert area.min() > 0.08 - pixel * 0.6
    assert area.max() < 1.001
    assert ratio.min() > 0.75 * 0.93
    assert ratio.max() < 4 / 3 / 0.93
    # Uniform in 8% to 100%, but for large ones of a shape that does not fit.
    assert area.mean().item() == pytest.approx(0.5, abs=0.04)
    assert area.min() < 0.1
    assert area.max() > 0.9
    assert (ratio > 1).double().mean().item() == pytest.approx(0.5, abs=0.06)


def test_half_of_the_crops_are_mirrored():
    ramp = (torch.arange(64.0) / 64).expand(1000, 1, 64, 64)
    made = apply(ramp, "crop-flip", seeded())
    assert (made[:, 0, 0, 0] > made[:, 0, 0, -1]).double().mean().item() == pytest.approx(0.5, abs=0.06)
