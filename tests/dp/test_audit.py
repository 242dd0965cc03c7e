"""Audits convict mechanisms that are wrong on purpose, and never those that are right."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from channels import promise
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, norm
from torch import Tensor

from sfumato.dp.audit import AuditConfig, AuditResult, audit, images
from sfumato.dp.audit.evidence import Moment, divergence
from sfumato.dp.audit.neighbours import neighbours
from sfumato.dp.guarantee import Definition
from sfumato.dp.mechanisms import Noise, seeded_noise
from sfumato.dp.naming.bound import lower_limit, upper_limit
from sfumato.errors import ConfigError
from sfumato.protect import parse

GREY, COLOUR = (1, 14, 14), (3, 14, 14)


pure = partial(promise, "pure")


@pytest.fixture
def _larger_calls(monkeypatch):
    """For noise that a batch does not share: 8 trials a call take most of the time."""
    monkeypatch.setattr("sfumato.dp.audit.neighbours._SMALL_CALL", 64)


def audit_spec(
    spec: str, *, shape=GREY, trials=30_000, seed=0, stated: float | None = None, noise=None
) -> AuditResult:
    """Audit a protection with seeded noise, or with a noise that is wrong, or with a claim that is."""
    protection = parse(spec)
    guarantee = protection.guarantee(shape)
    if stated is not None:
        guarantee = replace(guarantee, value=stated)
    noise = noise or seeded_noise(seed)
    config = AuditConfig(shape=shape, pixels=guarantee.pixels if guarantee else 1, trials=trials, seed=seed)
    return audit(lambda images: protection.release(images, noise).values, guarantee, config)


class WrongNoise:
    """Laplace noise that somebody got wrong."""

    def __init__(self, draw: Callable[[Noise, tuple[int, ...], Fraction], np.ndarray]) -> None:
        self._draw, self._noise = draw, seeded_noise(5)

    def laplace(self, shape: tuple[int, ...], *, scale: Fraction) -> np.ndarray:
        return self._draw(self._noise, shape, scale)


def shared(axes: tuple[int, ...]) -> WrongNoise:
    """One draw for all places along some of the axes (N, C, h, w)."""

    def draw(noise: Noise, shape: tuple[int, ...], scale: Fraction) -> np.ndarray:
        smaller = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        return np.broadcast_to(noise.laplace(smaller, scale=scale), shape).copy()

    return WrongNoise(draw)


# Right mechanisms.


@pytest.mark.usefixtures("_larger_calls")
@pytest.mark.parametrize(
    "spec",
    [
        "dp-pix:cell=4,epsilon=0.3",
        "dp-pix:cell=4,epsilon=3",
        "dp-pix:cell=3,epsilon=1,pixels=5",
        "dp-pix:cell=6,epsilon=1,variant=published",
        "gaussian:sigma=80",
        "dp-pix-gaussian:cell=4,rho=0.5",
        "dp-pix-gaussian:cell=3,rho=0.5,pixels=12",
    ],
)
def test_right_mechanisms_are_not_convicted(spec):
    result = audit_spec(spec, shape=COLOUR, trials=10_000)
    assert not result.convicted
    assert result.lower <= result.most


@pytest.mark.parametrize(
    ("spec", "share", "trials"),
    [
        ("dp-pix:cell=2,epsilon=1", 0.8, 25_000),
        ("dp-pix:cell=4,epsilon=3", 0.8, 25_000),
        ("dp-pix:cell=3,epsilon=1,variant=published", 0.8, 25_000),  # states 2.25, of a corner cell of 2 x 2
        ("gaussian:sigma=120", 0.85, 25_000),
        ("dp-pix-gaussian:cell=4,rho=0.5", 0.6, 50_000),
    ],
)
def test_the_bound_comes_near_the_stated_value(spec, share, trials):
    result = audit_spec(spec, trials=trials)
    assert result.stated is not None
    assert share * result.stated.value <= result.lower <= result.stated.value


def test_an_approximate_guarantee_is_audited_with_its_delta():
    protection = parse("gaussian:sigma=255")  # μ = 1
    stated = protection.guarantee(GREY).to("approximate", delta=0.1)
    noise = seeded_noise(0)
    config = AuditConfig(shape=GREY, trials=60_000)  # by half of them two of four seeds find less
    result = audit(lambda images: protection.release(images, noise).values, stated, config)
    assert 0.7 * stated.value <= result.lower <= stated.value
    assert "stated eps = " in str(result)


def test_a_protection_without_a_guarantee_shows_as_much_as_the_trials_can():
    result = audit_spec("blur:radius=1", trials=20_000)
    assert result.lower > 0.9 * result.most
    assert not result.convicted
    assert str(result).startswith("nothing is stated; told apart at eps >= ")


@pytest.mark.usefixtures("_larger_calls")
def test_randomised_response_stays_below_its_epsilon_as_often_as_promised():
    # One pixel, told with probability 3/4: ε = ln 3 exactly. 30 audits at 80% confidence: 6 failures are
    # allowed on average, and more than 12 have a probability below 1%.
    generator = torch.Generator().manual_seed(0)

    def respond(images: Tensor) -> Tensor:
        lie = torch.rand(images.shape, generator=generator) < 0.25
        return torch.where(lie, 255 - images, images)

    bounds = []
    for seed in range(30):
        config = AuditConfig(shape=(1, 1, 1), trials=10_000, confidence=0.8, seed=seed)
        bounds.append(audit(respond, pure(math.log(3)), config).lower)
    assert sum(bound > math.log(3) for bound in bounds) <= 12
    assert sum(bounds) / len(bounds) > 0.85 * math.log(3)


# Wrong mechanisms.


def same(_: Noise, shape: tuple[int, ...], scale: Fraction) -> np.ndarray:
    return seeded_noise(7).laplace(shape, scale=scale)


def small(noise: Noise, shape: tuple[int, ...], scale: Fraction) -> np.ndarray:
    return noise.laplace(shape, scale=scale * Fraction(4, 5))


@pytest.mark.parametrize(
    ("spec", "shape", "wrong", "least", "pair"),
    [
        # 28 = 4 * 6 + 4: the corner cell of 16 pixels gets the noise of one of 36.
        (
            "dp-pix:cell=6,epsilon=1,variant=published",
            (1, 28, 28),
            {"stated": 1.0},
            1.0,
            "bottom right corner",
        ),
        # Channels that are not counted.
        ("dp-pix:cell=7,epsilon=1,variant=published", COLOUR, {"stated": 1.0}, 1.0, "^(?!.*first channel)"),
        ("dp-pix:cell=4,epsilon=1", COLOUR, {"noise": WrongNoise(same)}, 4.0, ""),
        ("dp-pix:cell=4,epsilon=1", GREY, {"noise": WrongNoise(small), "trials": 25_000}, 1.0, ""),
        # A standard deviation a fifth too small; ρ goes with its square.
        ("gaussian:sigma=120", GREY, {"stated": 0.8 * 255 / 120, "trials": 50_000}, 1.7, ""),
        ("dp-pix-gaussian:cell=4,rho=0.5", GREY, {"stated": 0.8**2 * 0.5, "trials": 50_000}, 0.32, ""),
    ],
)
def test_wrong_noise_and_wrong_statements_are_convicted(spec, shape, wrong, least, pair):
    result = audit_spec(spec, shape=shape, **{"trials": 20_000, **wrong})
    assert result.convicted
    assert result.lower > least
    assert re.search(pair, result.pair)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize(
    ("axes", "shape", "words", "trials"),
    [
        ((1,), COLOUR, "linear distinguisher", 20_000),  # channels
        ((2, 3), GREY, "linear distinguisher", 20_000),  # cells
        ((0,), GREY, "linear distinguisher that sees the next image of the batch", 40_000),
    ],
)
def test_shared_noise_is_convicted(axes, shape, words, trials, epsilon):
    spec = f"dp-pix:cell=4,epsilon={epsilon}"
    result = audit_spec(spec, shape=shape, noise=shared(axes), trials=trials)
    assert result.convicted
    assert result.lower > 10 * epsilon or result.lower > 3
    assert result.distinguisher == words


def test_noise_made_from_the_image_is_convicted():
    protection = parse("dp-pix:cell=4,epsilon=1")

    def release(images: Tensor) -> Tensor:
        different, which = images.unique(dim=0, return_inverse=True)  # equal images have one release
        released = [protection.release(x[None], seeded_noise(int(x.long().sum()))) for x in different]
        return torch.cat([each.values for each in released])[which]

    assert audit(release, pure(1.0), AuditConfig(shape=(1, 8, 8), trials=10_000)).lower > 4


def test_noise_that_depends_on_the_image_is_convicted():
    generator = torch.Generator().manual_seed(0)

    def release(images: Tensor) -> Tensor:
        # The mean of the image plus noise whose size follows its contrast.
        values = images.double().flatten(1)
        noise = torch.randn(len(images), generator=generator) * values.std(1) * 4
        return (values.mean(1) + noise).round().clamp(0, 255).to(torch.uint8).view(-1, 1, 1, 1)

    result = audit(release, pure(1.0), AuditConfig(shape=(1, 6, 6), trials=20_000))
    assert result.convicted
    assert "on black" in result.pair


# The parts.


@settings(max_examples=60, deadline=None)
@given(trials=st.integers(1, 50_000), share=st.floats(0, 1), alpha=st.sampled_from([0.1, 0.005, 1e-6]))
def test_the_limits_are_those_of_clopper_and_pearson(trials, share, alpha):
    hits = round(share * trials)
    lower = beta.ppf(alpha, hits, trials - hits + 1) if hits else 0.0
    upper = beta.ppf(1 - alpha, hits + 1, trials - hits) if hits < trials else 1.0
    assert lower_limit(hits, trials, alpha=alpha) == pytest.approx(lower, rel=1e-6, abs=1e-9)
    assert upper_limit(hits, trials, alpha=alpha) == pytest.approx(upper, rel=1e-6, abs=1e-9)


def one(p: float, q: float, definition: Definition, delta: float = 0.0) -> float:
    pair = torch.tensor([[p], [q]], dtype=torch.float64)
    return divergence(*pair, definition=definition, delta=delta).item()


def test_an_event_bounds_each_definition_as_the_definition_says():
    assert one(0.6, 0.2, "pure") == pytest.approx(math.log(3))
    assert one(0.6, 0.2, "approximate", 0.1) == pytest.approx(math.log(2.5))
    assert one(norm.cdf(1.3), norm.cdf(-0.4), "gaussian") == pytest.approx(1.7)
    assert one(0.2, 0.2, "concentrated") == one(0.1, 0.2, "concentrated") == 0
    assert one(0.1, 0.2, "pure") == one(0.01, 0.001, "approximate", 0.02) == 0


@given(mu=st.floats(0.1, 3), threshold=st.floats(-2, 5))
def test_no_event_shows_more_than_rho_of_two_gaussians(mu, threshold):
    found = one(norm.sf(threshold - mu), norm.sf(threshold), "concentrated")
    assert found <= mu**2 / 2 * (1 + 1e-9)
    # KL, the limit at α = 1, is a bound as well, and the best order is at least as good.
    p, q = norm.sf(threshold - mu), norm.sf(threshold)
    kl = p * math.log(p / q) + norm.cdf(threshold - mu) * math.log(
        norm.cdf(threshold - mu) / norm.cdf(threshold)
    )
    assert found >= kl * 0.99 - 1e-9


@pytest.mark.parametrize(("mu", "clip"), [(0.5, 1.5), (1.0, 3.0), (2.0, 5.0)])
def test_moments_bound_rho_from_below_as_often_as_promised(mu, clip):
    # Likelihood ratios of N(0, 1) against N(μ, 1): ρ = μ^2 / 2. 100 bounds, each failing with at most 20%.
    generator = torch.Generator().manual_seed(0)
    failures, best = 0, 0.0
    for _ in range(100):
        labels = torch.rand(20_000, generator=generator) < 0.5
        x = torch.randn(20_000, generator=generator, dtype=torch.float64) + mu * labels
        proved = Moment(clip).proves(labels, mu * (x - mu / 2), alpha=0.1)
        failures += proved > mu**2 / 2
        best = max(best, proved)
    assert failures <= 30
    assert best > 0.6 * mu**2 / 2


def test_the_linear_distinguisher_orders_trials_as_fishers_discriminant_does():
    draw = np.random.default_rng(0)
    mixing = np.array([[9.0, 4.0, 0.0], [0.0, 3.0, 1.0], [0.0, 0.0, 20.0]])
    labels = np.arange(2000) % 2 == 1
    values = 128 + draw.normal(size=(2000, 3)) @ mixing + np.outer(labels, [3.0, -2.0, 5.0])
    seen = torch.from_numpy(values.round().clip(0, 255).astype(np.uint8))
    table = images._linear(torch.from_numpy(labels), seen)
    scores = table.gather(1, seen.T.long()).sum(0).numpy()
    sides = [seen.double().numpy()[labels == side] for side in (False, True)]
    within = sum(len(side) * np.cov(side.T, bias=True) for side in sides) / len(seen)
    direction = np.linalg.solve(within, sides[1].mean(0) - sides[0].mean(0))
    assert np.corrcoef(scores, seen.double().numpy() @ direction)[0, 1] > 0.999


@pytest.mark.parametrize("pixels", [1, 7])
def test_neighbours_differ_in_exactly_m_pixels_and_no_pair_comes_twice(pixels):
    pairs = neighbours((3, 9, 8), pixels, cell=2)
    for pair in pairs:
        assert (pair.images[0] != pair.images[1]).any(0).sum() == pixels
    assert len({pair.words for pair in pairs}) == len({pair.images.numpy().tobytes() for pair in pairs})
    assert len(pairs) == 2 * 3 * (3 if pixels == 1 else 4)
    pair = next(p for p in neighbours((1, 10, 10), 20, cell=4) if "top left" in p.words)
    changed = (pair.images[0] != pair.images[1])[0]  # cell after cell
    assert (changed[:4, :4].sum(), changed[:4, 4:8].sum()) == (16, 4)


def test_a_result_says_what_was_found_and_never_rounds_a_bound_up():
    result = AuditResult(
        lower=2.7199, confidence=0.99, stated=pure(3.0), most=8.468, trials=100_000,
        distinguisher="likelihood ratio", pair="1 pixel near the centre, black against white, on grey",
    )  # fmt: skip
    assert str(result) == (
        "stated eps = 3; told apart at eps >= 2.71; these trials can show at most 8.46 "
        "(99% confidence, 100,000 trials, likelihood ratio, 1 pixel near the centre, black against white, "
        "on grey)"
    )
    assert not result.convicted
    assert replace(result, lower=3.01).convicted


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: audit(lambda images: images, pure(1.0), AuditConfig(pixels=2)),
            "about 1 pixels and the audit",
        ),
        (
            lambda: audit(lambda images: images.float(), pure(1.0), AuditConfig(shape=(1, 4, 4))),
            r"4 axes of torch\.float32: an audit reads",
        ),
        (lambda: AuditConfig(shape=(1, 0, 5)), "are at least 1"),
        (lambda: AuditConfig(shape=(1, 2, 3), pixels=7), "1 to 6 pixels"),
        (lambda: AuditConfig(trials=500), "fewer than 10000"),
        (lambda: AuditConfig(confidence=1.0), "between 0 and 1"),
    ],
)
def test_what_cannot_be_audited_is_refused(ask, message):
    with pytest.raises(ConfigError, match=message):
        ask()
