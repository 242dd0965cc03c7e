"""Export an artefact's side as one ONNX file, written only if it computes the same as PyTorch."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

import sfumato
from sfumato.base.files import whole
from sfumato.edge import graphs, sides
from sfumato.edge.graphs import SCORES
from sfumato.edge.sides import Written
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.images import check_batch
from sfumato.protect.parameters import artefact_digest

if TYPE_CHECKING:
    from onnx import ModelProto

CARD = "sfumato"  # the key of the file's metadata


@dataclass(frozen=True)
class Exported:
    """An ONNX file, and its difference from PyTorch.

    Attributes:
        path: the file.
        bytes: its size.
        card: its metadata, see export.
        images: number of check images.
        difference: the largest, of a mask's scores, a feature's or code's numbers, or logits.
        pixels: for a mask, the share of all pixels that one shows and the other hides; None for others.
        bits: for a code of bits, the share of all bits that differ; None for others.
        decisions: for a cloud side, the share of equal class decisions; None for others.
    """

    path: Path
    bytes: int
    card: Mapping[str, Any]
    images: int
    difference: float
    pixels: float | None = None
    bits: float | None = None
    decisions: float | None = None


def export(
    artefact: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    check: Tensor,
    side: str = "device",
) -> Exported:
    """Write one side of an artefact as a self-contained ONNX file, and check its numbers.

    A mask: `images` (1, C, H, W) uint8 -> `values` (1, C, H, W) uint8, 0 if hidden, and `shown` (1, 1, H, W)
    bool, with exactly ⌊keep·H·W⌋ pixels; of equal scores the earlier pixel is shown. It is the release of
    `protect.mask.Mask` with the share of the masker's training.

    A private feature: `images` (1, C, H, W) uint8 -> `feature` (1, d) float32 WITHOUT noise. An exported
    graph draws none: its user draws noise on the device, from fresh entropy, before the feature leaves
    (protect.feature.noisy, whose covariance is on the card, or protect.vectors.clip_and_noise), or makes a
    release with noise=0. The cloud side: `feature` (N, d) float32, noisy or not -> for each target
    `logits.TARGET`, (N, classes) float32.

    A code: `images` (1, C, H, W) uint8 -> `numbers` (1, d) float32 from -1 to 1, WITHOUT noise. For a code of
    bits, the signs leave, not the numbers: the user of the graph takes those above 0 (protect.code.signs) and
    draws the noise, on the device. The guarantee holds for any bits, and for any clipped numbers: however a
    runtime rounds.

    A device side takes exactly one image, on purpose: a release must not depend on other images.

    The file's metadata hold a card, a JSON text under the key "sfumato": kind, side, shape, keep and pixels,
    or dimension, covariance and classes, or bits or numbers and the release; the SHA-256 of the artefact,
    precision, library version, and the place of the noise.

    Guarantees: the file appears whole, and only if onnxruntime, on one thread, computes on `check` what
    PyTorch does: features and logits to MOST_NUMBERS, scores to MOST_SCORES, codes to MOST_CODES, so that a
    bit differs only if its number is that near to 0; and a mask shows exactly as many pixels, with their
    values. Otherwise `destination` is not changed.

    Args:
        artefact: of kind "mask", "private feature" or "code".
        destination: the file; its folder is created if missing.
        check: (N, C, H, W) uint8, at least one, of the artefact's shape. Other images prove little about
            photographs: use photographs outside of its training.
        side: "device", or "cloud" for a private feature.

    Raises:
        ArtefactError: damaged, foreign, of another kind, or its graph computes something else.
        ConfigError: an unknown or missing side, or a destination that is the artefact or no .onnx file.
        DataError: no images, or of another shape.
        MissingExtraError: the extra `edge` is not installed.
    """
    artefact, destination = os.fspath(artefact), Path(destination)
    source = sides.read(artefact, side)
    _check_images(check, source.shape)
    if destination.exists() and destination.samefile(artefact):
        raise ConfigError(f"{destination}: is the artefact itself: name another file to write")
    if destination.suffix != ".onnx":
        raise ConfigError(f"{destination}: an export is a file whose name ends with .onnx: name it so")
    card = {
        "kind": source.kind,
        "side": side,
        "shape": list(source.shape),
        "artefact": artefact_digest(artefact),
        "precision": "float32",
        "version": sfumato.__version__,
        **source.card,
    }
    model = source.graph()
    written = _bytes(model, card)
    difference = source.compare(Written(written, model), check)
    if not math.isfinite(difference.largest) or difference.largest > source.most:
        raise ArtefactError(
            f"{artefact}: onnxruntime differs from PyTorch by {difference.largest:.2g} on the check images, "
            f"and {source.most:g} is allowed: nothing was written. Numbers this large, or NaN, come from a "
            "training that failed: train it again"
        )
    with whole(destination) as temporary:
        temporary.write_bytes(written)
        temporary.chmod(Path(artefact).stat().st_mode & 0o777)  # it holds the same weights
    return Exported(
        destination,
        len(written),
        card,
        len(check),
        difference.largest,
        difference.pixels,
        difference.bits,
        difference.decisions,
    )


def _check_images(images: Tensor, shape: tuple[int, int, int]) -> None:
    check_batch(images)
    if not len(images):
        raise DataError("no check images: give at least one")
    if tuple(images.shape[1:]) != shape:
        found, wanted = ("x".join(map(str, each)) for each in (images.shape[1:], shape))
        raise DataError(f"check images of {found}: the artefact takes {wanted}: resize them")


def _bytes(model: "ModelProto", card: Mapping[str, Any]) -> bytes:
    """Serialise the file, without the output for checks, with the card."""
    written = graphs.without(model, SCORES)
    written.metadata_props.add(key=CARD, value=json.dumps(card))
    return bytes(written.SerializeToString(deterministic=True))
