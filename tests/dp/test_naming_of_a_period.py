"""What is proved of a period without assumptions: exact by brute force, against qif, on a planted world."""

import math
from fractions import Fraction
from functools import partial
from itertools import combinations, pairwise, product

import numpy as np
import pytest
import qif
from channels import exact, joint, no_adversary_is_above, random_channel, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.naming import (
    Naming,
    count_alarms,
    count_histograms,
    counting,
    histogram_of,
    make_statement,
    number_histogram,
    of_each,
    round_shares,
)
from sfumato.dp.naming.period import bound_posterior, share_codes, share_levels
from sfumato.errors import ConfigError

few_tries = settings(deadline=None, max_examples=40)
TINY = 1e-12  # a prior that no factor below makes certain


def factor(**settings) -> float:
    return counting(TINY, **settings).chance / TINY


# T4: a rounded histogram.


@pytest.mark.parametrize(("values", "parts", "wanted"), [(2, 5, 6), (5, 5, 126), (10, 5, 2_002), (1, 7, 1)])
def test_histograms_are_counted_and_numbered_each_once(values, parts, wanted):
    every = (
        [each for each in product(range(parts + 1), repeat=values) if sum(each) == parts]
        if wanted < 999
        else None
    )
    numbered = [histogram_of(number, values=values, parts=parts) for number in range(wanted)]
    assert count_histograms(values, parts) == wanted
    assert every is None or sorted(map(tuple, numbered)) == sorted(every)
    assert [number_histogram(shares) for shares in numbered] == list(range(wanted))
    with pytest.raises(ConfigError, match=f"histogram={wanted}: of {parts} parts and {values} values"):
        histogram_of(wanted, values=values, parts=parts)


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=8).filter(any), st.integers(1, 50))
def test_shares_are_rounded_by_largest_remainders(counts, parts):
    shares, total = round_shares(counts, parts), sum(counts)
    assert sum(shares) == parts
    off = [
        Fraction(share, parts) - Fraction(count, total) for share, count in zip(shares, counts, strict=True)
    ]
    most = Fraction(1, 2 * parts) if len(counts) == 2 else Fraction(1, parts)
    assert all(abs(each) <= most for each in off)
    exactly = [Fraction(count * parts, total) for count in counts]
    up = [share > each for share, each in zip(shares, exactly, strict=True)]
    remainders = [each % 1 for each in exactly]  # whoever is rounded up has no smaller one than who is not
    assert all(
        remainders[i] >= remainders[j] for i in range(len(up)) for j in range(len(up)) if up[i] and not up[j]
    )


def test_ties_go_to_the_first_value_and_no_answer_has_no_share():
    assert round_shares([1, 1, 1], 5) == [2, 2, 1]
    for wrong in ([0, 0], [3, -1]):
        with pytest.raises(ConfigError, match="at least one answer in all"):
            round_shares(wrong, 5)


@pytest.mark.parametrize(("values", "n", "parts"), [(2, 10, 5), (3, 6, 2), (2, 9, 1)])
def test_a_rounded_batch_multiplies_a_guess_by_the_number_of_its_histograms_exactly(values, n, parts):
    """Every history of answers is a person; of each histogram that occurs, somebody is certain."""
    histories = list(product(range(values), repeat=n))
    seen = [tuple(round_shares([history.count(v) for v in range(values)], parts)) for history in histories]
    occur = sorted(set(seen))
    channel = np.eye(len(occur))[[occur.index(each) for each in seen]]
    leak = channel.max(axis=0).sum()
    assert leak == len(occur) == count_histograms(values, parts)  # all occur if n is large enough
    assert factor(outputs=count_histograms(values, parts)) == pytest.approx(leak)
    assert factor(outputs=count_histograms(values, parts), releases=4) == pytest.approx(leak**4)


