"""Masks against telling who is shown: whose gradient goes where, and what is told at equal accuracy."""

from dataclasses import replace

import pytest
import torch

from sfumato.data.labelled import Label, LabelledImages
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ConfigError, DataError
from sfumato.images import to_float
from sfumato.learn import adversarial_mask
from sfumato.learn.adversarial_mask import (
    Adversary,
    MaskConfig,
    MaskModel,
    Training,
    episodes_of_people,
    evaluate,
    make_untrained,
    train,
)
from sfumato.protect import parse
from sfumato.protect.mask import top_pixels

CORNER = 4  # the side of the two corners that tell the class
TINY = MaskConfig(
    keep=0.0625,  # 16 of 256 pixels: one corner
    epochs=2,
    batch=32,
    masker_width=4,
    levels=1,
    precision="float32",
    against=1.0,
)


def world(people: int = 24, each: int = 8, seed: int = 0) -> LabelledImages:
    """Dark noise, and two bright corners whose colour is the class; the left one has a pattern of the person.

    The left one is the brighter: a mask that does not care shows it.
    """
    generator = torch.Generator().manual_seed(seed)
    count = people * each
    images = torch.randint(0, 32, (count, 3, 16, 16), generator=generator).to(torch.uint8)
    persons, codes = torch.arange(count) % people, torch.arange(count) // people % 2
    patterns = torch.randint(0, 2, (people, 1, CORNER, CORNER), generator=generator).to(torch.uint8)
    colours = torch.tensor([[1, 0, 0], [0, 0, 1]], dtype=torch.uint8)[codes][:, :, None, None]
    images[:, :, :CORNER, :CORNER] = colours * (135 + 120 * patterns[persons])
    images[:, :, :CORNER, -CORNER:] = colours * 110
    labels = {
        "colour": Label(codes, ("red", "blue")),
        "person": Label(persons, tuple(f"{number}" for number in range(people))),
    }
    return LabelledImages("corners", images, labels)


def trained(config: MaskConfig = TINY, **more) -> MaskModel:
    given = {"sensitive": "person"} if config.against else {}
    return train(world(), config, target="colour", **given | more)


def named(model: MaskModel) -> float:
    """How often the nearest of one known release of each of 24 new people is the right one."""
    data = world(seed=1)
    released = model.mask_images(data.images).flatten(1).double()
    codes = data.label("person").codes
    by_class = []
    for code in (0, 1):  # the class is no secret: both releases have the same
        rows = (data.label("colour").codes == code).nonzero().flatten()
        known, asked = rows[:24], rows[24:]
        nearest = torch.cdist(released[asked], released[known]).argmin(1)
        by_class.append((codes[known][nearest] == codes[asked]).double().mean().item())
    return sum(by_class) / 2


# What is learned


def test_at_equal_accuracy_a_mask_against_telling_who_it_is_tells_it_less():
    config = replace(
        TINY, epochs=6, batch=16, masker_width=8, learning_rate=2e-3, adversarial=False, against=3.0
    )
    careless, careful = (trained(replace(config, against=weight), seed=2) for weight in (0.0, 3.0))
    for model in (careless, careful):
        assert evaluate(model, world(seed=1)) > 0.95
    assert named(careful) < named(careless) / 2  # chance is 0.04


def test_a_mask_that_is_trained_for_its_shape_tells_the_class_by_it(tmp_path):
    config = replace(
        TINY, epochs=6, batch=16, learning_rate=2e-3, adversarial=False, values="shape", against=0.0
    )
    model, test = trained(config), world(seed=1)
    assert evaluate(model, test) > 0.95
    model.save(tmp_path / "m.safetensors")
    spec = f"mask:artefact={tmp_path / 'm.safetensors'},values=shape"
    assert torch.equal(
        parse(spec).release(test.images, seeded_noise(0)).images(), model.mask_images(test.images)
    )


# Whose gradient goes where


def begun(config: MaskConfig) -> Training:
    """A training in its first epoch, with the weights of a seed."""
    card = {"config": {}, "seed": 0, "precision": "float32", "shape": [3, 16, 16], "classes": ["red", "blue"]}
    training = Training(make_untrained(card, config, seed=0), config)
    training.start_epoch()
    return training


def episode(way: int = 4, queries: int = 2) -> torch.Tensor:
    """(N * (1 + Q), 3, 16, 16): of each of `way` people three images, one after the other."""
    data = world()
    rows = torch.arange(way)[:, None] + 24 * torch.arange(1 + queries)
    return data.images[rows.flatten()]


