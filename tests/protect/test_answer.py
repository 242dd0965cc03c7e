"""The answer alone: what a device releases that classifies by itself."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, DataError
from sfumato.images import to_float
from sfumato.networks.classifiers import CLASSIFIERS, ENCODERS
from sfumato.networks.weights import initial_weights
from sfumato.protect.answer import Answer, Answerer, AnswerRelease, load_answerer, save, unpack

SHAPE = (1, 16, 16)
CLASSES = ("hat", "cap", "crown")


def photographs(count: int) -> Tensor:
    return torch.randint(
        0, 256, (count, *SHAPE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )


def classifier() -> Answerer:
    with initial_weights(0):
        network = CLASSIFIERS["conv4"](SHAPE, len(CLASSES))
    return Answerer(network, classes=CLASSES, shape=SHAPE).eval()


def by_prototypes() -> Answerer:
    with initial_weights(0):
        encoder = ENCODERS["conv4"](1).eval()
    with torch.no_grad():
        prototypes = encoder(to_float(photographs(3)))
    return Answerer(encoder, classes=CLASSES, shape=SHAPE, prototypes=prototypes).eval()


@pytest.fixture
def artefact(tmp_path: Path) -> str:
    save(tmp_path / "answers.safetensors", classifier(), network="conv4", card={"seed": 0})
    return str(tmp_path / "answers.safetensors")


def released(artefact: str, images: Tensor) -> AnswerRelease:
    return Answer(artefact).release(images, seeded_noise(0))


def test_what_is_released_is_the_class_that_the_device_names_and_nothing_else(artefact: str):
    images, network = photographs(9), classifier()
    with torch.no_grad():
        expected = torch.stack([network(to_float(image)).argmax() for image in images.split(1)])
    release = released(artefact, images)
    assert release.values.tolist() == expected.tolist()
    assert release.names == [CLASSES[row] for row in expected]
    assert [len(packet) for packet in release.pack()] == [1] * 9


def test_a_query_is_answered_by_the_nearest_of_the_prototypes_that_came_down(tmp_path: Path):
    save(tmp_path / "a.safetensors", by_prototypes(), network="conv4", card={})
    release = released(str(tmp_path / "a.safetensors"), photographs(3))
    assert release.names == list(CLASSES)  # each is at its own prototype


def test_packets_come_back_as_the_answers_they_were_made_of_two_bytes_each_of_more_than_256(artefact: str):
    release = released(artefact, photographs(5))
    back = unpack(release.pack(), spec=release.spec, classes=CLASSES)
    assert back.values.equal(release.values)
    assert (back.classes, back.spec) == (release.classes, release.spec)
    classes = tuple(map(str, range(257)))
    release = AnswerRelease(torch.tensor([0, 256]), "answer:artefact=a", classes)
    assert [len(packet) for packet in release.pack()] == [2, 2]
    assert unpack(release.pack(), spec=release.spec, classes=classes).names == ["0", "256"]


def test_there_are_as_many_outputs_as_answers(artefact: str):
    assert Answer(artefact).outputs == len(CLASSES)
    vectors = released(artefact, photographs(50)).vectors()
    assert len(vectors.unique(dim=0)) <= len(CLASSES)
    assert vectors.sum(1).tolist() == [1] * 50


@pytest.mark.parametrize(
    ("packets", "message"),
    [([b""], "a packet of 0 bytes"), ([b"\0\0"], "a packet of 2 bytes"), ([b"\3"], "answer 3 of 3 classes")],
)
def test_foreign_packets_are_refused(packets: list[bytes], message: str):
    with pytest.raises(DataError, match=message):
        unpack(packets, spec="answer", classes=CLASSES)


@pytest.mark.parametrize(
    ("prototypes", "message"),
    [
        ({"prototypes": torch.zeros(3, 5)}, "prototypes and network do not fit"),
        ({"prototypes": by_prototypes().prototypes[:2]}, "damaged: 2 answers, and 3 names"),
        ({}, "card says prototypes"),
    ],
)
def test_a_card_that_says_prototypes_needs_those_of_its_encoder(tmp_path: Path, prototypes, message: str):
    tensors = {name: each for name, each in by_prototypes().state_dict().items() if name != "prototypes"}
    card = {"kind": "answers", "head": "prototypes", "network": "conv4", "shape": list(SHAPE)}
    artefacts.save(tmp_path / "a.safetensors", tensors | prototypes, {**card, "classes": list(CLASSES)})
    with pytest.raises(ArtefactError, match=message):
        load_answerer(str(tmp_path / "a.safetensors"))
