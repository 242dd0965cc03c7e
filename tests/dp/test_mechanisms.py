"""Noise, coins, flipped bits and words with lies: their exact law, bit for bit, and the ε of each."""

import io
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import chain, combinations, repeat

import mpmath
import numpy as np
import pytest
from scipy.stats import binomtest, chi2_contingency, chisquare, norm

from sfumato.dp import mechanisms
from sfumato.dp.mechanisms import Noise, _Coin, fresh_noise, seeded_noise
from sfumato.errors import ConfigError

DRAWS = 400_000
# A chi-square test of a right sampler fails with this probability; seeds are fixed, so it does not flicker.
TOO_UNLIKELY = 1e-4
# The same where the draws differ from run to run: no one will live to see it fail for a right sampler.
NEVER = 1e-9


def grouped_fit(draws: np.ndarray, values: np.ndarray, probability: np.ndarray) -> float:
    """P-value of the counts in bins of neighbouring values, each expected to hold 1/300 of the draws or more.

    `values` are consecutive integers that carry all but a negligible part of the probability; what lies
    beyond them counts into the first and last bin.
    """
    bins = np.unique((np.cumsum(probability) * 300).astype(int), return_inverse=True)[1]
    expected = np.bincount(bins, probability)
    # A last bin that rounding or a thin tail left too small joins its neighbour, and so on.
    while len(expected) > 2 and expected.min() * len(draws) < 20:
        smallest = int(expected.argmin())
        bins[bins >= max(smallest, 1)] -= 1
        expected = np.bincount(bins, probability)
    places = np.clip(draws - values[0], 0, len(values) - 1)
    observed = np.bincount(bins[places], minlength=len(expected))
    return chisquare(observed, expected / expected.sum() * len(draws)).pvalue


def discrete_gaussian_probabilities(variance: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """The values within 12 sigma, and exp(-k^2 / (2 variance)) over its sum: exact to 1e-15."""
    reach = math.ceil(12 * math.sqrt(variance)) + 1  # what is beyond is below 1e-31
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * float(variance)))
    return values, weights / weights.sum()


@pytest.mark.parametrize("scale", ["1/2", "5/3", "85", "10000"])
def test_laplace_has_the_exact_probabilities(scale):
    scale = Fraction(scale)
    values, q = np.arange(-40 * math.ceil(scale), 40 * math.ceil(scale) + 1), math.exp(-1 / scale)
    exact = (1 - q) / (1 + q) * np.exp(-np.abs(values) / float(scale))  # what is beyond is below 1e-17
    assert grouped_fit(seeded_noise(1).laplace((DRAWS,), scale=scale), values, exact) > TOO_UNLIKELY


@pytest.mark.parametrize("sigma", [0.7, 10.0, 40.0])
def test_gaussian_is_the_rounded_normal_with_its_tails_on_the_bound(sigma):
    bound = 60
    values = np.arange(-bound, bound + 1)
    exact = np.diff(norm.cdf((values[:-1] + 0.5) / sigma), prepend=0, append=1)
    draws = seeded_noise(2).rounded_gaussian((DRAWS,), sigma=sigma, bound=bound)
    assert grouped_fit(draws, values, exact) > TOO_UNLIKELY
    beyond = 2 * exact[0]
    on_bound = (np.abs(draws) == bound).mean()
    assert on_bound == pytest.approx(beyond, abs=6 * math.sqrt(beyond / DRAWS) + 1e-9)


