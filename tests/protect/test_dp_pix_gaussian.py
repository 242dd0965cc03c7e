import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import parse
from sfumato.protect.pixels import cell_sums


class Spy:
    """A noise source that draws nothing and remembers what it was asked for."""

    def discrete_gaussian(self, shape, *, variance):
        self.shape, self.variance = shape, variance
        return np.zeros(shape, np.int64)

    def laplace(self, shape, *, scale):
        self.shape, self.variance = shape, 2 * scale**2  # a hair above that of the discrete Laplace
        return np.zeros(shape, np.int64)


def variance_of(spec, *shape):
    """The variance that a protection asks of its noise for an image of this shape."""
    spy = Spy()
    parse(spec).release(torch.zeros(1, *shape, dtype=torch.uint8), spy)
    return spy.variance


# How much noise.


@pytest.mark.parametrize(
    ("pixels", "squares"),
    [
        (1, 1),
        (3, 9),
        (9, 81),  # one whole cell of 3 x 3
        (13, 81 + 16),
        (20, 81 + 81 + 4),  # of 7 x 8 pixels: four cells of 9, two of 6, two of 3, one of 2
        (40, 4 * 81 + 16),
        (42, 4 * 81 + 36),
        (56, 4 * 81 + 2 * 36 + 2 * 9 + 4),
        (1000, 4 * 81 + 2 * 36 + 2 * 9 + 4),
    ],
)
def test_the_variance_is_the_fraction_that_whole_cells_need(pixels, squares):
    variance = variance_of(f"dp-pix-gaussian:cell=3,rho=0.7,pixels={pixels}", 3, 7, 8)
    assert variance == Fraction(255**2 * 3 * squares * 10, 2 * 7)


def test_every_sum_of_every_image_and_channel_gets_noise_of_its_own():
    spy = Spy()
    parse("dp-pix-gaussian:cell=3,rho=1").release(torch.zeros(5, 3, 7, 8, dtype=torch.uint8), spy)
    assert spy.shape == (5, 3, 3, 3)


@pytest.mark.parametrize("rho", [0.5, 5.0])
def test_released_values_have_the_standard_deviation_that_rho_implies(rho):
    grey = torch.full((1, 1, 1600, 1600), 128, dtype=torch.uint8)
    noise = parse(f"dp-pix-gaussian:cell=8,rho={rho}").release(grey, fresh_noise()).values.double() - 128
    sigma = 255 / 64 / math.sqrt(2 * rho)
    # 40,000 cells, far from both clamps: six standard errors are 2%. Rounding adds 1/12 to the variance.
    assert noise.std().item() == pytest.approx(math.sqrt(sigma**2 + 1 / 12), rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=6 * (sigma + 0.3) / 200)


def test_all_cells_get_the_same_noise_on_their_sums():
    grey = torch.full((4000, 1, 10, 10), 128, dtype=torch.uint8)  # cells of 6x6, 6x4, 4x6 and 4x4
    protection = parse("dp-pix-gaussian:cell=6,rho=8")
    deviation = (protection.release(grey, seeded_noise(0)).values.double() - 128).std(0)[0]
    for row, column, area in ((0, 0, 36), (0, 1, 24), (1, 0, 24), (1, 1, 16)):
        # Six standard errors of 4,000 draws are 7%.
        sigma = math.sqrt((255 / area / 4) ** 2 + 1 / 12)
        assert deviation[row, column].item() == pytest.approx(sigma, rel=0.07)


def variances_at(epsilon, delta, *, channels, pixels):
    """Variances of the noise of both protections, on cells of 8x8, where both are (epsilon, delta)-DP."""
    shape = (channels, 64, 64)

    def enough(rho):
        guarantee = parse(f"dp-pix-gaussian:cell=8,rho={rho},pixels={pixels}").guarantee(shape)
        return guarantee.to("approximate", delta=delta).value <= epsilon

    low, high = 1e-9, 1e6
    while high - low > 1e-9 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if enough(middle) else (low, middle)
    laplace = variance_of(f"dp-pix:cell=8,epsilon={epsilon},pixels={pixels}", *shape)
    return variance_of(f"dp-pix-gaussian:cell=8,rho={low},pixels={pixels}", *shape), laplace


@pytest.mark.parametrize(("channels", "worse", "better"), [(1, 640, 704), (3, 192, 256)])
def test_the_crossover_is_at_ten_cells_for_grey_and_at_three_and_a_half_for_colour(channels, worse, better):
    # In one cell the ratio of variances is 10.3 / C at this epsilon and delta; beyond, it falls as 1 / m.
    pixels = [1, 8, 64, 128, worse, better, 1024, 4096]
    pairs = [variances_at(1.0, 1e-6, channels=channels, pixels=m) for m in pixels]
    assert [gaussian < laplace for gaussian, laplace in pairs] == [m >= better for m in pixels]


