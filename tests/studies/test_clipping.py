"""Policies of Meta-Clip are trained beside each other, and each comes out as by itself."""

from dataclasses import replace

import clipping
import pytest
import torch

from sfumato.data.worlds.glyphs import glyphs
from sfumato.learn import meta
from sfumato.protect import parse


@pytest.mark.parametrize("algorithm", ["maml", "meta-sgd"])
def test_trainings_that_share_their_noise_come_out_as_one_by_one(algorithm: str):
    drawings, clean = glyphs(classes=40, drawers=20, size=16).split("train"), parse("none")
    comparison = clipping.Comparison(algorithm, 1, 9.02, seed=0, steps=2)
    policies: list[clipping.Policy] = [("fixed", {"clipping_norm": 1.0}), ("adaclip", {}), ("meta-clip", {})]
    configs = [
        replace(config, inner_noise=replace(config.inner_noise, pool_tasks=50))
        for config in map(comparison.config, policies)
        if config.inner_noise is not None
    ]
    beside, drawn = [], {}
    for config in configs:
        beside.append(clipping.Beside(drawings, clean, config, "class", 0))
        beside[-1].drawn = drawn
    for _ in range(2):
        for training in beside:
            training.step()
    for training, config in zip(beside, configs, strict=True):
        assert torch.equal(training.model().start, meta.train(drawings, clean, config, seed=0).start)