def test_a_tie_is_settled_by_further_digits_of_the_probability():
    # 1/3 = 0.010101... in binary: its first 16 bits are 0x5555, and the next 64 are 0x5555555555555555.
    coin = _Coin(lambda length: 2**length // 3)
    below, tied, above = ((0x5555555555555555 + by).to_bytes(8) for by in (-1, 0, 1))
    assert coin.toss(0x5555, io.BytesIO(below).read) is True
    assert coin.toss(0x5555, io.BytesIO(tied + above).read) is False
    thirds = mechanisms._Table(lambda k, length: (k + 2) * 2**length // 3, bound=1)  # uniform on -1, 0, 1
    first = np.array([0x5555], np.uint16)
    for further, drawn in ((above, 0), (below, -1)):
        assert thirds.settle(first, io.BytesIO(tied[:6] + further).read).tolist() == [drawn]


@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(1), Fraction(24)])
def test_binary_digits_agree_with_an_independent_library(x):
    with mpmath.workprec(400):
        value = 1 / (1 + mpmath.exp(mpmath.mpf(x.numerator) / x.denominator))
        assert mechanisms._logistic_digits(x)(144) == int(mpmath.floor(value * 2**144))


def test_a_seed_repeats_and_no_call_and_no_source_repeats_the_noise_of_another():
    seeded = seeded_noise(3)
    noises = [seeded, seeded, seeded_noise(3, 0), fresh_noise(), fresh_noise()]
    draws = [each.laplace((1000,), scale=Fraction(1000)) for each in noises]
    assert np.array_equal(seeded_noise(3).laplace((1000,), scale=Fraction(1000)), draws[0])
    for one, other in combinations(draws, 2):
        assert (one == other).mean() < 0.05


@pytest.mark.parametrize(
    ("name", "asked", "message"),
    [
        ("laplace", {"scale": Fraction(0)}, "above 0 and at most 2\\^55, got 0"),
        ("laplace", {"scale": Fraction(10**20)}, "above 0 and at most 2\\^55, got 1"),
        ("rounded_gaussian", {"sigma": -1, "bound": 5}, "above 0, got -1"),
        ("rounded_gaussian", {"sigma": 1, "bound": 0}, "from 1 to 32767, got 0"),
        *(
            ("discrete_gaussian", {"variance": Fraction(variance)}, "is above 0 and at most 2.110, got ")
            for variance in (0, -1, 10**40)
        ),
    ],
)
def test_impossible_scales_and_noise_that_does_not_fit_64_bits_are_refused(name, asked, message):
    with pytest.raises(ConfigError, match=message):
        getattr(seeded_noise(0), name)((1,), **asked)


# 2, 6 and 65,280 are n (n + 1): there, and only there, a candidate is kept with probability exactly 1.
@pytest.mark.parametrize(
    "variance", ["1/10", "1/2", "1", "2", "6", "7/3", "99/10", "12345/7", "65280", "1000000"]
)
def test_discrete_gaussian_has_the_exact_probabilities_and_moments_and_no_more_variance_than_asked(variance):
    variance = Fraction(variance)
    draws = seeded_noise(5).discrete_gaussian((DRAWS,), variance=variance)
    values, exact = discrete_gaussian_probabilities(variance)
    assert grouped_fit(draws, values, exact) > TOO_UNLIKELY
    second, fourth = ((values.astype(float) ** power * exact).sum() for power in (2, 4))
    # Six standard errors of each.
    assert draws.mean() == pytest.approx(0, abs=6 * math.sqrt(second / DRAWS))
    spread = math.sqrt((fourth - second**2) / DRAWS)
    assert np.square(draws, dtype=float).mean() == pytest.approx(second, abs=6 * spread)
    assert second <= float(variance) * (1 + 1e-12)  # 1e-12: rounding


@pytest.mark.parametrize("exponent", [12, 20, 30])
def test_discrete_gaussian_has_the_moments_of_a_normal_where_sigma_is_huge(exponent):
    sigma = 10.0 ** (exponent / 2)
    noise = seeded_noise(7).discrete_gaussian((DRAWS,), variance=Fraction(10**exponent))
    draws = noise / sigma
    # E|X| = sqrt(2 / pi), E X^2 = 1, E X^4 = 3; six standard errors: Var |X| = 1 - 2 / pi, 2, and 96.
    assert np.abs(draws).mean() == pytest.approx(math.sqrt(2 / math.pi), abs=6 * 0.61 / DRAWS**0.5)
    assert np.square(draws).mean() == pytest.approx(1, abs=6 * math.sqrt(2 / DRAWS))
    assert (draws**4).mean() == pytest.approx(3, abs=6 * math.sqrt(96 / DRAWS))