# What is guaranteed.


def renyi_divergence(shift, variance, alpha):
    """D_α of the discrete Gaussian moved by an integer against itself, by the sum over all integers.

    Weights of p^α q^(1 - α), p at `shift` and q at 0, peak around α * shift.
    """
    reach = 12 * math.sqrt(variance) + 2
    k = np.arange(math.floor(alpha * shift - reach), math.ceil(alpha * shift + reach) + 1, dtype=float)
    around_zero = np.arange(-math.ceil(reach), math.ceil(reach) + 1, dtype=float)
    log_normalizer = np.log(np.exp(-(around_zero**2) / (2 * variance)).sum())
    logs = -(alpha * (k - shift) ** 2 + (1 - alpha) * k**2) / (2 * variance)
    return (logs.max() + np.log(np.exp(logs - logs.max()).sum()) - log_normalizer) / (alpha - 1)


def total_divergence(one, other, *, cell, variance, alpha):
    """The same for the noisy sums of two images, in all cells and channels, which are independent."""
    first, second = (cell_sums(image.numpy(), cell=cell).astype(int) for image in (one, other))
    shifts, counts = np.unique(np.abs(first - second), return_counts=True)
    return sum(
        count * renyi_divergence(int(shift), float(variance), alpha)
        for shift, count in zip(shifts, counts, strict=True)
        if shift
    )


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 8),
    width=st.integers(1, 8),
    cell=st.integers(1, 8),
    pixels=st.integers(1, 12),
    asked=st.integers(1, 30),
    rho=st.sampled_from([0.1, 0.5, 3.0, 8e3]),
    alpha=st.sampled_from([1.01, 1.5, 2.0, 7.3, 32.0]),
    where=st.sampled_from(["random", "first", "last"]),
)
def test_no_neighbours_have_a_renyi_divergence_above_alpha_rho(
    seed, channels, height, width, cell, pixels, asked, rho, alpha, where
):
    cell = min(cell, height, width)
    generator = torch.Generator().manual_seed(seed)
    one = torch.randint(0, 256, (1, channels, height, width), generator=generator).to(torch.uint8)
    if where == "random":
        places = torch.randperm(height * width, generator=generator)[:asked]
    else:  # the pixels of the first cells, row by row of cells, or of the last, from black to white
        area = torch.arange(height)[:, None] // cell * width + torch.arange(width) // cell
        places = area.flatten().argsort(stable=True, descending=where == "last")[:asked]
        one.flatten(2)[:, :, places] = 0
    other = one.clone()
    other.flatten(2)[:, :, places] = 255
    spec = f"dp-pix-gaussian:cell={cell},rho={rho},pixels={pixels}"
    variance = variance_of(spec, channels, height, width)
    stated = parse(spec).guarantee((channels, height, width), pixels=asked).value
    divergence = total_divergence(one, other, cell=cell, variance=variance, alpha=alpha)
    # 1e-12 / (alpha - 1): what the logarithm of a sum next to 1 loses, in up to 200 sums.
    assert divergence <= alpha * stated * (1 + 1e-9) + 2e-10 / (alpha - 1)


@pytest.mark.parametrize("alpha", [1.5, 2.0, 8.0])
@pytest.mark.parametrize("pixels", [1, 4, 5, 9, 12])
def test_no_placement_of_the_pixels_is_worse_than_stated_and_one_reaches_it(pixels, alpha):
    # 3 x 4 pixels in cells of 2 x 2: two whole cells, and two of 1 x 2. All placements, from black to white.
    spec = f"dp-pix-gaussian:cell=2,rho=0.5,pixels={pixels}"
    variance = variance_of(spec, 1, 3, 4)
    black = torch.zeros(1, 1, 3, 4, dtype=torch.uint8)
    worst, seen = 0.0, {}
    for places in combinations(range(12), pixels):
        other = black.clone()
        other.flatten(2)[:, :, list(places)] = 255
        key = tuple(sorted(cell_sums(other.numpy(), cell=2).flatten().tolist()))
        if key not in seen:
            seen[key] = total_divergence(black, other, cell=2, variance=variance, alpha=alpha)
        worst = max(worst, seen[key])
    assert worst == pytest.approx(alpha * parse(spec).guarantee((1, 3, 4)).value, rel=1e-9)


@pytest.mark.parametrize(
    ("cell", "pixels", "rho"),
    [(1, 1, 0.1), (4, 16, 0.5), (1, 19, 0.1), (4, 7, 0.5), (4, 9, 0.2), (4, 21, 0.3)],
)
def test_the_specs_own_pixels_cost_exactly_the_specs_rho(cell, pixels, rho):
    protection = parse(f"dp-pix-gaussian:cell={cell},rho={rho},pixels={pixels}")
    assert protection.guarantee((3, 28, 28)).value == rho
    assert protection.guarantee((3, 28, 28), pixels=pixels).value == rho


