import math
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from channels import exact, flips, leakage, no_adversary_is_above, promise, random_channel, released, seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from sfumato.dp.naming import (
    Bound,
    Naming,
    approximate,
    concentrated,
    counting,
    discrete,
    discrete_mu,
    flipped_bits,
    gaussian,
    gaussian_ball,
    least,
    of_each,
    pure,
    randomised_response,
    sentence,
)
from sfumato.errors import ConfigError

few_tries = settings(deadline=None, max_examples=150)
series = st.integers(1, 3)
TOO_MUCH = 1 + 1e-6  # what rounding up may add


def response_channel(outputs: int, epsilon: float) -> np.ndarray:
    rows = np.ones((outputs, outputs)) + (math.exp(epsilon) - 1) * np.eye(outputs)
    return rows / rows.sum(1, keepdims=True)


def largest_divergence(channel: np.ndarray) -> float:
    """ε between any two rows."""
    return float(np.log(channel[:, None] / channel[None]).max())


def least_rho(channel: np.ndarray) -> float:
    """A ρ with D_α <= ρα for all α > 1 and any two rows. D grows with α, so that a grid is enough."""
    orders = 1 + np.logspace(-4, 3, 600)
    logs = np.log(channel)
    exponents = orders[:, None, None, None] * logs[:, None] + (1 - orders)[:, None, None, None] * logs[None]
    divergences = np.logaddexp.reduce(exponents, axis=-1) / (orders - 1)[:, None, None]
    worst = np.append(divergences.max(axis=(1, 2)), largest_divergence(channel))
    return float((worst / np.append(1.0, orders)).max())


# No adversary, on any channel, is above any bound.


@few_tries
@given(seeds, series, st.booleans())
def test_no_adversary_is_above_counting_and_leakage(seed, releases, noisy):
    draw = np.random.default_rng(seed)
    channel = random_channel(draw) if noisy else np.eye(int(draw.integers(2, 5)))
    bounds = [
        lambda prior: counting(prior, outputs=channel.shape[1], releases=releases),
        lambda prior: leakage(prior, channel=channel, releases=releases),
    ]
    no_adversary_is_above(bounds, released([channel] * releases, draw), draw)


@few_tries
@given(seeds, series, st.integers(1, 5), st.floats(0, 6))
def test_no_adversary_is_above_randomised_response(seed, releases, outputs, epsilon):
    draw, known = np.random.default_rng(seed), {"epsilon": epsilon, "releases": releases}
    bounds = [partial(randomised_response, outputs=outputs, **known), partial(pure, **known)]
    no_adversary_is_above(bounds, released([response_channel(outputs, epsilon)] * releases, draw), draw)


@few_tries
@given(seeds, st.integers(1, 2), st.integers(1, 3), st.floats(0, 0.5))
def test_no_adversary_is_above_flipped_bits(seed, releases, bits, flip):
    draw = np.random.default_rng(seed)
    bound = partial(flipped_bits, bits=bits, flip=flip, releases=releases)
    no_adversary_is_above([bound], released([flips(flip, bits)] * releases, draw), draw)


@few_tries
@given(seeds, series)
def test_no_adversary_is_above_what_differential_privacy_allows(seed, releases):
    draw = np.random.default_rng(seed)
    channel = random_channel(draw)
    epsilon = largest_divergence(channel)
    part = epsilon * draw.uniform()
    delta = float((channel[:, None] - math.exp(part) * channel[None]).clip(0).sum(-1).max())
    bounds = [
        partial(pure, epsilon=epsilon, releases=releases),
        partial(concentrated, rho=least_rho(channel), releases=releases),
        partial(approximate, epsilon=part, delta=min(1.0, delta), releases=releases),
    ]
    no_adversary_is_above(bounds, released([channel] * releases, draw), draw)


