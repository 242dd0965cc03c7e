import math
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import chain, combinations, repeat

import mpmath
import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency, chisquare, norm

from sfumato.dp import mechanisms
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ConfigError

DRAWS = 400_000
# A chi-square test of a right sampler fails with this probability; seeds are fixed, so it does not flicker.
TOO_UNLIKELY = 1e-4
# The same where the draws differ from run to run: no one will live to see it fail for a right sampler.
NEVER = 1e-9


class Drawn:
    """A source of noise whose draws are tensors."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def __getattr__(self, name: str):
        return lambda *args, **kwargs: torch.from_numpy(getattr(self._noise, name)(*args, **kwargs))


def fresh_noise() -> Drawn:
    return Drawn(mechanisms.fresh_noise())


def seeded_noise(*seed: int) -> Drawn:
    return Drawn(mechanisms.seeded_noise(*seed))


def histogram_fits(draws: torch.Tensor, probability: dict[int, float]) -> float:
    """P-value of the counts of the listed values, with all other values as one more bin."""
    counts = np.array([(draws == k).sum().item() for k in probability])
    expected = np.array(list(probability.values())) * len(draws)
    return chisquare(
        np.append(counts, len(draws) - counts.sum()), np.append(expected, len(draws) - expected.sum())
    ).pvalue


def grouped_fit(draws: torch.Tensor, values: np.ndarray, probability: np.ndarray) -> float:
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
    places = np.clip(draws.numpy() - values[0], 0, len(values) - 1)
    observed = np.bincount(bins[places], minlength=len(expected))
    return chisquare(observed, expected / expected.sum() * len(draws)).pvalue


def discrete_gaussian_probabilities(variance: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """The values within 12 sigma, and exp(-k^2 / (2 variance)) over its sum: exact to 1e-15."""
    reach = math.ceil(12 * math.sqrt(variance)) + 1  # what is beyond is below 1e-31
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values.astype(float) ** 2) / (2 * float(variance)))
    return values, weights / weights.sum()


@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(5, 3), Fraction(85)])
def test_laplace_has_the_exact_probabilities(scale):
    q = math.exp(-1 / scale)
    reach = math.ceil(3 * scale)
    exact = {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-reach, reach + 1)}
    assert histogram_fits(seeded_noise(1).laplace((DRAWS,), scale=scale), exact) > TOO_UNLIKELY


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
    thirds = mechanisms._Table(lambda k, length: (k + 2) * 2**length // 3, bound=1)  # uniform on -1, 0, 1
    first = np.array([0x5555], np.uint16)
    tied = (0x555555555555).to_bytes(6)
    above = iter([tied, (0x5555555555555556).to_bytes(8)])
    below = iter([tied, (0x5555555555555554).to_bytes(8)])
    assert thirds.settle(first, lambda n: next(above)).tolist() == [0]
    assert thirds.settle(first, lambda n: next(below)).tolist() == [-1]


@pytest.mark.parametrize("x", [Fraction(1, 1000), Fraction(1), Fraction(24)])
def test_binary_digits_agree_with_an_independent_library(x):
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


def test_no_call_and_no_source_repeats_the_noise_of_another():
    seeded = seeded_noise(3)
    noises = [seeded, seeded, seeded_noise(3, 0), fresh_noise(), fresh_noise()]
    for one, other in combinations([each.laplace((1000,), scale=Fraction(1000)) for each in noises], 2):
        assert (one == other).double().mean() < 0.05


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


def test_laplace_of_a_large_scale_has_the_exact_probabilities():
    scale = 10_000
    values = np.arange(-40 * scale, 40 * scale + 1)  # what is beyond is below 1e-17
    q = math.exp(-1 / scale)
    exact = (1 - q) / (1 + q) * np.exp(-np.abs(values) / scale)
    assert grouped_fit(seeded_noise(4).laplace((DRAWS,), scale=Fraction(scale)), values, exact) > TOO_UNLIKELY


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
    assert draws.double().mean().item() == pytest.approx(0, abs=6 * math.sqrt(second / DRAWS))
    spread = math.sqrt((fourth - second**2) / DRAWS)
    assert draws.double().square().mean().item() == pytest.approx(second, abs=6 * spread)
    assert second <= float(variance) * (1 + 1e-12)  # 1e-12: rounding


@pytest.mark.parametrize("exponent", [12, 20, 30])
def test_discrete_gaussian_has_the_moments_of_a_normal_where_sigma_is_huge(exponent):
    sigma = 10.0 ** (exponent / 2)
    noise = seeded_noise(7).discrete_gaussian((DRAWS,), variance=Fraction(10**exponent))
    draws = noise.double() / sigma
    # E|X| = sqrt(2 / pi), E X^2 = 1, E X^4 = 3; six standard errors: Var |X| = 1 - 2 / pi, 2, and 96.
    assert draws.abs().mean().item() == pytest.approx(math.sqrt(2 / math.pi), abs=6 * 0.61 / DRAWS**0.5)
    assert draws.square().mean().item() == pytest.approx(1, abs=6 * math.sqrt(2 / DRAWS))
    assert draws.pow(4).mean().item() == pytest.approx(3, abs=6 * math.sqrt(96 / DRAWS))


@pytest.mark.parametrize(
    ("name", "asked"),
    [("laplace", {"scale": Fraction(10**16)}), ("discrete_gaussian", {"variance": Fraction(10**32)})],
)
def test_the_lowest_digits_of_huge_noise_are_uniform(name, asked):
    # Floating-point samplers leave gaps here: the leak of Mironov 2012.
    draws = getattr(seeded_noise(8), name)((DRAWS,), **asked)
    assert chisquare(np.bincount(draws.numpy() % 256, minlength=256)).pvalue > TOO_UNLIKELY


@pytest.mark.parametrize(
    ("name", "asked"),
    [("laplace", {"scale": Fraction(10)}), ("discrete_gaussian", {"variance": Fraction(100)})],
)
def test_one_draw_says_nothing_about_the_next(name, asked):
    draws = getattr(seeded_noise(9), name)((DRAWS,), **asked).numpy()
    level = np.digitize(draws, [-10, -4, 0, 4, 10])
    pairs = np.zeros((6, 6))
    np.add.at(pairs, (level[0::2], level[1::2]), 1)
    assert chi2_contingency(pairs).pvalue > TOO_UNLIKELY


def agreement(ours: np.ndarray, theirs: np.ndarray) -> float:
    """P-value of two samples having one distribution: counts in up to 50 bins of about equal size."""
    edges = np.unique(np.quantile(np.concatenate([ours, theirs]), np.linspace(0, 1, 51)[1:-1]))
    table = np.array([np.bincount(np.digitize(x, edges), minlength=len(edges) + 1) for x in (ours, theirs)])
    return chi2_contingency(table[:, table.sum(0) > 0]).pvalue


@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_noise_from_the_operating_system_agrees_with_opendp(scale):
    import opendp.prelude as dp

    dp.enable_features("contrib")
    vectors = dp.vector_domain(dp.atom_domain(T=int))
    for theirs, ours in (
        (
            dp.m.make_laplace(vectors, dp.l1_distance(T=int), scale=scale),
            fresh_noise().laplace((DRAWS,), scale=Fraction(scale)),
        ),
        (
            dp.m.make_gaussian(vectors, dp.l2_distance(T=float), scale=scale),
            fresh_noise().discrete_gaussian((DRAWS,), variance=Fraction(scale) ** 2),
        ),
    ):
        assert agreement(ours.numpy(), np.array(theirs([0] * 50_000))) > NEVER


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
    assert getattr(seeded_noise(0), name)((100_000,), **asked).eq(0).all()


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), (2, 3, 5), ()])
def test_noise_has_the_shape_asked_for_and_is_integer(shape):
    for draws in (
        seeded_noise(0).laplace(shape, scale=Fraction(3)),
        seeded_noise(0).discrete_gaussian(shape, variance=Fraction(3)),
    ):
        assert draws.shape == shape
        assert draws.dtype == torch.int64


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
