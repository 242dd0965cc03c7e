"""Means of few vectors with noise: their sensitivity by attack, their price by the exact Gaussian δ."""

import math

import pytest
import torch
from scipy.stats import norm

from sfumato.dp.clipping import clip_rows
from sfumato.dp.private_mean import mean_guarantee, mean_sensitivity, sigma_for
from sfumato.errors import ConfigError


def draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def delta_of(epsilon: float, sensitivity: float, sigma: float) -> float:
    """Balle & Wang 2018, Theorem 8: the exact δ of the Gaussian mechanism at ε."""
    a, b = sensitivity / (2 * sigma), epsilon * sigma / sensitivity
    return float(norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b))


@pytest.mark.parametrize("shot", [1, 2, 5])
def test_no_replaced_shot_moves_a_mean_by_more_than_the_sensitivity_and_its_opposite_by_all_of_it(shot: int):
    rows = 3 * torch.randn(200, shot, 4, generator=draw(shot), dtype=torch.float64)
    other = rows.clone()
    other[:, 0] = 3 * torch.randn(200, 4, generator=draw(99), dtype=torch.float64)
    other[0, 0] = -rows[0, 0] * 10  # as far on the other side: both are clipped
    rows[0, 0] *= 10
    clipped = [clip_rows(each.flatten(0, 1), clipping_norm=1.5).view(each.shape) for each in (rows, other)]
    means = [each.mean(1) for each in clipped]
    moved = (means[0] - means[1]).norm(dim=1)
    bound = mean_sensitivity(shot, clipping_norm=1.5)
    assert bound == pytest.approx(3 / shot)
    assert moved.max().item() <= bound
    assert moved[0].item() == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize(("shot", "norm_of_rows", "sigma"), [(1, 1.0, 2.0), (5, 0.5, 0.1)])
def test_the_guarantee_is_gaussian_for_all_of_the_prototype(shot: int, norm_of_rows: float, sigma: float):
    made = mean_guarantee(shot, clipping_norm=norm_of_rows, sigma=sigma)
    assert (made.definition, made.pixels) == ("gaussian", 1)
    assert made.value == made.whole_image == pytest.approx(2 * norm_of_rows / (shot * sigma))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize(("shot", "clipping_norm", "delta"), [(1, 1.0, 1e-5), (5, 2.0, 1e-3)])
def test_the_least_sigma_has_exactly_the_delta_that_was_asked_for(
    shot: int, clipping_norm: float, delta: float, epsilon: float
):
    sigma = sigma_for(shot, clipping_norm=clipping_norm, epsilon=epsilon, delta=delta)
    sensitivity = 2 * clipping_norm / shot
    assert delta_of(epsilon, sensitivity, sigma) <= delta * (1 + 1e-9)
    assert delta_of(epsilon, sensitivity, sigma / (1 + 1.1e-6)) > delta  # the least, but for 1 in a million


@pytest.mark.parametrize("shot", [0, -1])
def test_a_mean_of_no_shot_is_refused(shot: int):
    with pytest.raises(ConfigError, match=f"shot={shot}, clipping_norm=1: at least 1, and above 0"):
        mean_sensitivity(shot, clipping_norm=1.0)


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_norms_noise_and_epsilons_are_above_0_and_finite(value: float):
    with pytest.raises(ConfigError, match="at least 1, and above 0"):
        mean_sensitivity(1, clipping_norm=value)
    with pytest.raises(ConfigError, match="without noise nothing is promised"):
        mean_guarantee(1, clipping_norm=1.0, sigma=value)
    with pytest.raises(ConfigError, match="above 0, and delta below 1"):
        sigma_for(1, clipping_norm=1.0, epsilon=value, delta=1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_a_delta_is_above_0_and_below_1(delta: float):
    with pytest.raises(ConfigError, match="above 0, and delta below 1"):
        sigma_for(1, clipping_norm=1.0, epsilon=1.0, delta=delta)
