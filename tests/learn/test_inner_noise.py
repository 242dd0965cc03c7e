"""Meta-Clip as it was published: clipping and noise inside the learning of a task, and C that is learned."""

import math
from dataclasses import replace

import pytest
import torch

from sfumato.dp import accounting
from sfumato.dp.accounting import Stretch
from sfumato.errors import ArtefactError, ConfigError
from sfumato.learn import meta
from sfumato.learn.adaptation import WAYS, Learner, contributions, inner_gradients
from sfumato.learn.inner_noise import InnerNoise, TaskNoise
from sfumato.learn.meta import MetaConfig
from sfumato.learn.tasks import Frame, Inner, TaskPool, tasks_of
from sfumato.networks import FullyConnected
from sfumato.networks.weights import initial_weights
from sfumato.protect import parse

CONFIG = MetaConfig(
    way=5,
    queries=3,
    steps=4,
    tasks=3,
    inner_rate=0.1,
    test_steps=2,
    inner_noise=InnerNoise(noise_multiplier=0.3, pool_tasks=12),
)
CLIPPINGS = {
    "fixed": {"clipping_norm": 1.0},
    "quantile": {"start": 1.0},
    "adaclip": {"largest": 1e-3},
    "meta-clip": {"start": 1.0},
}


def clipped(name, settings=None, **more):
    settings = CLIPPINGS[name] if settings is None else settings
    return replace(CONFIG, inner_noise=replace(CONFIG.inner_noise, clipping=name, settings=settings), **more)


@pytest.fixture(scope="module")
def glyphs(small_glyphs):
    return small_glyphs.split("train")


def train(data, config=CONFIG, **more):
    return meta.train(data, parse("none"), config, **more)


# One task


@pytest.fixture(scope="module")
def learner():
    with initial_weights(0):
        network = FullyConnected((1, 4, 4), 3)
    return Learner(network)


@pytest.fixture
def tasks():
    draws = torch.Generator().manual_seed(1)
    return tasks_of(torch.rand(2, 3, 8, 1, 4, 4, generator=draws, dtype=torch.float64), 4)


@pytest.fixture(scope="module")
def start(learner):
    return learner.initial().double()


def normal(learner, tasks, steps):
    draws = torch.Generator().manual_seed(2)
    return torch.randn(len(tasks), steps, learner.size, generator=draws, dtype=torch.float64)


def after_the_papers_loop(learner, start, tasks, inner, noise, norm, number):
    """Algorithms 1 to 3 for one task, written plainly: the loss after learning with noised gradients.

    Of the queries after learning the support; for Reptile, of all images after learning all of them.
    """
    support, labels = tasks.support[number], tasks.support_labels[number]
    queries, asked = tasks.queries[number], tasks.query_labels[number]
    if inner.algorithm == "reptile":
        support = queries = torch.cat([support, queries])
        labels = asked = torch.cat([labels, asked])
    parameters = start[: learner.size].clone()
    rates = start[learner.size :] if inner.algorithm == "meta-sgd" else inner.rate
    for step in range(inner.steps):
        point = parameters.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(learner.loss(point, support, labels), point)
        clipped = gradient / max(1.0, float(gradient.norm()) / norm)
        parameters = parameters - rates * (clipped + inner.noise_multiplier * norm * noise[number, step])
    return learner.loss(parameters, queries, asked)


@pytest.mark.parametrize(
    ("algorithm", "steps", "way"),
    [
        (algorithm, steps, way)
        # of one step, fomaml is exact
        for algorithm, steps in (("maml", 2), ("fomaml", 1), ("reptile", 1), ("reptile", 2), ("meta-sgd", 2))
        for way in WAYS
    ],
)
@pytest.mark.parametrize(("norm", "sigma"), [(0.05, 0.0), (0.05, 0.02), (100.0, 0.02)])
def test_the_derivative_by_the_norm_is_that_of_the_papers_loop(
    learner, start, tasks, norm, sigma, algorithm, steps, way
):
    inner = Inner(algorithm=algorithm, steps=steps, rate=0.1, clipping_norm=norm, noise_multiplier=sigma)
    if algorithm == "meta-sgd":
        start = torch.cat([start, torch.linspace(0.05, 0.15, len(start)).double()])  # a rate for each value
    noise = normal(learner, tasks, steps)
    found = contributions(learner, start, tasks, inner, way=way, noise=noise)[:, -1]
    change = 1e-5 * norm
    for number in range(len(tasks)):
        more, less = (
            after_the_papers_loop(learner, start, tasks, inner, noise, norm + sign * change, number).item()
            for sign in (1, -1)
        )
        assert found[number].item() == pytest.approx((more - less) / (2 * change), rel=1e-3)
        assert found[number] != 0  # it reaches C through the scale of the noise where nothing is clipped


