"""The model of a private feature: a device side and a cloud side, their use, and their artefact."""

import os
from typing import Any

import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import device_of
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ConfigError, DataError
from sfumato.images import check_batch
from sfumato.learn import method
from sfumato.learn.method import Precision, as_input, check_shape, load_model
from sfumato.learn.private_feature.config import FeatureConfig
from sfumato.networks.weights import initial_weights
from sfumato.protect.feature import KIND, DeviceSide, FeatureCard, make_sides

LEARNER = "private feature"
BATCH = 256  # images, or features, that go through the networks at once


class CloudSide(nn.Module):
    """The network after the private feature. State: its weights. (N, d) -> (N, outputs) logits."""

    def __init__(self, analyser: nn.Module, between: torch.Size, *, dimension: int) -> None:
        super().__init__()
        self.decoder = nn.Linear(dimension, between.numel())  # from the feature to the layer's output
        self.analyser = analyser  # the layers after the cut
        self._between = between

    def forward(self, features: Tensor) -> Tensor:
        """The logits of all attributes, one after the other."""
        return torch.as_tensor(self.analyser(self.decoder(features).unflatten(1, self._between)))


class FeatureModel(nn.Module):
    """A device side that extracts a private feature, and a cloud side that reads attributes from it.

    State: their weights, and those of an adversary while it is trained."""

    def __init__(self, device: DeviceSide, cloud: CloudSide, *, card: dict[str, Any]) -> None:
        super().__init__()
        self.device = device
        self.cloud = cloud
        self.card = card
        self.adversary: nn.Module | None = None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def classes(self) -> dict[str, tuple[str, ...]]:
        """Target -> the names of its classes."""
        return {target: tuple(names) for target, names in self.card["classes"].items()}

    @property
    def covariance(self) -> Tensor:
        """(d, d), of the features of the training images: C of Procedure 2."""
        return self.device.covariance

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """(N, C, H, W) uint8 -> (N, d) float32, without noise. Raises DataError for other sizes."""
        check_batch(images)
        self._check(images)
        if self.is_network:
            raise ConfigError("a network without auto-encoder has no feature: train a simple variant of it")
        self.eval()
        device = device_of(self)
        return torch.cat([self.device(as_input(part, device)) for part in images.split(BATCH)]).to(
            images.device
        )

    @property
    def is_network(self) -> bool:
        """Whether this is the attribute network alone, before there is a feature."""
        return bool(self.card["config"]["variant"] == "network")

    def outputs(self, images: Tensor) -> Tensor:
        """(N, C, H, W) float32 -> (N, outputs) logits of all attributes, in the current mode."""
        return (
            self.without_feature(images)
            if self.is_network
            else torch.as_tensor(self.cloud(self.device(images)))
        )

    def without_feature(self, images: Tensor) -> Tensor:
        """Gives the same by the attribute network alone, past the auto-encoder."""
        return torch.as_tensor(self.cloud.analyser(self.device.extractor(images)))

    @torch.no_grad()
    def classify(self, images: Tensor) -> dict[str, Tensor]:
        """(N, C, H, W) uint8 -> target -> (N, classes) float32 logits, by both sides, without noise.

        Raises DataError for other sizes.
        """
        self._check(images)
        self.eval()
        device = device_of(self)
        logits = torch.cat([self.outputs(as_input(part, device)) for part in images.split(BATCH)])
        return self.by_target(logits.to(images.device))

    def _check(self, images: Tensor) -> None:
        check_batch(images)
        check_shape(images, self.card["shape"], "extractor")

    @torch.no_grad()
    def attributes(self, features: Tensor) -> dict[str, Tensor]:
        """(N, d) features, noisy or not -> target -> (N, classes) float32 logits.

        Raises:
            ConfigError: this is a network, which reads no features.
            DataError: features of another dimension, or that are not finite.
        """
        if self.is_network:
            raise ConfigError(
                "a network without auto-encoder reads no features: train a simple variant of it"
            )
        wanted = self.card["config"]["dimension"]
        if features.ndim != 2 or features.shape[1] != wanted:
            raise DataError(f"features of {tuple(features.shape)}: this model reads (N, {wanted})")
        if not features.isfinite().all():
            raise DataError("features that are not finite: leave these images out")
        self.eval()
        device = device_of(self)
        logits = torch.cat([self.cloud(part.to(device)) for part in features.split(BATCH)])
        return self.by_target(logits.to(features.device))

    def by_target(self, logits: Tensor) -> dict[str, Tensor]:
        """(N, outputs) -> target -> its columns."""
        sizes = [len(names) for names in self.card["classes"].values()]
        return dict(zip(self.card["classes"], logits.split(sizes, dim=1), strict=True))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an artefact, whose device side `protect.feature` applies."""
        artefacts.save(path, self.state_dict(), {"kind": KIND, **self.card})


class _Card(FeatureCard):
    """The card of both sides: the device side needs less."""

    config: FeatureConfig  # type: ignore[assignment]
    precision: Precision = "float32"  # of the training: a loaded model computes in float32


def load(path: str | os.PathLike[str]) -> FeatureModel:
    """Reads a model that `FeatureModel.save` wrote. Raises ArtefactError: damaged, foreign, another kind."""
    return load_model(path, kind=KIND, schema=_Card, untrained=lambda card: make_untrained(card, seed=0))


def evaluate(model: FeatureModel, data: LabelledImages, features: Tensor | None = None) -> dict[str, float]:
    """Target -> the share of clean images whose attribute is named correctly.

    `features`: (N, d) of these images, with noise for example; None for those without.

    Raises:
        DataError: no images, or of another size, or of unknown classes; features that are
            not one an image, or as `attributes` raises.
    """
    codes = codes_of(model, data)
    if not len(data) or (features is not None and len(features) != len(data)):
        count = len(data) if features is None else len(features)
        raise DataError(f"{count} features of {len(data)} images: one of each, and at least one")
    logits = model.classify(data.images) if features is None else model.attributes(features)
    guesses = torch.stack([scores.argmax(1) for scores in logits.values()], 1)  # (N, T)
    return dict(zip(logits, (guesses == codes).double().mean(0).tolist(), strict=True))


def make_untrained(card: dict[str, Any], *, seed: int) -> FeatureModel:
    """Makes the model of a card's settings, with initial weights from `seed`. Raises as train does."""
    dimension = card["config"]["dimension"]
    with initial_weights(seed):
        device, analyser, between = make_sides(card)
        cloud = CloudSide(analyser, between, dimension=dimension)
    if dimension > between.numel():
        raise ConfigError(
            f"dimension={dimension} is more than the {between.numel()} outputs of layer "
            f"{card['config']['cut']}: choose fewer, or another cut"
        )
    return FeatureModel(device, cloud, card=card)


def codes_of(model: FeatureModel, data: LabelledImages) -> Tensor:
    """(N, T) int64, the class of each target. Raises DataError for classes that were not trained on."""
    columns = [method.codes_of(data, target, names, LEARNER) for target, names in model.classes.items()]
    return torch.stack(columns, 1)
