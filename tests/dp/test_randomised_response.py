"""Coins, flipped bits and words with lies: their exact law, and the ε that follows from it by enumeration."""

import io
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chi2_contingency, chisquare

from sfumato.dp.mechanisms import Noise, _Coin, fresh_noise, seeded_noise
from sfumato.errors import ConfigError

DRAWS = 200_000
TOO_UNLIKELY = 1e-4  # of a right sampler; seeds are fixed
NEVER = 1e-9  # where the draws differ from run to run


def answers(word: int, *, outputs: int, epsilon: Fraction, noise: Noise, draws: int = DRAWS) -> np.ndarray:
    """How often each word is the answer, (k,), if the true one is always the same."""
    words = noise.other_words(np.full(draws, word), outputs=outputs, epsilon=epsilon)
    return np.bincount(words, minlength=outputs)


def coin(chance: Fraction) -> _Coin:
    return _Coin(lambda digits: int(chance * 2**digits))


@pytest.mark.parametrize(
    "chance", [Fraction(1, 3), Fraction(5, 7), Fraction(1, 2**20), Fraction(65535, 65536)]
)
def test_a_fresh_toss_compares_the_first_bytes_with_the_chance(chance: Fraction):
    """A uniform number of 80 bits, just below the chance and just above it."""
    below, above = (io.BytesIO((int(chance * 2**80) + by).to_bytes(10)) for by in (-1, 1))
    assert coin(chance).toss_fresh(below.read)
    assert not coin(chance).toss_fresh(above.read)


def test_two_bytes_decide_where_they_differ_from_the_chance():
    for chance, comes in ((Fraction(1, 3), True), (Fraction(1, 5), False)):
        bits = io.BytesIO(b"\x40" * 10)
        assert coin(chance).toss_fresh(bits.read) is comes
        assert bits.tell() == 2


@pytest.mark.parametrize(
    ("probability", "noise", "least"),
    [(p, seeded_noise(1), TOO_UNLIKELY) for p in map(Fraction, ("0", "1/1000", "1/3", "499/1000", "1/2"))]
    + [(Fraction(1, 10), fresh_noise(), NEVER)],
)
def test_a_bit_is_flipped_with_the_probability_asked_for(probability: Fraction, noise: Noise, least: float):
    flips = noise.flips((DRAWS,), probability=probability)
    assert binomtest(int(flips.sum()), DRAWS, float(probability)).pvalue > least


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
    for word, noise, least in (
        (0, seeded_noise(3, 0), TOO_UNLIKELY),
        (outputs - 1, seeded_noise(3, 1), TOO_UNLIKELY),
        (1, fresh_noise(), NEVER),
    ):
        law = np.where(np.arange(outputs) == word, math.exp(epsilon), 1) / (math.exp(epsilon) + outputs - 1)
        counts = answers(word, outputs=outputs, epsilon=epsilon, noise=noise)
        assert len(counts) == outputs  # and none beyond
        assert chisquare(counts, law * DRAWS).pvalue > least


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


@pytest.mark.parametrize(
    ("outputs", "epsilon", "message"),
    [(outputs, 1, "over 2 to 65,536 words, got") for outputs in (1, (1 << 16) + 1)]
    + [(2, epsilon, "the epsilon of randomised response is above 0, got") for epsilon in (0, -1)],
)
def test_numbers_out_of_range_are_refused(outputs: int, epsilon: int, message: str):
    with pytest.raises(ConfigError, match=message):
        seeded_noise(0).other_words(np.zeros(1, np.int64), outputs=outputs, epsilon=Fraction(epsilon))
    for probability in (Fraction(-1, 10), Fraction(51, 100)):
        with pytest.raises(ConfigError, match=r"from 0 to 0\.5, got"):
            seeded_noise(0).flips((1,), probability=probability)
