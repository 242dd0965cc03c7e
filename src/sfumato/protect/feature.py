"""A private feature: a few numbers leave the device instead of an image.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Sec. 4. The extractor is trained by
sfumato.learn.private_feature, whose models contain the device side below.

A release has a kind of its own: numbers are not an image, and whatever takes only images refuses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.base.hardware import float32
from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError, SpecError
from sfumato.networks.encoders.small import TinyDarknet, check_size
from sfumato.protect.parameters import check_bounds, check_path, check_pixels
from sfumato.protect.release import Encoding, FilePath, load_network
from sfumato.protect.vectors import FEATURE, FeatureRelease, clip_and_noise, guarantee_of_clipped

KIND = FEATURE  # of the artefact

_FINE = 1 << 16  # steps of the noise in a standard deviation, if nothing is proved


class DeviceSide(nn.Module):
    """The network up to the private feature. State: its weights, and the statistics of training features.

    (N, C, H, W) float32 -> (N, d) float32, of mean 0 and variance 1 over training images: the layers before
    the cut, a linear `encoder` of their flattened output, and batch norm without scale and shift, which would
    undo it. `covariance`: (d, d), of the features of the training images.
    """

    covariance: Tensor

    def __init__(self, extractor: nn.Module, size: int, *, dimension: int) -> None:
        super().__init__()
        self.extractor = extractor
        self.encoder = nn.Linear(size, dimension)
        self.norm = nn.BatchNorm1d(dimension, affine=False)
        self.register_buffer("covariance", torch.eye(dimension))

    def forward(self, images: Tensor) -> Tensor:
        """The features of float images. The encoder computes in float32, for any extractor."""
        outputs = self.extractor(images).flatten(1).float()
        with float32(outputs.device):
            return torch.as_tensor(self.norm(self.encoder(outputs)))


def make_sides(card: Mapping[str, Any]) -> tuple[DeviceSide, nn.Module, torch.Size]:
    """Makes the device side and the analyser of a card's settings, and the (C, h, w) between them.

    Raises ConfigError if the network has no such layer, and DataError for images that are too small for it.
    """
    channels, height, width = card["shape"]
    config = card["config"]
    outputs = sum(len(names) for names in card["classes"].values())
    network = TinyDarknet(channels, outputs, widths=tuple(config["widths"]))
    check_size(torch.empty(0, channels, height, width), 4)
    extractor, analyser = network.cut(config["cut"])
    with torch.no_grad():
        between = extractor.eval()(torch.zeros(1, channels, height, width)).shape[1:]
    extractor.train()
    return DeviceSide(extractor, between.numel(), dimension=config["dimension"]), analyser, between


def noisy(features: Tensor, covariance: Tensor, noise: Noise, *, ratio: float) -> Tensor:
    """Adds Gaussian noise of covariance r·C. (N, d) -> (N, d) float32.

    Source: Osia et al. 2018, Procedure 2. It proves nothing: features have no bound. C is (d, d), and need
    not have full rank; r is at least 0. Raises DataError for a covariance of another dimension.
    """
    if covariance.shape != (features.shape[1], features.shape[1]):
        raise DataError(
            f"a covariance of {tuple(covariance.shape)} for features of {features.shape[1]} numbers: give "
            "that of the model which made the features"
        )
    if not ratio:
        return features.float()
    values, vectors = torch.linalg.eigh(covariance.double())
    root = vectors * (ratio * values.clamp(min=0)).sqrt()  # root @ root.T is r·C
    drawn = torch.from_numpy(noise.discrete_gaussian(features.shape, variance=Fraction(_FINE**2)))
    return torch.as_tensor(features.double() + drawn.double() / _FINE @ root.T).float()


@dataclass(frozen=True)
class Extractor:
    """A trained device side."""

    network: DeviceSide  # in evaluation mode
    shape: tuple[int, int, int]  # (C, H, W) of the images that it was trained on

    @property
    def dimension(self) -> int:
        """The numbers of a feature."""
        return len(self.network.covariance)


Width = Annotated[int, Field(ge=1, le=4096)]


class _Settings(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    widths: Annotated[list[Width], Field(min_length=7, max_length=7)]
    cut: Annotated[str, Field(max_length=64)]
    dimension: Annotated[int, Field(ge=1, le=1 << 16)]
    variant: Annotated[str, Field(max_length=64)] = ""


class FeatureCard(artefacts.Card):
    """The keys of a private feature's card that a device reads."""

    config: _Settings
    shape: artefacts.ImageShape
    classes: dict[artefacts.Name, Annotated[list[artefacts.Name], Field(min_length=1)]]

    @model_validator(mode="after")
    def _computes_in_bounds(self) -> "FeatureCard":
        if not self.classes:
            raise ValueError("classes: at least one target")
        artefacts.check_map(max(self.config.widths), self.shape)
        return self


def load_extractor(path: str) -> Extractor:
    """Loads the device side of an artefact of learn.private_feature. Raises ArtefactError as load_network."""

    def make(card: dict[str, Any]) -> DeviceSide:
        if card["config"].get("variant") == "network":
            raise ArtefactError(
                f"{path}: an attribute network without a feature: train a simple variant of it"
            )
        return make_sides(card)[0]

    network, card, _ = load_network(
        path, make, kind=KIND, schema=FeatureCard, prefix="device.", what="an extractor"
    )
    channels, height, width = card["shape"]
    return Extractor(network, (channels, height, width))


@dataclass(frozen=True)
class Feature(Encoding):
    """The private feature of the extractor of an artefact, with Gaussian noise.

    Without `norm`, as published: the noise has the covariance of training features, times `noise`. Nothing is
    proved, since one image may change a feature by any amount. With `norm`, features are clipped
    to that L2 norm, and each number gets noise of variance `noise`: training features have variance 1.

    Attributes:
        noise: r of Procedure 2, at least 0: the variance of the noise relative to that of a feature.
        norm: of the clipping, or None. A feature of d numbers has a norm of about √d.
    """

    artefact: FilePath
    noise: float
    norm: float | None = None

    name, kind = "feature", "numbers"
    _what, _load = "an extractor", staticmethod(load_extractor)

    def __post_init__(self) -> None:
        check_path("feature", "artefact", self.artefact)
        if not self.noise >= 0:
            raise SpecError(f"feature: noise={self.noise:g}: at least 0, which adds none (such as 0.5)")
        if self.noise:
            check_bounds("feature", "noise", self.noise, "such as 0.5")
        if self.norm is not None:
            check_bounds("feature", "norm", self.norm, "choose about the root of the dimension")

    @property
    def draws_noise(self) -> bool:
        """Whether two releases of one image differ."""
        return self.noise > 0

    def release_of(self, numbers: Tensor, noise: Noise) -> FeatureRelease:
        """Releases the (N, d) features of `encode`: clipped if there is a norm, with noise."""
        if self.norm is None:
            values = noisy(numbers, self._trained.network.covariance, noise, ratio=self.noise)
        elif not self.noise:
            values = numbers * (self.norm / numbers.norm(dim=1, keepdim=True)).clamp(max=1.0)
        else:
            values = clip_and_noise(numbers, noise, norm=self.norm, variance=self.noise)
        return FeatureRelease(values.numpy(), self.spec)

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """See guarantee_of_clipped; None without `norm` or without noise.

        It depends neither on the shape nor on the pixels: for any of them, the feature may move from one end
        of the ball to the other.
        """
        if self.norm is None or not self.noise:
            return None
        count = 1 if pixels is None else check_pixels("feature", pixels)
        return guarantee_of_clipped(norm=self.norm, variance=self.noise, pixels=count)
