"""The answer alone: the device classifies the image, and releases the name of the class.

The baseline of every other release: if the classes are known on the device, nothing else need be sent. The
classifier is an ordinary one, or an encoder with prototypes of classes that the device downloaded; `save`
makes an artefact of either.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError
from sfumato.images import Images, as_tensor
from sfumato.networks.classifiers import CLASSIFIERS, ENCODERS, check_network, make_classifier, make_encoder
from sfumato.networks.encoders.pretrained import check_card, on_card
from sfumato.networks.one_by_one import each_by_itself
from sfumato.protect.parameters import check_path
from sfumato.protect.release import FilePath, Released, TrainedProtection, load_network
from sfumato.protect.vectors import check_packets

KIND = "answers"  # of the artefact

_PROTOTYPES = "prototypes"
_NETWORK = "network."


@dataclass(frozen=True)
class AnswerRelease(Released):
    """Answers that leave a device: `array` is (N,) int64, each a row of `classes`."""

    classes: tuple[str, ...]  # the names of all possible answers, at least two

    kind = "answer"

    def numbers(self) -> np.ndarray:
        """The answers as numbers: (N, classes) float32, 1 for the answer and 0 for the others."""
        one_hot: np.ndarray = np.eye(len(self.classes), dtype=np.float32)[self.array]
        return one_hot

    @property
    def names(self) -> list[str]:
        """The answers by name."""
        return [self.classes[row] for row in self.array.tolist()]

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image: as many as the number of a class needs."""
        return -(-(len(self.classes) - 1).bit_length() // 8)

    def pack(self) -> list[bytes]:
        """The bytes of each image: the row of its answer, little-endian."""
        return [row.to_bytes(self.bytes_per_image, "little") for row in self.array.tolist()]


def unpack(packets: Sequence[bytes], *, spec: str, classes: Sequence[str]) -> AnswerRelease:
    """Reads the packets of `AnswerRelease.pack`. Raises DataError for other lengths or unknown answers."""
    rows = np.array([int.from_bytes(packet, "little") for packet in packets], dtype=np.int64)
    release = AnswerRelease(rows, spec, tuple(classes))
    what = f"does not hold {len(classes)} answers, which take"
    check_packets(packets, release.bytes_per_image, what, "the classes")
    if len(rows) and rows.max() >= len(classes):
        raise DataError(f"answer {rows.max()} of {len(classes)} classes: pass the classes that were released")
    return release


class Answerer(nn.Module):
    """A classifier on the device: (N, C, H, W) float images -> (N, classes) logits. State: its weights.

    The network gives logits; or embeddings, if there are prototypes, (classes, D), one a class.
    """

    prototypes: Tensor | None

    def __init__(
        self,
        network: nn.Module,
        *,
        classes: Sequence[str],
        shape: tuple[int, int, int],
        prototypes: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.network = network
        self.classes = tuple(classes)
        self.shape = shape
        self.register_buffer(_PROTOTYPES, prototypes)

    def forward(self, images: Tensor) -> Tensor:
        """The logits of float images: those of the network, or minus the squared distances to prototypes."""
        outputs = torch.as_tensor(self.network(images))
        return outputs if self.prototypes is None else -torch.cdist(outputs, self.prototypes).square()


class AnswerCard(artefacts.Card):
    """The keys of an answer artefact's card that a device reads."""

    head: Literal["classes", "prototypes"]  # "classes", for a network that ends in logits
    network: str  # its name for make_classifier, or for make_encoder, of networks.classifiers
    shape: artefacts.ImageShape
    classes: Annotated[list[artefacts.Name], Field(min_length=2, max_length=1 << 16)]

    @model_validator(mode="after")
    def _is_known(self) -> "AnswerCard":
        check_network(
            check_card(self.network), CLASSIFIERS if self.head == "classes" else ENCODERS, what="network"
        )
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: a name occurs twice")
        return self


def save(path: str | os.PathLike[str], answerer: Answerer, *, network: str, card: dict[str, Any]) -> None:
    """Writes an artefact for `answer:artefact=FILE`; `network`: its name for networks.classifiers."""
    card = {
        **card,
        "kind": KIND,
        "head": "classes" if answerer.prototypes is None else "prototypes",
        "network": on_card(network),
        "shape": list(answerer.shape),
        "classes": list(answerer.classes),
    }
    artefacts.save(path, answerer.state_dict(), card)


def load_answerer(path: str) -> Answerer:
    """Loads the classifier of an artefact that `save` wrote. Raises ArtefactError as load_network does."""

    def make(card: dict[str, Any]) -> nn.Module:
        if card["head"] == "prototypes":
            return make_encoder(card["network"], card["shape"][0])
        return make_classifier(card["network"], tuple(card["shape"]), len(card["classes"]))

    network, card, tensors = load_network(
        path, make, kind=KIND, schema=AnswerCard, prefix=_NETWORK, what="a classifier"
    )
    prototypes = tensors.get(_PROTOTYPES)
    if (prototypes is not None) != (card["head"] == "prototypes"):
        raise ArtefactError(f"{path}: damaged: its card says {card['head']}, and its weights do not")
    shape = tuple(card["shape"])
    answerer = Answerer(network, classes=card["classes"], shape=shape, prototypes=prototypes).eval()
    _check_answers(answerer, path)
    return answerer


@torch.no_grad()
def _check_answers(answerer: Answerer, path: str) -> None:
    """Raises ArtefactError unless it answers an image: prototypes may belong to another encoder."""
    try:
        answered = answerer(torch.zeros(1, *answerer.shape)).shape[1]
    except (ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path}: damaged: prototypes and network do not fit: {error}") from error
    if answered != len(answerer.classes):
        raise ArtefactError(f"{path}: damaged: {answered} answers, and {len(answerer.classes)} names")


@dataclass(frozen=True)
class Answer(TrainedProtection):
    """Classifies on the device, and releases only the name of the class.

    No differential privacy is proved: another image may certainly change the answer. But there are only as
    many outputs as answers: by counting, one release names nobody among N equally likely people with a chance
    above answers / N (`outputs`; see sfumato.dp.naming). `artefact`: path of the classifier, see `save`.
    """

    artefact: FilePath

    name, kind = "answer", "answer"
    _what, _load = "a classifier", staticmethod(load_answerer)

    def __post_init__(self) -> None:
        check_path("answer", "artefact", self.artefact)

    @property
    def outputs(self) -> int:
        """The number of different releases. Raises ArtefactError as load_answerer does."""
        return len(self._trained.classes)

    @torch.no_grad()
    def release(self, images: Images, noise: Noise) -> AnswerRelease:  # type: ignore[override]
        """See Protection.release. Raises as load_answerer does, and SpecError for images of another size."""
        self.check_images(images)
        answerer: Answerer = self._trained
        rows = torch.cat(each_by_itself(answerer, as_tensor(images))).argmax(1)
        return AnswerRelease(rows.numpy(), self.spec, answerer.classes)
