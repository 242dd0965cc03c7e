"""Flipped bits and words with lies: their exact law, and the ε that follows from it by enumeration."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chi2_contingency, chisquare

from sfumato.dp.mechanisms import Noise, fresh_noise, seeded_noise
from sfumato.errors import ConfigError

DRAWS = 200_000
TOO_UNLIKELY = 1e-4  # of a right sampler; seeds are fixed
NEVER = 1e-9  # where the draws differ from run to run


def answers(word: int, *, outputs: int, epsilon: Fraction, noise: Noise, draws: int = DRAWS) -> np.ndarray:
    """How often each word is the answer, (k,), if the true one is always the same."""
    words = noise.other_words(np.full(draws, word), outputs=outputs, epsilon=epsilon)
    return np.bincount(words, minlength=outputs)


@pytest.mark.parametrize("probability", [Fraction(1, 1000), Fraction(1, 3), Fraction(499, 1000)])
def test_a_bit_is_flipped_with_the_probability_asked_for(probability: Fraction):
    flips = seeded_noise(1).flips((DRAWS,), probability=probability)
    assert binomtest(int(flips.sum()), DRAWS, float(probability)).pvalue > TOO_UNLIKELY


def test_bits_from_the_operating_system_are_flipped_as_often():
    flips = fresh_noise().flips((DRAWS,), probability=Fraction(1, 10))
    assert binomtest(int(flips.sum()), DRAWS, 0.1).pvalue > NEVER


def test_no_bit_is_flipped_at_0_and_as_many_as_not_at_one_half():
    assert not seeded_noise(0).flips((DRAWS,), probability=Fraction(0)).any()
    halves = seeded_noise(0).flips((DRAWS,), probability=Fraction(1, 2))
    assert binomtest(int(halves.sum()), DRAWS, 0.5).pvalue > TOO_UNLIKELY


def test_each_bit_is_flipped_by_itself():
    """Neither its neighbour in a release nor the same bit of the next release says anything."""
    flips = seeded_noise(2).flips((DRAWS // 2, 2), probability=Fraction(1, 4))
    assert flips.shape == (DRAWS // 2, 2)
    for one, other in ((flips[:, 0], flips[:, 1]), (flips[1:, 0], flips[:-1, 0])):
        together = np.array([[(one & other).sum(), (one & ~other).sum()], [(~one & other).sum(), 0]])
        together[1, 1] = len(one) - together.sum()
        assert chi2_contingency(together).pvalue > TOO_UNLIKELY


@pytest.mark.parametrize("outputs", [2, 5, 8])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(2)])
def test_the_truth_is_told_as_often_as_the_paper_says_and_all_lies_are_alike(outputs: int, epsilon: Fraction):
    """Kairouz, Oh & Viswanath 2016: e^ε / (e^ε + k - 1), and 1 / (e^ε + k - 1) for each other word."""
    rest = math.exp(epsilon) + outputs - 1
    for word in (0, outputs - 1):
        expected = np.full(outputs, 1 / rest)
        expected[word] = math.exp(epsilon) / rest
        counts = answers(word, outputs=outputs, epsilon=epsilon, noise=seeded_noise(3, word))
        assert len(counts) == outputs  # and none beyond
        assert chisquare(counts, expected * DRAWS).pvalue > TOO_UNLIKELY


def test_words_from_the_operating_system_follow_the_same_law():
    rest = math.exp(1) + 3
    counts = answers(2, outputs=4, epsilon=Fraction(1), noise=fresh_noise())
    expected = np.where(np.arange(4) == 2, math.exp(1), 1) / rest
    assert chisquare(counts, expected * DRAWS).pvalue > NEVER


def test_no_answer_tells_two_words_apart_by_more_than_epsilon_and_one_by_all_of_it():
    """The definition itself: the largest ln(p(y|s) / p(y|s')) over words and answers, from counts."""
    epsilon, outputs = Fraction(3, 2), 3
    counts = np.array(
        [answers(s, outputs=outputs, epsilon=epsilon, noise=seeded_noise(4, s)) for s in range(outputs)]
    )
    ratios = np.log(counts[:, None] / counts[None])
    # Four standard errors of the logarithm of a ratio of counts of 30,000 or more are 0.03.
    assert ratios.max() == pytest.approx(1.5, abs=0.03)


def test_a_large_epsilon_tells_the_truth_and_the_most_words_stay_words():
    words = np.arange(1 << 16)
    assert (seeded_noise(0).other_words(words, outputs=1 << 16, epsilon=Fraction(10_000)) == words).all()
    lies = seeded_noise(0).other_words(words, outputs=1 << 16, epsilon=Fraction(1, 10**6))
    assert lies.min() >= 0
    assert lies.max() < 1 << 16
    assert (lies == words).sum() < 20  # the truth is one word in 65,536


@pytest.mark.parametrize("probability", [Fraction(-1, 10), Fraction(51, 100)])
def test_a_probability_of_flips_outside_its_bounds_is_refused(probability: Fraction):
    with pytest.raises(ConfigError, match=r"from 0 to 0\.5, got"):
        seeded_noise(0).flips((1,), probability=probability)


@pytest.mark.parametrize("outputs", [1, (1 << 16) + 1])
def test_too_few_or_too_many_words_are_refused(outputs: int):
    with pytest.raises(ConfigError, match="over 2 to 65,536 words, got"):
        seeded_noise(0).other_words(np.zeros(1, np.int64), outputs=outputs, epsilon=Fraction(1))


@pytest.mark.parametrize("epsilon", [Fraction(0), Fraction(-1)])
def test_an_epsilon_that_is_not_above_0_is_refused(epsilon: Fraction):
    with pytest.raises(ConfigError, match="the epsilon of randomised response is above 0, got"):
        seeded_noise(0).other_words(np.zeros(1, np.int64), outputs=2, epsilon=epsilon)
