"""Private meta-learning whose tasks take turns under the noise of a tree."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from scipy.stats import norm

from sfumato import artefacts
from sfumato.dp import accounting, clipping
from sfumato.dp.accounting import Stretch
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.learn import meta
from sfumato.learn.canaries import with_noise
from sfumato.learn.meta import MetaConfig, Private
from sfumato.learn.meta.turns import Turns
from sfumato.protect import parse

DELTA = 1e-3
PRIVATE = Private(epsilon=8, delta=DELTA, clipping="fixed", settings={"clipping_norm": 1.0}, noise="tree")
# A pool of 5 tasks, 2 a step at most: 3 steps an epoch, in a tree of height 2.
CONFIG = MetaConfig(
    way=5, shot=1, queries=3, steps=6, tasks=2, inner_rate=0.1, meta_rate=0.1, private=PRIVATE
)


@pytest.fixture(scope="module")
def glyphs(small_glyphs):
    return small_glyphs.split("train")


_real_epsilon = accounting.epsilon


@cache
def _remembered(stretches, delta, accountant):
    return _real_epsilon(stretches, delta, accountant)


@pytest.fixture(autouse=True)
def _cheap_prices(monkeypatch):
    monkeypatch.setattr(accounting, "epsilon", lambda s, d, a="pld": _remembered(tuple(s), d, a))


def training(data, config=CONFIG, **more):
    return meta.Training(data, parse("none"), config, "class", 0, (1, 16, 16), **more)


def silent(shape, std):
    return torch.zeros(shape, dtype=torch.float64)


def with_(config=CONFIG, **changed):
    return replace(config, private=replace(config.private, **changed))


@pytest.mark.parametrize(("pool", "tasks"), [(5, 2), (6, 2), (7, 7), (10, 1), (205, 32)])
def test_every_task_takes_part_once_in_an_epoch_and_in_another_order_in_the_next(pool, tasks):
    turns = Turns(pool, tasks, seed=3)
    epochs = [[turns.numbers(step + n * turns.steps) for step in range(turns.steps)] for n in range(2)]
    for epoch in epochs:
        assert torch.cat(epoch).sort().values.tolist() == list(range(pool))
        assert max(map(len, epoch)) <= tasks
    assert turns.count * turns.steps == pytest.approx(pool)
    again = Turns(pool, tasks, seed=3)
    assert all(torch.equal(again.numbers(n), part) for n, part in enumerate(epochs[0]))
    if turns.steps > 1:
        assert not torch.equal(torch.cat(epochs[0]), torch.cat(epochs[1]))


def test_an_epoch_is_charged_with_its_first_step_and_before_a_task_is_drawn(glyphs, monkeypatch):
    run = training(glyphs, with_(noise_multiplier=3.0))
    charged = []
    for _ in range(6):
        run.step()
        charged.append(sum(stretch.steps for stretch in run._promise._account.stretches))
    assert charged == [1, 1, 1, 2, 2, 2]
    assert run._promise._account.stretches == (Stretch(3.0 / math.sqrt(2), 1.0, 2),)


def test_what_is_stated_is_the_closed_form_of_one_gaussian(glyphs):
    card = meta.train(glyphs, parse("none"), CONFIG).card
    spent, epochs, height = card["privacy"], 2, 2
    assert spent["epsilon"] <= 8
    assert spent["tree"] == {"steps": 3, "height": height}
    mu = math.sqrt(epochs * height) / spent["noise_multiplier"]

    def delta(epsilon):  # Balle & Wang 2018, Theorem 8
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)

    assert delta(spent["epsilon"]) <= DELTA
    assert delta(spent["epsilon"] * 0.995) > DELTA  # and next to nothing is wasted
    assert "there or its place left empty" in meta.promise(card)


def test_a_run_ends_with_the_last_epoch_that_it_can_pay(glyphs):
    config = with_(replace(CONFIG, steps=60), noise_multiplier=2.0, epsilon=4.0)
    model = meta.train(glyphs, parse("none"), config)
    epochs = model.card["steps"] / 3
    assert epochs == int(epochs) >= 1
    price = [_real_epsilon([Stretch(2.0 / math.sqrt(2), 1.0, int(n))], DELTA) for n in (epochs, epochs + 1)]
    assert price[0] <= 4.0 < price[1]


def test_a_step_moves_by_the_public_mean_and_momentum_at_one_rate(glyphs, monkeypatch):
    monkeypatch.setattr(clipping, "fresh_gaussian", silent)
    updates = []
    run = training(glyphs, with_(noise_multiplier=3.0), observe=lambda update, _: updates.append(update))
    wanted, moving = run._start.detach().clone(), 0.0
    for _ in range(4):
        run.step()
        moving = 0.9 * moving + updates[-1]
        wanted = wanted - 0.1 * moving
        torch.testing.assert_close(run._start.detach(), wanted)
    assert updates[0].norm() > 0


def test_noise_of_earlier_steps_is_taken_back_within_an_epoch_and_kept_beyond_it(glyphs, monkeypatch):
    drawn = iter(range(1, 100))
    monkeypatch.setattr(
        clipping, "fresh_gaussian", lambda shape, std: torch.full(shape, float(next(drawn))).double()
    )
    run = training(glyphs, with_(noise_multiplier=3.0))
    size, sums = run._learner.size, []
    for _ in range(5):
        run._promise.begin(lambda pool: None)
        run._promise.charge()
        update = run._promise.release([torch.zeros(0, size)]).update * (5 / 3)  # of a public number of tasks
        assert torch.equal(update, update[:1].expand(size))
        sums.append(update[0].item())
    # Steps 1 to 3: their own, the two together, and one more; then a new tree.
    totals = torch.tensor(sums).cumsum(0)
    assert totals.tolist() == pytest.approx([1, 2, 2 + 3, 5 + 4, 5 + 5])


def test_a_stopped_run_goes_on_with_the_same_tree(glyphs, tmp_path):
    run = training(glyphs, with_(noise_multiplier=3.0))
    for _ in range(2):
        run.step()
    run.save(tmp_path / "run.checkpoint")
    other = training(glyphs, with_(noise_multiplier=3.0))
    other.resume(tmp_path / "run.checkpoint")
    assert torch.equal(other._start, run._start)
    assert other._promise._turns.tree.state() == run._promise._turns.tree.state() != {}
    assert other.step()
    assert [other._promise._account.stretches[0].steps, other.done] == [1, 3]
    _, card = artefacts.load(tmp_path / "run.checkpoint", kind="meta checkpoint")
    assert "tree" in card["promise"]
    assert not card["promise"]["tree"]  # noise is among the tensors, and not in what is printed


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"noise": "trees"}, "did you mean 'tree'"),
        ({"clipping": "quantile", "settings": {"start": 1.0}}, "noise=tree with quantile: its norm moves"),
        ({"clipping": "adaclip", "settings": {}}, "take fixed or automatic, or noise=independent"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed, message):
    with pytest.raises(ConfigError, match=message):
        replace(PRIVATE, **changed)


def test_an_epoch_that_the_budget_cannot_pay_is_refused_before_an_image_is_looked_at(glyphs):
    run = training(glyphs, with_(noise_multiplier=0.1, epsilon=1.0))
    with pytest.raises(BudgetExceededError, match="the first step alone"):
        run.step()
    with pytest.raises(BudgetExceededError, match="the first step alone"):
        run._promise.check()


def test_automatic_clipping_may_have_a_tree_too(glyphs):
    model = meta.train(glyphs, parse("none"), with_(clipping="automatic", settings={}))
    assert model.card["privacy"]["clipping"] == "automatic"
    assert model.start.isfinite().all()


def test_the_audit_by_canaries_knows_independent_noise_alone():
    with pytest.raises(ConfigError, match="with independent noise"):
        with_noise(CONFIG, 5)