def test_the_figures_of_a_quarter_and_of_a_year():
    quarter = counting(1e-3, outputs=count_histograms(2, 5))
    assert str(statement(quarter, 1)).startswith(
        "after 1 release nobody, whatever they know, names the right one of 1,000 equally likely people more "
        "than 0.6% of the time (nothing is assumed of the images; "
    )
    assert factor(outputs=6, releases=4) == pytest.approx(1_296)
    assert counting([1e-3] * 1_000, outputs=6).chance == pytest.approx(6e-3)
    of_guesses = [counting(k / 1_000, outputs=6).chance for k in (2, 3)]
    assert of_guesses == pytest.approx([12e-3, 18e-3])


def statement(bound, releases: int) -> Naming:
    return make_statement(bound, candidates=1_000, prior=None, releases=releases)


def test_bursts_break_the_bound_of_independent_draws_and_not_that_of_a_rounded_batch():
    """12 answers of 3 values in four bursts of one scene; a person draws one of six series of their own."""
    draw, people = np.random.default_rng(0), 1_000
    series = [tuple(np.repeat(scenes, 3).tolist()) for scenes in product(range(3), repeat=4)]
    rows = np.zeros((people, len(series)))
    for row in rows:
        row[draw.choice(len(series), 6, replace=False)] = draw.dirichlet(np.ones(6))
    named = exact([1 / people] * people, rows)
    stated = counting(1 / people, outputs=3, releases=12, assuming="exchangeable").chance
    assert stated == pytest.approx(0.017, abs=5e-4)
    assert 0.045 < named < 0.065  # three times what independent draws would prove
    fourths = [tuple(round_shares([each.count(value) for value in range(3)], 4)) for each in series]
    occur = sorted(set(fourths))
    table = np.zeros((people, len(occur)))
    np.add.at(table.T, [occur.index(each) for each in fourths], rows.T)
    proved = counting(1 / people, outputs=count_histograms(3, 4)).chance
    assert proved == pytest.approx(0.015)
    assert 0.01 < exact([1 / people] * people, table) <= proved


# T5: a chain.


def chain_by_definition(n: int) -> Fraction:
    """Every sequence of bits with the likelihood of the chain that suits it best, given its first bit."""
    total = Fraction(0)
    for sequence in product((0, 1), repeat=n):
        steps = np.zeros((2, 2), int)
        np.add.at(steps, (sequence[:-1], sequence[1:]), 1)
        likelihood = Fraction(1)
        for row in steps.tolist():
            likelihood *= math.prod(Fraction(each, sum(row)) ** each for each in row if each)
        total += likelihood
    return total


@pytest.mark.parametrize("n", range(1, 13))
def test_the_factor_of_a_chain_is_that_over_all_sequences(n):
    assert factor(outputs=2, releases=n, assuming="chain") == pytest.approx(float(chain_by_definition(n)))


@pytest.mark.parametrize(("n", "wanted"), [(10, 17.7), (30, 45.0), (100, 133.8), (365, 456.4)])
def test_the_figures_of_a_chain(n, wanted):
    assert factor(outputs=2, releases=n, assuming="chain") == pytest.approx(wanted, abs=0.05)
    assert factor(outputs=2, releases=n, assuming="chain") > factor(
        outputs=2, releases=n, assuming="exchangeable"
    )


def test_a_chain_of_more_than_two_values_or_of_very_many_is_a_sequence():
    assert factor(outputs=3, releases=4, assuming="chain") == pytest.approx(81)
    assert counting(TINY, outputs=2, releases=5_000, assuming="chain").chance == 1


@few_tries
@given(seeds, st.integers(2, 8))
def test_no_adversary_is_above_the_bound_of_chains_and_of_their_mixtures(seed, n):
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(draw.integers(2, 9)):
        chains = [(draw.random(), draw.dirichlet([0.2, 0.2], size=2)) for _ in range(draw.integers(1, 4))]
        each = [
            [
                (first if s[0] else 1 - first) * math.prod(step[a, b] for a, b in pairwise(s))
                for s in product((0, 1), repeat=n)
            ]
            for first, step in chains
        ]
        rows.append(draw.dirichlet(np.ones(len(each))) @ np.array(each))
    no_adversary_is_above([partial(counting, outputs=2, releases=n, assuming="chain")], np.array(rows), draw)


