"""SemSim: how far a reconstruction is from showing people what its original shows.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.3. The network is trained on what people recognised
(`sfumato.learn.semsim`) and read from its artefact. There are two of them: SemSim as published, an
embedding; and semsim-perceptual, whose distance over the stages of SqueezeNet is calibrated, so that it
also says with which probability a person recognises what is shown.
"""

import os
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from sfumato import artefacts
from sfumato.errors import ArtefactError, ConfigError
from sfumato.networks.encoders.embedding import NETWORKS, Embedding
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
    """A trained SemSim. State: none that changes.

    Attributes:
        card: what is known of its making: settings, data digest, version.
    """

    def __init__(self, embedding: Embedding, *, card: dict[str, Any]) -> None:
        self._embedding = embedding.eval()
        self.card = card

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SemSim":
        """Read what `sfumato.learn.semsim` wrote.

        Raises:
            ArtefactError: damaged, foreign, or of another kind.
        """
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
        """The Euclidean distance between the embeddings of each pair; low where what is seen leaks.

        The score of a model under attack is the mean over its pairs: average them yourself.

        Args:
            originals, others: (N, C, H, W) float pairs in [0, 1], of 1 or 3 channels and any size: they are
                brought to the size that SemSim was trained for, see `networks.embedding.to_squares`.

        Returns:
            (N,) float32 from 0; at most 2 where embeddings are normalised.

        Raises:
            ConfigError: the two are not alike, or no such images.
        """
        _check(originals, others)
        parts = zip(originals.split(_BATCH), others.split(_BATCH), strict=True)
        return torch.cat([(self._embedding(a) - self._embedding(b)).norm(dim=1) for a, b in parts])


class PerceptualSemSim:
    """A trained semsim-perceptual. State: none that changes.

    Attributes:
        card: what is known of its making: settings, data digest, how well it foretells, version.
    """

    def __init__(self, network: StageDistance, *, card: dict[str, Any]) -> None:
        self._network = network.eval()
        self.card = card

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "PerceptualSemSim":
        """Read what `sfumato.learn.semsim.perceptual` wrote.

        Raises:
            ArtefactError: damaged, foreign, of another kind, or with weights below 0.
        """
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
                f"{path}: damaged: a weight or the slope of its curve is below 0, where farther would "
                "be more alike: train it again"
            )
        return cls(network, card=card)

    @torch.no_grad()
    def distance(self, originals: Tensor, others: Tensor) -> Tensor:
        """The distance of each pair, 0 when equal; low where what is seen leaks. -> (N,) float32.

        Arguments and errors are those of SemSim.distance.
        """
        _check(originals, others)
        distances: Tensor = self._network(originals, others)
        return distances

    @torch.no_grad()
    def probability(self, originals: Tensor, others: Tensor) -> Tensor:
        """With which probability a person recognises the original in the other, 0 to 1. -> (N,) float32.

        A person who is asked what those were whom it was trained on, of images like theirs: see the card.
        """
        return self._network.probability(self.distance(originals, others))


def load(path: str | os.PathLike[str]) -> SemSim | PerceptualSemSim:
    """Read either, by what its card says. Raises ArtefactError as the two do."""
    perceptual = artefacts.read_card(path).get("kind") == "semsim-perceptual"
    return PerceptualSemSim.load(path) if perceptual else SemSim.load(path)


def _check(originals: Tensor, others: Tensor) -> None:
    if originals.shape != others.shape or originals.ndim != 4 or originals.shape[1] not in (1, 3):
        raise ConfigError(
            "SemSim compares (N, C, H, W) pairs of 1 or 3 channels, "
            f"got {tuple(originals.shape)} and {tuple(others.shape)}"
        )
    for images in (originals, others):
        if not images.is_floating_point():
            raise ConfigError(f"SemSim compares floats in [0, 1], got {images.dtype}: use images.to_float")