@few_tries
@given(seeds, series, st.floats(0.05, 4))
def test_no_adversary_is_above_gaussian_noise_on_a_bounded_number(seed, releases, ratio):
    draw = np.random.default_rng(seed)
    numbers = np.append(draw.uniform(-ratio, ratio, 3), [-ratio, ratio])
    edges = np.concatenate([[-np.inf], np.linspace(-ratio - 2, ratio + 2, 12), [np.inf]])
    channel = np.diff(norm.cdf(edges - numbers[:, None]), axis=1)  # rounding is post-processing
    bounds = [
        partial(gaussian, mu=ratio, releases=releases),
        partial(gaussian_ball, dimensions=1, ratio=ratio, releases=releases),
        partial(concentrated, rho=ratio**2 / 2, releases=releases),
    ]
    no_adversary_is_above(bounds, released([channel] * releases, draw), draw)


@few_tries
@given(seeds, st.integers(1, 2), st.integers(0, 4), st.floats(0.3, 4))
def test_no_adversary_is_above_discrete_gaussian_noise_on_a_grid(seed, releases, most, deviation):
    draw = np.random.default_rng(seed)
    grid = np.arange(-60, 61)
    channel = np.exp(-((grid - np.arange(-most, most + 1)[:, None]) ** 2) / (2 * deviation**2))
    channel /= channel.sum(1, keepdims=True)
    ratio, step = most / deviation, 1 / deviation
    parts = {"dimensions": 1, "step": step, "releases": releases}
    bounds = [
        lambda prior: discrete(gaussian(prior, mu=ratio, releases=releases), **parts),
        lambda prior: discrete(gaussian_ball(prior, dimensions=1, ratio=ratio, releases=releases), **parts),
    ]
    no_adversary_is_above(bounds, released([channel] * releases, draw), draw)


def best_guesses(people: np.ndarray, rounds: int, draw: np.random.Generator) -> tuple[float, float]:
    """How often the nearest of (N, d) people is the right one after noise of variance 1, and its error."""
    who = draw.integers(0, len(people), rounds)
    seen = people[who] + draw.standard_normal((rounds, people.shape[1]))
    distances = (people**2).sum(1) - 2 * seen @ people.T
    share = float((distances.argmin(1) == who).mean())
    return share, math.sqrt(share * (1 - share) / rounds)


@pytest.mark.parametrize(("dimensions", "ratio"), [(1, 2.0), (2, 3.0), (3, 3.84), (5, 4.0)])
def test_the_nearest_person_is_right_no_more_often_than_the_ball_allows_and_half_of_it_is_too_little(
    dimensions, ratio
):
    draw = np.random.default_rng(0)
    directions = draw.standard_normal((400, dimensions))
    radii = ratio * draw.uniform(size=(400, 1)) ** (1 / dimensions)
    people = directions / np.linalg.norm(directions, axis=1, keepdims=True) * radii
    share, error = best_guesses(people, 100_000, draw)
    assert share - 4 * error <= gaussian_ball(1 / 400, dimensions=dimensions, ratio=ratio).chance
    assert share - 4 * error > gaussian_ball(1 / 400, dimensions=dimensions, ratio=ratio / 2).chance


# The formulas are the integrals that they stand for.


@pytest.mark.parametrize("dimensions", [1, 2, 3, 8, 64, 512])
@pytest.mark.parametrize("ratio", [0.01, 0.5, 4.0, 30.0])
def test_the_functional_of_the_ball_is_the_integral_of_the_largest_density(dimensions, ratio):
    # ln of (surface of the unit sphere) r^(d-1) exp(-max(0, r - c)^2 / 2) / (2 pi)^(d/2), over all radii.
    surface = math.log(2) + dimensions / 2 * math.log(math.pi) - math.lgamma(dimensions / 2)

    def logarithm(radius: float) -> float:
        outside, scale = max(0.0, radius - ratio), dimensions / 2 * math.log(2 * math.pi)
        return surface + (dimensions - 1) * math.log(radius) - outside**2 / 2 - scale

    # Where the derivative (d - 1) / r - (r - c) is 0.
    peak = (ratio + math.sqrt(ratio**2 + 4 * (dimensions - 1))) / 2
    peak = max(peak, ratio, 1e-9)
    top = logarithm(peak)
    pieces = sorted({1e-12, ratio, max(peak - 3, 1e-12), peak, peak + 3, peak + 12})
    integral = sum(
        quad(lambda radius: math.exp(logarithm(radius) - top), low, high, limit=500, epsabs=0)[0]
        for low, high in pairwise(pieces)
    )
    expected = math.log(integral) + top
    bound = gaussian_ball(1e-280, dimensions=dimensions, ratio=ratio).chance
    if expected < math.log(1e280):
        assert math.log(bound) - math.log(1e-280) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    else:
        assert bound == 1


