import hashlib
import json
import math
from dataclasses import asdict, replace
from functools import cache, partial

import pytest
import torch

from sfumato import artefacts
from sfumato.dp import accounting, clipping
from sfumato.dp.accounting import Accountant, Stretch
from sfumato.errors import ArtefactError, BudgetExceededError, ConfigError, DataError
from sfumato.learn import meta
from sfumato.learn.inner_noise import InnerNoise
from sfumato.learn.meta import MetaConfig, Private
from sfumato.learn.tasks import TaskPool, deal_pool
from sfumato.protect import parse

OPEN = MetaConfig(way=5, shot=1, queries=3, steps=6, tasks=4, inner_rate=0.1)
PROMISE = Private(
    epsilon=8, delta=1e-3, clipping="fixed", settings={"clipping_norm": 1.0}, noise_multiplier=1.5
)
# A pool of 5 tasks: 26 classes, 5 each. A small network, since noise is drawn for every parameter.
CLOSED = replace(OPEN, steps=4, tasks=2, private=PROMISE, network="strided", width=4)
SETTINGS = {
    "fixed": {"clipping_norm": 1.0},
    "automatic": {},
    "quantile": {"start": 1.0},
    "adaclip": {"largest": 1e-4},
    "meta-clip": {"start": 1.0, "bound": 1.0},
}
NOISE = InnerNoise(noise_multiplier=0.3, pool_tasks=12)
NOISED = {
    name: replace(OPEN, inner_noise=replace(NOISE, clipping=name, settings=settings))
    for name, settings in {**SETTINGS, "adaclip": {"largest": 1e-3}, "meta-clip": {}}.items()
    if name != "automatic"
}


def clipped(policy, config=CLOSED, **more):
    return replace(
        config, private=replace(config.private, clipping=policy, settings=SETTINGS[policy], **more)
    )


@pytest.fixture(scope="module")
def glyphs(small_glyphs):
    return small_glyphs.split("train")


_price = cache(accounting.epsilon)


@pytest.fixture(autouse=True)
def _cheap_prices(monkeypatch):
    """The same questions are asked of the accountant again and again here: each is computed once."""
    monkeypatch.setattr(accounting, "epsilon", lambda stretches, *more: _price(tuple(stretches), *more))


def train(data, config=OPEN, spec="none", **more):
    return meta.train(data, parse(spec) if isinstance(spec, str) else spec, config, **more)


class Unlooked:
    """Images that must not be looked at: their shape and labels are public."""

    def __init__(self, data, shape=None):
        self.name, self.label, self.labels = data.name, data.label, data.labels
        self.images = Untouchable(tuple(data.images.shape) if shape is None else shape)
        self._size = len(data)

    def __len__(self):
        return self._size

    @property
    def digest(self):
        raise AssertionError("the digest looks at every image")


class Untouchable:
    def __init__(self, shape):
        self.shape = shape

    def __getitem__(self, rows):
        raise AssertionError("an image was looked at")


class Noted:
    """A protection that notes what it is given."""

    spec = "none"

    def __init__(self):
        self.given = []

    def release(self, images, noise):
        self.given.append(images)
        return parse("none").release(images, noise)


def begin(data, config=CLOSED, protection=None):
    return meta.Training(data, protection or parse("none"), config)


@pytest.fixture
def drawn(monkeypatch):
    """Decides who takes part in every step."""

    def decide(*numbers):
        monkeypatch.setattr(meta, "poisson", lambda *_: torch.tensor(numbers, dtype=torch.int64))

    return decide


@pytest.fixture
def _no_noise(monkeypatch):
    zeros = partial(torch.zeros, dtype=torch.float64)
    monkeypatch.setattr(clipping, "fresh_gaussian", lambda shape, std: zeros(shape))


@pytest.fixture(scope="module")
def opened(glyphs):
    return train(glyphs)


@pytest.fixture(scope="module")
def closed(glyphs):
    return train(glyphs, CLOSED)


# Training without a promise


