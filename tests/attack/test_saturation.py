import math

import pytest
import torch
from torch import nn

from sfumato.attack.reidentify import AdversaryConfig, train_recogniser
from sfumato.attack.saturation import Validation, hold_out, train


def number():
    """One weight, which starts at 0."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def trained(judge=None, *, gain=0.01, ceiling=300, rate=0.1):
    """A model whose loss moves its weight up for ever, and its training; a judge sees the weight."""
    model = number()
    shown = None if judge is None else lambda: judge(model.weight.item())
    validation = None if shown is None else Validation(figure="height", judge=shown, gain=gain)
    loss = lambda step: -model.weight.sum()  # noqa: E731
    return model.weight, train(loss, model, ceiling=ceiling, learning_rate=rate, validation=validation)


def test_training_ends_when_its_figure_has_stopped_rising():
    _, made = trained(lambda _: 1.0, ceiling=10_000)
    assert made.flat
    assert made.curve[-1][0] == made.steps < 10_000
    # A first value, four without a gain, and half as long again at a falling rate.
    assert made.steps == pytest.approx(5 * 500 * 1.5)


def test_a_figure_that_still_rises_at_the_ceiling_is_not_flat():
    _, made = trained(lambda weight: weight)
    assert (made.steps, made.flat) == (300, False)
    assert [value for _, value in made.curve] == sorted(value for _, value in made.curve)


def test_the_weights_of_the_best_validation_are_kept():
    weight, _ = trained(lambda weight: -abs(weight - 5))
    assert weight.item() == pytest.approx(5, abs=2.6)  # 25 steps of 0.1 between two validations
    assert trained()[0].item() > 10  # without validation the last
    weight, made = trained(lambda _: math.nan, ceiling=60)  # no number: the last
    assert not made.flat
    assert weight.item() > 3


def test_without_validation_all_steps_are_made_and_nothing_is_said_of_them():
    made = trained(ceiling=40)[1]
    assert (made.steps, made.ceiling, made.flat, made.curve) == (40, 40, None, ())


def test_the_rate_is_constant_and_then_falls_to_almost_nothing():
    model, weights = number(), [0.0]

    def loss(step):
        weights.append(model.weight.item())
        return -model.weight.sum()

    train(loss, model, ceiling=90, learning_rate=0.1)
    steps = torch.tensor([*weights[1:], model.weight.item()]).diff()
    torch.testing.assert_close(steps[:60], torch.full((60,), 0.1), rtol=1e-3, atol=0)
    assert (steps[60:].diff() < 0).all()
    assert steps[-1] < 0.1 / 20


def test_a_tenth_of_the_people_is_held_out_whole_and_fewer_who_have_many_photographs():
    people = torch.arange(40).repeat_interleave(5)
    held, same, other = (hold_out(people, most=1000, seed=seed) for seed in (3, 3, 4))
    assert len(people[held].unique()) == 4
    assert not set(people[held].tolist()) & set(people[~held].tolist())
    assert torch.equal(held, same)
    assert not torch.equal(held, other)
    assert [len(people[hold_out(people, most=most, seed=0)].unique()) for most in (1, 11, 15)] == [2, 3, 3]
    assert not hold_out(people[:45], most=100, seed=0).any()  # none of nine people


def test_a_recogniser_is_never_trained_on_those_who_are_held_out():
    people = torch.arange(20).repeat_interleave(4)
    # Whoever is held out is white, and all others are black: a step on white images would be seen.
    held = hold_out(people, most=256, seed=0)
    images = torch.zeros(80, 1, 16, 16, dtype=torch.uint8)
    images[held] = 255
    trained_on = []

    class Watching(nn.Linear):
        def forward(self, images):
            if torch.is_grad_enabled():
                trained_on.append(images.amax().item())
            return super().forward(images.flatten(1) + torch.arange(len(images))[:, None])

    recogniser = train_recogniser(
        lambda _: images, people, AdversaryConfig(steps=30, batch=16), encoder=Watching(256, 4)
    )
    assert max(trained_on) == 0
    assert recogniser.trained.figure == "verification AUC"
    assert [step for step, _ in recogniser.trained.curve] == [25, 30]
