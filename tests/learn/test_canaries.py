"""One-run audits of private meta-training: right trainings are acquitted, wrong ones convicted in one or two.

The noise of private runs is the operating system's. Acquittals hold at 99.99% confidence, which is their
chance to be right by the theorem; wrong trainings are told by nearly all of some hundred canaries.
"""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sfumato.dp import clipping
from sfumato.dp.clipping import policies
from sfumato.errors import ConfigError
from sfumato.learn import canaries, meta
from sfumato.learn.canaries import audit_canaries, scores_of_run
from sfumato.learn.meta import MetaConfig, Private
from sfumato.learn.tasks import deal_pool

IMAGE, PLACES, DELTA = (1, 12, 12), 120, 1e-5
SETTINGS = {
    "fixed": {"clipping_norm": 1e-3},
    "automatic": {"stability": 1e-4},
    "quantile": {"start": 1e-3},
    "adaclip": {"largest": 1e-6},
    "meta-clip": {"start": 1e-3, "bound": 0.1},
}


def config(policy="fixed", *, epsilon=1.0, tasks=PLACES, steps=2, **more):
    private = Private(epsilon=epsilon, delta=DELTA, clipping=policy, settings=SETTINGS[policy], **more)
    shape = {"way": 2, "shot": 1, "queries": 1, "network": "linear"}
    return MetaConfig(steps=steps, tasks=tasks, private=private, **shape)


def audited(configured, **more):
    return audit_canaries(configured, **{"places": PLACES, "image": IMAGE} | more)


def coins(places=PLACES):
    return torch.rand(places, generator=torch.Generator().manual_seed(1)) < 0.5


# The canaries


def test_each_canary_has_images_of_its_own_and_all_of_them_alike():
    data = canaries.bright(config(), places=5, image=IMAGE, seed=3)
    pool = deal_pool(data.label("class"), config().shape, seed=3)
    images = torch.stack([data.images[torch.cat(task)] for task in pool.tasks])  # (5, 4, ...)
    assert (images == images[:, :1]).all()
    assert torch.equal(images[:, 0].flatten(1).argmax(1), torch.arange(5))
    assert (images.flatten(2).bool().sum(2) == 1).all()


@pytest.mark.parametrize("policy", SETTINGS)
def test_without_noise_every_canary_is_told(monkeypatch, policy):
    monkeypatch.setattr(clipping, "fresh_gaussian", lambda shape, _: torch.zeros(shape, dtype=torch.float64))
    inserted = coins()
    scores = scores_of_run(config(policy), inserted, image=IMAGE)
    assert torch.equal(scores > 0, inserted)


def test_scores_are_the_log_likelihood_ratio_of_two_gaussians():
    # μ^2 = 2 / z^2 at rate 1, and canaries are at right angles: a score's mean is ±μ^2 / 2, its deviation μ.
    # Of some 60 canaries a mean is off by about μ / sqrt(60), 5 times that once in 10^6.
    z = 1.0
    inserted = coins()
    scores = scores_of_run(config(noise_multiplier=z, epsilon=50.0), inserted, image=IMAGE)
    mu = 2**0.5 / z
    for sign, part in ((1, scores[inserted]), (-1, scores[~inserted])):
        # The size of the noise is measured by some 170 values: that is another 1 in 9 of the mean.
        assert part.mean().item() == pytest.approx(
            sign * mu**2 / 2, abs=5 * mu / len(part) ** 0.5 + mu**2 / 9
        )


def test_neighbouring_canaries_are_taken_off():
    """Directions far from right angles: what one adds is not taken for another."""
    generator = torch.Generator().manual_seed(0)
    shared = torch.randn(400, generator=generator, dtype=torch.float64)
    shifts = 0.3 * torch.randn(50, 400, generator=generator, dtype=torch.float64) + 0.3 * shared
    inserted = coins(50)
    seen = shifts[inserted].sum(0) + 0.5 * torch.randn(400, generator=generator, dtype=torch.float64)
    size, along, length = canaries._evidence_of(seen, shifts, mean=0.5, variance=0.25)
    assert size == pytest.approx(0.5, rel=0.15)
    assert ((along - length / 2 > 0) == inserted).float().mean() > 0.95


# Right trainings


@pytest.mark.parametrize("tasks", [PLACES, PLACES // 2])
@pytest.mark.parametrize("policy", SETTINGS)
def test_right_trainings_are_not_convicted(policy, tasks):
    assert not audited(config(policy, tasks=tasks), confidence=0.9999).convicted


def test_a_large_budget_gives_away_much_of_what_it_may():
    # μ = 3.5: of 120 canaries the most extreme are told nearly always.
    result = audited(config(noise_multiplier=0.4, epsilon=30.0), of_mu=True, runs=2)
    assert result.stated == pytest.approx(2**0.5 / 0.4)
    assert 0.5 < result.lower < result.stated


# Wrong trainings


def test_a_training_that_forgets_to_clip_is_convicted_by_one_run(monkeypatch):
    monkeypatch.setattr(policies, "clip_rows", lambda rows, *, clipping_norm: rows.double())
    assert audited(config()).convicted


@pytest.mark.parametrize("policy", SETTINGS)
def test_noise_divided_by_the_number_of_tasks_is_convicted_by_one_run(monkeypatch, policy):
    real = clipping.fresh_gaussian
    monkeypatch.setattr(clipping, "fresh_gaussian", lambda shape, std: real(shape, std / PLACES))
    assert audited(config(policy)).convicted


@pytest.mark.parametrize("policy", ["fixed", "quantile"])
def test_a_sum_without_noise_is_convicted_by_one_run(monkeypatch, policy):
    real = clipping.fresh_gaussian
    monkeypatch.setattr(
        clipping, "fresh_gaussian", lambda shape, std: real(shape, std) if shape == () else torch.zeros(shape)
    )
    assert audited(config(policy, tasks=PLACES // 2)).convicted


def test_the_same_noise_in_every_step_is_convicted_by_two_runs(monkeypatch):
    # Told unless a canary is in all four steps or in none, 1 in 8 at rate 1/2.
    noise = {}
    real, step = clipping.fresh_gaussian, meta.Training.step

    def remembered(shape, std):
        if shape not in noise:
            noise[shape] = real(shape, 1.0)
        return noise[shape] * std

    def first_forgets(run):
        if not run.run.epoch:
            noise.clear()  # another run, other noise
        return step(run)

    monkeypatch.setattr(clipping, "fresh_gaussian", remembered)
    monkeypatch.setattr(meta.Training, "step", first_forgets)
    assert audited(config(tasks=PLACES // 2, steps=4, epsilon=0.5), runs=2).convicted


# What cannot be audited


def narrow(shape, way):
    return nn.Sequential(nn.Flatten(), nn.AvgPool1d(2), nn.Linear(72, way, bias=False))


@pytest.mark.parametrize(
    ("configured", "more", "message"),
    [
        (config(tasks=200), {"places": 200}, "200 canaries and 144 values in an image"),
        (config(tasks=140), {"places": 140}, "take 128 canaries or fewer, or a larger network"),
        (config(tasks=PLACES // 2), {"of_mu": True}, "a training that samples its tasks states no mu"),
        (replace(config(), private=None), {}, "share no class, from a public clipping norm"),
    ],
)
def test_what_cannot_be_audited_is_refused(monkeypatch, configured, more, message):
    monkeypatch.setitem(meta.NETWORKS, "linear", narrow)
    with pytest.raises(ConfigError, match=message):
        audited(configured, **more)
