"""Audits of private meta-training as it runs: right runs are acquitted, and wrong ones convicted.

The noise of private runs is the operating system's, so that nothing here can be repeated. Acquittals hold at
99.99% confidence, which is their chance to be right by the audit's own theorem; in convictions the canary is
told nearly always, and the comments say what remains. A run takes some 10 ms.
"""

from dataclasses import replace
from functools import cache

import canary_run as runs
import pytest
import torch
from canary_run import canary_run
from run_audits import audit_runs
from torch import nn

from sfumato.dp import accounting, clipping
from sfumato.dp.accounting import Stretch
from sfumato.dp.clipping import policies
from sfumato.errors import ConfigError
from sfumato.learn import meta
from sfumato.learn.meta import MetaConfig, Private
from sfumato.protect import parse

IMAGE, DELTA = (1, 6, 6), 1e-5
# The canary of the small network contributes a norm of about 0.03, far above the clipping norms here.
SETTINGS = {
    "fixed": {"clipping_norm": 1e-3},
    "automatic": {"stability": 1e-4},
    "quantile": {"start": 1e-3},
    "adaclip": {"largest": 1e-6},
    "meta-clip": {"start": 1e-2, "bound": 0.1},
}


@pytest.fixture(autouse=True)
def _small_network(monkeypatch):
    def small(shape, way):
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, way))

    monkeypatch.setitem(meta.NETWORKS, "fully-connected", small)


@cache
def _remembered(stretches, delta, accountant):
    return _real_epsilon(stretches, delta, accountant)


_real_epsilon = accounting.epsilon


@pytest.fixture(autouse=True)
def _cheap_prices(monkeypatch):
    """Every run asks the same questions of the accountant: each is computed once."""
    monkeypatch.setattr(accounting, "epsilon", lambda s, d, a="pld": _remembered(tuple(s), d, a))


def config(policy="fixed", *, epsilon=1.0, tasks=8, steps=2, **more):
    private = Private(epsilon=epsilon, delta=DELTA, clipping=policy, settings=SETTINGS[policy], **more)
    return MetaConfig(way=2, shot=1, queries=1, steps=steps, tasks=tasks, private=private)


def audited(configured, *, places=8, trials=200, confidence=0.99):
    run = canary_run(configured, places=places, image=IMAGE)
    epsilon = configured.private.epsilon
    return audit_runs(run, epsilon=epsilon, delta=DELTA, trials=trials, confidence=confidence, seed=0)


class Watched:
    """Notes what the adversary is shown in a run."""

    def __init__(self, monkeypatch, configured, *, inserted, places=8):
        self.parameters, self.looks = [], []
        expected = runs.expect

        def noted(training, *given):
            self.parameters.append(training._start.detach().clone())
            return expected(training, *given)

        with monkeypatch.context() as patch:
            patch.setattr(runs, "expect", noted)
            patch.setattr(runs._Adversary, "look", lambda _, *given: self.looks.append(given))
            canary_run(configured, places=places, image=IMAGE)(inserted)


# The canary


@pytest.mark.parametrize("policy", SETTINGS)
def test_without_the_canary_nothing_but_noise_is_released(monkeypatch, policy):
    monkeypatch.setattr(clipping, "fresh_gaussian", lambda shape, _: torch.zeros(shape, dtype=torch.float64))
    for update, idle, shift, spread in Watched(monkeypatch, config(policy), inserted=False).looks:
        assert not update.any()
        assert not idle.any()
        assert shift.any()
        assert (spread > 0).all()


