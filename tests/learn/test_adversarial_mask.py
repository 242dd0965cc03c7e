"""Learned masks: what each step moves, by which gradient, and that the mask finds what tells the class."""

import math
from dataclasses import replace

import pytest
import torch

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn.adversarial_mask import (
    MaskConfig,
    MaskModel,
    Training,
    adversarial_at,
    evaluate,
    keep_at,
    split,
    train,
    uniform_cross_entropy,
)
from sfumato.protect import parse
from sfumato.protect.mask import top_pixels

TINY = MaskConfig(keep=0.25, epochs=3, batch=16, masker_width=4, levels=2, precision="float32")
CORNER = 4  # the side of the corner whose colour is the class


def world(count: int = 48, seed: int = 0, classes: int = 4, side: int = 16) -> LabelledImages:
    """Noise, but for one corner of 4x4 pixels, whose colour is the class."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, side, side), generator=generator).to(torch.uint8)
    codes = torch.arange(count) % classes
    colours = torch.tensor([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]], dtype=torch.uint8)
    images[:, :, :CORNER, :CORNER] = colours[codes][:, :, None, None]
    names = ("red", "green", "blue", "yellow")[:classes]
    return LabelledImages("corners", images, {"colour": Label(codes, names)})


def trained(data: LabelledImages | None = None, config: MaskConfig = TINY, **more) -> MaskModel:
    return train(world() if data is None else data, config, target="colour", **more)


def state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """All that a module is: parameters and buffers."""
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def moved(before: dict[str, torch.Tensor], module: torch.nn.Module) -> set[str]:
    return {name for name, tensor in module.state_dict().items() if not torch.equal(tensor, before[name])}


def begun(config: MaskConfig = TINY) -> Training:
    """A training in its first epoch, after two main steps: Adam has moments, statistics have moved."""
    run = Training(trained(config=replace(config, epochs=1)), config)
    run.start_epoch()
    data = world()
    for rows in (slice(0, 16), slice(16, 32)):
        run.predictor_step(data.images[rows], data.label("colour").codes[rows])
    return run


# The two kinds of steps


@pytest.mark.parametrize("selection", ["soft", "straight-through"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_an_adversarial_step_moves_the_masker_and_nothing_of_the_classifier(selection: str, precision: str):
    run = begun(replace(TINY, selection=selection, precision=precision))
    predictor, masker = state(run.model.predictor), state(run.model.masker)
    run.obfuscator_step(world().images[:16])
    assert moved(predictor, run.model.predictor) == set()
    parameters = {name for name, _ in run.model.masker.named_parameters()}
    assert moved(masker, run.model.masker) >= parameters
    assert all(p.grad is None for p in run.model.parameters())


def test_a_main_step_moves_both():
    run = begun()
    before, data = state(run.model), world()
    run.predictor_step(data.images[:16], data.label("colour").codes[:16])
    assert moved(before, run.model) == set(before)


@pytest.mark.parametrize("selection", ["soft", "straight-through"])
@pytest.mark.parametrize("adversarial", [False, True])
def test_a_step_follows_the_gradient_of_the_papers_loss(
    adversarial: bool, selection: str, monkeypatch: pytest.MonkeyPatch
):
    run, data = begun(replace(TINY, selection=selection)), world()
    images, codes = data.images[:16], data.label("colour").codes[:16]
    x, predictor = to_float(images), run.model.predictor.train(not adversarial)
    scores = run.model.masker(x).sigmoid()
    top, soft = top_pixels(scores, count=64), selection == "soft"
    if adversarial:
        shown = scores - scores * top if soft else ~top + scores.detach() - scores
        loss = -(predictor(shown * x).softmax(1).log() / 4).sum(1).mean()
    else:
        shown = scores * top if soft else top + scores - scores.detach()
        loss = -predictor(shown * x).softmax(1).log()[range(16), codes].mean()
    moved = list((run.model.masker if adversarial else run.model).parameters())
    wanted, found = torch.autograd.grad(loss, moved), []
    monkeypatch.setattr(run.run, "update", lambda loss: found.extend(p.grad for p in moved))
    run.model.train()
    run.obfuscator_step(images) if adversarial else run.predictor_step(images, codes)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6 if adversarial else 1e-5, rtol=1e-3)


@pytest.mark.parametrize(
    ("predictor_batches", "pattern"), [(3, "PPPO" * 3), (1, "PO" * 6), (5, "PPPPPO" * 2)]
)
def test_main_and_adversarial_steps_alternate_over_the_epochs(predictor_batches: int, pattern: str):
    config = replace(TINY, predictor_batches=predictor_batches)
    assert "".join("PO"[adversarial_at(config, step)] for step in range(12)) == pattern
    assert not any(adversarial_at(replace(config, adversarial=False), step) for step in range(12))


# Masks


def test_soft_masks_are_those_of_the_paper_and_straight_through_ones_are_0_and_1():
    scores = torch.rand(3, 1, 9, 7)
    top = top_pixels(scores, count=20)
    for selection, values in (("soft", scores), ("straight-through", torch.ones(1))):
        revealed, hidden = split(scores, count=20, selection=selection)
        assert torch.equal(revealed, torch.where(top, values, 0.0))
        assert torch.equal(hidden, torch.where(top, 0.0, values))


def test_the_straight_through_gradient_is_that_of_the_soft_scores():
    scores = torch.rand(3, 1, 9, 7, requires_grad=True)
    images, weights = torch.rand(3, 3, 9, 7), torch.randn(3, 3, 9, 7)
    revealed, hidden = split(scores, count=20, selection="straight-through")
    (as_scores,) = torch.autograd.grad((scores * images * weights).sum(), scores)
    for mask, sign in ((revealed, 1), (hidden, -1)):
        (gradient,) = torch.autograd.grad((mask * images * weights).sum(), scores, retain_graph=True)
        torch.testing.assert_close(gradient, sign * as_scores)


def test_the_soft_gradient_stops_at_the_other_half():
    scores = torch.rand(3, 1, 9, 7, requires_grad=True)
    top = top_pixels(scores, count=20)
    revealed, hidden = split(scores, count=20, selection="soft")
    for mask, inside in ((revealed, top), (hidden, ~top)):
        (gradient,) = torch.autograd.grad(mask.sum(), scores, retain_graph=True)
        assert torch.equal(gradient, inside.float())


def test_the_share_falls_to_keep_over_the_first_half_of_the_epochs():
    config = replace(TINY, keep=0.2, anneal_from=1.0, epochs=8)
    assert [keep_at(config, epoch) for epoch in range(8)] == pytest.approx([1, 0.8, 0.6, 0.4] + [0.2] * 4)
    assert keep_at(config, 4) == 0.2  # and not nearly
    assert {keep_at(replace(config, anneal_from=None), epoch) for epoch in range(8)} == {0.2}


def test_the_cross_entropy_with_the_uniform_distribution_is_that_of_the_formula():
    logits = torch.randn(50, 7) * 5
    expected = 0.0
    for row in logits.double().tolist():
        total = math.fsum(math.exp(value) for value in row)
        expected += -sum(math.log(math.exp(value) / total) / 7 for value in row) / 50
    assert uniform_cross_entropy(logits).item() == pytest.approx(expected, rel=1e-6)


def test_it_is_ln_c_where_all_classes_are_as_likely_and_more_elsewhere():
    assert uniform_cross_entropy(torch.full((3, 5), 2.0)).item() == pytest.approx(math.log(5))
    assert uniform_cross_entropy(torch.tensor([[100.0, 0, 0, 0, 0]])).item() == pytest.approx(80)


# What is learned


@pytest.fixture(scope="module")
def finder() -> MaskModel:
    config = replace(
        TINY,
        keep=0.1,  # 25 of 256 pixels, of which the corner has 16
        epochs=16,
        batch=32,
        masker_width=16,
        levels=1,
        selection="straight-through",
        anneal_from=1.0,
    )
    return trained(world(256), config)


def test_the_mask_covers_the_corner_that_tells_the_class(finder: MaskModel):
    shown = top_pixels(finder.scores(world(128, seed=1).images), count=25)
    assert shown[:, :, :CORNER, :CORNER].float().mean() >= 0.9


def test_the_class_is_told_by_what_is_shown_and_not_without_the_corner(finder: MaskModel):
    test = world(128, seed=1)
    assert evaluate(finder, test) > 0.95
    test.images[:, :, :CORNER, :CORNER] = test.images[:, :, -CORNER:, -CORNER:]
    assert evaluate(finder, test) < 0.5


@pytest.mark.parametrize(
    ("selection", "values"), [("straight-through", "hard"), ("soft", "hard"), ("soft", "soft")]
)
def test_evaluation_is_by_the_release_of_a_device(selection: str, values: str, tmp_path):
    config = replace(TINY, epochs=6, selection=selection, values=values)
    model, test = trained(config=config), world(64, seed=1)
    model.save(tmp_path / "mask.safetensors")
    spec = f"mask:artefact={tmp_path / 'mask.safetensors'},values={values}"
    released = parse(spec).release(test.images, seeded_noise(0))
    assert torch.equal(released.images(), model.mask_images(test.images))
    assert released.shown.sum((1, 2, 3)).tolist() == [64] * 64
    with torch.no_grad():
        guesses = model.predictor(released.images() / 255).argmax(1)
    right = (guesses == test.label("colour").codes).double().mean().item()
    assert evaluate(model, test) == pytest.approx(right, abs=1 / 64)  # a tie may turn by rounding


def test_classes_are_known_by_name_whatever_their_codes():
    model, test = trained(), world(32, seed=1)
    label = test.label("colour")
    turned = Label(3 - label.codes, tuple(reversed(label.names)))
    assert evaluate(model, replace(test, labels={"colour": turned})) == evaluate(model, test)


def test_only_the_label_of_the_task_is_looked_at():
    data = world()
    others = replace(data, labels={**data.labels, "identity": Label(torch.arange(48), tuple("x" * 48))})
    assert moved(state(trained(data)), trained(others)) == set()


# Mistakes


@pytest.mark.parametrize(
    ("images", "settings", "message"),
    [
        ({"classes": 1}, {}, "'colour' has 1 class in 48 training images, and a mask needs at"),
        ({}, {"keep": 0.001}, r"keep=0.001 of 16x16 pixels is less than one: choose at least 0.00"),
        ({"side": 15}, {"levels": 2}, "images of 15x15: .* need at least 16x16: load them at a larger size"),
        ({"side": 16}, {"levels": 5}, "images of 16x16: .* need at least 32x32: load them at a larger size"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(images, settings, message: str):
    with pytest.raises((ConfigError, DataError), match=message):
        trained(world(**images), replace(TINY, **settings))


def test_images_of_another_size_are_refused():
    with pytest.raises(DataError, match="images of 3x20x20: this mask was trained on 3x16x16: resize them"):
        trained().scores(world(2, side=20).images)
