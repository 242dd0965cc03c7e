"""Codes: what their training promises, on a drawn world."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sfumato import data
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.learn import code, code_prototypes
from sfumato.learn.code import CodeConfig, imbalance, release_numbers
from sfumato.learn.gallery import answers_of_episodes
from sfumato.protect.code import Code
from sfumato.study.measure.accuracy import serve_vectors

QUICK: dict[str, Any] = {
    **{"way": 4, "shot": 2, "queries": 2, "epochs": 2, "episodes_per_epoch": 3},
    **{"validation_way": 2, "validation_shot": 2, "validation_queries": 2, "validation_episodes": 10},
}


@pytest.fixture(scope="module")
def people() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=16)


def trained(people: data.LabelledImages, config: CodeConfig, **settings: Any) -> code.CodeModel:
    return code.train(people.split("train"), config, target="headwear", **settings)


def test_what_a_device_releases_are_the_codes_of_the_model(people: data.LabelledImages, tmp_path: Path):
    images = people.split("test").images[:20]
    for size in ({"bits": 6}, {"numbers": 6}):
        model = trained(people, CodeConfig(**QUICK, **size))
        model.save(tmp_path / "code.safetensors")
        release = Code(str(tmp_path / "code.safetensors")).release(images, seeded_noise(0))
        assert torch.allclose(release.vectors(), model.codes(images), atol=1e-5)


def test_few_classes_have_more_queries_so_that_a_step_is_of_as_many_images():
    asked = CodeConfig(bits=1, way=20, shot=5, queries=5)
    two = code.fill_queries(asked, 2)
    assert (two.way, two.shot, two.queries) == (2, 5, 95)
    assert code.fill_queries(asked, 20) is asked
    assert code.fill_queries(asked, 300) is asked


def test_a_code_learns_hats_that_it_has_never_seen(people: data.LabelledImages):
    """Chance is a third; a minute of training keeps nine in ten (docs/results.md)."""
    config = CodeConfig(**QUICK | {"way": 8, "shot": 3, "queries": 3, "epochs": 10}, bits=8)
    model = trained(people, config)
    shape = Shape(way=3, shot=3, queries=3)
    accuracy = code.evaluate(model, people.split("test"), shape, target="headwear", episodes=200)
    assert accuracy.mean - accuracy.half_width > 0.4


def test_codes_that_share_their_pretraining_are_those_that_pretrain_alone(
    people: data.LabelledImages, tmp_path: Path
):
    shared, settings = tmp_path / "pretraining", QUICK | {"epochs": 2, "pretraining_epochs": 1}
    train = people.split("train")
    code.pretrain(train, CodeConfig(**settings, numbers=2), target="headwear", checkpoint=shared)
    for size in ({"bits": 4}, {"bits": 8, "flip": 0.1}):
        alone = trained(people, CodeConfig(**settings, **size))
        sharing = trained(people, CodeConfig(**settings, **size), pretraining=shared)
        assert all(weights.equal(alone.state_dict()[k]) for k, weights in sharing.state_dict().items())
    with pytest.raises(ArtefactError, match="the checkpoint of another run"):
        trained(people, CodeConfig(**settings, bits=4), pretraining=shared, seed=1)


def test_an_encoder_that_has_learned_to_classify_needs_fewer_episodes(people: data.LabelledImages):
    accuracies = []
    for pretraining_epochs in (0, 20):
        epochs = {"epochs": pretraining_epochs + 3, "pretraining_epochs": pretraining_epochs}
        config = CodeConfig(**QUICK | epochs | {"way": 8, "shot": 3, "queries": 3}, bits=8)
        shape = Shape(way=3, shot=3, queries=3)
        model = trained(people, config)
        accuracies.append(code.evaluate(model, people.split("test"), shape, target="headwear", episodes=400))
    without, after = accuracies
    assert after.mean - after.half_width > without.mean + without.half_width


@pytest.mark.parametrize(
    "size", [{"bits": 6}, {"bits": 6, "flip": 0.1}, {"numbers": 6}, {"numbers": 6, "norm": 1, "noise": 0.05}]
)
def test_receivers_are_told_how_codes_spread_and_when_one_is_of_no_class(
    people: data.LabelledImages, tmp_path: Path, size: dict[str, Any]
):
    path = tmp_path / "code.safetensors"
    model = trained(people, CodeConfig(**QUICK, **size), validation=people.split("validation"))
    model.save(path)
    made, _ = code_prototypes.read(path)
    assert made.spread is not None
    known = model.card["prototypes"]
    assert (made.refusal is None) == (known["refusal"] is None) == bool(known["no_refusal"])
    assert (made.bits, made.dimension) == (size.get("bits"), 6)
    noise = {name: size.get(name) for name in ("flip", "norm", "noise")}
    assert made.refusal_of(Code(str(path), **noise)) == made.refusal
    without = trained(people, CodeConfig(**QUICK, **size))
    without.save(path)
    assert code_prototypes.read(path)[0].refusal is None


@pytest.mark.parametrize("size", [{"bits": 2}, {"bits": 6}, {"numbers": 6}])
def test_the_accuracy_of_a_card_is_that_of_a_service_which_has_only_the_file(
    people: data.LabelledImages, tmp_path: Path, size: dict[str, Any]
):
    """Prototypes are posterior means, and a hash breaks ties: of few bits many are equally far."""
    path, test = tmp_path / "code.safetensors", people.split("test")
    model = trained(people, CodeConfig(**QUICK, **size), validation=people.split("validation"))
    model.save(path)
    released = Code(str(path)).release(test.images, seeded_noise(0))
    served = serve_vectors(released)
    shape = Shape(way=4, shot=3, queries=3)
    rows = Sampler(test.label("headwear"), shape).draw(50, torch.Generator().manual_seed(0))
    right, _ = answers_of_episodes(
        served.vectors, rows.numpy(), shot=3, weights=served.weights, codes=served.codes
    )
    accuracy = code.evaluate(model, test, shape, target="headwear", episodes=50)
    assert accuracy.mean == pytest.approx(right.mean(), abs=1e-6)
    known, judged = people.split("validation"), model.config.validation_episode
    again = code.evaluate(model, known, judged, target="headwear", episodes=10)
    assert model.card["validation_accuracy"] == pytest.approx(again.mean, abs=1e-6)


# Losses


def test_signs_are_released_and_the_gradient_is_that_of_the_numbers():
    numbers = torch.tensor([[0.3, -0.2], [-0.9, 0.1]], requires_grad=True)
    codes = release_numbers(numbers, CodeConfig(bits=2), torch.Generator())
    assert codes.tolist() == [[1, -1], [-1, 1]]
    codes.backward(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert numbers.grad is not None
    assert numbers.grad.tolist() == [[1, 2], [3, 4]]


def test_flips_in_training_are_as_many_as_those_of_releases():
    draw = torch.Generator().manual_seed(0)
    codes = release_numbers(torch.ones(1000, 10), CodeConfig(bits=10, flip=0.3), draw)
    assert (codes == -1).double().mean().item() == pytest.approx(0.3, abs=0.025)


def test_noise_in_training_is_on_clipped_numbers():
    draw = torch.Generator().manual_seed(0)
    codes = release_numbers(torch.ones(5000, 4), CodeConfig(numbers=4, norm=1, noise=0.04), draw)
    assert codes.mean().item() == pytest.approx(0.5, abs=0.01)  # a norm of 1 in 4 equal numbers
    assert codes.std().item() == pytest.approx(0.2, rel=0.05)


def test_codes_are_clipped_to_the_norm_of_the_settings_and_keep_their_direction(people: data.LabelledImages):
    tight, loose = (CodeConfig(numbers=6, norm=norm, noise=0.1) for norm in (1e-3, 1e3))
    model, other = (code.make_untrained(people, each, target="headwear") for each in (tight, loose))
    numbers, codes = model.infer(model.numbers, people.images), model.codes(people.images)
    assert (numbers.norm(dim=1) > 1e-3).all()  # all of them are to be cut
    assert codes.norm(dim=1).tolist() == pytest.approx([1e-3] * len(people), rel=1e-4)
    assert torch.cosine_similarity(codes, numbers).min() > 1 - 1e-5
    torch.testing.assert_close(other.codes(people.images), numbers)  # within the norm nothing changes


def test_bits_that_repeat_each_other_or_never_change_cost_and_independent_ones_do_not():
    every = torch.tensor([[1.0, 1], [1, -1], [-1, 1], [-1, -1]])
    assert imbalance(every) == pytest.approx(0, abs=1e-6)
    repeated, constant = every[:, [0, 0]], torch.ones(4, 2)
    assert imbalance(repeated) == pytest.approx(1)
    assert imbalance(constant) >= 1


# Mistakes


def test_whom_a_code_is_trained_against_and_how_much_belong_together(people: data.LabelledImages):
    with pytest.raises(ConfigError, match="against=0 and sensitive labels: give both"):
        trained(people, CodeConfig(**QUICK, bits=4), sensitive=["identity"])
    with pytest.raises(DataError, match="'headwear' is a target and sensitive"):
        trained(people, CodeConfig(**QUICK, bits=4, against=1), sensitive=["headwear"])
    alias = replace(people, labels={**people.labels, "hat": people.label("headwear")})
    with pytest.raises(DataError, match="'headwear' is a target and sensitive under the name 'hat'"):
        trained(alias, CodeConfig(**QUICK, bits=4, against=1), sensitive=["hat"])


def test_too_few_classes_for_an_episode_are_named(people: data.LabelledImages):
    with pytest.raises(DataError, match=r"classes have .* images"):
        trained(people, CodeConfig(**QUICK | {"way": 100}, bits=4))