@pytest.mark.parametrize(
    ("name", "asked"),
    [("laplace", {"scale": Fraction(10**16)}), ("discrete_gaussian", {"variance": Fraction(10**32)})],
)
def test_the_lowest_digits_of_huge_noise_are_uniform(name, asked):
    # Floating-point samplers leave gaps here: the leak of Mironov 2012.
    draws = getattr(seeded_noise(8), name)((DRAWS,), **asked)
    assert chisquare(np.bincount(draws % 256, minlength=256)).pvalue > TOO_UNLIKELY


@pytest.mark.parametrize(
    ("name", "asked"),
    [("laplace", {"scale": Fraction(10)}), ("discrete_gaussian", {"variance": Fraction(100)})],
)
def test_one_draw_says_nothing_about_the_next(name, asked):
    draws = getattr(seeded_noise(9), name)((DRAWS,), **asked)
    level = np.digitize(draws, [-10, -4, 0, 4, 10])
    pairs = np.zeros((6, 6))
    np.add.at(pairs, (level[0::2], level[1::2]), 1)
    assert chi2_contingency(pairs).pvalue > TOO_UNLIKELY


def agreement(ours: np.ndarray, theirs: list[int]) -> float:
    """P-value of two samples having one distribution: counts in up to 50 bins of about equal size."""
    edges = np.unique(np.quantile(np.concatenate([ours, theirs]), np.linspace(0, 1, 51)[1:-1]))
    table = np.array([np.bincount(np.digitize(x, edges), minlength=len(edges) + 1) for x in (ours, theirs)])
    return chi2_contingency(table[:, table.sum(0) > 0]).pvalue


@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_noise_from_the_operating_system_agrees_with_opendp(scale):
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    theirs = dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=scale)([0] * 50_000)
    assert agreement(fresh_noise().laplace((DRAWS,), scale=Fraction(scale)), theirs) > NEVER
    theirs = dp.m.make_gaussian(vectors, dp.l2_distance(T=float), scale=scale)([0] * 50_000)
    assert agreement(fresh_noise().discrete_gaussian((DRAWS,), variance=Fraction(scale) ** 2), theirs) > NEVER


def bits_of(words: np.ndarray | list[int], *further: int):
    """Random bytes that begin with these 16-bit words; then 64 bits at a time, the last block for ever."""
    blocks = chain(further, repeat(further[-1] if further else 0))
    first = np.asarray(words).astype(np.uint16).tobytes()
    parts = chain([first], (block.to_bytes(8) for block in blocks))

    def bits(count: int) -> bytes:
        part = next(parts)
        assert len(part) == count
        return part

    return bits


def exact_acceptance(size: int, variance: Fraction, scale: int, length: int) -> int:
    """floor(2^length * exp(-(size - variance / scale)^2 / (2 variance))), by mpmath with digits to spare."""
    exponent = (size - variance / scale) ** 2 / (2 * variance)
    if exponent == 0:
        return 1 << length
    with mpmath.workdps(120):
        value = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator)
        return int(mpmath.floor(value * mpmath.mpf(2) ** length))


# (variance, floor(sigma) + 1): Canonne, Kamath & Steinke 2020, Algorithm 3.
CASES = [
    (Fraction(1, 10), 1),
    (Fraction(2), 2),
    (Fraction(10001, 100), 11),
    (Fraction(10**6) + Fraction(1, 3), 1001),
    (Fraction(10**24), 10**12 + 1),
]


