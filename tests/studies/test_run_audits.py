"""Audits of whole runs prove what a run gives away, and no more."""

import math

import pytest
import torch
from run_audits import audit_runs
from scipy.optimize import brentq
from scipy.stats import norm

from sfumato.errors import ConfigError

DELTA = 0.1


def gaussian(mu: float, seed: int = 0, sign: int = 1):
    """A run whose score is N(0, 1), and N(mu, 1) with the canary."""
    generator = torch.Generator().manual_seed(1_000 + seed)  # not those of the order of runs
    return lambda inserted: sign * (mu * inserted + torch.randn((), generator=generator).item())


def epsilon_of(mu: float, delta: float) -> float:
    """The ε of the Gaussian mechanism, by Balle & Wang 2018, Theorem 8."""

    def excess(epsilon: float) -> float:
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 20)


def audited(run, *, trials=2_000, **more):
    return audit_runs(run, **{"epsilon": 1.0, "delta": DELTA, "seed": 0, **more}, trials=trials)


@pytest.mark.parametrize("mu", [1.0, 2.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_bound_comes_near_the_epsilon_of_a_gaussian_mechanism(mu, sign):
    true = epsilon_of(mu, DELTA)
    result = audited(gaussian(mu, sign=sign), trials=50_000, epsilon=true)
    assert 0.6 * true < result.lower <= true
    assert not result.convicted


def test_a_guarantee_that_is_a_third_too_good_is_refuted():
    true = epsilon_of(1.0, DELTA)
    assert audited(gaussian(1.0), trials=50_000, epsilon=true * 2 / 3).convicted


def test_what_is_rare_with_the_canary_is_found_as_what_is_rare_without():
    """The score is 1 in half of the runs, and never otherwise: adding shows it or removing does."""
    coins = torch.Generator().manual_seed(1_000)

    def flip() -> bool:
        return torch.rand((), generator=coins).item() < 0.5

    for side in (True, False):
        result = audited(lambda inserted, side=side: float(inserted == side and flip()))
        assert result.lower > 3.0  # 0.35 / 0.01, about
        assert f"likelier {'with' if side else 'without'} the canary" in result.event


def test_a_run_that_ignores_the_canary_proves_next_to_nothing():
    assert audited(gaussian(0.0)).lower < 0.2
    assert audited(lambda _: 0.0).lower == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_a_run_that_tells_all_proves_the_most_that_so_many_can(sign):
    # 500 of 500 and 0 of 500: a limit p with p^500 = 0.005, twice.
    limit = 0.005 ** (1 / 500)
    result = audited(lambda inserted: float(sign * inserted))
    assert result.lower == result.most == pytest.approx(math.log((limit - DELTA) / (1 - limit)), rel=1e-6)
    assert result.convicted


def test_bounds_exceed_the_truth_as_seldom_as_the_confidence_says():
    # ε = ln 3 exactly: the score is a coin that tells with probability 3/4. At 80% confidence 200 audits may
    # fail 40 times on average; the two limits of an event with two values fail together, so far less often.
    generator = torch.Generator().manual_seed(1_000)

    def respond(inserted: bool) -> float:
        return float(inserted == (torch.rand((), generator=generator).item() < 0.75))

    bounds = [audited(respond, trials=400, delta=0.0, confidence=0.8, seed=s).lower for s in range(200)]
    assert sum(bound > math.log(3) for bound in bounds) <= 50
    assert sum(bound > math.log(3) for bound in bounds) >= 1  # at 80% it is no bound that never fails
    assert sum(bounds) / len(bounds) > 0.6 * math.log(3)


def test_half_of_the_runs_have_the_canary_in_an_order_of_the_seed():
    orders = []
    for seed in (0, 0, 1):
        seen = []
        audited(lambda inserted, seen=seen: seen.append(inserted) or 0.0, trials=100, seed=seed)
        orders.append(seen)
        assert len(seen) == 100
        assert sum(seen[:50]) == sum(seen[50:]) == 25
    assert orders[0] == orders[1] != orders[2]


def test_the_search_never_sees_the_runs_that_are_measured():
    """A threshold found in the second half as well would show something even in noise, again and again."""
    lowers = [audited(gaussian(0.0, seed), trials=200, delta=0.0, seed=seed).lower for seed in range(100)]
    assert sum(lower > 0 for lower in lowers) <= 6  # 1 on average at 99%; more have a probability of 1e-4


def test_the_result_reads_as_what_was_proved():
    text = str(audited(lambda inserted: float(inserted)))
    assert text.startswith("stated eps = 1 at delta = 0.1; told apart at eps >= 4.4")
    assert "2,000 runs, a score of at least 0.5 is likelier with the canary)" in text


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"trials": 99}, "trials=99: fewer than 100"),
        ({"epsilon": -1.0}, "epsilon=-1: at least 0"),
        ({"epsilon": math.inf}, "epsilon=inf: at least 0 and finite"),
        ({"delta": 1.0}, "delta=1: at least 0 and below 1"),
        ({"confidence": 1.0}, "confidence=1: it lies between"),
    ],
)
def test_impossible_settings_are_refused_before_a_run_is_made(setting, message):
    runs = []
    with pytest.raises(ConfigError, match=message):
        audited(runs.append, **setting)
    assert runs == []


@pytest.mark.parametrize(("score", "word"), [(math.nan, "nan"), (math.inf, "inf")])
def test_scores_that_cannot_be_compared_are_refused(score, word):
    with pytest.raises(ConfigError, match=f"a run without the canary scored {word}"):
        audited(lambda inserted: 0.0 if inserted else score)