def test_all_ways_agree_and_a_frame_of_zeros_and_ones_changes_nothing(learner, start, tasks):
    inner = Inner(steps=1, rate=0.1, clipping_norm=0.5, noise_multiplier=0.2)
    noise, plain = normal(learner, tasks, 1), Frame(torch.zeros_like(start), torch.ones_like(start))
    given = (learner, start, tasks, inner)
    framed = contributions(*given, noise=noise, frame=plain)
    for way in WAYS:
        assert torch.allclose(contributions(*given, noise=noise, way=way), framed, atol=1e-12)


def test_noise_in_a_frame_has_the_scale_of_each_coordinate(learner, start, tasks):
    rate, sigma = 0.1, 0.7
    inner = Inner(algorithm="reptile", steps=1, rate=rate, clipping_norm=1.0, noise_multiplier=sigma)
    noise, scale = normal(learner, tasks, 1), torch.linspace(0.5, 2, learner.size, dtype=torch.float64)
    frame = Frame(torch.zeros_like(start), scale)
    noised, without = (
        contributions(learner, start, tasks, inner, noise=each, frame=frame)[:, :-1]
        for each in (noise, torch.zeros_like(noise))
    )
    assert torch.allclose(noised - without, rate * sigma * scale * noise[:, 0])


def test_inner_gradients_are_those_of_the_supports_loss(learner, start, tasks):
    found = inner_gradients(learner, start, tasks, Inner())
    for number in range(2):
        point = start.clone().requires_grad_()
        learner.loss(point, tasks.support[number], tasks.support_labels[number]).backward()
        assert torch.allclose(found[number], point.grad)


@pytest.mark.parametrize("noise", [None, torch.zeros(2, 1, 5)])
def test_missing_or_misshapen_noise_is_refused(learner, start, tasks, noise):
    inner = Inner(clipping_norm=1.0, noise_multiplier=0.1)
    with pytest.raises(ConfigError, match=r"noise_multiplier=0.1: give noise of the shape \(2, 1, \d+\)"):
        contributions(learner, start, tasks, inner, noise=noise)


# How C is chosen


def chosen(clipping, settings, *, sigma=1e-9):
    """Choosing C on a pool of 8 tasks, of which 4 are expected in a step."""
    asked = InnerNoise(noise_multiplier=sigma, clipping=clipping, settings=settings)
    return TaskNoise(asked, TaskPool(((),) * 8), 4, 1)


def learn(run, gradients=None, slopes=None, noise=None):
    gradients = torch.zeros(0 if slopes is None else len(slopes), 2) if gradients is None else gradients
    noise = torch.zeros_like(gradients) if noise is None else noise
    run.learn(gradients, noise, torch.zeros(len(gradients)) if slopes is None else slopes)


def test_meta_clip_takes_a_step_against_the_mean_derivative_and_not_below_a_thousandth_of_its_start():
    run = chosen("meta-clip", {"start": 2.0, "learning_rate": 0.5})
    learn(run, slopes=torch.tensor([1.0, 2.0, math.nan]))
    assert run.policy.norm == pytest.approx(2.0 - 0.5 * 3 / 4)
    learn(run, slopes=torch.tensor([1e9]))
    assert run.policy.norm == 2e-3


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_in_the_logarithm_a_step_is_the_same_whatever_the_unit_of_gradients(unit):
    run = chosen("meta-clip", {"start": 2.0 * unit, "learning_rate": 0.5, "logarithm": 1})
    learn(run, slopes=torch.tensor([0.1, 0.2, -1e9, math.nan]) / unit)
    assert run.policy.norm == pytest.approx(2.0 * unit * math.exp(-0.5 * (0.2 + 0.4 - 1) / 4))


@pytest.mark.parametrize("start", [1e-3, 1e3])
def test_in_the_logarithm_the_norm_of_the_least_loss_is_found_from_far_off(start):
    run = chosen("meta-clip", {"start": start, "learning_rate": 0.5, "logarithm": 1})
    for _ in range(100):  # of the loss (ln C - ln 3)^2 / 2
        slope = math.log(run.policy.norm / 3) / run.policy.norm
        learn(run, slopes=torch.full((4,), slope))
    assert run.policy.norm == pytest.approx(3, rel=1e-3)


@pytest.mark.parametrize("start", [0.1, 10.0])
def test_quantile_finds_the_quantile_of_the_norms(start):
    run = chosen("quantile", {"start": start, "quantile": 0.75, "learning_rate": 0.2})
    for _ in range(200):
        learn(run, torch.arange(1.0, 101)[:, None])
    assert run.policy.norm == pytest.approx(75, rel=0.06)


