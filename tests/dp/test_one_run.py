"""Bounds from one run, against exact enumeration, linear programmes, and mechanisms that are known."""

import itertools
import math
from functools import partial
from statistics import NormalDist

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.stats import binom

from sfumato.dp.audit.one_run import Guesses, conclude, guess, p_value, plan_guesses, proves, refutes_mu
from sfumato.errors import ConfigError

NORMAL = NormalDist()


epsilon_bound = partial(proves, definition="approximate")
mu_bound = partial(proves, definition="gaussian")


def of(right, guesses=None, canaries=None):
    guesses = guesses or 100
    return Guesses(canaries=canaries or guesses, guesses=guesses, right=right)


def randomised_response(epsilon):
    return 1 / (1 + math.exp(-epsilon))


# Guesses


def test_the_scores_farthest_from_0_are_guessed_by_their_sign():
    scores = torch.tensor([3.0, -2.0, 0.1, 5.0, -7.0, 0.0])
    inserted = torch.tensor([True, True, False, False, False, True])
    found = guess(scores, inserted, guesses=4)  # 0 and 3 in, 1 and 4 out: 0 and 4 are right
    assert found == Guesses(canaries=6, guesses=4, right=2)


def test_a_score_that_is_no_number_is_guessed_last_and_runs_add_up():
    scores = torch.tensor([math.nan, 1.0, -1.0, 0.0, math.inf])
    inserted = torch.tensor([True, True, False, True, True])
    assert guess(scores, inserted, guesses=3).right == 3
    assert of(5, 10) + of(7, 9, 20) == Guesses(canaries=30, guesses=19, right=12)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: guess(torch.zeros(3), torch.zeros(3).bool(), guesses=4), "at most as many as there are"),
        (lambda: Guesses(canaries=6, guesses=4, right=5), "5 right of 4 guesses for 6 canaries"),
        (lambda: conclude(of(60), definition="concentrated", stated=1.0), r"audit its \(eps, delta\)"),
        (lambda: proves(of(60), "approximate", delta=1.0, confidence=0.9), "delta=1: at least 0 and below 1"),
    ],
)
def test_more_guesses_than_canaries_and_zcdp_are_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()


# (eps, delta)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_at_delta_0_the_p_value_is_the_tail_of_randomised_response_enumerated(epsilon):
    q, r = randomised_response(epsilon), 8
    for right in range(r + 1):
        tail = sum(
            q ** sum(outcome) * (1 - q) ** (r - sum(outcome))
            for outcome in itertools.product((0, 1), repeat=r)
            if sum(outcome) >= right
        )
        assert p_value(of(right, r), epsilon=epsilon, delta=0.0) == pytest.approx(tail, rel=1e-9)


@pytest.mark.parametrize("delta", [1e-3, 0.02])
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_p_value_covers_mechanisms_that_fail_with_probability_delta(epsilon, delta):
    """Coin by coin, or all coins at once, which is the worse of the two at the highest counts."""
    q, m = randomised_response(epsilon), 30
    for right in range(m + 1):
        honest = binom.sf(right - 1, m, q)
        coin_by_coin = binom.sf(right - 1, m, delta + (1 - delta) * q)
        at_once = delta + (1 - delta) * honest
        bound = p_value(of(right, m), epsilon=epsilon, delta=delta)
        assert bound >= max(coin_by_coin, at_once) * (1 - 1e-9)


def test_the_correction_for_delta_is_the_theorems():
    m, r, v, epsilon, delta = 50, 20, 16, 0.7, 1e-3
    law = binom(r, randomised_response(epsilon))
    worst = max(sum(law.pmf(v - j) for j in range(1, i + 1)) / i for i in range(1, v + 1))
    expected = law.sf(v - 1) + 2 * m * delta * worst
    assert p_value(of(v, r, m), epsilon=epsilon, delta=delta) == pytest.approx(expected, rel=1e-9)


def test_all_right_is_what_a_logarithm_says_and_half_right_proves_nothing():
    q = 0.05 ** (1 / 100)  # q^100 = 0.05
    assert epsilon_bound(of(100), confidence=0.95) == pytest.approx(math.log(q / (1 - q)), rel=1e-6)
    assert epsilon_bound(of(50), confidence=0.9) == mu_bound(of(50), confidence=0.9) == 0


def test_more_right_guesses_and_more_canaries_prove_more_and_delta_less():
    for bound in (epsilon_bound, mu_bound):
        bounds = [bound(of(right), confidence=0.95) for right in (60, 75, 90, 100)]
        assert bounds == sorted(set(bounds))
        bounds = [bound(of(8 * n, 10 * n), confidence=0.95) for n in (3, 10, 50)]
        assert bounds == sorted(set(bounds))
        bounds = [bound(of(90), confidence=confidence) for confidence in (0.999, 0.95, 0.8)]
        assert bounds == sorted(set(bounds))
    bounds = [epsilon_bound(of(90), delta=delta, confidence=0.95) for delta in (1e-3, 1e-5, 0.0)]
    assert bounds == sorted(set(bounds))


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_the_bound_is_above_the_truth_of_randomised_response_no_more_often_than_stated(epsilon):
    """Summed over all outcomes, so that nothing is left to chance."""
    law = binom(60, randomised_response(epsilon))
    above = [v for v in range(61) if epsilon_bound(of(v, 60), confidence=0.95) > epsilon]
    chance = sum(law.pmf(v) for v in above)
    assert 0.01 < chance <= 0.05 + 1e-9


