"""The audit of a private meta-training: right ones pass, wrong ones and false cards do not.

The noise is the operating system's. Right trainings pass at 99.99% confidence, which is their chance to.
"""

import re
from unittest import mock

import pytest
import torch

from sfumato.audits.guarantees import TrainingAuditConfig, audit_training, with_canaries
from sfumato.dp import accounting, clipping
from sfumato.errors import ConfigError
from sfumato.learn.meta import MetaConfig, Private

QUICK = TrainingAuditConfig(canaries=100, runs=1, steps=2, confidence=0.9999)


def config(policy: str = "fixed", *, epsilon: float = 1.0, **more) -> MetaConfig:
    return MetaConfig(private=Private(epsilon=epsilon, delta=1e-5, clipping=policy, **more))


@pytest.mark.parametrize("policy", ["fixed", "automatic", "quantile", "adaclip", "meta-clip"])
def test_a_training_as_it_is_shipped_passes(policy):
    report = audit_training(config(policy), audit=QUICK)
    assert [finding.verdict for finding in report.findings] == ["bounded", "bounded"]
    assert re.fullmatch(
        r"No fault was seen in the training: rely on the eps = 1\S* that it states, and on no less. "
        r"The canaries prove \d\S* of it\.",
        report.sentence,
    )


def test_a_training_without_noise_is_convicted_by_one_run():
    with mock.patch.object(clipping, "fresh_gaussian", lambda shape, std: torch.zeros(shape)):
        report = audit_training(config(epsilon=0.3), audit=QUICK)
    assert [finding.verdict for finding in report.findings] == ["leaks", "leaks"]
    assert report.sentence.startswith("Do not train on private tasks this way")


def card(epsilon: float, steps: int = 50) -> dict:
    stated = {"epsilon": epsilon, "delta": 1e-5, "noise_multiplier": 1.5, "rate": 0.1}
    return {"privacy": stated, "steps": steps}


def test_a_card_states_what_its_noise_costs():
    cost = accounting.epsilon([accounting.Stretch(1.5, 0.1, 50)], 1e-5)
    right, wrong = (audit_training(config(), card=card(cost * factor), audit=QUICK) for factor in (1, 0.9))
    assert right.findings[-1].verdict == "bounded"
    assert wrong.findings[-1].verdict == "leaks"
    assert wrong.findings[-1].figures["computed"] == cost
    words = "Do not rely on this card's statement: with the noise that it names, the training costs more."
    assert wrong.sentence == words


def test_canaries_take_the_rules_of_the_training_and_not_its_size():
    size = {"inner_steps": 3, "inner_batches": 1, "way": 3, "network": "strided", "width": 16}
    private = Private(epsilon=2.0, delta=1e-6, clipping="quantile")
    asked = MetaConfig(algorithm="reptile", private=private, **size)
    made = with_canaries(asked, QUICK)
    assert (made.algorithm, made.inner_steps, made.way) == ("reptile", 3, 3)
    assert (made.private.epsilon, made.private.delta, made.private.clipping) == (2.0, 1e-6, "quantile")
    assert (made.network, made.width, made.steps, made.tasks) == ("linear", None, 2, 50)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (MetaConfig(), "this training has no guarantee"),
        (config(pool_tasks=500), "pool_tasks=500: canaries are for tasks that share no class"),
    ],
)
def test_only_a_promise_to_separate_tasks_is_audited(asked, message):
    with pytest.raises(ConfigError, match=message):
        audit_training(asked, audit=QUICK)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"canaries": 19}, "canaries=19: from 20 to 2,000"),
        ({"runs": 0}, "runs=0: at least 1"),
        ({"confidence": 1.0}, "confidence=1: must be between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        TrainingAuditConfig(**setting)