def test_runs_break_the_bound_of_independent_draws_and_not_that_of_a_chain():
    """10 answers whose person stays at one for k of them and then at the other: 20 series, each a chain's."""
    n, series = 10, {tuple([first] * k + [1 - first] * (10 - k)) for first in (0, 1) for k in range(11)}
    likeliest = []
    for each in series:
        steps = np.zeros((2, 2))
        np.add.at(steps, (each[:-1], each[1:]), 1)
        share = steps / np.maximum(steps.sum(1, keepdims=True), 1)
        # Of the chain that suits it best; others have the rest.
        likeliest.append(float(np.prod(share**steps)))
    laws = np.diag(likeliest)
    people = np.hstack([laws, 1 - laws.sum(1, keepdims=True)])  # what else it makes counts for nobody
    named = exact([1 / len(series)] * len(series), people)
    assert len(series) == 20
    assert named * len(series) > factor(outputs=2, releases=n, assuming="exchangeable")
    assert named * len(series) <= factor(outputs=2, releases=n, assuming="chain")


# T6: how sure anybody can be.


@few_tries
@given(seeds, st.floats(0.05, 1))
def test_a_posterior_is_reached_as_rarely_as_is_proved(seed, posterior):
    draw = np.random.default_rng(seed)
    rows = draw.dirichlet(np.full(9, draw.choice([0.05, 1.0])), size=draw.integers(2, 40))
    marginal = rows.mean(0)
    largest = rows.max(0) / len(rows) / np.maximum(marginal, 1e-300)
    reached = marginal[largest >= posterior].sum()
    stated = Naming(
        chance=exact([1 / len(rows)] * len(rows), rows), prior=0.1, candidates=9, releases=1, source=""
    )
    assert reached <= stated.bound_sure(posterior) * (1 + 1e-9)


def test_the_sentence_says_how_rarely_anybody_is_sure_unless_it_may_be_always():
    year = statement(counting(1e-6, outputs=6, releases=4), 4)
    assert "though nobody can be 10% sure of them except with a chance of 1.3% among 1,000; counting" in str(
        year
    )
    assert "sure of them" not in str(statement(counting(0.02, outputs=6), 1))


# T7: outputs that many people share.


def test_levels_of_a_reference_leave_nobody_among_other_people_with_a_large_posterior():
    draw = np.random.default_rng(0)
    reference, people = (draw.binomial(100, draw.beta(1.2, 2.4, size=n)) / 100 for n in (100_000, 1_000))
    rule, share = share_levels(reference + draw.uniform(0, 1e-3, 100_000), levels=10, delta=0.05)
    assert 0.1 - 2 * math.sqrt(math.log(40) / 200_000) == pytest.approx(share, abs=1e-4)
    seen = np.searchsorted(rule, people + draw.uniform(0, 1e-3, 1_000), "right")
    assert np.bincount(seen, minlength=10).min() >= 50  # of one draw each
    theta = draw.beta(1.2, 2.4, size=1_000)
    k = np.arange(101)
    ways = np.array([float(math.comb(100, each)) for each in k])
    full = ways * theta[:, None] ** k * (1 - theta[:, None]) ** (100 - k)
    levels = np.searchsorted(rule, k / 100 + 5e-4, "right")
    table = np.stack([full[:, levels == level].sum(1) for level in range(10)], axis=1)
    largest = (table.max(0) / table.sum(0)).max()
    assert largest <= bound_posterior(1_000, table.mean(0).min()) * (1 + 1e-9)
    assert largest <= bound_posterior(1_000, share) < 0.012
    assert (full.max(0) / full.sum(0)).max() > 10 * largest  # by the whole count somebody is known


def test_a_reference_of_m_people_has_as_large_shares_as_is_stated_but_for_delta():
    draw = np.random.default_rng(0)
    broken = 0
    for _ in range(400):
        rule, share = share_levels(draw.random(500), levels=4, delta=0.2)
        broken += np.diff([0, *rule, 1]).min() < share
    assert broken / 400 <= 0.2