def test_adaclip_learns_from_the_noised_mean_coordinate_by_coordinate():
    beta1, beta2, h1, h2, sigma, count = 0.9, 0.7, 1e-2, 4.0, 0.3, 3
    draws = torch.Generator().manual_seed(0)
    settings = {"mean_decay": beta1, "variance_decay": beta2, "smallest": h1, "largest": h2}
    run = chosen("adaclip", settings, sigma=sigma)
    mean, deviation = [0.0, 0.0], [(h1 * h2) ** 0.25] * 2
    for _ in range(10):
        gradients, noise = (torch.randn(count, 2, generator=draws) for _ in range(2))
        learn(run, gradients, noise=noise)
        b = [math.sqrt(s * sum(deviation)) for s in deviation]
        moved = [0.0, 0.0]
        for row, drawn in zip(gradients.tolist(), noise.tolist(), strict=True):
            w = [(g - m) / scale for g, m, scale in zip(row, mean, b, strict=True)]
            for i in range(2):
                moved[i] += b[i] * (w[i] / max(1.0, math.hypot(*w)) + sigma * drawn[i]) / count
        for i in range(2):
            v = min(max(moved[i] ** 2 - (b[i] * sigma) ** 2 / count, h1), h2)
            deviation[i] = math.sqrt(beta2 * deviation[i] ** 2 + (1 - beta2) * v)
            mean[i] += (1 - beta1) * moved[i]
    assert run.policy.state()["mean"] == pytest.approx(mean, rel=1e-6)
    assert run.policy.state()["deviation"] == pytest.approx(deviation, rel=1e-6)
    expected = [math.sqrt(s * sum(deviation)) for s in deviation]
    assert run.frame(2, torch.device("cpu")).scale.tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", CLIPPINGS)
def test_a_step_without_tasks_changes_nothing(name):
    run = chosen(name, CLIPPINGS[name])
    before = run.policy.state()
    learn(run)
    assert run.policy.state() == before


# Training


@pytest.mark.parametrize("algorithm", ["maml", "reptile", "meta-sgd"])
@pytest.mark.parametrize("name", CLIPPINGS)
def test_every_algorithm_is_trained_with_every_policy(glyphs, name, algorithm):
    model = train(glyphs, clipped(name, algorithm=algorithm))
    assert model.start.isfinite().all()
    assert model.inner.clipping_norm == model.card["inner_norm"] > 0
    assert model.inner.noise_multiplier == 0.3  # a task is learned through noise in use, as in training


def test_c_starts_at_the_median_of_inner_gradients_and_then_moves(glyphs):
    config = clipped("meta-clip", {"learning_rate": 1.0})
    norms = train(glyphs, config).norms
    run = meta.Training(glyphs, parse("none"), config, "class", 0)
    known = run._inner_norms(run._task_noise.pool)
    assert len(known) == 12  # every task of the pool, once
    assert norms[0] == pytest.approx(known.quantile(0.5).item())
    assert len(set(norms)) == len(norms)


def test_an_artefact_without_its_frame_is_refused(glyphs, tmp_path):
    model = train(glyphs, clipped("adaclip"))
    meta.MetaModel(model.learner, model.start, model.inner, model.card).save(tmp_path / "model.safetensors")
    with pytest.raises(ArtefactError, match="damaged: the parameters do not fit"):
        meta.load(tmp_path / "model.safetensors")


# What is said of it


def test_nothing_is_promised_and_what_the_papers_accounting_states_is_said_to_be_conditional(glyphs):
    model = train(glyphs, clipped("meta-clip", inner_steps=2))
    stated = accounting.epsilon([Stretch(0.3, 3 / 12, 4 * 2)], 1e-5, "gdp")
    assert model.card["privacy"] is None
    assert model.card["inner_noise"]["epsilon"] is None
    assert model.card["inner_noise"]["conditional"]["gdp"] == stated
    words = meta.promise(model.card)
    assert words.startswith("nothing is promised: no noise covers the clipping norm, which follows private")
    assert f"would state eps = {stated:.3g}" in words


def test_noise_too_small_for_any_finite_bound_says_so(glyphs, tmp_path):
    config = replace(CONFIG, inner_noise=replace(CONFIG.inner_noise, noise_multiplier=1e-9))
    model = train(glyphs, replace(config, steps=1))
    assert model.card["inner_noise"]["conditional"]["gdp"] is None
    assert "would state no finite eps" in meta.promise(model.card)
    model.save(tmp_path / "model.safetensors")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: InnerNoise(noise_multiplier=0.0), ConfigError, "noise_multiplier=0: above 0"),
        (lambda: InnerNoise(noise_multiplier=1.0, clipping="fixed"), ConfigError, "needs clipping_norm"),
        (lambda: InnerNoise(noise_multiplier=1.0, clipping="metaclip"), ConfigError, "mean 'meta-clip'"),
        (lambda: clipped("fixed", {"start": 1.0}), ConfigError, "has no setting 'start'"),
        (lambda: clipped("meta-clip", {"start": 1.0, "logarithm": 2.0}), ConfigError, "1 to learn ln C"),
        (
            lambda: replace(CONFIG, private=meta.Private(epsilon=1, delta=1e-5, settings={"start": 1.0})),
            ConfigError,
            "give one, for nothing is promised with inner_noise",
        ),
        (
            lambda: meta.Private(epsilon=1, delta=1e-5, settings={"start": 1.0}, inner_noise=0.1),
            ConfigError,
            "inner_noise=0.1 with quantile: a number above 0, for meta-clip",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()
