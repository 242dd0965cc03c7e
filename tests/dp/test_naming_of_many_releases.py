"""Naming from n releases, alike or not, under each assumption: exact if countable, no adversary above."""

import math
from collections import Counter
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from channels import exact, flips, joint, no_adversary_is_above, promise, random_channel, released, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.guarantee import proof_of
from sfumato.dp.naming import (
    ASSUMED,
    Information,
    Proof,
    compose,
    counting,
    flipped_bits,
    gaussian,
    log_rank,
    make_statement,
    of_each,
    pure,
    randomised_response,
    sentences,
)
from sfumato.errors import ConfigError
from sfumato.protect.naming import Counted, bound_naming, naming_words

few_tries = settings(deadline=None, max_examples=60)
TINY = 1e-12  # a prior that no factor below makes certain
SMALL = [(2, 1), (2, 5), (2, 9), (3, 5), (4, 4), (5, 3)]  # outputs and releases: few sequences


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


@pytest.mark.parametrize(
    ("by", "outputs", "releases"),
    [(shtarkov_by_definition, *sizes) for sizes in SMALL]
    + [(shtarkov_by_supports, *sizes) for sizes in ((2, 30), (7, 12), (40, 10), (300, 6))],
)
def test_the_shtarkov_sum_is_that_over_all_sequences_and_over_supports(by, outputs, releases):
    found = factor(counting, outputs=outputs, releases=releases, assuming="exchangeable")
    assert found == pytest.approx(float(by(outputs, releases)))


@pytest.mark.parametrize("n", [1, 2, 100, 365, 5_000])
def test_of_two_outputs_the_sum_is_one_of_falling_factorials(n):
    """C(2, n) = Σ_k n (n-1) ... (n-k+1) / n^k, by which nothing is lost to logarithms."""
    terms = np.cumprod(np.concatenate([[1.0], (n - np.arange(n)) / n]))
    assert factor(counting, outputs=2, releases=n, assuming="exchangeable") == pytest.approx(terms.sum())


@pytest.mark.parametrize(("outputs", "releases"), SMALL)
def test_a_shuffled_batch_shows_as_many_histograms_as_there_are(outputs, releases):
    histograms = {tuple(sorted(each)) for each in product(range(outputs), repeat=releases)}
    found = factor(counting, outputs=outputs, releases=releases, assuming="shuffled")
    assert found == pytest.approx(len(histograms))


@pytest.mark.parametrize(
    ("outputs", "releases", "shuffled", "exchangeable"),
    [(2, 100, 101, 13.2), (3, 100, 5_151, 113), (4, 100, 176_851, 774), (2, 365, 366, 24.6)],
)
def test_the_figures_of_a_year(outputs, releases, shuffled, exchangeable):
    for assuming, wanted in (("shuffled", shuffled), ("exchangeable", exchangeable)):
        chance = factor(counting, outputs=outputs, releases=releases, assuming=assuming)
        assert chance == pytest.approx(wanted, rel=0.005)


def test_a_hundred_answers_among_1_000_people():
    """1.4% if exchangeable, and 10.1% by shuffling alone; a tenth of each among 10,000."""
    words = naming_words(Counted(2), (3, 8, 8), releases=100, among=(1_000, 10_000))
    nothing, chain, shuffled, exchangeable = words.split(
        "; after 100 releases nobody, whatever they know, names "
    )
    assert nothing == "nothing is proved about who they show unless more is assumed"
    people = "the right one of 1,000 equally likely people more than"
    assert chain.startswith(f"{people} 13.4% of the time, or of 10,000 more than 1.4% (assumed: given")
    assert shuffled.startswith(
        f"{people} 10.1% of the time, or of 10,000 more than 1.1% (assumed: they leave"
    )
    assert exchangeable.startswith(f"{people} 1.4% of the time, or of 10,000 more than 0.14% (assumed: given")


def as_histograms(rows: np.ndarray, releases: int) -> np.ndarray:
    """(S, 2^n) of sequences -> (S, n + 1) of their numbers of ones."""
    ones = np.array([number.bit_count() for number in range(2**releases)])
    return np.stack([rows[:, ones == k].sum(1) for k in range(releases + 1)], axis=1)


@pytest.mark.parametrize("flip", [0.0, 0.05, 0.2, 0.5])
@pytest.mark.parametrize("n", [2, 3, 7])
def test_flips_have_the_leakage_of_their_whole_table(flip, n):
    channel = flips(flip, n)
    settings = {"bits": 1, "flip": flip, "releases": n}
    shuffled = as_histograms(channel, n).max(0).sum()
    assert factor(flipped_bits, **settings, assuming="shuffled") == pytest.approx(shuffled)
    one_image = channel[[0, -1]].max(0).sum()
    assert factor(flipped_bits, **settings, assuming="one image") == pytest.approx(one_image)
    of_three = factor(flipped_bits, **{**settings, "bits": 3}, assuming="one image")
    assert of_three == pytest.approx(one_image**3)
    grid = np.linspace(flip, 1 - flip, 20_001)[:, None]
    ones = np.arange(n + 1)
    likeliest = (grid**ones * (1 - grid) ** (n - ones)).max(0)
    ways = [math.comb(n, k) for k in ones]
    assert factor(flipped_bits, **settings, assuming="exchangeable") == pytest.approx(ways @ likeliest)


