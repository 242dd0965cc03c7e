from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import parse
from sfumato.protect.pixels import cell_areas, cell_means, cell_sums, spread

NOISE = seeded_noise(0)


@pytest.mark.parametrize("cell", [2, 3, 4, 6, 10, 23])
def test_every_cell_is_its_mean_also_at_the_border(photos, cell):
    release = parse(f"pixelize:cell={cell}").release(photos, NOISE)
    shown = release.images().numpy()
    pixels = photos.numpy().astype(int)
    for top in range(0, 29, cell):
        for left in range(0, 23, cell):
            place = (..., slice(top, top + cell), slice(left, left + cell))
            part = pixels[place]
            area = part.shape[2] * part.shape[3]
            mean = (2 * part.sum((2, 3)) + area) // (2 * area)  # halves up, in integers
            assert np.array_equal(shown[place], np.broadcast_to(mean[..., None, None], part.shape))


def test_a_release_travels_at_cell_resolution(photos):
    release = parse("pixelize:cell=4").release(photos, NOISE)
    assert release.values.shape == (7, 3, 8, 6)
    assert release.bytes_per_image == 3 * 8 * 6
    assert release.images().shape == photos.shape


@pytest.mark.parametrize(
    ("cell", "side", "message"),
    [
        ("96", 84, "cell=96 is larger than the 84x84 images: choose a cell of at most 84"),
        ("1/8", 8, "cell=1 leaves the image as it is: choose a cell of at least 2"),
    ],
)
def test_a_cell_that_does_not_fit_the_image_names_the_bound_and_a_cure(cell, side, message):
    with pytest.raises(SpecError, match=message):
        parse(f"pixelize:cell={cell}").release(torch.zeros(1, 3, side, side, dtype=torch.uint8), NOISE)


@pytest.mark.parametrize("side", [1, 7, 16, 127, 129, 300])
def test_means_are_rounded_exactly_at_every_half_and_next_to_it_beside_a_small_cell_too(side):
    area = side * side
    halves = np.arange(255) * area + area // 2 + (area % 2)  # the smallest sums that round up
    near = np.concatenate([halves - 1, halves, [-5, 0, 255 * area, 255 * area + 9]])
    exact = np.clip((2 * near + area) // (2 * area), 0, 255)
    got = cell_means(near.reshape(-1, 1, 1, 1).repeat(2, axis=3), np.array([[area, 1]]))
    assert np.array_equal(got[..., 0].flatten(), exact)


@pytest.mark.parametrize("side", [300, 2902])  # of 8 megapixels, which phones take
def test_sums_are_exact_in_cells_of_more_than_16_and_31_bits(side):
    white = np.full((1, 1, side, side), 255, np.uint8)
    assert cell_sums(white, cell=side).item() == 255 * side * side
    assert cell_areas(side, side, side).item() == side * side


def test_spread_fills_one_cell_after_another_from_the_largest():
    areas = np.array([[4, 2], [2, 1]])
    assert spread(5, areas, largest_first=True).tolist() == [4, 1, 0, 0]
    assert spread(5, areas, largest_first=False).tolist() == [1, 2, 2, 0]


@given(
    height=st.integers(1, 20),
    width=st.integers(1, 20),
    cell=st.integers(1, 20),
    pixels=st.integers(0, 500),
    largest_first=st.booleans(),
)
def test_spread_places_every_pixel_that_has_a_place_and_overfills_no_cell(
    height, width, cell, pixels, largest_first
):
    areas = cell_areas(height, width, cell)
    counts = spread(pixels, areas, largest_first=largest_first)
    assert counts.sum() == min(pixels, height * width)
    assert (counts >= 0).all()
    assert (counts <= sorted(areas.flatten(), reverse=largest_first)).all()


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5), pixels=st.integers(1, 14))
def test_no_other_placement_has_a_larger_sum_of_squares_or_of_shares(sizes, pixels):
    areas = np.array([sizes])
    placements = [
        counts
        for counts in product(*(range(size + 1) for size in sizes))
        if sum(counts) == min(pixels, sum(sizes))
    ]
    squares = max(sum(count**2 for count in counts) for counts in placements)
    shares = max(
        sum(count / size for count, size in zip(counts, sizes, strict=True)) for counts in placements
    )
    assert (spread(pixels, areas, largest_first=True) ** 2).sum() == squares
    smallest = spread(pixels, areas, largest_first=False) / sorted(sizes)
    assert smallest.sum().item() == pytest.approx(shares)


# Cells that are a share of the image


SHARES = ["pixelize:cell=1/8", "dp-pix:cell=1/8,epsilon=3", "dp-pix-gaussian:cell=1/8,rho=0.5,pixels=3"]


@pytest.mark.parametrize("spec", SHARES)
@pytest.mark.parametrize("size", [(640, 480), (84, 84), (37, 50)])
def test_a_cell_of_an_eighth_is_that_of_so_many_pixels_on_every_size(spec, size):
    images = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
    side = -(-min(size) // 8)
    relative, absolute = parse(spec), parse(spec.replace("1/8", str(side)))
    released = relative.release(images, seeded_noise(1))
    assert released.spec == relative.spec == spec
    assert released.cell == side
    assert max(released.values.shape[2:]) == -(-max(size) // side)
    assert min(released.values.shape[2:]) <= 8
    assert torch.equal(released.values, absolute.release(images, seeded_noise(1)).values)
    for pixels in (None, 1, 5):
        assert relative.guarantee((3, *size), pixels) == absolute.guarantee((3, *size), pixels)
    assert relative.suspicious(released, false_alarm=1e-6) is None


def test_noise_on_shares_of_an_image_is_looked_for_as_on_cells_of_so_many_pixels():
    clean = torch.randint(0, 256, (1, 3, 48, 64), dtype=torch.uint8)
    release = parse("dp-pix:cell=1/8,epsilon=0.01").release(clean, seeded_noise(0))
    flat = replace(release, array=torch.full_like(release.values, 128))
    assert parse(release.spec).suspicious(flat, false_alarm=1e-6) is not None
