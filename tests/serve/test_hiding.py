"""Noise on enrolled examples: what it promises, and what is stored."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from sfumato.errors import ConfigError
from sfumato.serve.hiding import Hiding

HIDING = Hiding(epsilon=4.0, clipping_norm=2.0)


def test_the_noise_is_that_of_a_gaussian_mechanism_for_an_example_that_could_be_any_other():
    mu = 2 * 2.0 / HIDING.sigma  # two embeddings of norm 2 are 4 apart at most

    def delta(epsilon: float) -> float:  # Balle & Wang 2018, Theorem 8
        below = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(below)

    assert delta(4.0) <= 1e-5 * (1 + 1e-9)
    assert delta(3.99) > 1e-5


def test_an_embedding_is_clipped_and_its_noise_has_that_deviation_and_is_never_the_same():
    long = np.zeros((2, 20_000), np.float32)
    long[:, 0] = 1e6
    hidden = HIDING.embeddings(long)
    assert hidden.shape == long.shape
    assert hidden.dtype == np.float32
    noise = hidden - np.eye(1, 20_000) * 2.0
    assert noise.std() == pytest.approx(HIDING.sigma, rel=0.03)  # a deviation of 0.35%
    assert abs(noise[:, 0]).max() < 6 * HIDING.sigma
    assert not np.array_equal(hidden[0], hidden[1])


def test_no_examples_are_none():
    assert HIDING.embeddings(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_what_is_promised_is_said():
    assert str(HIDING) == (
        "an enrolled example hides which image it is at eps = 4, delta = 1e-05, each time that it is enrolled"
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clipping_norm": 0.0}, "clipping_norm=0: above 0"),
        ({"epsilon": 0.0}, "epsilon=0"),
        ({"delta": 1.0}, "delta=1"),
    ],
)
def test_what_cannot_work_is_refused(changed: dict[str, float], message: str):
    with pytest.raises(ConfigError, match=message):
        Hiding(**{"epsilon": 4.0, "clipping_norm": 2.0} | changed)  # type: ignore[arg-type]
