"""Naming from n releases under each assumption: exact where it can be counted, never below an adversary."""

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from channels import exact, priors_of, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.naming import (
    ASSUMED,
    Proof,
    compose,
    counting,
    flipped_bits,
    log_rank,
    make_statement,
    of_each,
    randomised_response,
    sentences,
)
from sfumato.protect.naming import Counted, bound_naming, naming_words

few_tries = settings(deadline=None, max_examples=60)
TINY = 1e-12  # a prior that no factor below makes certain
SMALL = [
    (2, 1),
    (2, 5),
    (2, 9),
    (3, 5),
    (4, 4),
    (5, 3),
]  # outputs and releases, all sequences of which are few


def factor(bound, **settings) -> float:
    return bound(TINY, **settings).chance / TINY


def shtarkov_by_definition(outputs: int, releases: int) -> Fraction:
    """Every sequence with the likelihood of the distribution that suits it best."""
    return sum(
        math.prod(Fraction(count, releases) ** count for count in Counter(sequence).values())
        for sequence in product(range(outputs), repeat=releases)
    )


def shtarkov_by_supports(outputs: int, releases: int) -> float:
    """Σ_d binom(M, d) n!/n^n [x^n] (Σ_{k>=1} k^k/k! x^k)^d: by how many different outputs are seen."""
    n = releases
    series = [Fraction(0)] + [Fraction(k**k, math.factorial(k)) for k in range(1, n + 1)]
    power, total = [Fraction(1)] + [Fraction(0)] * n, Fraction(0)
    for d in range(1, min(outputs, n) + 1):
        power = [sum(power[j] * series[i - j] for j in range(i + 1)) for i in range(n + 1)]
        total += math.comb(outputs, d) * power[n]
    return float(total * math.factorial(n) / n**n)


# The factors, by other formulas.


@pytest.mark.parametrize(("outputs", "releases"), SMALL)
def test_the_shtarkov_sum_is_that_over_all_sequences(outputs, releases):
    wanted = float(shtarkov_by_definition(outputs, releases))
    assert factor(counting, outputs=outputs, releases=releases, assuming="exchangeable") == pytest.approx(
        wanted
    )


@pytest.mark.parametrize(("outputs", "releases"), [(2, 30), (7, 12), (40, 10), (300, 6)])
def test_the_recursion_agrees_with_the_sum_over_supports(outputs, releases):
    wanted = shtarkov_by_supports(outputs, releases)
    assert factor(counting, outputs=outputs, releases=releases, assuming="exchangeable") == pytest.approx(
        wanted
    )


@pytest.mark.parametrize("n", [1, 2, 100, 365, 5_000])
def test_of_two_outputs_the_sum_is_one_of_falling_factorials(n):
    """C(2, n) = Σ_k n (n-1) ... (n-k+1) / n^k, by which nothing is lost to logarithms."""
    terms = np.cumprod(np.concatenate([[1.0], (n - np.arange(n)) / n]))
    assert factor(counting, outputs=2, releases=n, assuming="exchangeable") == pytest.approx(terms.sum())


@pytest.mark.parametrize(("outputs", "releases"), SMALL)
def test_a_shuffled_batch_shows_as_many_histograms_as_there_are(outputs, releases):
    histograms = {tuple(sorted(each)) for each in product(range(outputs), repeat=releases)}
    assert factor(counting, outputs=outputs, releases=releases, assuming="shuffled") == pytest.approx(
        len(histograms)
    )


@pytest.mark.parametrize(
    ("outputs", "releases", "sequences", "shuffled", "exchangeable"),
    [
        (2, 100, 1.27e30, 101, 13.2),
        (3, 100, None, 5_151, 113),
        (4, 100, None, 176_851, 774),
        (2, 365, None, 366, 24.6),
    ],
)
def test_the_figures_of_a_year(outputs, releases, sequences, shuffled, exchangeable):
    if sequences is not None:
        assert outputs**releases == pytest.approx(sequences, rel=0.01)
    for assuming, wanted in (("shuffled", shuffled), ("exchangeable", exchangeable)):
        chance = factor(counting, outputs=outputs, releases=releases, assuming=assuming)
        assert chance == pytest.approx(wanted, rel=0.005)