@pytest.mark.parametrize("ratio", [0.5, 2.0, 10.0])
def test_the_ball_of_one_dimension_is_reached_by_people_all_along_it(ratio):
    # N points along [-c, c]: each but the first adds what lies between two densities, 2 Phi(gap / 2) - 1.
    people = 100_000
    gap = 2 * ratio / (people - 1)
    adversary = (1 + (people - 1) * math.erf(gap / 2 / math.sqrt(2))) / people
    bound = gaussian_ball(1 / people, dimensions=1, ratio=ratio).chance
    assert adversary <= bound <= adversary * TOO_MUCH


@pytest.mark.parametrize("prior", [0.5, 0.1, 1e-4, 1e-9])
@pytest.mark.parametrize("rho", [0.01, 0.5, 2.0])
def test_concentrated_is_the_least_over_all_orders(prior, rho):
    orders = 1 + np.logspace(-6, 6, 100_001)
    bounds = np.minimum(0, (rho * orders + math.log(prior)) * (orders - 1) / orders)
    assert concentrated(prior, rho=rho).chance == pytest.approx(math.exp(bounds.min()), rel=1e-6)


@pytest.mark.parametrize("prior", [0.5, 0.1, 1e-6])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0, 20.0, math.inf])
def test_pure_for_one_release_is_the_smaller_of_two_lines(prior, epsilon):
    line = min(math.exp(epsilon) * prior, 1 - math.exp(-epsilon) * (1 - prior))
    assert pure(prior, epsilon=epsilon).chance == pytest.approx(min(1, line), rel=1e-8)


# Bounds that are reached.


def test_counting_is_reached_by_outputs_without_noise():
    adversary = exact([0.4, 0.3, 0.2, 0.1], [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    assert counting([0.4, 0.3, 0.2, 0.1], outputs=3).chance == pytest.approx(adversary) == pytest.approx(0.9)


@pytest.mark.parametrize("people", [2, 3, 7])
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 5.0])
def test_randomised_response_is_reached_where_each_person_has_a_word(people, epsilon):
    adversary = exact([1 / people] * people, response_channel(people, epsilon))
    bound = randomised_response(1 / people, outputs=people, epsilon=epsilon).chance
    assert adversary <= bound <= adversary * TOO_MUCH
    leaked = leakage(1 / people, channel=response_channel(people, epsilon)).chance
    assert leaked == pytest.approx(adversary)


def test_with_all_priors_randomised_response_is_reached_by_the_likeliest_people():
    adversary = exact([0.5, 0.3, 0.2], response_channel(2, 1.0)[[0, 1, 1]])
    bound = randomised_response([0.5, 0.3, 0.2], outputs=2, epsilon=1.0).chance
    assert adversary <= bound <= adversary * TOO_MUCH
    assert bound < randomised_response(0.5, outputs=2, epsilon=1.0).chance


@pytest.mark.parametrize("flip", [0.01, 0.1, 0.4])
def test_flipped_bits_are_a_product_of_channels(flip):
    bound = flipped_bits(1 / 369, bits=4, flip=flip, releases=2).chance
    assert bound == pytest.approx((2 - 2 * flip) ** 8 / 369, rel=0.5)
    codes = flipped_bits(2.0**-8, bits=4, flip=flip, releases=2).chance
    assert codes == pytest.approx((1 - flip) ** 8, rel=1e-6)  # all right, or guessed otherwise
    assert bound <= (2 - 2 * flip) ** 8 / 369 * TOO_MUCH
    certain = flipped_bits(1 / 369, bits=5, flip=0.0).chance
    assert certain == pytest.approx(counting(1 / 369, outputs=32).chance, rel=1e-8)


@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_two_people_at_both_ends_are_named_as_often_as_the_radius_says(ratio):
    adversary = norm.cdf(ratio)  # nearer to the one or to the other
    bound = gaussian(0.5, mu=ratio).chance
    assert adversary <= bound * (1 + 1e-12)
    assert bound <= adversary * TOO_MUCH
    assert adversary > gaussian(0.5, mu=ratio / 2).chance  # half of the radius proves what is not so


