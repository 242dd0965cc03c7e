import math

import pytest
import torch
from torch import nn

from sfumato.attack.reidentify import AdversaryConfig, train_recogniser
from sfumato.attack.saturation import Validation, hold_out, train


class Number(nn.Module):
    """One weight, which starts at 0."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))


def upwards(model):
    """A loss that moves the weight of a model up for ever."""
    return lambda step: -model.weight.sum()


def validated(judge, gain=0.01):
    return Validation(figure="height", judge=judge, gain=gain)


def test_training_ends_when_its_figure_has_stopped_rising():
    model = Number()
    made = train(upwards(model), model, ceiling=10_000, learning_rate=0.1, validation=validated(lambda: 1.0))
    assert made.flat
    assert made.steps < 10_000
    assert made.curve[-1][0] == made.steps
    # A first value, four without a gain, and half as long again at a falling rate.
    assert made.steps == pytest.approx(5 * 500 * 1.5)


def test_a_figure_that_still_rises_at_the_ceiling_is_not_flat():
    model = Number()
    made = train(
        upwards(model),
        model,
        ceiling=300,
        learning_rate=0.1,
        validation=validated(lambda: model.weight.item()),
    )
    assert (made.steps, made.flat) == (300, False)
    values = [value for _, value in made.curve]
    assert values == sorted(values)


def test_the_weights_of_the_best_validation_are_kept():
    model = Number()
    train(
        upwards(model),
        model,
        ceiling=300,
        learning_rate=0.1,
        validation=validated(lambda: -abs(model.weight.item() - 5)),
    )
    assert model.weight.item() == pytest.approx(5, abs=2.6)  # 25 steps of 0.1 between two validations
    train(upwards(model), model, ceiling=300, learning_rate=0.1)
    assert model.weight.item() > 10  # without validation the last


def test_without_validation_all_steps_are_made_and_nothing_is_said_of_them():
    model = Number()
    made = train(upwards(model), model, ceiling=40, learning_rate=0.1)
    assert (made.steps, made.ceiling, made.flat, made.curve) == (40, 40, None, ())


def test_the_rate_is_constant_and_then_falls_to_almost_nothing():
    model, weights = Number(), [0.0]

    def loss(step):
        weights.append(model.weight.item())
        return -model.weight.sum()

    train(loss, model, ceiling=90, learning_rate=0.1)
    steps = torch.tensor([*weights[1:], model.weight.item()]).diff()
    torch.testing.assert_close(steps[:60], torch.full((60,), 0.1), rtol=1e-3, atol=0)
    assert (steps[60:].diff() < 0).all()
    assert steps[-1] < 0.1 / 20


def test_a_figure_that_is_no_number_leaves_the_last_weights():
    model = Number()
    made = train(upwards(model), model, ceiling=60, learning_rate=0.1, validation=validated(lambda: math.nan))
    assert not made.flat
    assert model.weight.item() > 3


def test_a_tenth_of_the_people_is_held_out_whole():
    people = people_of(40, 5)
    held = hold_out(people, most=1000, seed=3)
    assert len(people[held].unique()) == 4
    assert not set(people[held].tolist()) & set(people[~held].tolist())
    assert torch.equal(held, hold_out(people, most=1000, seed=3))
    assert not torch.equal(held, hold_out(people, most=1000, seed=4))


def test_few_people_are_held_out_where_they_have_many_photographs_and_none_of_few():
    assert (
        len(torch.arange(40).repeat_interleave(5)[hold_out(people_of(40, 5), most=1, seed=0)].unique()) == 2
    )
    assert not hold_out(people_of(9, 5), most=100, seed=0).any()


def people_of(count, photographs):
    return torch.arange(count).repeat_interleave(photographs)


def test_a_recogniser_is_never_trained_on_those_who_are_held_out():
    people = people_of(20, 4)
    # Whoever is held out is white, and all others are black: a step on white images would be seen.
    held = hold_out(people, most=256, seed=0)
    images = torch.zeros(80, 1, 16, 16, dtype=torch.uint8)
    images[held] = 255
    trained_on = []

    class Watching(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(256, 4)

        def forward(self, images):
            if torch.is_grad_enabled():
                trained_on.append(images.amax().item())
            return self.linear(images.flatten(1) + torch.arange(len(images))[:, None])

    recogniser = train_recogniser(
        lambda _: images, people, AdversaryConfig(steps=30, batch=16), encoder=Watching()
    )
    assert max(trained_on) == 0
    assert recogniser.trained.figure == "verification AUC"
    assert [step for step, _ in recogniser.trained.curve] == [25, 30]
