"""Bits of identity against known information, and how sure namings are."""

import numpy as np
import pytest
from scipy import stats

from sfumato.assess.identity import by_person, calibrate, mean_over_people, precision


def gaussian_world(people, each, *, seed=0, dimensions=2, between=3.0):
    """Scores of releases of N(person, 1), of people at N(0, between), and who is on each."""
    draw = np.random.default_rng(seed)
    at = draw.normal(size=(people, dimensions)) * between**0.5
    who = np.arange(people).repeat(each)
    releases = at[who] + draw.normal(size=(len(who), dimensions))
    return -((releases[:, None] - at[None]) ** 2).sum(2) / 2, who


def exact_bits(scores, who):
    """By Bayes' rule with the law itself."""
    likely = np.exp(scores)
    return np.log2(scores.shape[1] * likely[np.arange(len(who)), who] / likely.sum(1)).mean()


def test_bits_are_a_gaussians_known_information_however_many_people_there_are_while_naming_falls():
    named = []
    for people, each in ((62, 20), (1062, 2)):
        scores, who = gaussian_world(people, each)
        posterior = calibrate([7 * scores + 3], who, who % 2 == 1)  # of another scale than log-likelihoods
        assert posterior.bits.mean() == pytest.approx(exact_bits(scores, who), rel=0.05)
        # d/2 log2(1 + b) of infinitely many people, which 62 of them nearly reach
        assert posterior.bits.mean() == pytest.approx(2.0, abs=0.15)
        named.append((scores.argmax(1) == who).mean())
    assert named[1] < named[0] / 3


@pytest.mark.parametrize("bits", [1, 2, 5])
def test_a_code_of_b_bits_tells_b_bits_at_most(bits):
    # Each of 64 people has one code, which they always send; a table knows it.
    who = np.arange(64).repeat(10)
    codes = np.arange(64) % 2**bits
    scores = np.where(codes[who][:, None] == codes[None], 0.0, -20.0)
    posterior = calibrate([scores], who, who % 2 == 1)
    assert bits - 0.05 < posterior.bits.mean() <= bits


@pytest.mark.parametrize("seed", range(4))
def test_random_scores_give_no_bits_and_the_surest_namings_are_right_as_often_as_a_guess(seed):
    draw = np.random.default_rng(seed)
    who = np.arange(40).repeat(20)
    table = draw.integers(0, 2, (40, 16))  # bits that show nobody: the table of a gallery of them
    releases = draw.integers(0, 2, (len(who), 16))
    scores = [(releases @ table.T).astype(float), draw.normal(size=(len(who), 40))]
    made = by_person(scores, who, who)
    assert abs(np.mean(made["bits"])) < 0.05
    _, low, high = precision(made["surest"], made["surest_of"])
    assert low <= 0.1
    assert high >= 1 / 40


def test_the_surest_namings_are_those_of_the_few_whom_a_release_betrays():
    draw = np.random.default_rng(0)
    who = np.arange(50).repeat(20)
    scores = draw.normal(size=(len(who), 50)) * 0.01
    betrayed = np.arange(0, len(who), 40)  # 2.5% of all releases, half of them of each half
    scores[betrayed, who[betrayed]] += 1
    made = by_person([scores], who, who, who % 4 > 1)
    share, low, _ = precision(made["surest"], made["surest_of"])
    assert share == 1
    assert low > 0.5


def test_nothing_is_chosen_where_it_is_measured_and_without_a_second_half_nothing_is_claimed():
    # The first adversary knows the first half alone, the second the other: each half chooses the wrong one.
    scores, who = gaussian_world(40, 10)
    half = who % 2 == 1
    blind = np.random.default_rng(1).normal(size=scores.shape)
    both = [np.where(half[:, None], *pair) for pair in ((blind, scores), (scores, blind))]
    assert calibrate(both, who, half).bits.mean() < 0.1 < calibrate([scores], who, half).bits.mean()
    alone = calibrate([scores], who, np.zeros(len(who), bool))
    assert alone.bits == pytest.approx(np.zeros(len(who)))
    assert alone.right == pytest.approx(np.full(len(who), 1 / 40))


def test_the_interval_of_equal_weights_is_students():
    values = [0.3, 1.1, 2.0, 0.7]
    mean, low, high = mean_over_people(values, [5] * 4)
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert (mean, low, high) == pytest.approx((np.mean(values), *expected))
    assert mean_over_people([1.0], [3.0])[1:] == (-np.inf, np.inf)


def test_one_naming_of_each_person_has_the_interval_of_clopper_and_pearson():
    expected = stats.binomtest(2, 9).proportion_ci(0.95, "exact")
    assert precision([1, 1, *[0] * 7, 0], [1] * 9 + [0]) == pytest.approx((2 / 9, *expected), rel=0.2)
    share, low, high = precision([0] * 6, [1] * 6)
    assert (share, low) == (0, 0)
    assert high == pytest.approx(1 - 0.025 ** (1 / 6))


def test_photographs_of_one_person_are_one_trial():
    _, alone, _ = precision([10.0], [10])
    _, apart, _ = precision([1.0] * 10, [1] * 10)
    assert alone < apart / 5