# Bounds that somebody might believe, and that do not hold.


def test_a_rare_output_names_its_person_though_the_average_is_bounded():
    # 100 people, two outputs, one of which only the last person has: seen, it leaves no doubt.
    channel = np.array([[1.0, 0.0]] * 99 + [[0.0, 1.0]])
    priors = np.full(100, 0.01)
    average = counting(0.01, outputs=2).chance
    assert exact(list(priors), channel) == pytest.approx(0.02)
    assert average == pytest.approx(0.02)
    after = priors * channel[:, 1] / (priors @ channel[:, 1])
    assert after.max() == 1 > average


def test_releases_of_different_images_tell_more_than_their_mean():
    # People have two numbers each, on a grid over [-4, 4]^2; both are released. Were both the same number,
    # sigma would fall by the root of 2, and one release would be the bound.
    points, ratio = 31, 4.0
    gap = 2 * ratio / (points - 1)
    adversary = ((1 + (points - 1) * math.erf(gap / 2 / math.sqrt(2))) / points) ** 2
    prior = 1 / points**2
    assert adversary <= gaussian_ball(prior, dimensions=1, ratio=ratio, releases=2).chance
    assert adversary > gaussian_ball(prior, dimensions=1, ratio=ratio * math.sqrt(2)).chance


@pytest.mark.parametrize("step", [0.05, 0.3, 1.0])
def test_noise_on_a_grid_is_likelier_than_rounded_noise_by_the_factor_and_no_more(step):
    grid = step * np.arange(-400, 401)[abs(step * np.arange(-400, 401)) < 8]
    on_the_grid = np.exp(-(grid**2) / 2)
    rounded = norm.cdf(grid + step / 2) - norm.cdf(grid - step / 2)
    ratio = (on_the_grid / on_the_grid.sum() / rounded)[abs(grid) < 5].max()  # beyond, cdf loses its digits
    factor = discrete(Bound(1e-3, ""), dimensions=1, step=step).chance / 1e-3
    assert 1 < ratio <= factor
    assert math.log(factor) == pytest.approx(math.log(ratio), rel=0.1)
    three = discrete(Bound(1e-3, ""), dimensions=1, step=step, releases=3).chance / 1e-3
    assert three == pytest.approx(factor**3)


# Limits, and order.

TELL_NOTHING = [
    partial(counting, outputs=1),
    partial(randomised_response, outputs=8, epsilon=0.0),  # lies alone
    partial(randomised_response, outputs=1, epsilon=3.0),
    partial(flipped_bits, bits=8, flip=0.5),
    partial(leakage, channel=[[0.3, 0.7], [0.3, 0.7]]),
    partial(gaussian_ball, dimensions=16, ratio=0.0),
    partial(gaussian_ball, dimensions=512, ratio=1e-15),
    partial(gaussian, mu=0.0),
    partial(pure, epsilon=0.0),
    partial(concentrated, rho=0.0),
    partial(approximate, epsilon=0.0, delta=0.0),
]


@pytest.mark.parametrize("bound", TELL_NOTHING, ids=lambda each: f"{each.func.__name__} {each.keywords}")
@pytest.mark.parametrize("prior", [1.0, 0.5, 1 / 369, 1e-200])
@pytest.mark.parametrize("releases", [1, 7])
def test_a_release_that_tells_nothing_leaves_the_guess_beforehand(bound, prior, releases):
    assert prior <= bound(prior, releases=releases).chance <= prior * TOO_MUCH


# Of strength s: larger tells more.
STRENGTHS = {
    "counting": lambda prior, s, n: counting(prior, outputs=1 + round(10 * s), releases=n),
    "response": lambda prior, s, n: randomised_response(prior, outputs=16, epsilon=s, releases=n),
    "bits": lambda prior, s, n: flipped_bits(prior, bits=5, flip=0.5 * math.exp(-s), releases=n),
    "leakage": lambda prior, s, n: leakage(prior, channel=response_channel(4, s), releases=n),
    "ball": lambda prior, s, n: gaussian_ball(prior, dimensions=16, ratio=s, releases=n),
    "gaussian": lambda prior, s, n: gaussian(prior, mu=s, releases=n),
    "pure": lambda prior, s, n: pure(prior, epsilon=s, releases=n),
    "concentrated": lambda prior, s, n: concentrated(prior, rho=s, releases=n),
    "approximate": lambda prior, s, n: approximate(prior, epsilon=s, delta=0.01, releases=n),
}


