import math

import pytest
import torch

from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.protect import parse


def test_noise_has_the_standard_deviation_asked_for():
    grey = torch.full((1, 1, 600, 600), 128, dtype=torch.uint8)
    noise = parse("gaussian:sigma=20").release(grey, seeded_noise(0)).images().double() - 128
    # 128 is more than 6 sigma from both clamps; rounding adds 1/12 to the variance.
    assert noise.std().item() == pytest.approx(math.sqrt(20**2 + 1 / 12), rel=0.01)
    assert noise.mean().item() == pytest.approx(0, abs=6 * 20 / 600)


def test_black_and_white_are_clamped_not_wrapped():
    ends = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 1, 200, 200).contiguous()
    black, white = parse("gaussian:sigma=30").release(ends, fresh_noise()).images()
    # Half of the noise points outwards and is clamped; 40,000 coins stay within 0.48 to 0.55 of it.
    assert 0.48 < (black == 0).double().mean() < 0.55
    assert 0.48 < (white == 255).double().mean() < 0.55


def test_a_pixel_is_hidden_at_255_sqrt_c_over_sigma_and_the_image_at_sqrt_of_its_pixels_more():
    guarantee = parse("gaussian:sigma=51").guarantee((3, 84, 84))
    assert guarantee.value == pytest.approx(5 * math.sqrt(3))
    assert guarantee.whole_image == pytest.approx(5 * math.sqrt(3) * 84)
