"""SemSim: the distance of a reconstruction from showing people the same as its original.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.3. The network is trained on people's recognition
(`sfumato.learn.semsim`) and read from its artefact. There are two: SemSim as published, an embedding; and
semsim-perceptual, a calibrated distance over the stages of SqueezeNet, which also gives the probability that
a person recognises the original.
"""

import os
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from sfumato import artefacts
from sfumato.assess.similarity import check_pairs
from sfumato.errors import ArtefactError
from sfumato.networks.encoders.small import NETWORKS, Embedding
from sfumato.networks.encoders.squeeze_net import STAGES
from sfumato.networks.stage_distance import KINDS, LEAST_SIZE, StageDistance
from sfumato.networks.weights import initial_weights, no_larger_than, take_weights

_BATCH = 256


class _Settings(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    network: Literal[tuple(NETWORKS)]  # type: ignore[valid-type]
    size: Annotated[int, Field(ge=8, le=1024)]
    normalised: bool


class _Card(artefacts.Card):
    config: _Settings


class _PerceptualSettings(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    size: Annotated[int, Field(ge=LEAST_SIZE, le=1024)]
    terms: Literal["relative", "placed", "both"]
    stages: Annotated[int, Field(ge=1, le=len(STAGES))]


class _PerceptualCard(artefacts.Card):
    config: _PerceptualSettings
    others: Annotated[int, Field(ge=1, le=1 << 16)]


class SemSim:
    """A trained SemSim. State: none that changes. `card`: its settings, data digest and version."""

    def __init__(self, embedding: Embedding, *, card: dict[str, Any]) -> None:
        self._embedding = embedding.eval()
        self.card = card

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SemSim":
        """Read a model of `sfumato.learn.semsim`; ArtefactError if damaged, or of another kind."""
        tensors, card = artefacts.load(path, kind="semsim", schema=_Card)
        config = card["config"]
        try:
            with initial_weights(), no_larger_than(tensors):
                embedding = Embedding(config["network"], size=config["size"], normalised=config["normalised"])
        except (ValueError, RuntimeError) as error:
            raise ArtefactError(f"{path}: damaged: its card does not describe a SemSim: {error}") from error
        take_weights(embedding, tensors, path)
        return cls(embedding, card=card)

    @torch.no_grad()
    def distance(self, originals: Tensor, others: Tensor) -> Tensor:
        """Compute the Euclidean distance between the embeddings of each pair; low if content leaks.

        The score of a model under attack is the mean over its pairs: average it yourself.

        Args:
            originals, others: (N, C, H, W) float pairs in [0, 1], of 1 or 3 channels and any size, which are
                brought to the training size of SemSim, see `networks.embedding.to_squares`.

        Returns:
            (N,) float32 from 0; at most 2 if embeddings are normalised.
        """
        check_pairs(originals, others, channels=(1, 3))
        parts = zip(originals.split(_BATCH), others.split(_BATCH), strict=True)
        return torch.cat([(self._embedding(a) - self._embedding(b)).norm(dim=1) for a, b in parts])


class PerceptualSemSim:
    """A trained semsim-perceptual, with a card as SemSim's and its measured accuracy."""

    def __init__(self, network: StageDistance, *, card: dict[str, Any]) -> None:
        self._network = network.eval()
        self.card = card

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PerceptualSemSim":
        """Read a model of `sfumato.learn.semsim.perceptual`; ArtefactError if damaged, or of another kind."""
        tensors, card = artefacts.load(path, kind="semsim-perceptual", schema=_PerceptualCard)
        config = card["config"]
        with initial_weights(), no_larger_than(tensors):
            kinds = KINDS if config["terms"] == "both" else (config["terms"],)
            network = StageDistance(
                size=config["size"], kinds=kinds, stages=config["stages"], others=card["others"]
            )
        take_weights(network, tensors, path)
        if bool((network.weights < 0).any()) or network.calibration[1] < 0:
            raise ArtefactError(
                f"{path}: damaged: a weight or the slope of its curve is below 0, so that farther would "
                "be more alike: train it again"
            )
        return cls(network, card=card)

    @torch.no_grad()
    def distance(self, originals: Tensor, others: Tensor) -> Tensor:
        """Compute the distance of each pair, 0 when equal; low if content leaks. -> (N,) float32.

        Arguments and errors are those of SemSim.distance.
        """
        check_pairs(originals, others, channels=(1, 3))
        distances: Tensor = self._network(originals, others)
        return distances

    @torch.no_grad()
    def probability(self, originals: Tensor, others: Tensor) -> Tensor:
        """Estimate the probability that a person recognises the original in the other. -> (N,) float32.

        It holds for the question, the people and the images of its training: see the card.
        """
        return self._network.probability(self.distance(originals, others))


def measure(path: str | os.PathLike[str]) -> Callable[[Tensor, Tensor], Tensor]:
    """Read either kind, as a measure of studies: float pairs -> their distances. See `load`."""
    return load(path).distance


def load(path: str | os.PathLike[str]) -> SemSim | PerceptualSemSim:
    """Read either kind, by its card. Raises ArtefactError as the two do."""
    perceptual = artefacts.read_card(path).get("kind") == "semsim-perceptual"
    return PerceptualSemSim.load(path) if perceptual else SemSim.load(path)