@pytest.mark.parametrize("config", [OPEN, NOISED["meta-clip"]])
def test_training_is_repeatable_by_its_seed(glyphs, config):
    config = replace(config, steps=2)
    one, again, other = (train(glyphs, config, "gaussian:sigma=20", seed=seed).start for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_training_moves_no_global_random_state(glyphs):
    before = torch.random.get_rng_state()
    train(glyphs)
    train(glyphs, CLOSED)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(("algorithm", "gain"), [("maml", 0.1), ("reptile", 0.0), ("meta-sgd", 0.1)])
def test_training_learns(glyphs, algorithm, gain):
    """Judged on the classes that were trained on: to others so few steps of so few classes hardly carry."""
    steps = 3 if algorithm == "reptile" else 1
    config = replace(OPEN, algorithm=algorithm, steps=60, tasks=8, meta_rate=5e-3, inner_steps=steps)
    untrained = train(glyphs, replace(config, steps=1, meta_rate=1e-12))
    before, after = (
        meta.evaluate(m, glyphs, queries=5, episodes=60) for m in (untrained, train(glyphs, config))
    )
    assert after.mean - after.half_width > before.mean + before.half_width + gain


def test_a_step_is_adam_on_the_mean_contribution(glyphs, monkeypatch):
    """With the first step, Adam moves every parameter by the rate, against the sign of its gradient."""
    real, seen = meta.contributions, []
    noting = lambda *given, **more: seen.append(real(*given, **more)) or seen[-1]  # noqa: E731
    monkeypatch.setattr(meta, "contributions", noting)
    run = begin(glyphs, replace(OPEN, steps=1, meta_rate=1e-3))
    before = run._start.detach().clone()
    run.step()
    gradient = seen[0].mean(0)
    expected = before - 1e-3 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(run._start.detach(), expected, atol=1e-7, rtol=0)


@pytest.mark.parametrize("config", [OPEN, replace(OPEN, algorithm="meta-sgd"), *NOISED.values()])
def test_a_stopped_run_goes_on_exactly(glyphs, tmp_path, monkeypatch, config):
    monkeypatch.setattr(meta, "_SAVED_EVERY", 2)
    path = tmp_path / "run.checkpoint"
    stop_after(5, glyphs, config, path)
    first = []
    resumed = train(glyphs, config, checkpoint=path, progress=lambda done, _: first.append(done))
    whole = train(glyphs, config)
    assert first == [5, 6]
    assert torch.equal(resumed.start, whole.start)
    assert resumed.card == whole.card


class Stop(Exception):  # noqa: N818
    pass


def stop_after(steps, data, config, path, **more):
    def stop(done, planned):
        if done == steps:
            raise Stop

    with pytest.raises(Stop):
        train(data, config, checkpoint=path, progress=stop, **more)


# What is promised


def test_neither_noise_nor_the_images_of_a_task_follow_from_the_seed(glyphs, drawn):
    runs = [begin(glyphs) for _ in range(2)]
    assert runs[0]._promise.draws.initial_seed() != runs[1]._promise.draws.initial_seed()
    drawn()
    one, other = (train(glyphs, CLOSED, seed=0).start for _ in range(2))
    assert (one != other).double().mean() > 0.99


def test_the_account_is_charged_before_tasks_are_drawn_and_images_looked_at(glyphs, monkeypatch):
    order = []

    def noted(name, function):
        return lambda *given, **more: order.append(name) or function(*given, **more)

    monkeypatch.setattr(Accountant, "step", noted("charge", Accountant.step))
    monkeypatch.setattr(meta, "poisson", noted("poisson", lambda pool, rate: torch.tensor([1, 3])))
    monkeypatch.setattr(TaskPool, "draw", noted("draw", TaskPool.draw))
    monkeypatch.setattr(meta, "contributions", noted("learn", meta.contributions))
    train(glyphs, CLOSED)
    assert order == ["charge", "poisson", "draw", "learn"] * 4


def test_who_takes_part_is_drawn_with_the_charged_rate_from_the_operating_system(glyphs, monkeypatch):
    asked = []
    monkeypatch.setattr(meta, "poisson", lambda *given: asked.append(given) or torch.tensor([0]))
    run = begin(glyphs)
    run.step()
    assert asked == [(5, 2 / 5)]  # and no bits of our own
    assert run._promise.account.stretches == [Stretch(1.5, 2 / 5, 1)]


@pytest.mark.parametrize("policy", [*SETTINGS][:-1])
def test_an_empty_draw_is_a_step_like_any_other(glyphs, drawn, policy):
    drawn()
    noted = Noted()
    run = begin(glyphs, clipped(policy), noted)
    before = run._start.detach().clone()
    run.step()
    assert (noted.given, run.run.epoch, run._promise.account.stretches[0].steps) == ([], 1, 1)
    assert (run._start.detach() != before).double().mean() > 0.99  # noise moves all of them


def test_noise_has_the_deviation_of_the_multiplier_over_the_public_number(glyphs):
    update = begin(glyphs, clipped("fixed"))._promise.release([torch.zeros(0, 40_000)]).update
    assert update.std().item() == pytest.approx(1.5 * 1.0 / 2, rel=0.02)  # a deviation of 0.35%
    assert update.mean().item() == pytest.approx(0, abs=5 * 0.75 / 200)


def test_a_run_ends_before_the_step_that_would_pass_its_budget(glyphs, tmp_path):
    seen, path = [], tmp_path / "run.checkpoint"
    config = replace(CLOSED, steps=50, private=replace(PROMISE, epsilon=4.0))
    model = train(glyphs, config, checkpoint=path, progress=lambda done, _: seen.append(done))
    steps = model.card["steps"]
    assert seen == list(range(1, steps + 1))
    assert 1 <= steps < 50
    price = [accounting.epsilon([Stretch(1.5, 2 / 5, n)], 1e-3) for n in (steps, steps + 1)]
    assert model.card["privacy"]["epsilon"] == price[0] <= 4.0 < price[1]
    # Asked again, it gives the same model: another one, from an earlier step, would not be paid for.
    assert torch.equal(train(glyphs, config, checkpoint=path).start, model.start)


def test_calibrated_noise_lets_all_steps_fit(glyphs):
    model = train(glyphs, replace(CLOSED, private=replace(PROMISE, noise_multiplier=None)))
    assert model.card["steps"] == 4
    assert model.card["privacy"]["epsilon"] <= 8
    assert model.card["privacy"]["epsilon"] > 7.9


class Scripted:
    """Noise that makes the noised value what was settled beforehand, whatever the private one is."""

    def __init__(self, shape, std):
        self.shape, self.std = shape, std

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        value, self = args
        assert tuple(value.shape) == self.shape
        generator = torch.Generator().manual_seed(len(self.shape))
        return self.std * torch.randn(self.shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("algorithm", ["maml", "meta-sgd", "reptile"])
@pytest.mark.parametrize("policy", [*SETTINGS][:-1])
def test_parameters_and_state_are_functions_of_noised_sums_alone(
    glyphs, monkeypatch, drawn, policy, algorithm
):
    monkeypatch.setattr(clipping, "fresh_gaussian", Scripted)
    sides = []
    for numbers in ([0, 2], [0, 2, 3]):
        drawn(*numbers)
        run = begin(glyphs, replace(clipped(policy), algorithm=algorithm))
        run.step()
        run.step()
        adam = run.run._optimiser.state[run._start]
        told = run._promise.policy.state(), run.model().card
        sides.append((run._start.detach(), adam["exp_avg"], adam["exp_avg_sq"], *told))
    for one, other in zip(*sides, strict=True):
        assert torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


@pytest.mark.parametrize("inner_noise", [0.0, 0.01])
@pytest.mark.parametrize("algorithm", ["maml", "fomaml", "reptile", "meta-sgd"])
def test_every_algorithm_can_follow_the_norm(glyphs, algorithm, inner_noise, monkeypatch, drawn):
    drawn(0, 2, 3)
    real, seen = meta.contributions, []
    noting = lambda *given, **more: seen.append(given[3]) or real(*given, **more)  # noqa: E731
    monkeypatch.setattr(meta, "contributions", noting)
    model = train(glyphs, replace(clipped("meta-clip", inner_noise=inner_noise), algorithm=algorithm))
    assert model.start.isfinite().all()
    # A task is learned with the norm in force.
    assert tuple(inner.clipping_norm for inner in seen) == model.norms
    assert model.norms[0] == 1.0
    assert len(set(model.norms)) > 1


@pytest.mark.usefixtures("_no_noise")
def test_without_noise_and_with_a_loose_norm_a_step_is_the_sum_over_the_public_number(glyphs):
    run = begin(glyphs, replace(CLOSED, private=replace(PROMISE, settings={"clipping_norm": 1e3})))
    found = torch.randn(3, 50)
    # Two are expected; that three came is a secret, and divides nothing.
    torch.testing.assert_close(run._promise.release([found[:1], found[1:]]).update, found.double().sum(0) / 2)


@pytest.mark.usefixtures("_no_noise")
def test_the_rates_of_meta_sgd_are_clipped_together_with_the_parameters(glyphs, drawn):
    drawn(1)
    tight = replace(CLOSED.private, settings={"clipping_norm": 1e-3})
    run = begin(glyphs, replace(CLOSED, algorithm="meta-sgd", steps=1, private=tight))
    run.step()
    model, released = run.model(), run.update
    size = model.learner.size
    assert released.shape == (2 * size,)
    assert released.double().norm().item() * 2 == pytest.approx(1e-3)  # all of it, not each half
    assert (released[:size].norm() > 0) & (released[size:].norm() > 0)
    assert (model.start[size:] != 0.1).any()  # and learned


@pytest.mark.usefixtures("_no_noise")
def test_a_task_that_is_not_finite_counts_as_zero_and_is_not_told(glyphs, monkeypatch, drawn):
    drawn(0, 2, 3)
    real, starts, cards = meta.contributions, [], []

    def spoilt(learner, start, tasks, inner, **more):
        tasks.support[1] = torch.nan
        return real(learner, start, tasks, inner, **more)

    def without(*given, **more):
        found = real(*given, **more)
        found[1] = 0
        return found

    for changed in (spoilt, without):
        monkeypatch.setattr(meta, "contributions", changed)
        run = begin(glyphs, replace(CLOSED, steps=1))
        run._promise.draws.manual_seed(5)
        run.step()
        starts.append(run._start.detach())
        cards.append(run.model().card)
    assert starts[0].isfinite().all()
    torch.testing.assert_close(*starts, atol=1e-6, rtol=0)
    assert cards[0] == cards[1]


def test_a_task_that_is_not_finite_counts_as_zero_in_an_open_run_too(glyphs, monkeypatch):
    real, notes = meta.contributions, []

    def spoilt(*given, **more):
        found = real(*given, **more)
        found[1, 0] = torch.nan
        return found

    monkeypatch.setattr(meta, "contributions", spoilt)
    assert train(glyphs, note=notes.append).start.isfinite().all()
    words = "some tasks gave values that are not finite, and counted as zero: lower inner_rate or meta_rate"
    assert notes == [words]


@pytest.mark.parametrize("config", [OPEN, CLOSED])
def test_nothing_is_noted_where_all_tasks_are_finite(glyphs, config):
    notes = []
    train(glyphs, config, note=notes.append)
    assert notes == []


def test_one_picture_in_two_tasks_of_a_pool_counts_as_in_both(glyphs, closed):
    """Its copy has other pixels nowhere, and no label says that it is one."""
    pool = deal_pool(glyphs.label("class"), CLOSED.shape, seed=0)
    first, second = (task[0][0] for task in pool.tasks[:2])
    images = glyphs.images.clone()
    images[second] = images[first]
    assert closed.card["privacy"]["images_overlap"] == 1
    privacy = train(replace(glyphs, images=images), CLOSED).card["privacy"]
    assert privacy["images_overlap"] == 2
    assert "while its images stay in up to 1 others" in privacy["unit"]
    assert privacy["image_epsilon"] > privacy["epsilon"]


def test_shifted_images_are_others(glyphs, opened):
    assert not torch.equal(train(glyphs, replace(OPEN, shifts=2)).start, opened.start)


# A public start


def begun(glyphs, path, config=CLOSED, **more):
    """A model that was trained openly, and a configuration that begins with it."""
    model = train(glyphs, replace(config, private=None, **more), seed=7)
    model.save(path)
    return model, replace(config, start=str(path))


@pytest.mark.parametrize("algorithm", ["maml", "meta-sgd"])
def test_training_begins_with_the_parameters_of_a_file(glyphs, tmp_path, algorithm):
    public, config = begun(glyphs, tmp_path / "public.safetensors", replace(CLOSED, algorithm=algorithm))
    model = train(glyphs, replace(config, steps=1, meta_rate=1e-9))
    torch.testing.assert_close(model.start, public.start, atol=1e-7, rtol=0)
    assert (model.start[: public.learner.size] != public.start[: public.learner.size]).any()


def test_a_card_names_the_start_by_its_content_and_not_by_its_path(glyphs, tmp_path):
    _, config = begun(glyphs, tmp_path / "public.safetensors")
    model = train(glyphs, config)
    digest = hashlib.sha256((tmp_path / "public.safetensors").read_bytes()).hexdigest()
    assert model.card["config"]["start"] == digest
    model.save(tmp_path / "model.safetensors")
    assert str(tmp_path) not in json.dumps(meta.load(tmp_path / "model.safetensors").card)


@pytest.mark.parametrize(
    ("other", "side", "message"),
    [
        ({"width": 5}, 16, "its width is 5, and here it is 4"),
        ({"algorithm": "reptile"}, 16, "its algorithm is reptile, and here it is maml"),
        ({"way": 4}, 16, "its way is 4, and here it is 5"),
        ({}, 20, r"its shape of images is \[1, 16, 16\], and here it is \[1, 20, 20\]"),
        ({"private": PROMISE}, 16, "that cost is not counted here"),
    ],
)
def test_a_start_of_another_kind_is_refused(glyphs, tmp_path, other, side, message):
    train(glyphs, replace(CLOSED, **{"private": None, **other})).save(tmp_path / "start.safetensors")
    config = replace(CLOSED, start=str(tmp_path / "start.safetensors"))
    with pytest.raises(ConfigError, match=message):
        train(Unlooked(glyphs, (480, 1, side, side)), config)


def test_a_start_that_is_not_there_is_refused(glyphs, tmp_path):
    with pytest.raises(ArtefactError, match=r"none.safetensors: no such file"):
        train(Unlooked(glyphs), replace(CLOSED, start=str(tmp_path / "none.safetensors")))


# Tests on private tasks


def test_the_accuracy_on_classes_of_a_private_pool_is_refused(glyphs, small_glyphs, opened, closed):
    with pytest.raises(ConfigError, match="an answer about private images that no budget covers"):
        meta.evaluate(closed, glyphs, queries=2, episodes=3)
    for model, data in ((closed, small_glyphs.split("test")), (opened, glyphs)):  # nobody's secret
        assert meta.evaluate(model, data, queries=2, episodes=3).episodes == 3


def test_a_task_is_learned_with_the_norm_of_the_last_step_as_in_training(glyphs, tmp_path, closed):
    model = train(glyphs, clipped("meta-clip"))
    assert model.inner.clipping_norm == model.card["inner_norm"] > 0
    model.save(tmp_path / "model.safetensors")
    assert meta.load(tmp_path / "model.safetensors").inner == model.inner
    assert closed.inner.clipping_norm is None  # other policies clip no inner gradient


# The card


@pytest.mark.parametrize(("network", "computed"), [("fully-connected", "vectorised"), ("strided", "loop")])
def test_the_card_says_how_contributions_were_computed(glyphs, network, computed):
    model = train(glyphs, replace(CLOSED, network=network, width=None))
    assert (model.card["computed"], model.card["precision"]) == (computed, "float32")
    rounding = any("floating point" in each for each in model.card["privacy"]["not_covered"])
    assert rounding == (computed != "loop")  # each by itself: nothing tells who else is there


def test_the_card_says_what_is_promised_to_whom_and_what_is_not(glyphs, opened, closed):
    card = closed.card["privacy"]
    spent = accounting.epsilon([Stretch(1.5, 2 / 5, 4)], 1e-3)
    assert card["unit"] == "one task of the pool, added or removed, with all images of its classes"
    assert (card["pool"], card["rate"], card["noise_multiplier"]) == (5, 2 / 5, 1.5)
    assert (card["clipping"], card["accountant"]) == ("fixed", "PLD")
    assert (card["epsilon"], card["delta"], card["images_overlap"]) == (spent, 1e-3, 1)
    assert card["rdp"] > spent
    assert "image_epsilon" not in card
    for words in ("use the model", "floating point"):
        assert any(words in each for each in card["not_covered"])
    assert opened.card["privacy"] is None
    assert opened.card["data"]["digest"] == glyphs.digest


def test_an_image_of_a_pool_that_overlaps_has_an_epsilon_of_its_own(glyphs):
    config = replace(CLOSED, steps=2, private=replace(PROMISE, pool_tasks=8))
    card = train(glyphs, config).card["privacy"]
    overlap = card["images_overlap"]
    assert overlap > 1
    assert card["image_epsilon"] == accounting.epsilon([Stretch(1.5, 2 / 8, 2).of_group(overlap)], 1e-3)
    assert card["image_epsilon"] > card["epsilon"]
    assert "with all images of its classes" not in card["unit"]  # they stay in other tasks


def test_a_model_is_saved_where_nothing_finite_is_proved_of_an_image(glyphs, tmp_path, monkeypatch):
    monkeypatch.setattr(Stretch, "of_group", lambda stretch, _: replace(stretch, noise_multiplier=0.0))
    model = train(glyphs, replace(CLOSED, steps=1, private=replace(PROMISE, pool_tasks=8)))
    model.save(tmp_path / "model.safetensors")
    assert meta.load(tmp_path / "model.safetensors").card["privacy"]["image_epsilon"] is None


def values_in(card):
    if isinstance(card, dict):
        return [x for key, value in card.items() for x in [key, *values_in(value)]]
    return [x for value in card for x in values_in(value)] if isinstance(card, list) else [card]


def test_nothing_that_is_published_depends_on_pixels_or_on_who_took_part(glyphs, tmp_path, drawn):
    """Two pools that differ in every pixel, and draws of different size: one card, up to the last letter."""
    cards, seen = [], []
    other = replace(glyphs, images=255 - glyphs.images)
    assert other.digest != glyphs.digest
    for data, numbers in ((glyphs, [0]), (other, [0, 1, 2, 3])):
        drawn(*numbers)
        told = []
        model = train(data, CLOSED, progress=lambda *numbers, told=told: told.append(numbers))
        model.save(tmp_path / "model.safetensors")
        tensors, card = artefacts.load(tmp_path / "model.safetensors", kind="meta")
        assert tensors.keys() == {"start"}
        assert not {glyphs.digest, len(data)} & set(values_in(card))
        cards.append(card)
        seen.append(told)
    assert cards[0] == cards[1]
    assert seen[0] == seen[1] == [(n, 4) for n in (1, 2, 3, 4)]


# Tasks some at a time


@pytest.mark.usefixtures("_no_noise")
@pytest.mark.parametrize("policy", [*SETTINGS])
def test_tasks_are_computed_some_at_a_time_and_nothing_else_changes(glyphs, monkeypatch, drawn, policy):
    drawn(0, 2, 3, 4)
    real, updates, sizes = meta.contributions, [], []
    noting = lambda *given, **more: sizes.append(len(given[2])) or real(*given, **more)  # noqa: E731
    monkeypatch.setattr(meta, "contributions", noting)
    for together in (32, 3, 1):
        monkeypatch.setattr(meta, "_TOGETHER", together)
        run = begin(glyphs, replace(clipped(policy), steps=1))
        run._promise.draws.manual_seed(1)  # the same images of each task
        run.step()
        updates.append(run.update)
    assert sizes == [4, 3, 1, 1, 1, 1, 1]
    torch.testing.assert_close(updates[1], updates[0])
    torch.testing.assert_close(updates[2], updates[0])


# Going on


def test_a_resumed_private_run_has_spent_what_a_whole_one_has(glyphs, tmp_path, monkeypatch):
    monkeypatch.setattr(meta, "_SAVED_EVERY", 1)
    path = tmp_path / "run.checkpoint"
    config = clipped("quantile")
    stop_after(3, glyphs, config, path)
    _, saved = artefacts.load(path, kind="meta checkpoint")
    assert (saved["state"]["noise"], saved["epoch"]) == (1.5, 2)  # the third was not kept, nor told
    resumed, whole = train(glyphs, config, checkpoint=path), train(glyphs, config)
    assert resumed.card == whole.card
    assert resumed.card["steps"] == 4
    again = train(glyphs, config, checkpoint=path)
    assert torch.equal(again.start, resumed.start)
    assert again.card == resumed.card


@pytest.fixture
def started(glyphs, tmp_path):
    path = tmp_path / "run.checkpoint"
    train(glyphs, CLOSED, checkpoint=path)
    return path


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"private": replace(PROMISE, epsilon=20.0)}, {}),
        ({"private": replace(PROMISE, noise_multiplier=3.0)}, {}),
        ({"private": replace(PROMISE, settings={"clipping_norm": 2.0})}, {}),
        ({"steps": 9}, {}),
        ({}, {"seed": 1}),  # which would deal other tasks
        ({}, {"spec": "blur:radius=1"}),
    ],
)
def test_a_checkpoint_of_other_settings_is_refused_before_an_image_is_looked_at(
    glyphs, started, changed, more
):
    with pytest.raises(ArtefactError, match="another run"):
        train(Unlooked(glyphs), replace(CLOSED, **changed), checkpoint=started, **more)