# mu


def most_likely(m, r, v, bounds):
    """The largest P(V >= v) for r guesses of m canaries, by linear programming.

    p_0, ..., p_r are such that for each i, and for each line a + b x above 1 - f(x), the probability that a
    random canary is guessed right and V >= i is at most a + b times that of a wrong guess and V >= i - 1.
    """
    k = np.arange(r + 1)
    rows, limits = [], []
    for i, (a, b) in itertools.product(range(1, r + 1), bounds):
        rows.append((k >= i) * k / m - b * (k >= i - 1) * (r - k) / m)
        limits.append(a)
    solved = linprog(-(k >= v).astype(float), rows, limits, np.ones((1, r + 1)), [1.0], (0, 1), "highs")
    return -solved.fun


def gaussian_lines(mu):
    """Tangents of x -> Φ(Φ^-1(x) + μ)."""
    lines = [(1.0, 0.0)]
    for t in np.linspace(-6, 6, 400):
        x = NORMAL.cdf(t)
        slope = NORMAL.pdf(t + mu) / NORMAL.pdf(t)
        lines.append((NORMAL.cdf(t + mu) - slope * x, slope))
    return lines


@pytest.mark.parametrize(("m", "r", "v", "mu"), [(6, 6, 5, 0.5), (8, 5, 5, 1.0), (12, 12, 9, 0.3)])
def test_the_recursion_finds_what_linear_programming_does(m, r, v, mu):
    low, high = 0.0, 1.0
    for _ in range(40):
        alpha = (low + high) / 2
        refuted = refutes_mu(of(v, r, m), mu=mu, alpha=alpha)
        low, high = (low, alpha) if refuted else (alpha, high)
    assert high == pytest.approx(most_likely(m, r, v, gaussian_lines(mu)), rel=2e-3)


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_the_bound_on_mu_is_above_the_truth_no_more_often_than_stated(mu):
    """Each canary moves a value of its own by μ deviations, so that the number of right ones is binomial."""
    law = binom(300, NORMAL.cdf(mu / 2))
    above = [v for v in range(150, 301) if refutes_mu(of(v, 300), mu=mu, alpha=0.05)]
    assert law.sf(min(above) - 1) <= 0.05
    assert above == list(range(min(above), 301))


def test_a_gaussian_mechanism_is_told_by_its_scores_and_not_above_its_mu():
    generator = torch.Generator().manual_seed(0)
    mu, m, proved = 2.0, 1000, []
    r = plan_guesses(m, mu=mu, bound=lambda guesses: mu_bound(guesses, confidence=0.95))
    for _ in range(20):
        inserted = torch.rand(m, generator=generator) < 0.5
        scores = torch.randn(m, generator=generator) + mu * (inserted.double() - 0.5)
        found = guess(scores, inserted, guesses=r)
        proved.append(mu_bound(found, confidence=0.95))
    assert max(proved) <= mu
    assert np.mean(proved) > 0.4 * mu


def test_the_number_of_guesses_is_the_one_that_is_expected_to_prove_most():
    """By simulation, of scores that are as far apart as stated."""
    generator = torch.Generator().manual_seed(0)
    inserted = torch.rand(20_000, generator=generator) < 0.5
    scores = torch.randn(20_000, generator=generator) + 1.5 * (inserted.double() - 0.5)

    def bound(guesses):
        return epsilon_bound(guesses, confidence=0.95)

    planned = plan_guesses(20_000, mu=1.5, bound=bound)
    best = bound(guess(scores, inserted, guesses=planned))
    assert planned < 5_000
    assert all(best > bound(guess(scores, inserted, guesses=some)) for some in (50, 10_000, 20_000))
    assert plan_guesses(100, mu=0.1, bound=bound) == 50  # half, if nothing is expected to be proved


# Conclusions


def test_a_conclusion_convicts_where_the_bound_is_above_what_is_stated():
    right = conclude(of(60), definition="pure", stated=1.0)
    wrong = conclude(of(100), definition="pure", stated=1.0, runs=2)
    assert not right.convicted
    assert wrong.convicted
    assert wrong.lower == wrong.most > 3
    assert str(wrong).startswith("stated eps = 1; canaries told apart at eps >= 3.0")
    assert str(wrong).endswith("(99% confidence, 2 runs, 100 of 100 guesses right, 100 canaries)")


def test_a_conclusion_of_mu_is_a_bound_on_mu_and_one_of_epsilon_too():
    result = conclude(of(95), definition="gaussian", stated=0.1)
    assert result.lower == mu_bound(of(95), confidence=0.99)
    assert result.convicted
    mu, epsilon, delta = result.lower, result.epsilon(1e-5), 1e-5
    # Dong, Roth & Su 2022, Corollary 2.13.
    at = NORMAL.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * NORMAL.cdf(-epsilon / mu - mu / 2)
    assert at == pytest.approx(delta, rel=1e-6)
    pure = conclude(of(95), definition="pure", stated=0.1)
    assert pure.epsilon(1e-5) == pure.lower