@pytest.mark.parametrize("against", [0.5, 3.0])
def test_the_adversary_follows_their_gradient_and_the_masker_follows_it_reversed(
    against: float, monkeypatch: pytest.MonkeyPatch
):
    config = replace(TINY, against=against)
    training, data, people = begun(config), world(), episode()
    images, codes = data.images[:16], data.label("colour").codes[:16]
    masker, adversary = training.model.masker, Adversary(3, seed=0)
    x, their = to_float(images), to_float(people)

    def shown(inputs: torch.Tensor) -> torch.Tensor:
        scores = masker(inputs).sigmoid()
        return (top_pixels(scores, count=16) + scores - scores.detach()) * inputs

    task = -training.model.predictor(shown(x)).softmax(1).log()[range(16), codes].mean()
    restored = adversary.restorer(shown(their))
    embedded = adversary.encoder(restored)
    embedded = (embedded / embedded.norm(dim=1, keepdim=True)).view(4, 3, -1)
    naming = 0.0
    for person in range(4):
        for query in (1, 2):
            cosines = 10 * embedded[:, 0] @ embedded[person, query]
            naming = naming - cosines.softmax(0).log()[person] / 8
    adversarys = naming + (restored - their).square().mean()
    of_masker = [
        ours - against * theirs
        for ours, theirs in zip(
            torch.autograd.grad(task, list(masker.parameters()), retain_graph=True),
            torch.autograd.grad(adversarys, list(masker.parameters()), retain_graph=True),
            strict=True,
        )
    ]
    of_encoder = torch.autograd.grad(adversarys, list(adversary.encoder.parameters()))
    begun_again = begun(config)
    found: list[torch.Tensor] = []
    monkeypatch.setattr(
        begun_again.run, "update", lambda loss: found.extend(p.grad for p in begun_again.run.parameters)
    )
    begun_again.predictor_step(images, codes, people, way=4)
    for ours, theirs in zip(found, of_masker, strict=False):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=2e-3)
    for ours, theirs in zip(found[-len(of_encoder) :], of_encoder, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=2e-3)


def test_with_next_to_no_weight_the_mask_is_that_without_an_adversary():
    without, next_to_none = trained(replace(TINY, against=0.0)), trained(replace(TINY, against=1e-30))
    for ours, theirs in zip(without.parameters(), next_to_none.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_best_epoch_is_chosen_once_the_adversary_had_time(monkeypatch: pytest.MonkeyPatch):
    accuracies = iter([0.7, 0.6])
    monkeypatch.setattr(adversarial_mask, "evaluate", lambda model, data: next(accuracies))
    assert trained(replace(TINY, epochs=4), validation=world()).card["validation_accuracy"] == 0.7
    assert next(accuracies, None) is None  # of four epochs two were judged


# People


def test_people_may_be_on_images_of_their_own():
    others = world(people=6, seed=2)
    del others.labels["colour"]
    model = trained(people=others)
    assert model.card["people"] == others.digest
    assert model.card["sensitive"] == "person"
    assert trained(replace(TINY, against=0.0)).card["sensitive"] is None


@pytest.mark.parametrize(
    ("people", "each", "shape"),
    [(24, 8, (16, 1, 1)), (40, 8, (16, 1, 1)), (6, 8, (6, 1, 4)), (6, 3, (6, 1, 2)), (2, 2, (2, 1, 1))],
    ids=["many", "more", "few", "few images", "least"],
)
def test_an_episode_has_half_a_batch_of_people_or_more_images_of_fewer(
    people: int, each: int, shape: tuple[int, int, int]
):
    drawn = episodes_of_people(world(people, each), "person", batch=32).shape
    assert (drawn.way, drawn.shot, drawn.queries) == shape


def test_one_image_of_each_is_too_few():
    message = (
        "corners: 0 classes of label 'person' with two images, and an adversary learns to distinguish people"
    )
    with pytest.raises(DataError, match=message):
        trained(people=world(24, 1))


def test_people_of_another_size_are_refused():
    small = world()
    others = LabelledImages("others", small.images[:, :, :8], small.labels)
    with pytest.raises(DataError, match="others: images of 3x8x16: this mask was trained on 3x16x16: resize"):
        trained(people=others)


# Mistakes


@pytest.mark.parametrize(("against", "sensitive"), [(1.0, None), (0.0, "person")])
def test_a_weight_and_a_label_go_together(against: float, sensitive: str | None):
    with pytest.raises(ConfigError, match=f"against={against:g} and sensitive={sensitive}: give both"):
        train(world(), replace(TINY, against=against), target="colour", sensitive=sensitive)


def test_what_is_to_be_shown_is_not_to_be_hidden():
    with pytest.raises(DataError, match="'colour' is target and sensitive: a mask cannot both show and hide"):
        train(world(), TINY, target="colour", sensitive="colour")