def test_a_checkpoint_of_other_images_is_refused(glyphs, started):
    with pytest.raises(ArtefactError, match="another run"):
        train(replace(glyphs, images=255 - glyphs.images), CLOSED, checkpoint=started)


def test_a_damaged_checkpoint_is_refused(glyphs, started):
    tensors, card = artefacts.load(started, kind="meta checkpoint")
    for broken in (
        ({k: v for k, v in tensors.items() if k != "model.start"}, card),
        ({**tensors, "model.start": tensors["model.start"][:-1]}, card),
        (tensors, {**card, "state": {"digest": glyphs.digest}}),
        (tensors, {k: v for k, v in card.items() if k != "epoch"}),
    ):
        artefacts.save(started, *broken)
        with pytest.raises(ArtefactError, match="damaged"):
            train(glyphs, CLOSED, checkpoint=started)


# What cannot work is said before an image is looked at


def promising(**more):
    return replace(CLOSED, private=replace(PROMISE, **more))


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        (promising(epsilon=0.1), BudgetExceededError, "the first step alone .* is 0.1: nothing was spent"),
        (promising(noise_multiplier=0.0), BudgetExceededError, "the first step alone"),
        (promising(noise_multiplier=-1.0), ConfigError, "noise_multiplier is a number from 0"),
        (
            replace(CLOSED, steps=1000, private=Private(epsilon=1e-4, delta=1e-9, settings={"start": 1.0})),
            ConfigError,
            "not even noise of 1000 clipping norms",
        ),
        (promising(delta=0.2), ConfigError, "pool of 5 tasks: at 1 / pool"),
        (replace(CLOSED, way=14), DataError, "26 classes have 4 images, .* of way=14 needs 28: add classes"),
        (replace(CLOSED, way=27, private=None), DataError, "the way is 27"),
        (replace(CLOSED, tasks=6), ConfigError, "tasks=6: the pool has 5 tasks"),
        (replace(promising(pool_tasks=4), way=27), DataError, "26 classes have 4 images, .* of way=27 needs"),
        (promising(clipping="fixd"), ConfigError, "did you mean 'fixed'"),
        (
            promising(clipping="meta-clip-published"),
            ConfigError,
            "meta-clip-published is not a private clipping: .* inner_noise.noise_multiplier",
        ),
        (promising(settings={}), ConfigError, "needs clipping_norm"),
        (replace(CLOSED, network="convolutional"), DataError, r"images of 12x12: .* at least 16x16"),
    ],
)
def test_what_cannot_work_is_said_before_an_image_is_looked_at(glyphs, config, error, message):
    noted, side = Noted(), 12 if config.network == "convolutional" else 16
    with pytest.raises(error, match=message):
        train(Unlooked(glyphs, (480, 1, side, side)), config, noted)
    assert noted.given == []


