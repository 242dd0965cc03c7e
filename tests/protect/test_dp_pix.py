from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.protect import parse
from sfumato.protect.pixelize import cell_areas, cell_sums


def test_noise_has_the_scale_of_equation_5():
    grey = torch.full((1, 1, 2000, 2000), 128, dtype=torch.uint8)  # far from both clamps
    noisy = parse("dp-pix:cell=4,epsilon=3").release(grey, fresh_noise()).values.double() - 128
    assert noisy.abs().mean().item() == pytest.approx(255 / (4**2 * 3), rel=0.02)  # E|Laplace(0, s)| = s


def test_colour_divides_epsilon_among_the_channels_and_published_does_not():
    grey = torch.full((1, 3, 1200, 1200), 128, dtype=torch.uint8)
    size = {
        variant: parse(f"dp-pix:cell=8,epsilon=3,variant={variant}")
        .release(grey, seeded_noise(0))
        .values.double()
        for variant in ("sound", "published")
    }
    scale = {variant: (values - 128).abs().mean().item() for variant, values in size.items()}
    assert scale["published"] == pytest.approx(255 / (8**2 * 3), rel=0.03)
    assert scale["sound"] == pytest.approx(3 * scale["published"], rel=0.03)


def test_a_smaller_border_cell_gets_more_noise_as_its_guarantee_needs():
    grey = torch.full((4000, 1, 10, 10), 128, dtype=torch.uint8)  # cells of 6x6, 6x4, 4x6 and 4x4
    noisy = parse("dp-pix:cell=6,epsilon=6").release(grey, seeded_noise(0)).values.double() - 128
    spread = noisy.abs().mean(0)[0]
    for row, column, area in ((0, 0, 36), (0, 1, 24), (1, 0, 24), (1, 1, 16)):
        assert spread[row, column].item() == pytest.approx(255 / (area * 6), rel=0.06)


def worst_privacy_loss(one, other, *, cell, epsilon, pixels, variant, channels):
    """The largest log-likelihood ratio between two images, in closed form.

    Given the exact integer noise, the noisy sums of image x have P(s) = prod of q^|s - sum(x)|, and the
    ratio at the worst s is exp(sum |difference of sums| / scale): what rounding and clamping do after
    can only lower it.
    """
    first, second = (torch.from_numpy(cell_sums(image.numpy(), cell=cell)) for image in (one, other))
    areas = cell_areas(one.shape[2], one.shape[3], cell)
    scale = torch.full(areas.shape, 255 * pixels / epsilon, dtype=torch.float64)
    scale *= channels if variant == "sound" else areas / cell**2
    return ((first - second).abs() / scale).sum().item()


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    channels=st.sampled_from([1, 3]),
    height=st.integers(4, 12),
    width=st.integers(4, 12),
    cell=st.integers(1, 4),
    pixels=st.integers(1, 5),
    epsilon=st.sampled_from([0.1, 1.0, 3.0]),
    variant=st.sampled_from(["sound", "published"]),
    extreme=st.booleans(),
)
def test_no_neighbours_are_told_apart_better_than_stated(
    seed, channels, height, width, cell, pixels, epsilon, variant, extreme
):
    generator = torch.Generator().manual_seed(seed)
    one = torch.randint(0, 256, (1, channels, height, width), generator=generator).to(torch.uint8)
    other = one.clone()
    # Extreme: the last pixels, which lie in border cells, from black to white.
    places = torch.randperm(height * width, generator=generator)[:pixels]
    if extreme:
        places = torch.arange(height * width - pixels, height * width)
        one.flatten(2)[:, :, places] = 0
    other.flatten(2)[:, :, places] = 255
    loss = worst_privacy_loss(
        one, other, cell=cell, epsilon=epsilon, pixels=pixels, variant=variant, channels=channels
    )
    protection = parse(f"dp-pix:cell={cell},epsilon={epsilon},pixels={pixels},variant={variant}")
    assert loss <= protection.guarantee((channels, height, width)).value * (1 + 1e-9)


@pytest.mark.parametrize("variant", ["sound", "published"])
def test_black_against_white_stays_within_the_guarantee_for_the_whole_image_and_reaches_it(variant):
    black = torch.zeros(1, 3, 11, 7, dtype=torch.uint8)
    loss = worst_privacy_loss(black, 255 - black, cell=3, epsilon=1.0, pixels=2, variant=variant, channels=3)
    guarantee = parse(f"dp-pix:cell=3,epsilon=1,pixels=2,variant={variant}").guarantee((3, 11, 7))
    assert loss == pytest.approx(guarantee.whole_image)


def test_the_stated_guarantee_is_tight_one_pixel_reaches_it():
    black = torch.zeros(1, 3, 9, 9, dtype=torch.uint8)
    other = black.clone()
    other[:, :, 8, 8] = 255
    loss = worst_privacy_loss(black, other, cell=4, epsilon=3.0, pixels=1, variant="sound", channels=3)
    assert loss == pytest.approx(3.0)


def test_ten_pixels_at_1_are_the_whole_84_pixel_image_at_706():
    guarantee = parse("dp-pix:cell=4,epsilon=1,pixels=10").guarantee((1, 84, 84))
    assert "any 10 pixels at eps = 1 " in str(guarantee)
    assert "whole image only at eps = 706" in str(guarantee)


def test_published_states_what_its_scale_really_gives():
    # 28 = 4 * 6 + 4: a corner cell of 16 pixels gets the noise of one of 36; and 3 channels each spend it.
    guarantee = parse("dp-pix:cell=6,epsilon=3,variant=published").guarantee((3, 28, 28))
    assert guarantee.value == pytest.approx(3 * 3 * 36 / 16)


def test_little_noise_recovers_pixelization(photos):
    exact = parse("pixelize:cell=4").release(photos, seeded_noise(0)).values
    nearly = parse("dp-pix:cell=4,epsilon=1e6").release(photos, seeded_noise(0)).values
    assert (exact.int() - nearly.int()).abs().max() <= 1


def test_much_noise_leaves_nothing_of_the_image():
    black = torch.zeros(200, 1, 8, 8, dtype=torch.uint8)
    white = 255 - black
    protection = parse("dp-pix:cell=4,epsilon=0.0001")
    means = [protection.release(x, seeded_noise(0)).values.double().mean().item() for x in (black, white)]
    assert means[0] == pytest.approx(means[1], abs=2)
    assert means[0] == pytest.approx(127.5, abs=20)  # clamped to black or white, half and half


def test_epsilon_is_the_decimal_that_was_written():
    from sfumato.protect.dp_pix import DPPix

    asked = []

    class Spy:
        def laplace(self, shape, *, scale):
            asked.append(scale)
            return torch.zeros(shape, dtype=torch.int64)

    DPPix(cell=2, epsilon=0.1).release(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), Spy())
    assert asked == [Fraction(2550)]
