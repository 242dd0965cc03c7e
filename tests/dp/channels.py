"""Channels and people for tests of naming."""

import math

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
    return Guarantee(
        definition=definition,
        value=whole_image,
        pixels=1,
        whole_image=whole_image,
        source="a proof",
        delta=delta,
        **more,
    )


def priors_of(people: int, draw: np.random.Generator) -> np.ndarray:
    return draw.dirichlet(np.full(people, draw.choice([0.3, 1.0, 100.0])))


def flips(flip: float, bits: int) -> np.ndarray:
    """(2^bits, 2^bits) of bits that are flipped one by one."""
    channel = np.ones((1, 1))
    for _ in range(bits):
        channel = np.kron(channel, [[1 - flip, flip], [flip, 1 - flip]])
    return channel


def random_channel(draw: np.random.Generator) -> np.ndarray:
    """(X, Y) p(y|x), of two to five images and as many outputs."""
    images, outputs = draw.integers(2, 6), draw.integers(2, 5)
    rows = draw.dirichlet(np.full(outputs, draw.choice([0.1, 1.0, 10.0, 100.0])), size=images)
    return rows * (1 - 1e-6) + 1e-6 / outputs