def test_a_hundred_answers_among_1_000_people():
    """1.4% if exchangeable, and 10.1% by shuffling alone; a tenth of each among 10,000."""
    words = naming_words(Counted(2), (3, 8, 8), releases=100, among=(1_000, 10_000))
    nothing, shuffled, exchangeable = words.split("; after 100 releases nobody, whatever they know, names ")
    assert nothing == "nothing is proved about who they show unless more is assumed"
    people = "the right one of 1,000 equally likely people more than"
    assert shuffled.startswith(
        f"{people} 10.1% of the time, or of 10,000 more than 1.1% (assumed: they leave"
    )
    assert exchangeable.startswith(f"{people} 1.4% of the time, or of 10,000 more than 0.14% (assumed: given")


def binary_channel(flip: float, releases: int) -> np.ndarray:
    channel = np.ones((1, 1))
    for _ in range(releases):
        channel = np.kron(channel, [[1 - flip, flip], [flip, 1 - flip]])
    return channel


def as_histograms(rows: np.ndarray, releases: int) -> np.ndarray:
    """(S, 2^n) of sequences -> (S, n + 1) of their numbers of ones."""
    ones = np.array([number.bit_count() for number in range(2**releases)])
    return np.stack([rows[:, ones == k].sum(1) for k in range(releases + 1)], axis=1)


