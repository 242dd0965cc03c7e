"""The law by which a release of DP-Pix is recognised has the noise that colour images get."""

import pytest
import torch

from sfumato.dp.mechanisms import seeded_noise
from sfumato.protect import parse


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("spec", ["dp-pix:cell=8,epsilon=3", "dp-pix-gaussian:cell=8,rho=2,pixels=3"])
def test_the_law_has_the_deviation_of_what_is_drawn_for_as_many_channels(spec: str, channels: int):
    """20,000 values far from both clamps: six standard errors are 5% of Laplace noise, 3% of normal noise."""
    side = 8 * int((20_000 / channels) ** 0.5)
    grey = torch.full((1, channels, side, side), 128, dtype=torch.uint8)
    protection = parse(spec)
    drawn = protection.release(grey, seeded_noise(0)).values.double().std().item()
    law = protection.law((channels, side, side))  # type: ignore[attr-defined]
    stated = law.scale * (2**0.5 if law.kind == "laplace" else 1)
    assert drawn == pytest.approx((stated**2 + 1 / 12) ** 0.5, rel=0.05)  # rounding adds 1/12