def test_rare_codes_are_sent_as_the_nearest_that_many_have():
    bits = np.array(list(product((-1, 1), repeat=3)))
    reference = np.repeat([0b000, 0b011, 0b111, 0b100], [500, 400, 90, 10])
    rule, share = share_codes(reference, bits, least=0.05, delta=0.01)
    assert rule.tolist() == [0b000, 0b000, 0b000, 0b011, 0b000, 0b111, 0b111, 0b111]
    # By definition: at β, 90 of 1,000 or more are seen with a chance of δ/K.
    seen = sum(math.comb(1_000, k) * share**k * (1 - share) ** (1_000 - k) for k in range(90, 300))
    assert seen == pytest.approx(0.01 / 8)
    draw = np.random.default_rng(0)
    laws = draw.dirichlet(np.full(8, 0.3), size=200)
    sent = np.zeros((200, 8))
    np.add.at(sent.T, rule, laws.T)
    used = sent.sum(0) > 0
    stated = bound_posterior(200, sent.mean(0)[used].min())
    assert (sent.max(0)[used] / sent.sum(0)[used]).max() <= stated * (1 + 1e-9)
    with pytest.raises(ConfigError, match=r"common=0.9: the most frequent code has 0\.5 of the reference"):
        share_codes(reference, bits, least=0.9, delta=0.01)
    assert bound_posterior(1_000, 0.0) == 1


def test_rare_words_are_sent_as_the_word_that_means_nearly_the_same():
    """Not as the one whose bits differ least."""
    words = np.array([[0.0, 0.0], [5.0, 5.0], [0.1, 0.1], [5.0, 5.1]])
    rule, _ = share_codes(np.repeat([0, 1, 2], [60, 38, 2]), words, least=0.1, delta=0.05)
    assert rule.tolist() == [0, 1, 0, 1]


def test_the_codes_of_a_reference_are_as_frequent_among_all_people_as_is_stated_but_for_delta():
    draw, broken = np.random.default_rng(0), 0
    law = np.array([0.5, 0.2, 0.12, 0.08, 0.05, 0.03, 0.01, 0.01])
    for _ in range(400):
        reference = draw.choice(8, size=200, p=law)
        rule, share = share_codes(reference, np.eye(8), least=0.03, delta=0.2)
        broken += np.bincount(rule, weights=law)[np.unique(rule)].min() < share
    assert 0 < broken / 400 <= 0.2


def test_random_bits_leave_everybody_with_a_guess():
    assert bound_posterior(1_000, 1 / 32, 1 / 32) == pytest.approx(1 / 1_000)


# T8: rare alarms.


@pytest.mark.parametrize(("most", "slots"), [(1, 10), (2, 10), (3, 6), (9, 4)])
def test_alarms_are_counted_by_their_patterns(most, slots):
    patterns = [each for k in range(min(most, slots) + 1) for each in combinations(range(slots), k)]
    assert count_alarms(most, slots) == len(patterns) == len(set(patterns))
    assert factor(outputs=count_alarms(most, slots)) == pytest.approx(np.eye(len(patterns)).max(0).sum())


def test_one_alarm_a_quarter_of_days():
    assert count_alarms(1, 91) == 92
    for wrong in ({"most": 0, "slots": 9}, {"most": 1, "slots": 0}):
        with pytest.raises(ConfigError, match="at least 1"):
            count_alarms(**wrong)


# An oracle from outside: qif, by which information flow is computed exactly.


@pytest.mark.parametrize("seed", range(100))
def test_the_best_adversary_and_its_factor_are_those_of_qif(seed):
    draw = np.random.default_rng(seed)
    channel = random_channel(draw)
    priors = draw.dirichlet(np.ones(len(channel)))
    named = qif.measure.bayes_vuln.posterior(priors, channel)
    assert priors @ of_each(list(priors), channel) == pytest.approx(named)
    assert exact(list(priors), channel) == pytest.approx(named)
    capacity = qif.measure.bayes_vuln.mult_capacity(channel)
    assert named <= float(priors.max()) * capacity * (1 + 1e-9)
    assert capacity <= channel.shape[1] * (1 + 1e-9)
    assert named <= counting(list(priors), outputs=channel.shape[1]).chance
    two = joint([channel, channel])  # of two releases of one image each
    assert qif.measure.bayes_vuln.mult_capacity(two) == pytest.approx(capacity**2)