@pytest.mark.parametrize(("flip", "wanted"), [(0.05, 17.7), (0.1, 11.7), (0.2, 7.0)])
def test_figures_of_flipped_batches(flip, wanted):
    found = factor(flipped_bits, bits=1, flip=flip, releases=100, assuming="shuffled")
    assert found == pytest.approx(wanted, abs=0.06)


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
    batch = flipped_bits(1e-9, bits=1, flip=0.1, releases=10**5, assuming="shuffled").chance
    assert batch == pytest.approx((10**5 + 1) * 1e-9)


# No adversary is above any of them.


def people_of(outputs: int, releases: int, draw: np.random.Generator, *, mixed: bool) -> np.ndarray:
    """(S, M^n) of exchangeable people: each has a distribution, or one of two drawn for all releases."""
    rows = []
    for _ in range(draw.integers(2, 9)):
        thetas = draw.dirichlet(np.full(outputs, draw.choice([0.05, 1.0, 10.0])), size=1 + mixed)
        series = np.array([joint([theta] * releases) for theta in thetas])
        rows.append(draw.dirichlet(np.ones(len(series))) @ series)
    return np.array(rows)


@few_tries
@given(seeds, st.sampled_from(SMALL), st.booleans())
def test_no_adversary_is_above_the_bound_of_exchangeable_releases(seed, sizes, mixed):
    outputs, releases = sizes
    draw = np.random.default_rng(seed)
    rows = people_of(outputs, releases, draw, mixed=mixed)
    bound = partial(counting, outputs=outputs, releases=releases, assuming="exchangeable")
    no_adversary_is_above([bound], rows, draw)


@few_tries
@given(seeds, st.integers(2, 6), st.floats(0, 0.5))
def test_no_adversary_is_above_the_bounds_of_flips(seed, n, flip):
    draw = np.random.default_rng(seed)
    channel = flips(flip, n)

    def bound(assuming):
        return [partial(flipped_bits, bits=1, flip=flip, releases=n, assuming=assuming)]

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


@pytest.mark.parametrize("assuming", ["none", "chain", "shuffled", "exchangeable"])
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
    laws = draw.dirichlet(np.full(2**length, 0.1), size=draw.integers(2, 9))
    bound = partial(compose, proofs=[of(bursts * length, 1, draws=bursts)], assuming="exchangeable")
    no_adversary_is_above([bound], np.array([joint([law] * bursts) for law in laws]), draw)


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
    bound = partial(counting, outputs=outputs, releases=releases, assuming="exchangeable")
    assert log_rank(bound, people=len(rows)) <= log_ranks_of(rows)


@few_tries
@given(seeds, st.integers(1, 6), st.floats(0.01, 0.5))
def test_no_adversary_ranks_better_than_flips_allow(seed, n, flip):
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(2**n, 0.05), size=int(draw.integers(2, 9))) @ flips(flip, n)
    bound = partial(flipped_bits, bits=1, flip=flip, releases=n)
    assert log_rank(bound, people=len(rows)) <= log_ranks_of(rows)


def test_blind_guessing_is_what_one_output_leaves_and_ranks_of_many_people_lose_little_in_blocks():
    assert log_rank(partial(counting, outputs=1), people=100) == pytest.approx(groups_of([100]))
    proved = log_rank(partial(counting, outputs=4), people=20_000)
    assert proved <= groups_of([5_000] * 4) <= proved + 1e-4


# Each person.


def test_the_worst_person_is_named_more_often_than_people_are_on_average():
    """Four share an output, and the fifth has one alone."""
    rows = np.array([[1, 0]] * 4 + [[0, 1]])
    each = of_each([0.2] * 5, rows)
    assert each == pytest.approx([0.25] * 4 + [1])
    assert each.mean() == pytest.approx(exact([0.2] * 5, rows)) == pytest.approx(0.4)


# Releases by different protections.


def proof_of_channel(channel: np.ndarray, releases: int, *, tells: str) -> Proof:
    """What is true of a channel, in the terms that are asked for."""
    bits = math.log2(channel.max(axis=0).sum())
    epsilon = float(np.log(channel[:, None] / channel[None]).max())
    guarantees = [promise("pure", epsilon)] if tells in ("privacy", "both") else []
    known = Information(leakage=bits) if tells in ("leakage", "both") else Information()
    return proof_of(guarantees, known, releases=releases)


@few_tries
@given(seeds, st.lists(st.sampled_from(["leakage", "privacy", "both"]), min_size=1, max_size=3))
def test_no_adversary_is_above_the_bound_of_unlike_releases(seed, kinds):
    draw = np.random.default_rng(seed)
    channels = [random_channel(draw) for _ in kinds]
    releases = [int(draw.integers(1, 3)) for _ in kinds]
    proofs = [
        proof_of_channel(channel, n, tells=tells)
        for channel, n, tells in zip(channels, releases, kinds, strict=True)
    ]
    series = [channel for channel, n in zip(channels, releases, strict=True) for _ in range(n)]
    no_adversary_is_above([partial(compose, proofs=proofs)], released(series, draw), draw)


