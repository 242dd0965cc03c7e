import math
from functools import partial

import distortions
import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from skimage.color import rgb2gray

from sfumato.errors import ConfigError

MEAN = 0.4423  # that of the experiment's photographs


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def photographs():
    """Colourful, with slopes as well as grain, of another height than width."""
    fine = torch.rand(3, 3, 56, 112, generator=draws())
    slope = torch.linspace(0, 1, 112).expand(3, 3, 56, 112)
    return (fine + 2 * slope) / 3


@pytest.fixture
def faint():
    """So near the middle that nothing is clamped."""
    return 0.5 + 0.02 * torch.randn(4, 1, 64, 64, generator=draws(1)).clamp(-4, 4)


NO_DISTORTION = {
    "contrast": partial(distortions.contrast, level=1),
    "low pass": partial(distortions.low_pass, deviation=0),
    "high pass": partial(distortions.high_pass, deviation=math.inf),
    "phase noise": partial(distortions.phase_noise, generator=draws(), width=0),
    "rotation": partial(distortions.rotate, degrees=0),
}


@pytest.mark.parametrize("name", NO_DISTORTION)
def test_no_distortion_leaves_the_grey_photograph(photographs, name):
    torch.testing.assert_close(NO_DISTORTION[name](photographs), distortions.grey(photographs))


def test_grey_is_that_of_scikit_image(photographs):
    expected = rgb2gray(photographs.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(distortions.grey(photographs)[:, 0], expected, atol=1e-6)


def test_a_grey_photograph_stays_as_it_is(faint):
    assert torch.equal(distortions.grey(faint), faint)


def test_without_contrast_all_is_middle_grey(photographs):
    assert (distortions.contrast(photographs, level=0) == 0.5).all()


def test_contrast_draws_towards_middle_grey():
    ends = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2)
    torch.testing.assert_close(distortions.contrast(ends, level=0.3).flatten(), torch.tensor([0.35, 0.65]))


def test_noise_without_width_is_a_contrast_of_thirty_percent(photographs):
    faint = distortions.contrast(photographs, level=0.3)
    assert torch.equal(distortions.uniform_noise(photographs, draws(), width=0), faint)


def test_noise_is_uniform_between_its_bounds():
    grey = torch.full((1, 1, 200, 200), 0.5)
    noise = distortions.uniform_noise(grey, draws(), width=0.2) - 0.5
    assert -0.2 - 1e-6 <= noise.min() < -0.199
    assert 0.199 < noise.max() <= 0.2 + 1e-6
    # w / sqrt(3), whose estimate from 40,000 draws is off by 0.3% (one standard error).
    assert noise.std().item() == pytest.approx(0.2 / math.sqrt(3), rel=0.015)


def test_the_same_generator_draws_the_same_noise(photographs):
    for distort in (
        partial(distortions.uniform_noise, width=0.3),
        partial(distortions.phase_noise, width=90),
    ):
        assert torch.equal(distort(photographs, draws(5)), distort(photographs, draws(5)))
        assert not torch.equal(distort(photographs, draws(5)), distort(photographs, draws(6)))


@pytest.mark.parametrize("deviation", [0.4, 3, 15, 40])
def test_the_low_pass_is_scipys_filter_with_grey_around_the_photograph(photographs, deviation):
    clear = distortions.grey(photographs).double().numpy()
    # 112 pixels are half of 224.
    expected = [gaussian_filter(one[0], deviation / 2, mode="constant", cval=MEAN) for one in clear]
    np.testing.assert_allclose(
        distortions.low_pass(photographs, deviation=deviation)[:, 0], expected, atol=1e-5
    )


def test_a_low_pass_far_wider_than_the_photograph_leaves_the_grey_around_it(photographs):
    found = distortions.low_pass(photographs, deviation=1e6)
    torch.testing.assert_close(found, torch.full_like(found, MEAN), atol=1e-4, rtol=0)


def test_a_filter_shrinks_with_the_photograph():
    wide = torch.rand(1, 1, 112, 112, generator=draws()).repeat_interleave(2, 2).repeat_interleave(2, 3)
    small = wide[:, :, ::2, ::2]
    full = distortions.low_pass(wide, deviation=10).reshape(1, 1, 112, 2, 112, 2).mean((3, 5))
    torch.testing.assert_close(distortions.low_pass(small, deviation=10), full, atol=2e-3, rtol=0)


def test_the_high_pass_is_what_the_low_pass_takes_away_around_the_mean_grey(faint):
    clear = faint - 0.5 + MEAN  # as grey as what surrounds it
    taken = clear - distortions.low_pass(clear, deviation=7)
    expected = taken - taken.mean((2, 3), keepdim=True) + MEAN
    torch.testing.assert_close(distortions.high_pass(clear, deviation=7), expected)


