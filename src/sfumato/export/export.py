"""Export an artefact's side as one ONNX file, written only if it computes the same as PyTorch."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sfumato
from sfumato.base.files import whole
from sfumato.errors import ArtefactError, ConfigError, DataError
from sfumato.export import card, graphs, sides
from sfumato.export.graphs import SCORES
from sfumato.export.sides import Difference, Side, Written
from sfumato.images import Images, as_tensor, check_batch
from sfumato.protect.release import artefact_digest


@dataclass(frozen=True)
class Exported:
    """An ONNX file, and its difference from PyTorch.

    Attributes:
        bytes: its size.
        card: its metadata, see export.
        images: number of check images.
    """

    path: Path
    bytes: int
    card: Mapping[str, Any]
    images: int
    difference: Difference


def export(
    artefact: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    check: Images,
    side: str | Side = "device",
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

    A service's side: see serve.exported. A device side takes exactly one image, on purpose: a release must
    not depend on other images. The card also has the SHA-256 of the artefact: see sfumato.export.card.

    Guarantees: the file appears whole, and only if onnxruntime computes on `check` the same as PyTorch, up to
    the `most` of the side, so that a bit differs only if its number is that near to 0; and a mask shows
    exactly as many pixels, with their values. Otherwise `destination` is not changed.

    Args:
        artefact: its path.
        destination: the file; its folder is created if missing.
        check: (N, C, H, W) uint8, at least one, of the artefact's shape. Other images prove little about
            photographs: use photographs outside of its training.
        side: see sides.read; or a side that was made already.

    Raises:
        ArtefactError: damaged, foreign, of another kind, or its graph computes something else.
        ConfigError: an unknown or missing side, or a destination that is the artefact or no .onnx file.
        DataError: no images, or of another shape.
        MissingExtraError: the extra `edge` is not installed.
    """
    artefact, destination = os.fspath(artefact), Path(destination)
    source = sides.read(artefact, side) if isinstance(side, str) else side
    check_batch(check)
    if not len(check):
        raise DataError("no check images: give at least one")
    if tuple(check.shape[1:]) != source.shape:
        found, wanted = ("x".join(map(str, shape)) for shape in (check.shape[1:], source.shape))
        raise DataError(f"check images of {found}: the artefact takes {wanted}: resize them")
    if destination.exists() and destination.samefile(artefact):
        raise ConfigError(f"{destination}: is the artefact itself: name another file to write")
    if destination.suffix != card.SUFFIX:
        raise ConfigError(
            f"{destination}: an export is a file whose name ends with {card.SUFFIX}: name it so"
        )
    model = source.graph()
    graph = graphs.without(model, SCORES).SerializeToString(deterministic=True)
    said = {"kind": source.kind, "side": source.side, "shape": list(source.shape), **source.card}
    said |= {"artefact": artefact_digest(artefact), "precision": "float32", "version": sfumato.__version__}
    written, said = card.join(graph, said)
    difference = source.compare(Written(written, model), as_tensor(check))
    if not difference.largest <= source.most:
        raise ArtefactError(
            f"{artefact}: onnxruntime differs from PyTorch by {difference.largest:.2g} on the check images, "
            f"and {source.most:g} is allowed: nothing was written. Numbers this large, or NaN, come from a "
            "training that failed: train it again"
        )
    with whole(destination) as temporary:
        temporary.write_bytes(written)
        temporary.chmod(Path(artefact).stat().st_mode & 0o777)  # it holds the same weights
    return Exported(destination, len(written), said, len(check), difference)