def test_a_bound_that_left_one_of_two_releases_out_would_be_broken():
    # 8 people, one for each of 2 * 4 outputs: named for certain.
    assert exact([1 / 8] * 8, np.eye(8)) == 1
    assert compose(1 / 8, [Proof(releases=1, leakage=2.0)]).chance < 0.51
    assert compose(1 / 8, [Proof(releases=1, leakage=2.0), Proof(releases=1, leakage=1.0)]).chance == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_releases_alike_have_the_bound_of_their_own_kind(n):
    for proof, own in (
        (Proof(releases=n, leakage=2.0), counting(0.001, outputs=4, releases=n)),
        (Proof(releases=n, mu=0.5), gaussian(0.001, mu=0.5, releases=n)),
    ):
        assert compose(0.001, [proof]).chance == pytest.approx(own.chance)
    least = pure(0.3, epsilon=0.4, releases=n).chance
    assert compose(0.3, [Proof(releases=n, epsilon=0.4)]).chance <= least * (1 + 1e-6)


def test_numbers_from_a_centre_add_up_in_squares_and_a_code_beside_them_multiplies_their_bound():
    noise = Proof(releases=2, mu=0.3)
    both = compose(0.01, [noise, Proof(releases=1, mu=0.4)]).chance
    assert both == pytest.approx(gaussian(0.01, mu=math.sqrt(0.34)).chance)
    with_code = compose(0.001, [noise, Proof(releases=1, leakage=1.5)]).chance
    assert with_code == pytest.approx(gaussian(0.001, mu=0.3, releases=2).chance * 2**1.5)


def test_each_release_counts_by_whichever_of_its_proofs_is_better():
    """A code of 16 bits that hardly differ is held by its noise; one of 1 bit without noise by counting."""
    noisy, counted = Proof(releases=1, leakage=16.0, mu=0.1), Proof(releases=1, leakage=1.0)
    bound = compose(0.001, [noisy, counted]).chance
    assert bound == pytest.approx(2 * gaussian(0.001, mu=0.1).chance)


def test_nothing_is_proved_of_all_if_nothing_is_of_one_and_of_no_release_the_guess_is_left():
    bound = compose(1e-6, [Proof(releases=1, leakage=1.0), Proof(releases=1)])
    assert bound == (1, "nothing is proved")
    assert compose(0.01, []) == (0.01, "nothing was released")
    assert compose([0.25, 0.75], [Proof(releases=0)]) == (0.75, "nothing was released")
    assert compose(1e-6, [Proof(releases=10**6, leakage=64.0)]).chance == 1  # without overflow


def test_more_releases_never_lower_the_bound():
    chances = [compose(1e-6, [Proof(releases=n, leakage=3.0, mu=1.0)]).chance for n in range(1, 9)]
    assert chances == sorted(chances)


def test_the_source_names_every_theorem_that_was_used():
    code, both = Proof(releases=1, leakage=1.0), "maximal leakage, added up: Issa, Wagner & Kamath 2020"
    assert compose(0.01, [code]).source == both
    both += "; f-DP from a centre: after Hayes, Mahloujifar & Balle 2023, Thm. 2"
    assert compose(0.01, [code, Proof(releases=1, mu=0.1)]).source == both


# What a guarantee says in each term.


def test_a_pure_guarantee_is_a_proof_in_every_term():
    proof = proof_of([promise("pure", 0.5)], Information(), releases=3)
    assert (proof.releases, proof.epsilon) == (3, 0.5)
    assert proof.leakage == pytest.approx(0.5 / math.log(2))  # p(y|x) <= e^ε q(y)
    assert proof.mu == pytest.approx(promise("pure", 0.5).to("gaussian").whole_image)
    assert proof.rho == pytest.approx(0.125)


def test_a_centre_is_taken_where_it_proves_more_and_of_several_guarantees_the_best():
    proof = proof_of([promise("concentrated", 2.0, centre=1.0)], Information(), releases=1)
    assert (proof.epsilon, proof.leakage, proof.mu) == (math.inf, math.inf, 1.0)
    assert proof.rho == pytest.approx(0.5)
    proof = proof_of([promise("pure", 5.0), promise("pure", 2.0)], Information(outputs=1.0), releases=1)
    assert (proof.epsilon, proof.leakage) == (2, 1)  # what is counted leaks no more
    assert proof_of([], Information(), releases=2) == Proof(releases=2)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Proof(releases=-1), "releases=-1: a number of at least 0"),
        (lambda: Proof(releases=1, leakage=-1.0), "leakage=-1: a number of at least 0"),
        (lambda: Proof(releases=1, mu=math.nan), "mu=nan: a number of at least 0"),
        (lambda: Information(outputs=-1.0), "outputs=-1: a number of at least 0"),
        (lambda: compose(0.0, []), "prior=0: the best guess beforehand"),
    ],
)
def test_numbers_out_of_range_are_refused(made, words):
    with pytest.raises(ConfigError, match=words):
        made()
