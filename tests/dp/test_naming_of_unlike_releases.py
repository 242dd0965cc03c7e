"""Naming from releases by different protections: never below what the best adversary reaches."""

import math

import numpy as np
import pytest
from channels import exact, priors_of, promise, random_channel, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.dp.guarantee import proof_of
from sfumato.dp.naming import (
    Information,
    Proof,
    compose,
    counting,
    gaussian,
    make_statement,
    pure,
)
from sfumato.errors import ConfigError

few_tries = settings(deadline=None, max_examples=150)


def proof_of_channel(channel: np.ndarray, releases: int, *, tells: str) -> Proof:
    """What is true of a channel, in the terms that are asked for."""
    bits = math.log2(channel.max(axis=0).sum())
    epsilon = float(np.log(channel[:, None] / channel[None]).max())
    guarantees = [promise("pure", epsilon)] if tells in ("privacy", "both") else []
    known = Information(leakage=bits) if tells in ("leakage", "both") else Information()
    return proof_of(guarantees, known, releases=releases)


def of_series(series: list[np.ndarray], people: int, draw: np.random.Generator) -> np.ndarray:
    """(people, outputs of all releases together): each person has two alternative series of images."""
    rows = []
    for _ in range(people):
        alternatives = []
        for _ in range(2):
            joint = np.ones(1)
            for channel in series:
                joint = np.kron(joint, channel[draw.integers(len(channel))])
            alternatives.append(joint)
        rows.append(draw.dirichlet(np.ones(2)) @ np.array(alternatives))
    return np.array(rows)


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
    people = int(draw.integers(1, 9))
    priors = priors_of(people, draw)
    best_adversary = exact(list(priors), of_series(series, people, draw))
    assert best_adversary <= compose(float(priors.max()), proofs).chance
    assert best_adversary <= compose(list(priors), proofs).chance


def test_codes_of_2_and_3_bits_tell_as_much_as_one_of_5_and_people_on_all_of_it_reach_that():
    proofs = [Proof(releases=1, leakage=2.0), Proof(releases=1, leakage=3.0)]
    bound = compose(1 / 369, proofs).chance
    assert bound == pytest.approx(32 / 369)
    assert exact([1 / 369] * 369, np.eye(32)[np.arange(369) % 32]) == pytest.approx(bound)


def test_a_bound_that_left_one_of_two_releases_out_would_be_broken():
    # 8 people, one for each of 2 * 4 outputs: named for certain.
    assert exact([1 / 8] * 8, np.eye(8)) == 1
    assert compose(1 / 8, [Proof(releases=1, leakage=2.0)]).chance < 0.51
    assert compose(1 / 8, [Proof(releases=1, leakage=2.0), Proof(releases=1, leakage=1.0)]).chance == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_releases_alike_have_the_bound_of_their_own_kind(n):
    assert compose(0.001, [Proof(releases=n, leakage=2.0)]).chance == pytest.approx(
        counting(0.001, outputs=4, releases=n).chance
    )
    assert compose(0.001, [Proof(releases=n, mu=0.5)]).chance == pytest.approx(
        gaussian(0.001, mu=0.5, releases=n).chance
    )
    assert compose(0.3, [Proof(releases=n, epsilon=0.4)]).chance <= pure(
        0.3, epsilon=0.4, releases=n
    ).chance * (1 + 1e-6)


def test_numbers_from_a_centre_add_up_in_squares():
    proofs = [Proof(releases=2, mu=0.3), Proof(releases=1, mu=0.4)]
    assert compose(0.01, proofs).chance == pytest.approx(gaussian(0.01, mu=math.sqrt(0.34)).chance)


def test_a_code_beside_noise_from_a_centre_multiplies_its_bound():
    proofs = [Proof(releases=2, mu=0.3), Proof(releases=1, leakage=1.5)]
    assert compose(0.001, proofs).chance == pytest.approx(gaussian(0.001, mu=0.3, releases=2).chance * 2**1.5)


def test_each_release_counts_by_whichever_of_its_proofs_is_better():
    """A code of 16 bits that hardly differ is held by its noise; one of 1 bit without noise by counting."""
    noisy, counted = Proof(releases=1, leakage=16.0, mu=0.1), Proof(releases=1, leakage=1.0)
    bound = compose(0.001, [noisy, counted]).chance
    assert bound == pytest.approx(2 * gaussian(0.001, mu=0.1).chance)


def test_one_release_of_which_nothing_is_proved_leaves_nothing_proved_of_all():
    bound = compose(1e-6, [Proof(releases=1, leakage=1.0), Proof(releases=1)])
    assert bound.chance == 1
    assert bound.source == "nothing is proved"


def test_without_a_release_the_guess_beforehand_is_left():
    assert compose(0.01, []) == (0.01, "nothing was released")
    assert compose([0.25, 0.75], [Proof(releases=0)]) == (0.75, "nothing was released")


def test_many_releases_of_many_bits_are_added_up_without_overflow():
    assert compose(1e-6, [Proof(releases=10**6, leakage=64.0)]).chance == 1


def test_more_releases_never_lower_the_bound():
    chances = [compose(1e-6, [Proof(releases=n, leakage=3.0, mu=1.0)]).chance for n in range(1, 9)]
    assert chances == sorted(chances)


def test_the_source_names_every_theorem_that_was_used():
    assert compose(0.01, [Proof(releases=1, leakage=1.0)]).source == (
        "maximal leakage, added up: Issa, Wagner & Kamath 2020"
    )
    both = compose(0.01, [Proof(releases=1, leakage=1.0), Proof(releases=1, mu=0.1)]).source
    assert both == (
        "maximal leakage, added up: Issa, Wagner & Kamath 2020; "
        "f-DP from a centre: after Hayes, Mahloujifar & Balle 2023, Thm. 2"
    )


# What a guarantee says in each term.


def test_a_pure_guarantee_is_a_proof_in_every_term():
    proof = proof_of([promise("pure", 0.5)], Information(), releases=3)
    assert (proof.releases, proof.epsilon) == (3, 0.5)
    assert proof.leakage == pytest.approx(0.5 / math.log(2))  # p(y|x) <= e^ε q(y)
    assert proof.mu == pytest.approx(promise("pure", 0.5).to("gaussian").whole_image)
    assert proof.rho == pytest.approx(0.125)


def test_a_centre_is_taken_where_it_proves_more():
    proof = proof_of([promise("concentrated", 2.0, centre=1.0)], Information(), releases=1)
    assert (proof.epsilon, proof.leakage, proof.mu) == (math.inf, math.inf, 1.0)
    assert proof.rho == pytest.approx(0.5)


def test_of_several_guarantees_the_best_counts():
    proof = proof_of([promise("pure", 5.0), promise("pure", 2.0)], Information(outputs=1.0), releases=1)
    assert proof.epsilon == 2
    assert proof.leakage == 1  # what is counted leaks no more


def test_without_any_guarantee_nothing_is_proved():
    assert proof_of([], Information(), releases=2) == Proof(releases=2)


def test_a_few_bits_are_a_statement_like_all_others():
    bound = compose(1 / 1_000, [Proof(releases=2, leakage=2.0)])
    statement = make_statement(bound, candidates=1_000, prior=None, releases=2)
    assert statement.chance == pytest.approx(0.016)


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
