"""A learned mask: only the pixels that a task needs leave the device.

The masker is trained by sfumato.learn.adversarial_mask, which selects pixels by these functions.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import Noise
from sfumato.errors import SpecError
from sfumato.images import Images, as_tensor, to_float
from sfumato.networks import UNet
from sfumato.networks.one_by_one import each_by_itself
from sfumato.protect.parameters import check_path, check_shown
from sfumato.protect.release import FilePath, Release, TrainedProtection, load_network

KIND = "mask"  # of the artefact
VALUES = ("hard", "soft", "shape")


def pixels_shown(keep: float, size: tuple[int, int]) -> int:
    """K = ⌊keep·H·W⌋, from the decimal that the user wrote: 0.29 of 10x10 pixels are 29, and not 28."""
    return math.floor(Fraction(str(keep)) * size[0] * size[1])


def top_pixels(scores: Tensor, *, count: int) -> Tensor:
    """The pixels of the highest scores in each image. (N, 1, H, W) -> (N, 1, H, W) bool.

    Guarantees exactly `count` pixels in every image, for any scores: among equal ones the earlier pixel,
    row by row, comes first.
    """
    flat = scores.flatten(1)
    order = torch.sort(flat, dim=1, descending=True, stable=True).indices[:, :count]  # (N, K)
    return torch.zeros_like(flat, dtype=torch.bool).scatter_(1, order, True).view_as(scores)


@torch.no_grad()
def pixel_scores(masker: UNet, images: Tensor) -> Tensor:
    """The soft mask m = sigmoid(U(x)). (N, C, H, W) uint8 -> (N, 1, H, W) float32 in [0, 1].

    Guarantees that the scores of an image do not depend on the others: each goes through the network by
    itself, in float32. Other batch sizes would round differently, and two releases whose masks
    differ in a pixel show more than `keep` of the image. It costs some speed (docs/speed.md).
    """

    def prepare(image: Tensor) -> Tensor:
        return to_float(image).contiguous(memory_format=torch.channels_last)

    # Sigmoids, too, are each by itself: vector instructions round those at the end of a batch differently.
    return torch.cat([scores.sigmoid() for scores in each_by_itself(masker, images, prepare)])


def reveal(images: Tensor, scores: Tensor, *, count: int, soft: bool = False) -> tuple[Tensor, Tensor]:
    """Keeps the `count` pixels of the highest scores in each image, and blackens the others.

    (N, C, H, W) uint8 and the soft mask m, (N, 1, H, W) -> values, and the shown pixels, (N, 1, H, W) bool.
    `soft`: give the paper's product, round(m_top · x), instead of the original values.
    """
    shown = top_pixels(scores, count=count)
    if soft:
        return (scores * shown * images).round().to(torch.uint8), shown
    return images * shown, shown


def make_masker(channels: int, *, width: int, levels: int) -> UNet:
    """Makes the network that scores pixels; sigmoid comes after it."""
    masker = UNet(channels, width=width, levels=levels, outputs=1)
    return masker.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True)
class Masker:
    """A trained masker."""

    network: UNet  # in evaluation mode
    shape: tuple[int, int, int]  # (C, H, W) of the images that it was trained on
    keep: float  # the share of pixels of its training


class _Settings(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    masker_width: Annotated[int, Field(ge=1, le=4096)]
    levels: Annotated[int, Field(ge=1, le=12)]
    keep: Annotated[float, Field(gt=0, lt=1)]


class MaskCard(artefacts.Card):
    """The keys of a mask's card that a device reads."""

    config: _Settings
    shape: artefacts.ImageShape

    @model_validator(mode="after")
    def _computes_in_bounds(self) -> "MaskCard":
        artefacts.check_map(2 * self.config.masker_width, self.shape)
        return self


def load_masker(path: str) -> Masker:
    """Loads the masker of an artefact of learn.adversarial_mask. Raises ArtefactError as load_network."""

    def make(card: dict[str, Any]) -> UNet:
        config = card["config"]
        return make_masker(card["shape"][0], width=config["masker_width"], levels=config["levels"])

    network, card, _ = load_network(path, make, kind=KIND, schema=MaskCard, prefix="masker.", what="a masker")
    channels, height, width = card["shape"]
    return Masker(network, (channels, height, width), float(card["config"]["keep"]))


@dataclass(frozen=True)
class Mask(TrainedProtection):
    """Shows the pixels that the masker of an artefact scores highest, the same number in every image.

    Source: the mask paper (docs/papers.md, "Mask"), Sec. II-A. There the shown pixels are multiplied by
    their scores (`values=soft`). A score is itself information, and rescales the pixel, so by
    default a shown pixel keeps its value.

    Nothing is proved. Shown pixels are shown exactly; and WHICH pixels are shown is computed from all of
    them, including the hidden ones: the mask's shape alone can reveal a hairline, a pose, or who it is.

    Attributes:
        artefact: path of the trained masker.
        keep: the share of the pixels to show, between 0 and 1: exactly ⌊keep·H·W⌋ in every image. None for
            the share of its training.
        values: "hard", the original values of the shown pixels; "soft", the product with their scores,
            round(m_top · x); or "shape", 255 for each: only which pixels are shown, not their values.
    """

    artefact: FilePath
    keep: float | None = None
    values: str = "hard"

    name = "mask"
    has_shape = True  # the shape of the shown pixels; see Release.shapes
    _what, _load = "a mask", staticmethod(load_masker)

    def __post_init__(self) -> None:
        check_path("mask", "artefact", self.artefact)
        if self.keep is not None and not 0 < self.keep < 1:
            raise SpecError(
                f"mask: keep={self.keep:g} is not a share of the pixels: choose above 0 and below 1 "
                "(the paper shows 0.25)"
            )
        if self.keep is not None:
            check_shown("mask", self.keep)
        if self.values not in VALUES:
            raise SpecError(f"mask: values={self.values} is unknown: choose one of {', '.join(VALUES)}")

    @property
    def kind(self) -> str:  # type: ignore[override]
        """ "shape" if only the choice of pixels is released; "pixels" otherwise."""
        return "shape" if self.values == "shape" else "pixels"

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release. Raises ArtefactError as load_masker does."""
        self.check_images(images)
        masker: Masker = self._trained
        _, height, width = masker.shape
        keep = masker.keep if self.keep is None else self.keep
        check_shown("mask", keep)
        count = pixels_shown(keep, (height, width))
        if not count:
            raise SpecError(
                f"mask: keep={keep:g} of {height}x{width} pixels is less than one: "
                f"choose at least {1 / (height * width):.2g}"
            )
        originals = as_tensor(images)
        scores = pixel_scores(masker.network, originals)
        values, shown = reveal(originals, scores, count=count, soft=self.values == "soft")
        release = Release(values.numpy(), self.spec, (height, width), shown=shown)
        return replace(release, array=release.shapes().numpy()) if self.values == "shape" else release