@pytest.mark.parametrize("bound", STRENGTHS.values(), ids=STRENGTHS)
@settings(deadline=None, max_examples=60)
@given(
    prior=st.floats(-9, 0).map(lambda exponent: 10**exponent),
    strength=st.floats(0, 9),
    more=st.floats(1, 3),
    releases=st.integers(1, 5),
)
def test_more_told_more_releases_or_a_better_guess_never_lower_a_bound(
    bound, prior, strength, more, releases
):
    chance = bound(prior, strength, releases).chance
    assert prior <= chance <= 1
    for told in ((prior, strength * more, releases), (prior, strength, releases + 1)):
        assert bound(*told).chance >= chance * (1 - 1e-8)
    assert bound(min(1.0, prior * more), strength, releases).chance >= chance * (1 - 1e-8)


@pytest.mark.parametrize("bound", STRENGTHS.values(), ids=STRENGTHS)
def test_all_priors_bound_no_less_than_the_largest_and_huge_numbers_break_nothing(bound):
    priors = [0.3, 0.2, 0.2, 0.1, 0.1, 0.05, 0.05]
    for strength in (0.1, 1.0, 3.0):
        assert bound(priors, strength, 2).chance <= bound(0.3, strength, 2).chance * TOO_MUCH
    assert bound(1e-320, 700.0, 10_000).chance == bound([1.0, 0.0], 700.0, 3).chance == 1


def test_infinite_numbers_and_more_draws_than_are_summed_prove_nothing():
    assert gaussian(0.1, mu=math.inf) == (1, gaussian(0.1, mu=0).source)
    assert concentrated(0.1, rho=math.inf).chance == 1
    assert approximate(0.1, epsilon=math.inf, delta=0).chance == 1
    assert gaussian_ball(0.1, dimensions=3, ratio=math.inf).chance == 1
    assert flipped_bits(0.01, bits=16, flip=0.499999, releases=100_000).chance == 1


# Figures of the probes.


@pytest.mark.parametrize(
    ("bound", "people", "percent"),
    [
        *((partial(counting, outputs=2**bits), 369, most) for bits, most in ((5, 8.7), (6, 17.3), (8, 69.4))),
        # 16 numbers of norm 1 with noise of a quarter.
        *((partial(gaussian, mu=4.0), people, most) for people, most in ((10**4, 61.1), (10**6, 22.6))),
        (partial(gaussian_ball, dimensions=3, ratio=3.84), 369, 10.0),
    ],
)
def test_figures_of_codes_and_of_noise_among_so_many_people(bound, people, percent):
    assert 100 * bound(1 / people).chance == pytest.approx(percent, abs=0.05)


def test_the_volume_of_3_dimensions_bounds_and_that_of_16_hardly():
    for people in (10_000, 1_000_000):
        by_centre = gaussian(1 / people, mu=4.0).chance
        assert by_centre < gaussian_ball(1 / people, dimensions=16, ratio=4.0).chance
    ball = gaussian_ball(1 / 369, dimensions=3, ratio=3.84)
    assert least(ball, gaussian(1 / 369, mu=3.84)) is ball


# In plain words.


def naming(chance: float, candidates: int | None, releases: int = 1, prior: float = 0.03) -> Naming:
    return Naming(chance=chance, prior=prior, candidates=candidates, releases=releases, source="")


ON_AVERAGE = "nothing is assumed of the images; on average over people and noise, so that a rare release "
ON_AVERAGE = f" ({ON_AVERAGE}may name its own person)"
NOBODY, NOTHING = "nobody, whatever they know, names the", "nothing is proved about who"


