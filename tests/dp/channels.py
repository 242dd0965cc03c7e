"""Channels and people for tests of naming."""

import math
from functools import reduce

import numpy as np
from hypothesis import strategies as st

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.naming import Bound, Proof, compose

seeds = st.integers(0, 2**32 - 1)


def exact(priors, channel) -> float:
    """The chance of the best adversary on this table: Σ_y max_s p(s)·p(y|s)."""
    return min(1.0, float((np.asarray(priors)[:, None] * np.asarray(channel)).max(axis=0).sum()))


def leakage(prior, *, channel, releases=1) -> Bound:
    """By the table of the channel: π·(Σ_y max_x p(y|x))^n."""
    bits = math.log2(np.asarray(channel).max(axis=0).sum())
    return compose(prior, [Proof(releases=releases, leakage=max(0.0, bits))])


def promise(definition: str, whole_image: float, delta: float = 0.0, **more: float) -> Guarantee:
    known = {"pixels": 1, "whole_image": whole_image, "source": "a proof", "delta": delta}
    return Guarantee(definition=definition, value=whole_image, **known, **more)


def joint(parts) -> np.ndarray:
    """The law of independent parts together, or the table of independent channels."""
    return reduce(np.kron, parts, np.ones(1))


def flips(flip: float, bits: int) -> np.ndarray:
    """(2^bits, 2^bits) of bits that are flipped one by one."""
    return joint([[[1 - flip, flip], [flip, 1 - flip]]] * bits)


def random_channel(draw: np.random.Generator) -> np.ndarray:
    """(X, Y) p(y|x), of two to five images and as many outputs."""
    images, outputs = draw.integers(2, 6), draw.integers(2, 5)
    rows = draw.dirichlet(np.full(outputs, draw.choice([0.1, 1.0, 10.0, 100.0])), size=images)
    return rows * (1 - 1e-6) + 1e-6 / outputs


def released(channels: list[np.ndarray], draw: np.random.Generator) -> np.ndarray:
    """(S, outputs of all releases): of up to three series of images that a person has, one is drawn."""
    rows = []
    for _ in range(draw.integers(1, 9)):
        alternatives = [
            joint([channel[draw.integers(len(channel))] for channel in channels])
            for _ in range(draw.integers(1, 4))
        ]
        rows.append(draw.dirichlet(np.ones(len(alternatives))) @ np.array(alternatives))
    return np.array(rows)


def no_adversary_is_above(bounds, rows: np.ndarray, draw: np.random.Generator) -> None:
    """Bounds are functions of a prior, and rows the outputs of each person."""
    priors = draw.dirichlet(np.full(len(rows), draw.choice([0.3, 1.0, 100.0])))
    best_adversary = exact(list(priors), rows)
    for bound in bounds:
        assert best_adversary <= bound(float(priors.max())).chance
        assert best_adversary <= bound(list(priors)).chance
