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
from sfumato.edge.graphs import NUMBERS, SCORES
from sfumato.edge.quantize import quantize
from sfumato.edge.sides import Written
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.images import check_batch
from sfumato.protect.parameters import artefact_digest
from sfumato.wire.tables import Table

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
        decisions: the share of equal class decisions, over images and targets: for a cloud side, for answers
            of a table, and for an int8 feature read by the artefact's own cloud side; None for others.
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
    int8: bool = False,
    calibration: Tensor | None = None,
    table: Table | None = None,
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

    A code with an answer table: `images` -> `class` (1,) int64, a row of the card's classes, and
    `none_of_these` (1,) bool, as in sfumato.device.client.look_up. Nothing else leaves the graph.

    A device side takes exactly one image, on purpose: a release must not depend on other images.

    The file's metadata hold a card, a JSON text under the key "sfumato": kind, side, shape, keep and pixels,
    or dimension, covariance and classes, or bits or numbers and the release; the SHA-256 of the artefact,
    precision, library version, and the place of the noise.

    Guarantees: the file appears whole, and only if onnxruntime, on one thread, computes on `check` what
    PyTorch does: features and logits to MOST_NUMBERS, scores to MOST_SCORES, codes to MOST_CODES, so that a
    bit differs only if its number is that near to 0; and a mask shows exactly as many pixels, with their
    values. In int8 differences are reported and not bounded. Otherwise `destination` is not changed.

    Args:
        artefact: of kind "mask", "private feature" or "code".
        destination: the file; its folder is created if missing.
        check: (N, C, H, W) uint8, at least one, of the artefact's shape. Other images prove little about
            photographs: use photographs outside of its training.
        side: "device", or "cloud" for a private feature.
        int8: convolutions of the device side in 8 bits, see quantize.quantize.
        calibration: (M, C, H, W) uint8, for int8: like those on the device, and not those of `check`.
        table: the answers of a classifier for this code, to include them in the graph.

    Raises:
        ArtefactError: damaged, foreign, of another kind, or its graph computes something else.
        ConfigError: an unknown or missing side, int8 without calibration or the reverse, or a
            destination that is the artefact.
        DataError: no images, or of another shape.
        MissingExtraError: the extra `edge` is not installed.
    """
    artefact, destination = os.fspath(artefact), Path(destination)
    _check_int8(side, int8=int8, calibration=calibration)
    source = sides.read(artefact, side, table)
    _check_images(check, source.shape, "check")
    if destination.exists() and destination.samefile(artefact):
        raise ConfigError(f"{destination}: is the artefact itself: name another file to write")
    card = {
        "kind": source.kind,
        "side": side,
        "shape": list(source.shape),
        "artefact": artefact_digest(artefact),
        "precision": "int8" if int8 else "float32",
        "version": sfumato.__version__,
        **source.card,
    }
    model = source.graph()
    if calibration is not None:
        _check_images(calibration, source.shape, "calibration")
        model = quantize(model, calibration)
    written = _bytes(model, card, NUMBERS if table is not None else SCORES)
    difference = source.compare(Written(written, model, int8), check)
    bound = math.inf if int8 else source.most
    if not math.isfinite(difference.largest) or difference.largest > bound:
        raise ArtefactError(
            f"{artefact}: onnxruntime differs from PyTorch by {difference.largest:.2g} on the check images, "
            f"and {bound:g} is allowed: nothing was written. Numbers this large, or NaN, come from a "
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


def _check_int8(side: str, *, int8: bool, calibration: Tensor | None) -> None:
    if int8 and side == "cloud":
        raise ConfigError("int8 is for the device side: a cloud computes in float32")
    if int8 and calibration is None:
        raise ConfigError(
            "int8 needs calibration images, which show the range of numbers between layers: give some like "
            "those on the device (--calibrate DATA)"
        )
    if calibration is not None and not int8:
        raise ConfigError("calibration images are for int8: add --int8, or omit them")


def _check_images(images: Tensor, shape: tuple[int, int, int], name: str) -> None:
    check_batch(images)
    if not len(images):
        raise DataError(f"no {name} images: give at least one")
    if tuple(images.shape[1:]) != shape:
        found, wanted = ("x".join(map(str, each)) for each in (images.shape[1:], shape))
        raise DataError(f"{name} images of {found}: the artefact takes {wanted}: resize them")


def _bytes(model: "ModelProto", card: Mapping[str, Any], checked: str) -> bytes:
    """Serialise the file, without the output for checks, with the card."""
    written = graphs.without(model, checked)
    written.metadata_props.add(key=CARD, value=json.dumps(card))
    return bytes(written.SerializeToString(deterministic=True))
