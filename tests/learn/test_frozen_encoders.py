"""What is trained on an encoder that was trained before: few-shot models, classifiers and codes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from encoders import Small, write_onnx

from sfumato import artefacts, data
from sfumato.data.labelled import Label
from sfumato.dp.mechanisms import seeded_noise
from sfumato.episodes import Sampler, Shape
from sfumato.errors import ArtefactError
from sfumato.learn import classifier, code, few_shot
from sfumato.learn.classifier import ClassifierConfig
from sfumato.learn.code import CodeConfig
from sfumato.learn.few_shot import FewShotConfig
from sfumato.learn.gallery import answers_of_episodes
from sfumato.networks import SqueezeNet
from sfumato.networks.encoders.pretrained import PretrainedEncoder
from sfumato.protect import answer, parse
from sfumato.protect.answer import Answer, Answerer
from sfumato.protect.code import Code, load_encoder
from sfumato.study.measure.accuracy import serve_vectors

EPISODES: dict[str, Any] = {
    **{"way": 4, "shot": 2, "queries": 2, "epochs": 3, "episodes_per_epoch": 3},
    **{"validation_way": 3, "validation_shot": 2, "validation_queries": 2, "validation_episodes": 10},
}


@pytest.fixture(scope="module")
def people() -> data.LabelledImages:
    return data.load("faces", identities=24, images_per_identity=9, headwear=18, size=24)


@pytest.fixture(scope="module")
def known(people: data.LabelledImages) -> data.LabelledImages:
    """The training images, every third of which is for validation; by `shade` they differ in brightness."""
    train = people.split("train")
    rows = torch.arange(len(train))
    shade = Label(rows % 4 // 2, ("light", "dark"))
    images = torch.where(shade.codes[:, None, None, None] == 1, train.images // 2, train.images)
    splits = {"train": rows[rows % 3 > 0], "validation": rows[rows % 3 == 0]}
    return replace(train, images=images, labels={**train.labels, "shade": shade}, splits=splits)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_onnx(tmp_path_factory.mktemp("encoder") / "small.onnx", Small())


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """SqueezeNet with random weights, in a file."""
    path = tmp_path_factory.mktemp("weights") / "squeezenet.safetensors"
    artefacts.save(path, SqueezeNet().state_dict(), {"kind": "weights"})
    return f"squeeze-net:{path},size=32"


def trained(people: data.LabelledImages, encoder: str, protection: str = "none", **settings: Any) -> Any:
    settings = EPISODES | {"denoiser_depth": None, "precision": "float32"} | settings
    config, sides = FewShotConfig(encoder=encoder, **settings), {"validation": people.split("validation")}
    return few_shot.train(people.split("train"), parse(protection), config, target="headwear", **sides)


# Few-shot models


def test_a_frozen_encoder_is_fitted_to_the_releases_in_closed_form(people: data.LabelledImages, spec: str):
    train = people.split("train")
    model = trained(people, spec, "blur:radius=1")
    released = parse("blur:radius=1").release(train.images, seeded_noise(0, 0)).images()
    embedded = model.encode(released).double()
    assert model.card["epochs"] == 0
    torch.testing.assert_close(
        embedded.norm(dim=1), torch.full((len(train),), 4.0).double(), atol=1e-4, rtol=0
    )
    assert isinstance(model.encoder, PretrainedEncoder)
    standard = model.encoder.encoder(released.float() / 255)
    assert standard.mean(0).abs().max() < 1e-4


def test_a_model_needs_its_file_no_longer(people: data.LabelledImages, tmp_path: Path):
    spec = write_onnx(tmp_path / "gone.onnx", Small())
    model = trained(people, spec)
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "gone.onnx").unlink()
    read = few_shot.load(tmp_path / "model.safetensors")
    images = people.split("test").images[:9]
    torch.testing.assert_close(read.encode(images), model.encode(images), atol=0, rtol=0)
    assert "gone" not in str(read.card)
    assert few_shot.operations(read, (3, 24, 24)) is None  # those of a graph are not counted


def test_a_denoiser_learns_in_front_of_an_encoder_that_does_not(people: data.LabelledImages, squeezenet: str):
    before = trained(people, squeezenet)
    model = trained(people, squeezenet, "gaussian:sigma=40", denoiser_depth=2, denoiser_width=4)
    assert model.card["epochs"] == 3
    for name, weights in before.encoder.encoder.network.state_dict().items():
        torch.testing.assert_close(model.encoder.encoder.network.state_dict()[name], weights, atol=0, rtol=0)
    start = few_shot.make_untrained(
        3, FewShotConfig(encoder=squeezenet, denoiser_depth=2, denoiser_width=4), parse("gaussian:sigma=40")
    )
    moved = [
        (ours - theirs).abs().max()
        for ours, theirs in zip(model.denoiser.parameters(), start.denoiser.parameters(), strict=True)
    ]
    assert max(moved) > 0


def test_a_rate_lets_the_encoder_learn_more_slowly_than_the_rest(
    people: data.LabelledImages, squeezenet: str
):
    """The first step of Adam moves every weight by about its learning rate."""
    start = trained(people, squeezenet).encoder.encoder.network.state_dict()
    one_step = {"epochs": 1, "episodes_per_epoch": 1, "learning_rate": 1e-2}
    for rate in (1.0, 0.1):
        model = trained(people, f"{squeezenet},rate={rate}", **one_step)
        moved = [
            (each - start[name]).abs().max()
            for name, each in model.encoder.encoder.network.state_dict().items()
            if "bias" not in name
        ]
        assert max(moved).item() == pytest.approx(1e-2 * rate, rel=0.02)


# Classifiers


def test_a_classifier_is_the_logistic_regression_of_what_the_encoder_gives(
    known: data.LabelledImages, spec: str, tmp_path: Path
):
    train, held = known.split("train"), known.split("validation")
    config = ClassifierConfig(network=spec, precision="float32")
    model = classifier.train(train, parse("none"), config, target="shade", validation=held)
    guesses = (model.classify(held.images) == _codes(model, held)).double().mean().item()
    # The strength is chosen before the last fit, which validation images are no part of.
    assert guesses == pytest.approx(model.card["validation_accuracy"])
    assert guesses > 0.8  # chance is a half

    model.save(tmp_path / "classifier.safetensors")
    read = classifier.load(tmp_path / "classifier.safetensors")
    assert torch.equal(read(held.images), model.eval()(held.images))


def _codes(model: classifier.ClassifierModel, images: data.LabelledImages) -> torch.Tensor:
    label = images.label("shade")
    return torch.tensor([model.classes.index(label.names[code]) for code in label.codes.tolist()])


def test_a_device_answers_by_its_own_encoder(known: data.LabelledImages, spec: str, tmp_path: Path):
    config = ClassifierConfig(network=spec, precision="float32")
    train = known.split("train")
    model = classifier.train(train, parse("none"), config, target="shade")
    answerer = Answerer(model.network, classes=model.classes, shape=(3, 24, 24))
    answer.save(tmp_path / "answers.safetensors", answerer, network=spec, card={})
    released = Answer(str(tmp_path / "answers.safetensors")).release(train.images[:10], seeded_noise(0))
    assert torch.equal(released.values, model.classify(train.images[:10]))


# Codes


@pytest.mark.parametrize(
    "more",
    [
        *({"flips": False}, {"flips": True}, {"mirrored": True}, {"codebook": "means"}),
        {"codebook": "means", "flips": True, "mirrored": True},
    ],
)
def test_a_code_is_learned_on_embeddings_and_released_from_images(
    people: data.LabelledImages, spec: str, tmp_path: Path, more: dict[str, Any]
):
    config = CodeConfig(bits=6, encoder=spec, pretraining_epochs=1, **more, **EPISODES)
    model = code.train(
        people.split("train"), config, target="headwear", validation=people.split("validation")
    )
    model.save(tmp_path / "code.safetensors")
    images = people.split("test").images[:20]
    release = Code(str(tmp_path / "code.safetensors")).release(images, seeded_noise(0))
    assert torch.equal(release.vectors(), model.codes(images))
    assert load_encoder(str(tmp_path / "code.safetensors")).bits == 6
    shape, test = Shape(way=3, shot=3, queries=3), people.split("test")
    measured = code.evaluate(model, test, shape, target="headwear", episodes=50)
    served = serve_vectors(Code(str(tmp_path / "code.safetensors")).release(test.images, seeded_noise(0)))
    rows = Sampler(test.label("headwear"), shape).draw(50, torch.Generator().manual_seed(0))
    weights = {"weights": served.weights, "codes": served.codes}
    right, _ = answers_of_episodes(served.vectors, rows.numpy(), shot=3, **weights)
    assert measured.mean == pytest.approx(right.mean(), abs=1e-6)


def test_a_code_on_a_frozen_encoder_learns(people: data.LabelledImages, spec: str):
    """Chance is a third."""
    config = CodeConfig(numbers=8, encoder=spec, **EPISODES | {"epochs": 20, "episodes_per_epoch": 10})
    model = code.train(people.split("train"), config, target="headwear")
    shape = Shape(way=3, shot=3, queries=3)
    accuracy = code.evaluate(model, people.split("test"), shape, target="headwear", episodes=200)
    assert accuracy.mean - accuracy.half_width > 0.4


# Cards from strangers


@pytest.mark.parametrize("kind", ["few-shot", "classifier", "code", "answers"])
def test_a_card_that_names_a_file_of_this_machine_opens_none(
    kind: str, people: data.LabelledImages, known: data.LabelledImages, spec: str, tmp_path: Path
):
    path = tmp_path / "model.safetensors"
    if kind == "few-shot":
        trained(people, spec).save(path)
    elif kind == "code":
        config = CodeConfig(bits=4, encoder=spec, **EPISODES)
        code.train(people.split("train"), config, target="headwear").save(path)
    else:
        config = ClassifierConfig(network=spec)
        model = classifier.train(known.split("train"), parse("none"), config, target="shade")
        model.save(path)
        if kind == "answers":
            answerer = Answerer(model.network, classes=model.classes, shape=(3, 24, 24))
            answer.save(path, answerer, network=spec, card={})
    tensors, card = artefacts.load(path, kind=kind)
    if kind == "answers":
        card["network"] = spec
    else:
        card["config"]["network" if kind == "classifier" else "encoder"] = spec
    artefacts.save(path, tensors, card)
    readers = {
        "few-shot": few_shot.load,
        "classifier": classifier.load,
        "code": lambda path: load_encoder(str(path)),
        "answers": lambda path: Answer(str(path)).check(),
    }
    with pytest.raises(ArtefactError, match="an artefact holds its encoder, and names no file"):
        readers[kind](path)
