"""A learned mask: only the pixels that a task needs leave the device.

The masker is trained by sfumato.learn.adversarial_mask, which selects pixels by these functions.
"""

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from sfumato import artefacts
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, SpecError
from sfumato.images import Images, as_tensor, to_float
from sfumato.networks import UNet
from sfumato.networks.one_by_one import each_by_itself
from sfumato.networks.weights import initial_weights, no_larger_than, take_weights
from sfumato.protect.parameters import (
    FilePath,
    OfArtefact,
    artefact_digest,
    check_path,
    check_shown,
    check_trained_on,
)
from sfumato.protect.release import Release

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

    Args:
        masker: in evaluation mode.
        images: of the size that it was trained on.

    Guarantees that the scores of an image do not depend on the others: each goes through the network by
    itself, in float32. Other batch sizes would round differently, and two releases whose masks
    differ in a pixel show more than `keep` of the image. It costs some speed (benchmarks/mask.py).
    """

    def prepare(image: Tensor) -> Tensor:
        return to_float(image).contiguous(memory_format=torch.channels_last)

    # Sigmoids, too, are each by itself: vector instructions round those at the end of a batch differently.
    return torch.cat([scores.sigmoid() for scores in each_by_itself(masker, images, prepare)])


def reveal(images: Tensor, scores: Tensor, *, count: int, soft: bool = False) -> tuple[Tensor, Tensor]:
    """Keeps the `count` pixels of the highest scores in each image, and blackens the others.

    Args:
        images: (N, C, H, W) uint8.
        scores: (N, 1, H, W), the soft mask m.
        count: K.
        soft: whether to give the paper's product, round(m_top · x), instead of the original values.

    Returns:
        values (N, C, H, W) uint8, and the shown pixels, (N, 1, H, W) bool.
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
    """A trained masker.

    Attributes:
        network: in evaluation mode.
        shape: (C, H, W) of the images that it was trained on.
        keep: the share of pixels of its training.
    """

    network: UNet
    shape: tuple[int, int, int]
    keep: float


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
        if self.config.levels > 12:
            raise ValueError(f"config.levels={self.config.levels}: at most 12")
        artefacts.check_map(2 * self.config.masker_width, self.shape)
        return self


def load_masker(path: str) -> Masker:
    """Loads the masker of an artefact that sfumato.learn.adversarial_mask wrote.

    Raises:
        ArtefactError: damaged, foreign, or of another kind.
    """
    tensors, card = artefacts.load(path, kind=KIND, schema=MaskCard)
    config, (channels, height, width) = card["config"], card["shape"]
    prefix = "masker."
    own = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    try:
        with initial_weights(), no_larger_than(own):
            network = make_masker(channels, width=config["masker_width"], levels=config["levels"])
    except (ValueError, RuntimeError) as error:
        raise ArtefactError(f"{path}: damaged: its card does not describe a masker: {error}") from error
    take_weights(network, own, path)
    return Masker(network.eval(), (channels, height, width), float(config["keep"]))


@lru_cache(maxsize=16)
def _keep_of(artefact: str, made_of: str | None) -> float | None:
    """The share of a masker's training; None if it is not here, or another has its name."""
    try:
        if made_of is not None and artefact_digest(artefact) != made_of:
            return None
        return load_masker(artefact).keep
    except ArtefactError:
        return None


@dataclass(frozen=True)
class Mask(OfArtefact):
    """Shows the pixels that the masker of an artefact scores highest, the same number in every image.

    Source: the mask paper (docs/papers.md, "Mask"), Sec. II-A. There the shown pixels are multiplied by
    their scores (`values=soft`). A score is itself information, and rescales the pixel, so by
    default a shown pixel keeps its value.

    Nothing is proved. Shown pixels are shown exactly; and WHICH pixels are shown is computed from all of
    them, including the hidden ones: the mask's shape alone can reveal a hairline, a pose, or who it is.

    Attributes:
        artefact: path of the trained masker; read when first needed.
        keep: the share of the pixels to show, between 0 and 1: exactly ⌊keep·H·W⌋ in every image. None for
            the share of its training.
        values: "hard", the original values of the shown pixels; "soft", the product with their scores,
            round(m_top · x); or "shape", 255 for each: only which pixels are shown, not their values.
    """

    artefact: FilePath
    keep: float | None = None
    values: str = "hard"

    name = "mask"
    cell = 1
    draws_noise = False
    has_shape = True  # the shape of the shown pixels; see Release.shapes

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
    def kind(self) -> str:
        """ "shape" if only the choice of pixels is released; "pixels" otherwise."""
        return "shape" if self.values == "shape" else "pixels"

    def check(self) -> None:
        """Reads the artefact now, not at the first release. Raises ArtefactError as load_masker does."""
        _ = self._masker

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release. Raises ArtefactError as load_masker does."""
        masker = self._masker
        check_trained_on("mask", self.artefact, "a mask", images, masker.shape)
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

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """See Suspecting.suspicious. For a masker that is not here, the share of the pixels is not known."""
        assert release.shown is not None
        if self.values == "shape" and not torch.equal(release.values, release.shapes()):
            return "its pixels have values, and not 255 each"
        keep = _keep_of(self.artefact, made_of) if self.keep is None else self.keep
        if keep is None:
            return None
        wanted = pixels_shown(keep, release.size)
        for number, count in enumerate(release.shown.flatten(1).sum(1).tolist(), 1):
            if count != wanted:
                return f"image {number} shows {count} pixels, and not {wanted}"
        return None

    @cached_property
    def _masker(self) -> Masker:
        return load_masker(self.artefact)