@pytest.mark.parametrize(
    ("namings", "words"),
    [
        (
            [naming(counting(1 / 369, outputs=32).chance, 369)],
            f"after 1 release {NOBODY} right one of 369 equally likely people more than 8.7% of the time"
            f"{ON_AVERAGE[:-1]}, though nobody can be 10% sure of them except with a chance of 86.8% "
            "among 369)",
        ),
        (
            [naming(0.5, None, releases=1_200)],
            f"after 1,200 releases {NOBODY} person, whom the best guess beforehand names 3% of the time, "
            f"more than 50% of the time{ON_AVERAGE}",
        ),
        (
            [naming(1.0, 100), naming(0.5, 1_000), naming(0.0005, 1_000_000)],
            f"after 1 release {NOBODY} right one of 1,000 equally likely people more than 50% of the time, "
            f"or of 1,000,000 more than 0.05%{ON_AVERAGE[:-1]}, though nobody can be 10% "
            "sure of them except with a chance of 0.5% among 1,000,000); among 100 people nothing is proved",
        ),
        *(
            [[naming(chance, among)], f"{NOTHING} it shows"]
            for chance in (1.0, 0.999)
            for among in (369, None)
        ),
        ([naming(0.999, 369, 2), naming(1.0, 10**6, 2)], f"{NOTHING} they show"),
    ],
)
def test_bounds_in_one_sentence(namings, words):
    assert sentence(namings) == words
    assert len(namings) > 1 or str(namings[0]) == words


def test_the_sentence_names_each_theorem_once():
    namings = [replace(naming(0.1, 10**k), source=source) for k, source in ((3, "A"), (4, "B"), (6, "A"))]
    assert sentence(namings).endswith("so that a rare release may name its own person; A; B)")


@given(st.floats(-12, math.log10(0.998)).map(lambda exponent: 10**exponent))
def test_a_percentage_in_plain_words_is_never_below_the_chance(chance):
    shown = float(str(naming(chance, 369)).partition(" more than ")[2].split("%")[0]) / 100
    assert chance * (1 - 2e-8) <= shown <= chance * 1.11
    assert shown < 1


# Discrete Gaussian noise from a centre.


@pytest.mark.parametrize("variance", [16.5, 20.0, 100.0, 1e4])
@pytest.mark.parametrize("prior", [0.5, 0.01, 1e-6])
def test_no_test_of_discrete_gaussian_noise_is_above_the_mu_of_its_centre(variance, prior):
    """The most powerful test of noise around the radius against noise around 0, by its whole table."""
    radius = round(1.5 * math.sqrt(variance))
    whole = np.arange(-20 * math.ceil(math.sqrt(variance)), 20 * math.ceil(math.sqrt(variance)) + 1)
    around = [np.exp(-((whole - centre) ** 2) / (2 * variance)) for centre in (0, radius)]
    reference, moved = (weights / weights.sum() for weights in around)
    # The likelihood ratio grows with the output: outputs are taken from the top until the level is spent.
    level = reference[::-1].cumsum()
    power = np.interp(prior, np.concatenate([[0.0], level]), np.concatenate([[0.0], moved[::-1].cumsum()]))
    mu = discrete_mu(radius=radius, variance=variance, step=1.0)
    assert mu is not None
    assert power <= gaussian(prior, mu=mu).chance
    if variance >= 100:
        assert gaussian(prior, mu=mu).chance <= 1.7 * power  # and of fine grids not needlessly above


def test_discrete_noise_of_variance_16_about_gaussian_noise_is_discrete_noise():
    """The step of the proof, by quadrature, where the variances add up to 25."""
    rest = 9.0

    def rounded(output: int) -> float:
        def density(draw: float) -> float:
            weights = math.fsum(math.exp(-((k - draw) ** 2) / 32) for k in range(-60, 61))
            return norm.pdf(draw, 0, math.sqrt(rest)) * math.exp(-((output - draw) ** 2) / 32) / weights

        return quad(density, -40, 40, epsabs=1e-14, limit=400)[0]

    for output in (0, 1, 7):
        expected = math.exp(-(output**2) / 50) / math.fsum(math.exp(-(k**2) / 50) for k in range(-80, 81))
        assert rounded(output) == pytest.approx(expected, rel=1e-9)