@pytest.mark.parametrize("policy", SETTINGS)
def test_with_the_canary_the_update_moves_as_the_adversary_expects(monkeypatch, policy):
    monkeypatch.setattr(clipping, "fresh_gaussian", lambda shape, _: torch.zeros(shape, dtype=torch.float64))
    looks = Watched(monkeypatch, config(policy), inserted=True).looks  # at rate 1
    assert len(looks) == 2
    for update, idle, shift, _ in looks:
        torch.testing.assert_close(update.double(), idle + shift, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(("policy", "share"), [("fixed", 0), ("automatic", 0), ("quantile", 0.1)])
def test_the_canary_uses_all_that_a_task_is_allowed(monkeypatch, policy, share):
    z = 3.0
    given = config(policy, noise_multiplier=z, epsilon=9.0)
    for _, _, shift, spread in Watched(monkeypatch, given, inserted=True).looks:
        assert (shift / spread).norm().item() == pytest.approx((1 - share) ** 0.5 / z, rel=0.01)


def test_neither_the_images_drawn_nor_the_order_of_labels_changes_the_canary():
    data = runs.white(config(), places=4, image=IMAGE)
    training = meta.Training(data, parse("none"), config(tasks=4), "class", 0, IMAGE)
    drawn = [training._promise.draw(config().shape) for _ in range(6)]
    found = torch.cat(
        [
            training._contributions(training._tasks(rows, None, torch.Generator()), config().inner)
            for rows in drawn
        ]
    )
    assert len(drawn[0]) == 4
    assert any(not torch.equal(drawn[0], rows) for rows in drawn[1:])
    assert (found == found[0]).all()


def test_the_adversary_needs_the_seed_and_the_updates_alone(monkeypatch):
    """His parameters of each step are those of an optimiser that he runs himself."""
    given = config(steps=4, tasks=4, epsilon=9.0)
    watched = Watched(monkeypatch, given, inserted=True)
    mine = nn.Parameter(meta.make_untrained(given, IMAGE, 0).initial())
    adam = torch.optim.Adam([mine], lr=given.meta_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, T_max=4)
    for parameters, (update, *_) in zip(watched.parameters, watched.looks, strict=True):
        torch.testing.assert_close(parameters, mine.detach(), rtol=0, atol=1e-7)
        mine.grad = update
        adam.step()
        schedule.step()


def test_scores_have_the_means_of_the_log_likelihood_ratio_of_two_gaussians():
    # μ^2 = 2 / z^2 at rate 1. The mean of 60 scores is off by about μ / sqrt(60), 5 times that once in 10^6.
    z = 1.0
    run = canary_run(config(noise_multiplier=z, epsilon=50.0), places=8, image=IMAGE)
    mu = 2**0.5 / z
    for sign, inserted in ((1, True), (-1, False)):
        mean = torch.tensor([run(inserted) for _ in range(60)]).mean().item()
        assert mean == pytest.approx(sign * mu**2 / 2, abs=5 * mu / 60**0.5)


# Right runs


@pytest.mark.parametrize(
    ("policy", "tasks"), [*((policy, 8) for policy in SETTINGS), ("quantile", 3), ("meta-clip", 3)]
)
def test_right_runs_are_not_convicted(policy, tasks):
    result = audited(config(policy, tasks=tasks), trials=100, confidence=0.9999)
    assert not result.convicted


def test_right_runs_give_away_what_a_large_budget_allows():
    # At rate 1 the score is Gaussian with μ = sqrt(2) / 0.4 = 3.5, of which so few runs prove 1.7 or so; the
    # lowest of 20,000 simulated audits like this one was 0.6.
    price = accounting.epsilon([Stretch(0.4, 1.0, 2)], DELTA)
    result = audited(config(noise_multiplier=0.4, epsilon=price))
    assert 0.3 < result.lower < price


# Wrong runs; more of them are convicted by one run each in test_canaries.py


def test_a_run_that_forgets_to_clip_is_convicted(monkeypatch):
    # What is 30 norms long moves the score by several deviations: of 50 runs of each kind all are told apart.
    monkeypatch.setattr(policies, "clip_rows", lambda rows, *, clipping_norm: rows.double())
    assert audited(config(), trials=100).convicted


# What cannot be audited


@pytest.mark.parametrize(
    "given",
    [
        replace(config(), private=None),
        config(pool_tasks=4),
    ],
)
def test_what_has_no_canary_of_this_kind_is_refused(given):
    with pytest.raises(ConfigError, match="share no class, from a public clipping norm"):
        canary_run(given, places=4)
