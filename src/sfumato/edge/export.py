"""An artefact's side as one ONNX file, which is written only where it computes what PyTorch does."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import sfumato
from sfumato.edge import graphs
from sfumato.edge.graphs import SCORES
from sfumato.edge.quantize import quantized
from sfumato.edge.runtime import session
from sfumato.errors import ArtefactError, ConfigError, DataError, did_you_mean
from sfumato.files import whole
from sfumato.images import check_batch, to_float
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureModel
from sfumato.protect import feature as features
from sfumato.protect import mask as masks
from sfumato.protect.feature import Extractor
from sfumato.protect.mask import Masker, pixel_scores, pixels_shown, reveal
from sfumato.protect.parameters import artefact_digest

if TYPE_CHECKING:
    from onnx import ModelProto

CARD = "sfumato"  # the key of the file's metadata

SIDES = ("device", "cloud")

MOST_NUMBERS = 1e-3  # of a feature, whose variance is 1 over training images, and of a logit
MOST_SCORES = 1e-4  # of scores between 0 and 1


@dataclass(frozen=True)
class Exported:
    """An ONNX file, and how far it is from PyTorch.

    Attributes:
        path: the file.
        bytes: its size.
        card: what its metadata say, see export.
        images: how many it was checked on.
        difference: the largest, of a score of a mask, of a number of a feature, or of a logit.
        pixels: of a mask, the share of all pixels that one shows and the other hides; None for others.
        decisions: the share of class decisions, over images and targets, that are the same: of a cloud side,
            and of an int8 feature that the artefact's own cloud side reads; None for others.
    """

    path: Path
    bytes: int
    card: Mapping[str, Any]
    images: int
    difference: float
    pixels: float | None = None
    decisions: float | None = None


def export(
    artefact: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    check: Tensor,
    side: str = "device",
    int8: bool = False,
    calibration: Tensor | None = None,
) -> Exported:
    """Write one side of an artefact as an ONNX file that needs nothing else, and check it number by number.

    Of a mask: `images` (1, C, H, W) uint8 -> `values` (1, C, H, W) uint8, 0 where hidden, and `shown`
    (1, 1, H, W) bool, with exactly ⌊keep·H·W⌋ pixels, of equal scores the earlier pixel. That is the release
    of `protect.mask.Mask` with the share that the masker was trained with.

    Of a private feature: `images` (1, C, H, W) uint8 -> `feature` (1, d) float32 WITHOUT noise. An exported
    graph draws none: whoever runs it draws noise on the device, from fresh entropy, before the feature leaves
    (protect.feature.noisy, whose covariance is on the card, or clipped_noisy), or releases what this library
    calls noise=0. The cloud side: `feature` (N, d) float32, noisy or not -> for each target `logits.TARGET`,
    (N, classes) float32.

    A device side takes exactly one image, on purpose: a release must not depend on other images.

    The file's metadata hold a card, a JSON text under the key "sfumato": kind, side, shape, keep and pixels
    or dimension, covariance and classes, the SHA-256 of the artefact, precision, library version, and where
    the noise is.

    Promises: the file appears whole, and only where onnxruntime, on one thread, computes on `check` what
    PyTorch does: features and logits to MOST_NUMBERS, scores to MOST_SCORES, and a mask that shows exactly as
    many pixels, with their values. In int8 the numbers are reported and not bounded. Otherwise what was at
    `destination` is untouched.

    Args:
        artefact: of kind "mask" or "private feature".
        destination: the file; its folder is made where it is missing.
        check: (N, C, H, W) uint8, at least one, of the artefact's shape. What is no photograph proves little
            about photographs: pass some that training has not seen.
        side: "device", or "cloud" of a private feature.
        int8: convolutions of the device side in 8 bits, see quantize.quantized.
        calibration: (M, C, H, W) uint8, for int8: like those that the device will see, and not those of
            `check`.

    Raises:
        ArtefactError: damaged, foreign, of another kind, or its graph computes something else.
        ConfigError: a side that is none or is not there, int8 without calibration or the reverse, or a
            destination that is the artefact.
        DataError: no images, or of another shape than the artefact takes.
        MissingExtraError: the extra `edge` is not installed.
    """
    artefact, destination = os.fspath(artefact), Path(destination)
    _check_settings(side, int8=int8, calibration=calibration)
    source = graphs.read(artefact)
    _check_images(check, source.shape, "check")
    if destination.exists() and destination.samefile(artefact):
        raise ConfigError(f"{destination}: is the artefact itself: name another file to write")
    card: dict[str, Any] = {
        "kind": masks.KIND if isinstance(source, Masker) else features.KIND,
        "side": side,
        "shape": list(source.shape),
        "artefact": artefact_digest(artefact),
        "precision": "int8" if int8 else "float32",
        "version": sfumato.__version__,
    }
    if isinstance(source, Masker):
        if side == "cloud":
            raise ConfigError(
                f"{artefact}: is a {masks.KIND!r}, which has no cloud side: export its device side"
            )
        card |= {"keep": source.keep, "pixels": pixels_shown(source.keep, source.shape[1:])}
        card |= {"noise": "none: a mask has none"}
        model = graphs.mask_graph(source)
    else:
        card |= {"dimension": source.network.encoder.out_features}
        if side == "device":
            card |= {
                "covariance": source.network.covariance.tolist(),
                "noise": "not in the graph: draw it on the device, before the feature leaves",
            }
            model = graphs.device_graph(source)
        else:
            cloud = private_feature.load(artefact)
            card |= {"classes": cloud.classes, "noise": "none: the device has drawn it"}
            model = graphs.cloud_graph(cloud)
    if calibration is not None:
        _check_images(calibration, source.shape, "calibration")
        model = quantized(model, calibration)
    written = _bytes(model, card)
    bound = math.inf if int8 else MOST_SCORES if isinstance(source, Masker) else MOST_NUMBERS
    pixels = decisions = None
    if isinstance(source, Masker):
        difference, pixels = _compare_masks(source, model, written, check)
    elif side == "device":
        numbers = _run(written, "images", check)["feature"]
        expected = _features(source, check)
        difference = _largest(numbers, expected)
        if int8:
            decisions = _decisions(private_feature.load(artefact), numbers, expected)
    else:
        difference, decisions = _compare_logits(cloud, written, _features(source, check))
    if not math.isfinite(difference) or difference > bound:
        raise ArtefactError(
            f"{artefact}: onnxruntime differs from PyTorch by {difference:.2g} on the check images, and "
            f"{bound:g} is allowed: nothing was written. Numbers that are this large, or none, come of a "
            "training that failed: train it again"
        )
    with whole(destination) as temporary:
        temporary.write_bytes(written)
    return Exported(destination, len(written), card, len(check), difference, pixels, decisions)


def _check_settings(side: str, *, int8: bool, calibration: Tensor | None) -> None:
    if side not in SIDES:
        raise ConfigError(f"no side {side!r}: {did_you_mean(side, SIDES)}")
    if int8 and side == "cloud":
        raise ConfigError("int8 is for the device side: a cloud computes in float32")
    if int8 and calibration is None:
        raise ConfigError(
            "int8 needs calibration images, which say how large the numbers between layers become: give some "
            "like those that the device will see"
        )
    if calibration is not None and not int8:
        raise ConfigError("calibration images are for int8: ask for it, or leave them out")


def _check_images(images: Tensor, shape: tuple[int, int, int], name: str) -> None:
    check_batch(images)
    if not len(images):
        raise DataError(f"no {name} images: give at least one")
    if tuple(images.shape[1:]) != shape:
        found, wanted = ("x".join(map(str, each)) for each in (images.shape[1:], shape))
        raise DataError(f"{name} images of {found}: the artefact takes {wanted}: resize them")


def _bytes(model: "ModelProto", card: Mapping[str, Any]) -> bytes:
    """The file: without the scores, with the card."""
    written = graphs.without(model, SCORES)
    written.metadata_props.add(key=CARD, value=json.dumps(card))
    return bytes(written.SerializeToString(deterministic=True))


def _run(model: bytes, name: str, inputs: Tensor) -> dict[str, Tensor]:
    """Each output of a graph, for inputs that go through it one by one."""
    run = session(model)
    outputs = [each.name for each in run.get_outputs()]
    rows = [run.run(outputs, {name: each.numpy()}) for each in inputs.split(1)]
    columns = zip(*rows, strict=True)
    return {
        output: torch.cat([torch.from_numpy(part) for part in parts])
        for output, parts in zip(outputs, columns, strict=True)
    }


def _largest(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference; NaN where there is one."""
    return float((ours.double() - theirs.double()).abs().max())