def test_a_spec_of_more_pixels_than_there_are_protects_the_whole_image():
    spec = "dp-pix-gaussian:cell=2,rho=0.5,pixels=1000000000"
    guarantee = parse(spec).guarantee((1, 3, 4))
    assert guarantee.value == guarantee.whole_image == 0.5
    assert variance_of(spec, 1, 3, 4) == 255**2 * (16 + 16 + 4 + 4)


@given(
    height=st.integers(1, 30), width=st.integers(1, 30), cell=st.integers(1, 30), asked=st.integers(1, 900)
)
def test_rho_grows_no_faster_than_by_group_privacy_and_never_falls(height, width, cell, asked):
    protection = parse(f"dp-pix-gaussian:cell={min(cell, height, width)},rho=0.5")
    shape = (1, height, width)
    value = protection.guarantee(shape, pixels=asked).value
    assert value <= protection.guarantee(shape).group(asked).value * (1 + 1e-12)
    assert value <= protection.guarantee(shape, pixels=asked + 1).value
    assert value <= protection.guarantee(shape).whole_image * (1 + 1e-12)


def test_in_whole_cells_rho_grows_with_the_square_in_one_cell_and_in_proportion_beyond():
    protection = parse("dp-pix-gaussian:cell=4,rho=0.5")
    prices = [protection.guarantee((1, 84, 84), pixels=m).value for m in (1, 4, 16, 32, 160)]
    assert prices == pytest.approx([0.5, 0.5 * 16, 0.5 * 256, 0.5 * 512, 0.5 * 2560])


def test_the_price_is_stated_in_plain_words():
    guarantee = parse("dp-pix-gaussian:cell=4,rho=0.5,pixels=16").guarantee((1, 84, 84))
    assert str(guarantee) == "hides any 16 pixels at rho = 0.5 (zCDP); the whole image only at rho = 221"


# The spec.


@pytest.mark.parametrize(
    "spec",
    [
        "dp-pix-gaussian:cell=4,rho=0.5,pixels=16",
        "dp-pix-gaussian:cell=4,rho=0.5",
        "dp-pix-gaussian:cell=10,rho=1e-07",
        "dp-pix-gaussian:cell=1,rho=3,pixels=7056",
    ],
)
def test_a_canonical_spec_is_its_own_canonical_form(spec):
    assert parse(spec).spec == spec


@pytest.mark.parametrize(
    "spec",
    [
        "dp-pix-gaussian:pixels=16,rho=0.50,cell=4",
        " dp-pix-gaussian: cell=4 , rho=5e-1, pixels=16 ",
        "dp-pix-gaussian:rho=0.5,pixels=16,cell=4",
    ],
)
def test_one_protection_has_one_canonical_spec(spec):
    assert parse(spec).spec == "dp-pix-gaussian:cell=4,rho=0.5,pixels=16"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("dp-pix-gaussian:cell=4", r"rho is missing: write dp-pix-gaussian:rho=\.\.\."),
        ("dp-pix-gaussian:rho=1", r"cell is missing: write dp-pix-gaussian:cell=\.\.\."),
        ("dp-pix-gaussian:cell=4,rho=0", "rho=0 is not above 0: smaller hides more"),
        ("dp-pix-gaussian:cell=4,rho=-0.5", r"rho=-0\.5 is not above 0: smaller hides more"),
        ("dp-pix-gaussian:cell=0,rho=1", "cell=0 is not above 0: the paper uses 2 to 10"),
        ("dp-pix-gaussian:cell=4,rho=1,pixels=0", "pixels=0 is not above 0: 1 or more"),
        ("dp-pix-gaussian:cell=4,rho=nan", "rho=nan is not a number"),
        ("dp-pix-gaussian:cell=4,rho=inf", "rho=inf is not a number"),
        ("dp-pix-gaussian:cell=2.5,rho=1", r"cell=2\.5 is not a whole number"),
        ("dp-pix-gaussian:cell=4,epsilon=1", "no parameter 'epsilon': .*Known: cell, pixels, rho"),
        ("dp-pix-gaussian:cell=4,rho=1,pixel=3", "did you mean 'pixels'"),
        ("dp-pix-gausian:cell=4,rho=1", "did you mean 'dp-pix-gaussian'"),
        ("dp-pix-gaussian:cell=4,rho=1,2", "names 2 protections: give one value for each key"),
    ],
)
def test_an_impossible_spec_names_the_value_and_the_cure(spec, message):
    with pytest.raises(SpecError, match=message):
        parse(spec)
