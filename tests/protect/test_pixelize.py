from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import parse
from sfumato.protect.pixelize import cell_areas, cell_means, cell_sums, spread

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


def test_28_pixels_in_cells_of_6_leave_a_last_cell_of_4():
    areas = cell_areas(28, 28, 6)
    assert areas.shape == (5, 5)
    assert areas[-1, -1] == 16
    assert areas.sum() == 28 * 28


def test_sums_are_exact_in_cells_of_more_than_16_bits():
    white = torch.full((1, 1, 300, 300), 255, dtype=torch.uint8)
    assert cell_sums(white.numpy(), cell=300).item() == 255 * 300 * 300
    assert cell_areas(300, 300, 300).item() == 300 * 300


def test_a_cell_larger_than_the_image_names_the_bound_and_a_cure():
    images = torch.zeros(1, 3, 84, 84, dtype=torch.uint8)
    with pytest.raises(
        SpecError, match=r"cell=96 is larger than the 84x84 images: choose a cell of at most 84"
    ):
        parse("pixelize:cell=96").release(images, NOISE)


@pytest.mark.parametrize("side", [1, 7, 16, 127, 129])
def test_means_are_rounded_exactly_at_every_half_and_next_to_it(side):
    area = side * side
    halves = np.arange(255) * area + area // 2 + (area % 2)  # the smallest sums that round up
    near = np.concatenate([halves - 1, halves, [-5, 0, 255 * area, 255 * area + 9]])
    exact = np.clip((2 * near + area) // (2 * area), 0, 255)
    got = cell_means(near.reshape(-1, 1, 1, 1), np.array([[area]]))
    assert np.array_equal(got.flatten(), exact)


def test_sums_are_exact_in_cells_of_more_than_31_bits():
    # 2902 * 2902 * 255 is above 2^31: an image of 8 megapixels, which phones take.
    white = np.full((1, 1, 2902, 2902), 255, np.uint8)
    assert cell_sums(white, cell=2902).item() == 255 * 2902 * 2902


def test_a_white_image_in_one_huge_cell_is_white():
    white = torch.full((1, 1, 2902, 2902), 255, dtype=torch.uint8)
    assert parse("pixelize:cell=2902").release(white, NOISE).values.item() == 255


def test_spread_fills_one_cell_after_another_from_the_largest():
    areas = torch.tensor([[4, 2], [2, 1]])
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
    assert (counts <= areas.flatten().sort(descending=largest_first).values).all()


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5),
    pixels=st.integers(1, 14),
)
def test_no_other_placement_has_a_larger_sum_of_squares_or_of_shares(sizes, pixels):
    areas = torch.tensor([sizes])
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
    smallest = spread(pixels, areas, largest_first=False) / areas.flatten().sort().values
    assert smallest.sum().item() == pytest.approx(shares)