def test_the_mu_of_a_fine_grid_is_the_radius_over_the_deviation_and_a_coarse_one_has_none():
    assert 1.5 < discrete_mu(radius=3.0, variance=4.0, step=1 / 1024) == pytest.approx(1.5, rel=1e-5)
    assert discrete_mu(radius=1.0, variance=16.0, step=1.0) is None


# By the guarantee of an image.


@pytest.mark.parametrize(
    ("guarantee", "bound"),
    [
        (promise("pure", 1.0), pure(0.01, epsilon=1.0, releases=3)),
        (promise("gaussian", 0.5), gaussian(0.01, mu=0.5, releases=3)),
        (promise("concentrated", 0.1), concentrated(0.01, rho=0.1, releases=3)),
        (promise("approximate", 0.4, 1e-3), approximate(0.01, epsilon=0.4, delta=1e-3, releases=3)),
    ],
    ids=["pure", "gaussian", "concentrated", "approximate"],
)
def test_a_guarantee_bounds_naming_by_its_number_between_any_two_images(guarantee, bound):
    stated = guarantee.naming(candidates=100, releases=3)
    assert (stated.chance, stated.source) == bound
    assert (stated.candidates, stated.releases, stated.prior) == (100, 3, 0.01)
    assert guarantee.naming(prior=0.01, releases=3).chance == stated.chance


def test_a_guarantee_from_a_centre_bounds_naming_by_whichever_of_both_is_less():
    far = replace(promise("concentrated", 4.5), centre=1.5)
    assert far.naming(candidates=100, releases=3).chance == gaussian(0.01, mu=1.5, releases=3).chance
    assert "from a centre: after Hayes" in far.naming(candidates=100).source
    near = replace(promise("concentrated", 0.01), centre=1.5)
    assert near.naming(candidates=100).chance == concentrated(0.01, rho=0.01).chance
    assert far.to("approximate", delta=1e-5).centre == far.group(9).centre == 1.5
    stated = promise("pure", 1.0).naming(prior=[0.6, 0.3, 0.1])  # of all people
    assert stated.chance == pure([0.6, 0.3, 0.1], epsilon=1.0).chance
    assert (stated.prior, stated.candidates) == (pytest.approx(0.6), None)


# Refusals.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: promise("pure", 1.0).naming(), "give a number of candidates, or a prior instead"),
        (lambda: promise("pure", 1.0).naming(candidates=3, prior=0.1), "candidates, or a prior instead"),
        (lambda: counting(0.0, outputs=2), "prior=0: the best guess beforehand"),
        (lambda: counting(1.1, outputs=2), "prior=1.1: "),
        (lambda: counting(math.nan, outputs=2), "prior=nan: "),
        (lambda: counting([0.5, 0.4], outputs=2), "which sum to 1"),
        (lambda: counting([1.5, -0.5], outputs=2), "a probability for each person"),
        (lambda: counting([], outputs=2), "a probability for each person"),
        (lambda: counting(0.1, outputs=0), "outputs=0: a whole number, at least 1"),
        (lambda: counting(0.1, outputs=2, releases=0), "releases=0: a whole number, at least 1"),
        (lambda: flipped_bits(0.1, bits=0, flip=0.1), "bits=0: "),
        (lambda: flipped_bits(0.1, bits=1, flip=0.51), "flip=0.51: a bit is flipped"),
        (lambda: of_each([1.0], [[0.5, 0.6]]), "channel: give a row of probabilities"),
        (lambda: of_each([1.0], [0.5, 0.5]), "channel: give a row of probabilities"),
        (lambda: gaussian(0.1, mu=-1.0), "mu=-1: a number of at least 0"),
        (lambda: gaussian_ball(0.1, dimensions=0, ratio=1.0), "dimensions=0: "),
        (lambda: gaussian_ball(0.1, dimensions=1, ratio=math.nan), "ratio=nan: "),
        (lambda: approximate(0.1, epsilon=1.0, delta=1.5), "delta=1.5: it lies from 0 to 1"),
        (lambda: of_each([0.5, 0.5], [[1.0]]), "2 priors for 1 people"),
        (lambda: promise("pure", 1.0).naming(candidates=0), "candidates=0: a whole number"),
    ],
)
def test_a_number_out_of_range_is_refused(call, words):
    with pytest.raises(ConfigError, match=words):
        call()
