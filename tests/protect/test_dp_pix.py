"""DP-Pix, with Laplace and with Gaussian noise: how much is drawn, and what is guaranteed of it."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import SpecError
from sfumato.protect import parse
from sfumato.protect.pixels import cell_areas, cell_sums
from sfumato.protect.spec import PROTECTIONS, parse_as


class Spy:
    """A noise source that draws nothing and remembers what it was asked for."""

    def __init__(self):
        self.scales = {}

    def discrete_gaussian(self, shape, *, variance):
        self.shape, self.variance = shape, variance
        return np.zeros(shape, np.int64)

    def laplace(self, shape, *, scale):
        self.scales[scale] = shape
        return self.discrete_gaussian(shape, variance=2 * scale**2)  # a hair above that of the discrete one


def worst_privacy_loss(one, other, *, cell, epsilon, pixels, variant, channels):
    """The largest log-likelihood ratio between two images, in closed form.

    Given the exact integer noise, the noisy sums of image x have P(s) = prod of q^|s - sum(x)|, and the
    ratio at the worst s is exp(sum |difference of sums| / scale): what rounding and clamping do after
    can only lower it.
    """
    first, second = (torch.from_numpy(cell_sums(image.numpy(), cell=cell)) for image in (one, other))
    areas = torch.from_numpy(cell_areas(one.shape[2], one.shape[3], cell))
    scale = scales(areas, cell=cell, epsilon=epsilon, pixels=pixels, variant=variant, channels=channels)
    return ((first - second).abs() / scale).sum().item()


@pytest.mark.parametrize(
    ("spec", "some", "whole"),
    [
        ("dp-pix:cell=4,epsilon=1,pixels=10", "10 pixels at eps = 1 (pure DP)", "eps = 706"),
        ("dp-pix-gaussian:cell=4,rho=0.5,pixels=16", "16 pixels at rho = 0.5 (zCDP)", "rho = 221"),
    ],
)
def test_the_price_of_some_pixels_and_of_the_whole_image_is_stated_in_plain_words(spec, some, whole):
    words = f"hides any {some}; the whole image only at {whole}"
    assert str(parse(spec).guarantee((1, 84, 84))) == words


def test_published_states_what_its_scale_really_gives():
    # 28 = 4 * 6 + 4: a corner cell of 16 pixels gets the noise of one of 36; and 3 channels each spend it.
    guarantee = parse("dp-pix:cell=6,epsilon=3,variant=published").guarantee((3, 28, 28))
    assert guarantee.value == pytest.approx(3 * 3 * 36 / 16)


@pytest.mark.parametrize("spec", ["dp-pix:cell=4,epsilon=1e6", "dp-pix-gaussian:cell=4,rho=1e10"])
def test_little_noise_recovers_pixelization(photos, spec):
    exact = parse("pixelize:cell=4").release(photos, seeded_noise(0)).values
    nearly = parse(spec).release(photos, seeded_noise(0)).values
    assert (exact.int() - nearly.int()).abs().max() <= 1


@pytest.mark.parametrize("spec", ["dp-pix:cell=4,epsilon=0.0001", "dp-pix-gaussian:cell=4,rho=1e-9"])
def test_much_noise_leaves_nothing_of_the_image(spec):
    black = torch.zeros(200, 1, 8, 8, dtype=torch.uint8)
    white = 255 - black
    protection = parse(spec)
    means = [protection.release(x, seeded_noise(0)).values.double().mean().item() for x in (black, white)]
    assert means[0] == pytest.approx(means[1], abs=2)
    assert means[0] == pytest.approx(127.5, abs=20)  # clamped to black or white, half and half


def scales(areas, *, cell, epsilon, pixels, variant, channels):
    """The scale of the Laplace noise on the sum of each cell, as the docstring has it. -> (h, w) float64."""
    scale = torch.full(areas.shape, 255 * pixels / epsilon, dtype=torch.float64)
    return scale * (channels if variant == "sound" else areas.double() / cell**2)


def log_probabilities(sums, areas, scale):
    """ln P(v) of every released value v of every cell, in closed form. (C, h, w) int -> (C, h, w, 256).

    v is released when the noisy sum is at least (2v - 1) n / 2, halves rounded up, and less than
    (2v + 1) n / 2; 0 and 255 take what lies outside. That the noise is at most k has the probability
    q^-k / (1 + q) for k <= 0, and that it is at least k has q^k / (1 + q) for k >= 0, q = exp(-1 / scale).
    """
    sums, areas = sums.double()[..., None], areas.double()[..., None]
    rate = 1 / scale[..., None]
    values = torch.arange(256, dtype=torch.float64)
    first = torch.ceil((2 * values - 1) * areas / 2) - sums
    last = torch.ceil((2 * values + 1) * areas / 2) - 1 - sums
    first[..., 0], last[..., 255] = -math.inf, math.inf
    # The nearer end of an interval on one side of 0 has the larger tail; ln(1 - e^-x) = log(-expm1(-x)).
    near = torch.minimum(first.abs(), last.abs())
    one_side = -near * rate + torch.log(-torch.expm1((first - last - 1) * rate))
    outside = torch.exp((first - 1) * rate) + torch.exp((-last - 1) * rate)
    both_sides = torch.log1p(torch.exp(-rate) - outside)
    return torch.where((first <= 0) & (last >= 0), both_sides, one_side) - torch.log1p(torch.exp(-rate))


def test_released_values_have_the_closed_form_that_the_losses_below_are_computed_from():
    # Cells of 3x3, 3x1, 1x3 and 1 pixels, at the dark and the bright end.
    image = torch.tensor([[0, 3, 9, 250], [0, 0, 5, 255], [90, 0, 0, 251], [255, 255, 255, 40]]).byte()[None]
    areas = torch.from_numpy(cell_areas(4, 4, 3))
    sums = torch.from_numpy(cell_sums(image[None].numpy(), cell=3))[0]
    settings_ = {"cell": 3, "epsilon": 4.0, "pixels": 1, "variant": "sound", "channels": 1}
    exact = log_probabilities(sums, areas, scales(areas, **settings_)).exp()[0]
    assert torch.allclose(exact.sum(-1), torch.ones(2, 2, dtype=torch.float64))
    released = parse("dp-pix:cell=3,epsilon=4").release(image.expand(40_000, 1, 4, 4), seeded_noise(0)).values
    for row in (0, 1):
        for column in (0, 1):
            seen = np.bincount(released[:, 0, row, column].numpy(), minlength=256)
            expected = exact[row, column].numpy() * 40_000
            common = expected >= 5
            seen, expected = (np.append(counts[common], counts[~common].sum()) for counts in (seen, expected))
            present = expected > 0
            assert seen[~present].sum() == 0
            # A right closed form fails with this probability; the seed is fixed.
            assert chisquare(seen[present], expected[present]).pvalue > 1e-4


def neighbours(seed, *, shape, pixels, where):
    """Two (1, C, H, W) images that differ in `pixels` pixels at most; `where` says in which, and how."""
    channels, height, width = shape
    generator = torch.Generator().manual_seed(seed)
    one = torch.randint(0, 256, (1, channels, height, width), generator=generator).to(torch.uint8)
    if where == "random":
        places = torch.randperm(height * width, generator=generator)[:pixels]
    else:  # in the corner of the smallest, or of the largest cells, from black to white
        rows = torch.arange(height).flip(0) if where == "last" else torch.arange(height)
        columns = torch.arange(width).flip(0) if where == "last" else torch.arange(width)
        nearness = (rows[:, None].maximum(columns) * max(height, width) + rows[:, None] + columns).flatten()
        places = nearness.argsort(stable=True)[:pixels]
        one.flatten(2)[:, :, places] = 0
    other = one.clone()
    kept = torch.randint(0, 256, (1, channels, len(places)), generator=generator).to(torch.uint8)
    other.flatten(2)[:, :, places] = kept if where == "random" else 255
    return one, other


WORLDS = {
    "seed": st.integers(0, 10**6),
    "channels": st.sampled_from([1, 3]),
    "height": st.integers(1, 9),
    "width": st.integers(1, 9),
    "pixels": st.integers(1, 12),
    "asked": st.integers(1, 30),
    "where": st.sampled_from(["random", "first", "last"]),
    "epsilon": st.sampled_from([0.1, 1.0, 3.0, 30.0]),
    "variant": st.sampled_from(["sound", "published"]),
    "cell": st.integers(1, 9),
}


# What once came out of float32 as a little less than it is.
ONE_CELL = dict.fromkeys(("channels", "pixels", "asked"), 1) | dict.fromkeys(("height", "width", "cell"), 5)
ONE_CELL |= {"seed": 0, "where": "first", "epsilon": 0.1, "variant": "published"}


@settings(max_examples=200, deadline=None)
@given(**WORLDS)
@example(**ONE_CELL)
def test_no_number_of_pixels_is_told_apart_better_than_stated_for_it(
    seed, channels, height, width, pixels, asked, where, epsilon, variant, cell
):
    cell = min(cell, height, width)
    one, other = neighbours(seed, shape=(channels, height, width), pixels=asked, where=where)
    loss = worst_privacy_loss(
        one, other, cell=cell, epsilon=epsilon, pixels=pixels, variant=variant, channels=channels
    )
    protection = parse(f"dp-pix:cell={cell},epsilon={epsilon},pixels={pixels},variant={variant}")
    assert loss <= protection.guarantee((channels, height, width), pixels=asked).value * (1 + 1e-9)


@settings(max_examples=150, deadline=None)
@given(**WORLDS)
@example(**ONE_CELL)
def test_no_released_bytes_are_likelier_by_more_than_stated(
    seed, channels, height, width, pixels, asked, where, epsilon, variant, cell
):
    cell = min(cell, height, width)
    areas = torch.from_numpy(cell_areas(height, width, cell))
    scale = scales(areas, cell=cell, epsilon=epsilon, pixels=pixels, variant=variant, channels=channels)
    one, other = (
        log_probabilities(torch.from_numpy(cell_sums(image.numpy(), cell=cell))[0], areas, scale)
        for image in neighbours(seed, shape=(channels, height, width), pixels=asked, where=where)
    )
    stated = (
        parse(f"dp-pix:cell={cell},epsilon={epsilon},pixels={pixels},variant={variant}")
        .guarantee((channels, height, width), pixels=asked)
        .value
    )
    for ratio in (one - other, other - one):
        # Cells and channels are independent: the worst bytes are the worst value in each.
        assert ratio.amax(-1).sum() <= stated * (1 + 1e-9) + 1e-9  # rounding, of logarithms up to thousands


@settings(max_examples=100, deadline=None)
@given(
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    cell=st.integers(1, 9),
    pixels=st.integers(1, 12),
    asked=st.integers(1, 90),
    variant=st.sampled_from(["sound", "published"]),
)
def test_the_price_of_any_number_of_pixels_is_reached_by_the_worst_neighbours(
    channels, height, width, cell, pixels, asked, variant
):
    cell = min(cell, height, width)
    areas = torch.from_numpy(cell_areas(height, width, cell))
    # Each pixel's cell area; the pixels of the smallest cells turn from black to white.
    area = areas.repeat_interleave(cell, 0)[:height].repeat_interleave(cell, 1)[:, :width]
    places = area.flatten().argsort(stable=True)[:asked]
    one = torch.zeros(1, channels, height, width, dtype=torch.uint8)
    other = one.clone()
    other.flatten(2)[:, :, places] = 255
    loss = worst_privacy_loss(
        one, other, cell=cell, epsilon=1.0, pixels=pixels, variant=variant, channels=channels
    )
    protection = parse(f"dp-pix:cell={cell},epsilon=1,pixels={pixels},variant={variant}")
    assert loss == pytest.approx(protection.guarantee((channels, height, width), pixels=asked).value)


@pytest.mark.parametrize("cell", [1, 5, 7, 10])
@pytest.mark.parametrize("asked", [1, 3, 100, 4900])
def test_in_whole_cells_the_published_variant_costs_channels_times_epsilon_for_each_pixel(cell, asked):
    # 1e-12: in double precision. Single precision would state 0.99999998 for 1, which is less than it is.
    protection = parse(f"dp-pix:cell={cell},epsilon=1,variant=published")
    value = protection.guarantee((3, 70, 70), pixels=asked).value
    assert value == pytest.approx(3 * asked, rel=1e-12)


@pytest.mark.parametrize(
    "spec", ["dp-pix:cell=4,epsilon={},pixels={}", "dp-pix-gaussian:cell=4,rho={},pixels={}"]
)
@pytest.mark.parametrize("price", [0.1, 0.3, 1.0, 2.9, 7.7])
@pytest.mark.parametrize("pixels", [1, 3, 7, 10, 16, 21, 49])
def test_the_specs_own_pixels_cost_exactly_what_the_spec_says(spec, price, pixels):
    protection = parse(spec.format(price, pixels))
    assert protection.guarantee((3, 28, 28)).value == price
    assert protection.guarantee((3, 28, 28), pixels=pixels).value == price


WHOLE = [f"dp-pix:cell=3,epsilon=1,pixels=2,variant={variant}" for variant in ("sound", "published")]


@pytest.mark.parametrize("spec", [*WHOLE, "dp-pix-gaussian:cell=3,rho=1,pixels=2", "gaussian:sigma=40"])
@pytest.mark.parametrize("asked", [63, 64, 1000, 10**30])
def test_more_pixels_than_there_are_cost_what_the_whole_image_costs(spec, asked):
    guarantee = parse(spec).guarantee((3, 9, 7), pixels=asked)
    assert guarantee.value == guarantee.whole_image
    assert guarantee.pixels == asked


def test_an_image_of_fewer_pixels_than_the_spec_names_costs_less_than_its_epsilon():
    # 2 x 2 pixels are 4 of the 10 that epsilon was for.
    assert parse("dp-pix:cell=2,epsilon=1,pixels=10").guarantee((3, 2, 2)).value == pytest.approx(0.4)


@pytest.mark.parametrize("asked", [0, -1])
@pytest.mark.parametrize(
    "spec",
    [
        *("dp-pix:cell=2,epsilon=1", "dp-pix-gaussian:cell=2,rho=1", "gaussian:sigma=40"),
        *("feature:artefact=f,noise=1,norm=1", "code:artefact=c,noise=1,norm=1"),
    ],
)
def test_a_guarantee_about_no_pixels_is_refused(spec, asked):
    name = spec.partition(":")[0]
    with pytest.raises(SpecError, match=f"{name}: pixels={asked}: a guarantee is about at least 1 pixel"):
        parse_as(spec, PROTECTIONS).guarantee((1, 8, 8), pixels=asked)


@pytest.mark.parametrize("variant", ["sound", "published"])
def test_each_cell_has_exactly_the_fraction_of_the_docstring_as_its_scale(variant):
    spy = Spy()
    spec = f"dp-pix:cell=4,epsilon=0.7,pixels=3,variant={variant}"
    parse(spec).release(torch.zeros(2, 3, 9, 10, dtype=torch.uint8), spy)
    asked = {scale: math.prod(shape) for scale, shape in spy.scales.items()}
    each = Fraction(255 * 3 * 10, 7)
    if variant == "sound":  # 255 m C / eps on each of 2 * 3 * 3 * 3 sums
        assert asked == {each * 3: 54}
    else:  # cells of 16, 8, 4 and 2 pixels: 4, 2, 2 and 1 of them, in each of 6 planes
        assert asked == {each: 24, each / 2: 12, each / 4: 12, each / 8: 6}


# By Gaussian noise


def variance_of(spec, *shape):
    """The variance that a protection asks of its noise for an image of this shape."""
    spy = Spy()
    parse(spec).release(torch.zeros(1, *shape, dtype=torch.uint8), spy)
    return spy.variance


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
    **{name: WORLDS[name] for name in WORLDS if name not in ("epsilon", "variant")},
    rho=st.sampled_from([0.1, 0.5, 3.0, 8e3]),
    alpha=st.sampled_from([1.01, 1.5, 2.0, 7.3, 32.0]),
)
def test_no_neighbours_have_a_renyi_divergence_above_alpha_rho(
    seed, channels, height, width, cell, pixels, asked, rho, alpha, where
):
    cell = min(cell, height, width)
    one, other = neighbours(seed, shape=(channels, height, width), pixels=asked, where=where)
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