@pytest.mark.parametrize("sigmas", [0, 0.5, 1, 1.001, 2, 4, 5.5, 40])
@pytest.mark.parametrize(("variance", "scale"), CASES, ids=str)
@pytest.mark.parametrize("rest", [0, 2**64 - 1], ids=["zeros", "ones"])
def test_every_word_is_accepted_as_the_exact_probability_says(variance, scale, sigmas, rest):
    size = round(sigmas * math.sqrt(variance))
    words = np.arange(1 << 16)
    accepted = mechanisms._accept(np.full(1 << 16, size), bits_of(words, rest), variance, scale)
    # The one word that ties is below p with nothing but zeros after it, and above with nothing but ones.
    tied = exact_acceptance(size, variance, scale, 16)
    assert np.array_equal(accepted, words < tied if rest else words <= tied)


@pytest.mark.parametrize(("further", "kept"), [(-1, True), (+1, False)])
@pytest.mark.parametrize(("size", "ties"), [(0, 1), (3, 1), (10, 1), (31, 1), (10, 2)])
def test_an_open_word_is_settled_by_64_more_bits_and_another_64_if_these_tie(size, ties, further, kept):
    variance, scale = Fraction(10001, 100), 11
    digits = exact_acceptance(size, variance, scale, 16 + 64 * ties)
    blocks = [(digits >> 64 * left) % 2**64 for left in reversed(range(ties))]
    bits = bits_of([digits >> 64 * ties], *blocks[:-1], blocks[-1] + further)
    assert mechanisms._accept(np.array([size]), bits, variance, scale).tolist() == [kept]


def test_each_candidate_meets_its_own_word():
    sizes, variance, scale = np.array([0, 60, 9, 30]), Fraction(10001, 100), 11
    tied = [exact_acceptance(int(size), variance, scale, 16) for size in sizes]
    words = [each + by for each, by in zip(tied, (-1, 1, -1, 1), strict=True)]
    below = mechanisms._accept(sizes, bits_of(words), variance, scale)
    assert below.tolist() == [True, False, True, False]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("laplace", {"scale": Fraction(255, 10**9)}),
        ("laplace", {"scale": Fraction(1, 10**30)}),
        ("discrete_gaussian", {"variance": Fraction(1, 10**9)}),
        ("discrete_gaussian", {"variance": Fraction(1, 10**30)}),
        ("rounded_gaussian", {"sigma": 1e-9, "bound": 255}),
        ("rounded_gaussian", {"sigma": 1e-30, "bound": 255}),
    ],
)
def test_vanishing_noise_is_zero(name, asked):
    assert not getattr(seeded_noise(0), name)((100_000,), **asked).any()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (2, 3, 5), ()])
def test_noise_has_the_shape_asked_for_and_is_integer(shape):
    for draws in (
        seeded_noise(0).laplace(shape, scale=Fraction(3)),
        seeded_noise(0).discrete_gaussian(shape, variance=Fraction(3)),
    ):
        assert (draws.shape, draws.dtype) == (shape, np.int64)


def test_a_table_does_not_depend_on_what_other_threads_compute():
    # The precision of mpmath.mp is one number for the whole process, and so are its workprec and workdps.
    sigmas = [40 + i / 1000 for i in range(20)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(8):
            mechanisms._gaussian_table.cache_clear()
            with ThreadPoolExecutor(4) as pool:
                together = list(pool.map(lambda sigma: mechanisms._gaussian_table(sigma, 20), sigmas))
            mechanisms._gaussian_table.cache_clear()
            for sigma, table in zip(sigmas, together, strict=True):
                alone = mechanisms._gaussian_table(sigma, 20)
                assert np.array_equal(table.thresholds, alone.thresholds)
    finally:
        sys.setswitchinterval(interval)
        mechanisms._gaussian_table.cache_clear()
        mpmath.mp.prec = 53  # what a lost race leaves behind is no other test's concern


# Coins, flipped bits, and words with lies.


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