def test_the_high_pass_has_the_mean_grey_of_all_photographs(faint):
    found = distortions.high_pass(faint, deviation=5).mean((1, 2, 3))
    torch.testing.assert_close(found, torch.full((4,), MEAN))


def test_a_high_pass_of_no_width_leaves_nothing(photographs):
    found = distortions.high_pass(photographs, deviation=0)
    torch.testing.assert_close(found, torch.full_like(found, MEAN))


@pytest.mark.parametrize("degrees", [90, 180, 270])
def test_a_rotation_is_counter_clockwise(photographs, degrees):
    expected = torch.rot90(distortions.grey(photographs), degrees // 90, (2, 3))
    assert torch.equal(distortions.rotate(photographs, degrees=degrees), expected)


def test_phase_noise_keeps_the_mean(faint):
    found = distortions.phase_noise(faint, draws(), width=180).mean((1, 2, 3))
    torch.testing.assert_close(found, faint.mean((1, 2, 3)), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("width", "power"), [(60, 0.842), (90, 0.703), (180, 0.5)])
def test_phase_noise_takes_the_power_that_unpaired_angles_take(faint, width, power):
    # E cos²((a + b) / 2) = (1 + (sin w / w)²) / 2, for a and b uniform in [-w, w]; w = 60 degrees: 0.842.
    varied = distortions.phase_noise(faint, draws(), width=width).var((2, 3)).mean()
    # Over four images of 2,000 pairs of frequencies: a standard error below 1%.
    assert (varied / faint.var((2, 3)).mean()).item() == pytest.approx(power, abs=0.03)


def test_phase_noise_of_half_a_turn_leaves_no_likeness(faint):
    found = distortions.phase_noise(faint, draws(), width=180)
    together = torch.stack([found.flatten(), faint.flatten()])
    # What is left is the highest frequency of each axis: 1 in 32 of the frequencies.
    assert abs(torch.corrcoef(together)[0, 1].item()) < 0.1


def test_equalised_photographs_have_one_spectrum_of_amplitudes(faint):
    found = torch.fft.fft2(distortions.equalise_power(faint)).abs()
    mean = torch.fft.fft2(faint).abs().mean(0, keepdim=True)
    torch.testing.assert_close(found, mean.expand_as(found), rtol=1e-3, atol=1e-3)


def test_one_photograph_is_equalised_to_itself(faint):
    torch.testing.assert_close(distortions.equalise_power(faint[:1]), faint[:1])


def test_phases_are_kept_when_amplitudes_are_equalised(faint):
    before, after = (torch.fft.fft2(each) for each in (faint, distortions.equalise_power(faint)))
    turned = (after * before.conj()).angle().abs()
    assert turned[before.abs() > 1e-2].max() < 1e-2


@pytest.mark.parametrize("odd", [(31, 33), (32, 33)])
def test_photographs_of_any_size_are_distorted(odd):
    clear = torch.rand(2, 3, *odd, generator=draws())
    for distort in (
        partial(distortions.low_pass, deviation=10),
        partial(distortions.high_pass, deviation=1),
        partial(distortions.phase_noise, generator=draws(), width=120),
        partial(distortions.uniform_noise, generator=draws(), width=0.9),
    ):
        found = distort(clear)
        assert found.shape == (2, 1, *odd)
        assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize(
    ("distort", "problem"),
    [
        (partial(distortions.contrast, level=1.5), "level=1.5: a contrast is from 0"),
        (partial(distortions.uniform_noise, generator=draws(), width=-1), "width=-1: half the range"),
        (
            partial(distortions.low_pass, deviation=-1),
            "deviation=-1: the deviation of a filter is at least 0",
        ),
        (partial(distortions.low_pass, deviation=math.inf), "deviation=inf: .* and finite"),
        (partial(distortions.high_pass, deviation=-1), "deviation=-1: the deviation of a filter"),
        (
            partial(distortions.phase_noise, generator=draws(), width=181),
            "width=181: a phase moves by 0 to 180",
        ),
        (partial(distortions.rotate, degrees=45), "degrees=45: photographs were turned by 0, 90, 180 or 270"),
    ],
)
def test_a_strength_that_cannot_be_is_refused(photographs, distort, problem):
    with pytest.raises(ConfigError, match=problem):
        distort(photographs)


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.zeros(3, 8, 8), torch.zeros(1, 2, 8, 8)]
)
def test_what_is_no_batch_of_floats_is_refused(images):
    with pytest.raises(ConfigError, match=r"distortions take \(N, C, H, W\) floats in \[0, 1\]"):
        distortions.grey(images)
