import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from scipy.stats import chisquare, norm

from sfumato.dp import mechanisms
from sfumato.dp.mechanisms import fresh_noise, seeded_noise
from sfumato.errors import ConfigError

DRAWS = 400_000
# A chi-square test of a right sampler fails with this probability; seeds are fixed, so it does not flicker.
TOO_UNLIKELY = 1e-4


def histogram_fits(draws: torch.Tensor, probability: dict[int, float]) -> float:
    """P-value of the counts of the listed values, with all other values as one more bin."""
    counts = np.array([(draws == k).sum().item() for k in probability])
    expected = np.array(list(probability.values())) * len(draws)
    return chisquare(
        np.append(counts, len(draws) - counts.sum()), np.append(expected, len(draws) - expected.sum())
    ).pvalue


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 3), Fraction(85)])
def test_laplace_has_the_exact_probabilities(scale):
    q = math.exp(-1 / scale)
    reach = math.ceil(3 * scale)
    exact = {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-reach, reach + 1)}
    assert histogram_fits(seeded_noise(1).laplace((DRAWS,), scale=scale), exact) > TOO_UNLIKELY


def test_laplace_from_the_operating_system_has_the_scale_asked_for():
    draws = fresh_noise().laplace((DRAWS,), scale=Fraction(85)).double()
    q = math.exp(-1 / 85)
    # E|X| = 2q / (1 - q^2); its standard error is 85 / sqrt(DRAWS), and six of them are allowed.
    assert draws.abs().mean().item() == pytest.approx(2 * q / (1 - q * q), abs=6 * 85 / math.sqrt(DRAWS))
    assert draws.mean().item() == pytest.approx(0, abs=6 * 85 * math.sqrt(2 / DRAWS))


@pytest.mark.parametrize("sigma", [0.7, 10.0, 40.0])
def test_gaussian_is_the_rounded_normal_with_its_tails_on_the_bound(sigma):
    bound = 60
    low = {k: norm.cdf((k + 0.5) / sigma) for k in range(-bound, bound)}
    exact = {k: low[k] - low[k - 1] for k in range(-bound + 1, bound) if low[k] - low[k - 1] > 1e-4}
    draws = seeded_noise(2).rounded_gaussian((DRAWS,), sigma=sigma, bound=bound)
    assert histogram_fits(draws, exact) > TOO_UNLIKELY
    beyond = 2 * low[-bound]
    on_bound = (draws.abs() == bound).double().mean().item()
    assert on_bound == pytest.approx(beyond, abs=6 * math.sqrt(beyond / DRAWS) + 1e-9)


def test_a_tie_is_settled_by_further_digits_of_the_probability():
    # 1/3 = 0.010101... in binary: its first 16 bits are 0x5555, and the next 64 are 0x5555555555555555.
    coin = mechanisms._Coin(lambda length: 2**length // 3)
    below = (0x5555555555555554).to_bytes(8)
    tied_then_above = iter([(0x5555555555555555).to_bytes(8), (0x5555555555555556).to_bytes(8)])
    assert coin.toss(0x5555, lambda n: below) is True
    assert coin.toss(0x5555, lambda n: next(tied_then_above)) is False


def test_a_tied_table_entry_is_settled_by_further_bits():
    thirds = mechanisms._Table(lambda k, length: (k + 2) * 2**length // 3, bound=1)  # uniform on -1, 0, 1
    first = np.array([0x5555], np.uint16)
    tied = (0x555555555555).to_bytes(6)
    above = iter([tied, (0x5555555555555556).to_bytes(8)])
    below = iter([tied, (0x5555555555555554).to_bytes(8)])
    assert thirds.settle(first, lambda n: next(above)).tolist() == [0]
    assert thirds.settle(first, lambda n: next(below)).tolist() == [-1]


@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(1), Fraction(24)])
def test_binary_digits_agree_with_an_independent_library(x):
    import mpmath

    with mpmath.workprec(400):
        value = 1 / (1 + mpmath.exp(mpmath.mpf(x.numerator) / x.denominator))
        assert mechanisms._logistic_digits(x)(144) == int(mpmath.floor(value * 2**144))


def test_a_seed_repeats_and_does_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    draws = []
    for count in (1, 2):
        torch.set_num_threads(count)
        draws.append(seeded_noise(3).laplace((100_000,), scale=Fraction(9)))
    torch.set_num_threads(threads)
    assert torch.equal(*draws)


def test_no_call_repeats_the_noise_of_another():
    noise = seeded_noise(3)
    first, second = (noise.laplace((1000,), scale=Fraction(1000)) for _ in range(2))
    assert (first == second).double().mean() < 0.05
    other = seeded_noise(3, 0).laplace((1000,), scale=Fraction(1000))
    assert (first == other).double().mean() < 0.05


def test_two_fresh_sources_differ():
    first, second = (fresh_noise().laplace((1000,), scale=Fraction(1000)) for _ in range(2))
    assert (first == second).double().mean() < 0.05


def test_impossible_scales_are_refused():
    noise = seeded_noise(0)
    with pytest.raises(ConfigError, match="above 0, got 0"):
        noise.laplace((1,), scale=Fraction(0))
    with pytest.raises(ConfigError, match="above 0, got -1"):
        noise.rounded_gaussian((1,), sigma=-1, bound=5)
    with pytest.raises(ConfigError, match="from 1 to 32767, got 0"):
        noise.rounded_gaussian((1,), sigma=1, bound=0)