@torch.no_grad()
def _features(extractor: Extractor, images: Tensor) -> Tensor:
    """(N, d), as protect.feature.Feature.release computes them."""
    return torch.cat([extractor.network(to_float(image)) for image in images.split(1)])


def _compare_masks(masker: Masker, model: "ModelProto", written: bytes, check: Tensor) -> tuple[float, float]:
    """The largest difference of scores, and the share of pixels that are chosen otherwise.

    Raises ArtefactError where the file shows another number of pixels, or other values.
    """
    count = pixels_shown(masker.keep, masker.shape[1:])
    expected = pixel_scores(masker.network, check)
    scores = _run(model.SerializeToString(), "images", check)[SCORES]
    found = _run(written, "images", check)
    values, shown = found["values"], found["shown"]
    if (shown.sum((1, 2, 3)) != count).any() or not torch.equal(values, check * shown):
        raise ArtefactError(
            f"onnxruntime does not show exactly {count} pixels as they are: nothing was written"
        )
    _, chosen = reveal(check, expected, count=count)
    return _largest(scores, expected), float((shown != chosen).double().mean())


def _compare_logits(model: FeatureModel, written: bytes, numbers: Tensor) -> tuple[float, float]:
    """The largest difference of logits, and the share of equal class decisions."""
    run = session(written)
    names = graphs.logit_names(model)
    found = [torch.from_numpy(each) for each in run.run(names, {"feature": numbers.numpy()})]
    expected = list(model.attributes(numbers).values())
    return _largest(torch.cat(found, 1), torch.cat(expected, 1)), _agreement(found, expected)


def _decisions(model: FeatureModel, numbers: Tensor, expected: Tensor) -> float:
    """The share of class decisions that two sets of features lead the model's cloud side to alike."""
    ours, theirs = (list(model.attributes(each).values()) for each in (numbers, expected))
    return _agreement(ours, theirs)


def _agreement(ours: list[Tensor], theirs: list[Tensor]) -> float:
    same = [a.argmax(1) == b.argmax(1) for a, b in zip(ours, theirs, strict=True)]
    return float(torch.stack(same).double().mean())