def test_the_double_does_notice_when_images_are_looked_at(glyphs):
    with pytest.raises(AssertionError, match="looked at"):
        train(Unlooked(glyphs), CLOSED)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"network": "convolutonal"}, "did you mean 'convolutional'"),
        ({"steps": 0}, "steps=0: at least 1"),
        ({"tasks": 0}, "tasks=0: at least 1"),
        ({"test_steps": 0}, "test_steps=0: at least 1"),
        ({"meta_rate": math.inf}, "meta_rate=inf: above 0"),
        ({"inner_rate": 0.0}, "rate=0: above 0"),
        ({"way": 1}, "way=1"),
        ({"precision": "half"}, "choose auto, float32, bfloat16"),
        ({"network": "strided", "width": 0}, "width=0: at least 1"),
        ({"width": 16}, "width=16: a fully-connected network has its own"),
    ],
)
def test_impossible_settings_are_refused(setting, message):
    with pytest.raises(ConfigError, match=message):
        MetaConfig(**setting)


@pytest.mark.parametrize(
    "budget",
    [{"epsilon": each} for each in (0.0, -1.0, math.nan, math.inf)]
    + [{"delta": each} for each in (0.0, -1.0, 1.0, math.nan)],
)
def test_a_budget_that_is_none_is_refused_when_it_is_set_and_no_data_are_read(budget):
    with pytest.raises(ConfigError, match=r"epsilon above 0, got|delta=.*: give one from"):
        Private(**{"epsilon": 1.0, "delta": 1e-3, **budget})