@pytest.mark.parametrize("flip", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_flips_have_the_leakage_of_their_whole_table(flip, n):
    channel = binary_channel(flip, n)
    settings = {"bits": 1, "flip": flip, "releases": n}
    shuffled = as_histograms(channel, n).max(0).sum()
    assert factor(flipped_bits, **settings, assuming="shuffled") == pytest.approx(shuffled)
    one_image = channel[[0, -1]].max(0).sum()
    assert factor(flipped_bits, **settings, assuming="one image") == pytest.approx(one_image)
    assert factor(flipped_bits, **{**settings, "bits": 3}, assuming="one image") == pytest.approx(
        one_image**3
    )
    grid = np.linspace(flip, 1 - flip, 20_001)[:, None]
    ones = np.arange(n + 1)
    likeliest = (grid**ones * (1 - grid) ** (n - ones)).max(0)
    ways = [math.comb(n, k) for k in ones]
    assert factor(flipped_bits, **settings, assuming="exchangeable") == pytest.approx(ways @ likeliest)


def test_figures_of_flipped_batches():
    for flip, wanted in ((0.05, 17.7), (0.1, 11.7), (0.2, 7.0)):
        assert factor(flipped_bits, bits=1, flip=flip, releases=100, assuming="shuffled") == pytest.approx(
            wanted, abs=0.06
        )


def test_lies_over_two_words_are_flips_and_over_more_no_more_than_is_counted():
    lies = {"epsilon": math.log(9), "releases": 20}
    for assuming in ("one image", "shuffled", "exchangeable"):
        of_two = factor(randomised_response, outputs=2, **lies, assuming=assuming)
        assert of_two == pytest.approx(factor(flipped_bits, bits=1, flip=0.1, releases=20, assuming=assuming))
        of_four = factor(randomised_response, outputs=4, **lies, assuming=assuming)
        assert of_four <= factor(counting, outputs=4, releases=20, assuming=assuming) * (1 + 1e-9)


@given(st.integers(1, 9), st.integers(1, 60))
def test_each_assumption_proves_at_least_as_much_as_the_one_before(outputs, releases):
    chances = [
        counting(1e-200, outputs=outputs, releases=releases, assuming=each).chance
        for each in ("none", "shuffled", "exchangeable")
    ]
    assert chances[2] <= chances[1] * (1 + 1e-9) <= chances[0] * (1 + 2e-9)


@pytest.mark.parametrize("assuming", ASSUMED)
def test_one_release_is_the_same_under_every_assumption(assuming):
    assert counting(0.01, outputs=7, assuming=assuming) == counting(0.01, outputs=7)
    assert flipped_bits(0.01, bits=3, flip=0.1, assuming=assuming) == flipped_bits(0.01, bits=3, flip=0.1)


def test_what_is_too_much_to_add_up_proves_what_a_sequence_does():
    many = {"outputs": 2**40, "releases": 3}
    assert counting(TINY, **many, assuming="exchangeable").chance == counting(TINY, **many).chance == 1
    assert flipped_bits(1e-9, bits=1, flip=0.1, releases=10**5, assuming="shuffled").chance == pytest.approx(
        (10**5 + 1) * 1e-9
    )


# No adversary is above any of them.


def people_of(outputs: int, releases: int, draw: np.random.Generator, *, mixed: bool) -> np.ndarray:
    """(S, M^n) of exchangeable people: each has a distribution, or one of two drawn for all releases."""
    rows = []
    for _ in range(draw.integers(2, 9)):
        thetas = draw.dirichlet(np.full(outputs, draw.choice([0.05, 1.0, 10.0])), size=1 + mixed)
        series = np.array([_power(theta, releases) for theta in thetas])
        rows.append(draw.dirichlet(np.ones(len(series))) @ series)
    return np.array(rows)


def _power(theta: np.ndarray, releases: int) -> np.ndarray:
    joint = np.ones(1)
    for _ in range(releases):
        joint = np.kron(joint, theta)
    return joint


def no_adversary_is_above(bound, rows, draw) -> None:
    priors = priors_of(len(rows), draw)
    best_adversary = exact(list(priors), rows)
    assert best_adversary <= bound(float(priors.max())).chance
    assert best_adversary <= bound(list(priors)).chance


@few_tries
@given(seeds, st.sampled_from(SMALL), st.booleans())
def test_no_adversary_is_above_the_bound_of_exchangeable_releases(seed, sizes, mixed):
    outputs, releases = sizes
    draw = np.random.default_rng(seed)
    rows = people_of(outputs, releases, draw, mixed=mixed)
    no_adversary_is_above(
        lambda prior: counting(prior, outputs=outputs, releases=releases, assuming="exchangeable"), rows, draw
    )


@few_tries
@given(seeds, st.integers(2, 6), st.floats(0, 0.5))
def test_no_adversary_is_above_the_bounds_of_flips(seed, n, flip):
    draw = np.random.default_rng(seed)
    channel = binary_channel(flip, n)

    def bound(assuming):
        return lambda prior: flipped_bits(prior, bits=1, flip=flip, releases=n, assuming=assuming)

    no_adversary_is_above(bound("exchangeable"), people_of(2, n, draw, mixed=True) @ channel, draw)
    no_adversary_is_above(bound("one image"), draw.dirichlet([0.3, 0.3], size=6) @ channel[[0, -1]], draw)
    anything = draw.dirichlet(np.full(2**n, 0.05), size=8)  # of histograms alone no order is known
    no_adversary_is_above(bound("shuffled"), as_histograms(anything @ channel, n), draw)


def test_people_who_keep_to_a_count_reach_the_bound_of_a_shuffled_batch_and_break_the_other():
    """101 people, one for each number of ones: planted, since theirs are no independent draws."""
    reached = exact([1 / 1_010] * 1_010, np.eye(101)[np.arange(1_010) % 101])
    assert reached == pytest.approx(counting(1 / 1_010, outputs=2, releases=100, assuming="shuffled").chance)
    assert reached > 7 * counting(1 / 1_010, outputs=2, releases=100, assuming="exchangeable").chance


def test_a_hundred_independent_draws_come_within_a_seventh_of_the_shtarkov_sum():
    """1,000 people spread by the arcsine law: exact, by their table of counts."""
    theta = np.sin(np.linspace(0, math.pi / 2, 1_000))[:, None] ** 2
    k = np.arange(101)
    ways = np.array([float(math.comb(100, each)) for each in k])
    rows = ways * theta**k * (1 - theta) ** (100 - k)
    reached = exact([1e-3] * 1_000, rows)
    proved = counting(1e-3, outputs=2, releases=100, assuming="exchangeable").chance
    assert 0.0114 < reached <= proved < 0.0133


# Unlike releases, and bursts.


def of(releases: int, bits: float, **more) -> Proof:
    return Proof(releases=releases, outputs=bits, leakage=bits, **more)


@pytest.mark.parametrize("assuming", ["none", "shuffled", "exchangeable"])
def test_factors_of_unlike_releases_multiply(assuming):
    bound = compose(TINY, [of(20, 1), of(3, 2)], assuming=assuming)
    parts = [factor(counting, outputs=m, releases=n, assuming=assuming) for m, n in ((2, 20), (4, 3))]
    assert bound.chance / TINY == pytest.approx(math.prod(parts))


def test_a_burst_is_one_draw_and_the_rest_of_it_counts_in_full():
    bound = compose(TINY, [of(12, 1, draws=10)], assuming="exchangeable")
    ten = factor(counting, outputs=2, releases=10, assuming="exchangeable")
    assert bound.chance / TINY == pytest.approx(ten * 4)
    assert compose(TINY, [of(12, 1, draws=0)], assuming="exchangeable").chance <= 2**12 * TINY * (1 + 1e-9)
    # Of a shuffled batch it does not matter what is alike in it.
    assert compose(TINY, [of(12, 1, draws=10)], assuming="shuffled").chance / TINY == pytest.approx(13)


@few_tries
@given(seeds, st.integers(1, 3), st.integers(1, 3))
def test_no_adversary_is_above_the_bound_of_bursts(seed, bursts, length):
    """Bursts are independent draws of whatever a person's bursts look like, in order."""
    draw = np.random.default_rng(seed)
    rows = np.array(
        [_power(draw.dirichlet(np.full(2**length, 0.1)), bursts) for _ in range(draw.integers(2, 9))]
    )
    proof = of(bursts * length, 1, draws=bursts)
    no_adversary_is_above(lambda prior: compose(prior, [proof], assuming="exchangeable"), rows, draw)


def test_bursts_counted_as_draws_would_be_broken():
    """A burst of 8 with exactly k of one kind, for each of 9 people: the count is known, and 9 > C(2, 8)."""
    assert exact([1 / 9] * 9, np.eye(9)) == 1
    assert compose(1 / 9, [of(8, 1)], assuming="exchangeable").chance < 0.5
    assert compose(1 / 9, [of(8, 1, draws=1)], assuming="exchangeable").chance == 1


# In words.


def test_each_statement_has_its_assumption():
    namings = {
        each: bound_naming(Counted(2), (3, 8, 8), candidates=1_000, releases=9, assuming=each)
        for each in ASSUMED
    }
    assert {each: naming.assumption for each, naming in namings.items()} == ASSUMED
    for naming in namings.values():
        assert f"({naming.assumption}; on average over people and noise" in str(naming)


def test_an_assumption_that_proves_no_more_is_not_stated():
    def alike(assuming):
        bound = counting(1e-6, outputs=2, releases=3)
        return [make_statement(bound, candidates=10**6, prior=None, releases=3, assuming=assuming)]

    assert sentences(alike, releases=3).count("after 3 releases") == 1


# Ranks.


def log_ranks_of(rows: np.ndarray) -> float:
    """E[ln r] / ln N of the best adversary among equally likely people, by sorting every output."""
    people = len(rows)
    descending = -np.sort(-rows, axis=0)
    return float(np.log(np.arange(1, people + 1)) @ descending.sum(1)) / people / math.log(people)


def groups_of(sizes) -> float:
    """Log-rank privacy if people share an output in groups of these sizes."""
    people = sum(sizes)
    return sum(math.lgamma(size + 1) for size in sizes) / people / math.log(people)


@pytest.mark.parametrize(("people", "outputs"), [(2, 1), (5, 2), (6, 3), (6, 4), (7, 7)])
def test_the_bound_of_ranks_is_the_least_that_any_code_without_noise_leaves(people, outputs):
    least = min(
        groups_of(Counter(code).values())
        for code in product(range(outputs), repeat=people - 1)
        for code in [(*code, 0)]
    )
    proved = log_rank(lambda prior: counting(prior, outputs=outputs), people=people)
    assert proved == pytest.approx(least, abs=1e-9)


def test_5_bits_among_369_people():
    proved = log_rank(lambda prior: counting(prior, outputs=32), people=369)
    balanced = groups_of([12] * 17 + [11] * 15)  # 17·12 + 15·11 = 369
    assert proved == pytest.approx(balanced) == pytest.approx(0.276, abs=5e-4)


@pytest.mark.parametrize("bits", [0, 1, 2, 3, 4, 5])
def test_up_to_5_bits_the_bound_is_within_two_hundredths_of_codes_by_lot(bits):
    draw = np.random.default_rng(bits)
    proved = log_rank(lambda prior: counting(prior, outputs=2**bits), people=369)
    for _ in range(20):
        sizes = np.bincount(draw.integers(2**bits, size=369))
        assert proved <= groups_of(sizes[sizes > 0]) <= proved + 0.02


@few_tries
@given(seeds, st.sampled_from(SMALL))
def test_no_adversary_ranks_better_than_is_proved(seed, sizes):
    outputs, releases = sizes
    draw = np.random.default_rng(seed)
    rows = people_of(outputs, releases, draw, mixed=True)
    proved = log_rank(
        lambda prior: counting(prior, outputs=outputs, releases=releases, assuming="exchangeable"),
        people=len(rows),
    )
    assert proved <= log_ranks_of(rows)


@few_tries
@given(seeds, st.integers(1, 6), st.floats(0.01, 0.5))
def test_no_adversary_ranks_better_than_flips_allow(seed, n, flip):
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(2**n, 0.05), size=int(draw.integers(2, 9))) @ binary_channel(flip, n)
    proved = log_rank(lambda prior: flipped_bits(prior, bits=1, flip=flip, releases=n), people=len(rows))
    assert proved <= log_ranks_of(rows)


def test_blind_guessing_is_what_one_output_leaves():
    proved = log_rank(lambda prior: counting(prior, outputs=1), people=100)
    assert proved == pytest.approx(groups_of([100]))


def test_ranks_among_many_people_are_added_up_in_blocks_and_lose_little():
    people = 20_000
    proved = log_rank(lambda prior: counting(prior, outputs=4), people=people)
    assert proved <= groups_of([people // 4] * 4) <= proved + 1e-4


# Each person.


def test_the_worst_person_is_named_more_often_than_people_are_on_average():
    """Four share an output, and the fifth has one alone."""
    rows = np.array([[1, 0]] * 4 + [[0, 1]])
    each = of_each([0.2] * 5, rows)
    assert each == pytest.approx([0.25] * 4 + [1])
    assert each.mean() == pytest.approx(exact([0.2] * 5, rows)) == pytest.approx(0.4)


@few_tries
@given(seeds)
def test_on_average_each_person_is_named_as_often_as_the_best_adversary_is_right(seed):
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(4, 0.5), size=6)
    priors = draw.dirichlet(np.ones(6))
    assert priors @ of_each(list(priors), rows) == pytest.approx(exact(list(priors), rows))