# The model


OTHERS = [replace(CLOSED, algorithm="meta-sgd"), replace(CLOSED, private=None)]


@pytest.mark.parametrize("config", [OPEN, *OTHERS, *NOISED.values()])
def test_an_artefact_gives_the_same_model_back(glyphs, small_glyphs, tmp_path, config):
    model = train(glyphs, config, "gaussian:sigma=20")
    model.save(tmp_path / "model.safetensors")
    loaded = meta.load(tmp_path / "model.safetensors")
    assert torch.equal(loaded.start, model.start)
    assert {k: loaded.card[k] for k in model.card} == json.loads(json.dumps(model.card))
    assert meta.config_of(loaded.card["config"]) == config
    test = small_glyphs.split("test")
    one, other = (meta.evaluate(m, test, episodes=20, queries=5) for m in (model, loaded))
    assert one == other
    assert str(one).endswith("(5-way 1-shot, 20 episodes, gaussian:sigma=20)")


def test_a_task_is_learned_from_its_support(small_glyphs, glyphs):
    model = train(glyphs, replace(OPEN, test_steps=30))
    rows = deal_pool(small_glyphs.label("class"), OPEN.shape, seed=0).tasks[0]
    support = small_glyphs.images[torch.stack([each[:2] for each in rows]).flatten()]
    labels = torch.arange(5).repeat_interleave(2)
    assert model.classify(support, labels, support).tolist() == labels.tolist()


@pytest.mark.parametrize("algorithm", ["maml", "meta-sgd"])
def test_a_damaged_artefact_is_refused(glyphs, tmp_path, algorithm):
    path = tmp_path / "model.safetensors"
    model = train(glyphs, replace(OPEN, steps=1, algorithm=algorithm))
    size = model.learner.size
    card = {"kind": "meta", **model.card}
    wrong = size if algorithm == "meta-sgd" else 2 * size  # what the other algorithm has
    for tensors in ({"start": torch.zeros(wrong)}, {"start": torch.zeros(size, 2)}, {"other": model.start}):
        artefacts.save(path, tensors, card)
        with pytest.raises(ArtefactError, match="damaged: the parameters do not fit"):
            meta.load(path)
    for change in ({"config": {**asdict(OPEN), "new": 1}}, {"image": None}):
        artefacts.save(path, {"start": model.start}, card | change)
        with pytest.raises(ArtefactError, match="damaged, or of another version"):
            meta.load(path)
    artefacts.save(path, {"start": model.start}, card | {"kind": "few-shot"})
    with pytest.raises(ArtefactError, match="is a 'few-shot'"):
        meta.load(path)
