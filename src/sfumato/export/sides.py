"""The sides of an artefact for export: their graphs, cards, and comparison with PyTorch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sfumato import artefacts
from sfumato.errors import ArtefactError, ConfigError, did_you_mean
from sfumato.export import graphs
from sfumato.export.card import session
from sfumato.export.graphs import SCORES
from sfumato.learn import private_feature
from sfumato.learn.private_feature import FeatureModel
from sfumato.networks.one_by_one import each_by_itself
from sfumato.networks.onnx_network import OnnxNetwork
from sfumato.protect import code as codes
from sfumato.protect import feature as features
from sfumato.protect import mask as masks
from sfumato.protect.code import signs
from sfumato.protect.mask import Masker, pixel_scores, pixels_shown, reveal

if TYPE_CHECKING:
    from onnx import ModelProto

SIDES = ("device", "cloud")

MOST_EMBEDDINGS = 1e-3  # for an embedding, in units of the root mean square of its numbers
MOST_NUMBERS = 1e-3  # for a feature, whose variance is 1 over training images, and for a logit
MOST_SCORES = 1e-4  # for scores between 0 and 1
MOST_CODES = 1e-4  # for the numbers of a code, from -1 to 1


@dataclass(frozen=True)
class Difference:
    """The difference of a file from PyTorch.

    Attributes:
        largest: of a mask's scores, a feature's or code's numbers, logits, or a service's embeddings.
        pixels: for a mask, the share of all pixels that one shows and the other hides; None for others.
        bits: for a code of bits, the share of all bits that differ; None for others.
        decisions: for a cloud side, the share of equal class decisions; None for others.
    """

    largest: float
    pixels: float | None = None
    bits: float | None = None
    decisions: float | None = None


@dataclass(frozen=True)
class Written:
    """A file to compare with PyTorch: its bytes, and its graph with the outputs for checks."""

    file: bytes
    model: "ModelProto"


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of an artefact.

    Attributes:
        kind: of the artefact.
        side: "device", "cloud", or "service" for the model of a server.
        part: its description in a table.
        shape: (C, H, W) of the images.
        network: for the count of parameters.
        bytes: sent for an image.
        card: the part of a file's card for this side.
        graph: makes its graph, see sfumato.export.graphs.
        compare: maps a file and (N, C, H, W) uint8 images to its difference from PyTorch. Raises
            ArtefactError if outputs contradict each other.
        most, unit: the largest allowed difference, and its unit.
    """

    kind: str
    side: str = "device"
    part: str
    shape: tuple[int, int, int]
    network: nn.Module
    bytes: int
    card: Mapping[str, Any]
    graph: Callable[[], "ModelProto"]
    compare: Callable[[Written, Tensor], Difference]
    most: float
    unit: str


def read(artefact: str, side: str = "device") -> Side:
    """Read a side of an artefact.

    Args:
        artefact: of kind "mask", "private feature" or "code".
        side: "device", or "cloud" for a private feature.

    Raises:
        ArtefactError: damaged, not written by sfumato, or of a kind without a device side.
        ConfigError: an unknown or missing side.
    """
    if side not in SIDES:
        raise ConfigError(f"no side {side!r}: {did_you_mean(side, SIDES)}")
    kind = str(artefacts.read_card(artefact).get("kind"))
    if kind not in _DEVICES:
        first, second, third = _DEVICES
        raise ArtefactError(
            f"{artefact}: is a {kind!r}, and only a {first!r}, a {second!r} or a {third!r} can be exported"
        )
    if side == "device":
        return _DEVICES[kind](artefact)
    if kind != features.KIND:
        raise ConfigError(f"{artefact}: is a {kind!r}, which has no cloud side: export its device side")
    return _cloud(artefact)


def _mask(artefact: str) -> Side:
    masker = masks.load_masker(artefact)
    channels, height, width = masker.shape
    count = pixels_shown(masker.keep, (height, width))
    return Side(
        kind=masks.KIND,
        part="mask",
        shape=masker.shape,
        network=masker.network,
        bytes=-(-height * width // 8) + channels * count,  # as in Release.packed
        card={"keep": masker.keep, "pixels": count, "noise": "none: a mask adds none"},
        graph=lambda: graphs.mask_graph(masker),
        compare=lambda written, check: _compare_masks(masker, count, written, check),
        most=MOST_SCORES,
        unit="score",
    )


def _feature(artefact: str) -> Side:
    extractor = features.load_extractor(artefact)
    network = extractor.network
    dimension = network.encoder.out_features

    def compare(written: Written, check: Tensor) -> Difference:
        return Difference(_largest(_run(written.file, check)["feature"], _numbers(network, check)))

    return Side(
        kind=features.KIND,
        part=f"device, cut at {artefacts.read_card(artefact)['config']['cut']}",
        shape=extractor.shape,
        network=network,
        bytes=4 * dimension,
        card={
            "dimension": dimension,
            "covariance": network.covariance.tolist(),
            "noise": "not in the graph: draw it on the device, before the feature leaves",
        },
        graph=lambda: graphs.device_graph(extractor),
        compare=compare,
        most=MOST_NUMBERS,
        unit="number of a feature",
    )


def _cloud(artefact: str) -> Side:
    model = private_feature.load(artefact)
    channels, height, width = model.card["shape"]
    return Side(
        kind=features.KIND,
        side="cloud",
        part="cloud",
        shape=(channels, height, width),
        network=model.cloud,
        bytes=0,
        card={
            "dimension": model.device.encoder.out_features,
            "classes": model.classes,
            "noise": "none: the device has drawn it",
        },
        graph=lambda: graphs.cloud_graph(model),
        compare=lambda written, check: _compare_logits(model, written, _numbers(model.device, check)),
        most=MOST_NUMBERS,
        unit="logit",
    )


def _code(artefact: str) -> Side:
    encoder = codes.load_encoder(artefact)
    bits, dimension = encoder.bits, encoder.dimension

    def compare(written: Written, check: Tensor) -> Difference:
        """Compare numbers; for bits, also the share of them that flip.

        Two numbers with different signs are as near to 0 as they are to each other. So a bit flips only if
        its number is within the bounded difference of 0.
        """
        numbers, expected = _run(written.file, check)["numbers"], _numbers(encoder.network, check)
        turned = (signs(numbers) != signs(expected)).double().mean()
        return Difference(_largest(numbers, expected), bits=None if bits is None else float(turned))

    return Side(
        kind=codes.KIND,
        part=f"code of {dimension} {'numbers' if bits is None else 'bits'}",
        shape=encoder.shape,
        network=encoder.network,
        bytes=4 * dimension if bits is None else -(-bits // 8),  # as packed
        card={
            "numbers" if bits is None else "bits": dimension,
            "release": "the numbers" if bits is None else "which numbers are above 0, and not the numbers",
            "noise": "not in the graph: draw it on the device, before the code leaves",
        },
        graph=lambda: graphs.code_graph(encoder),
        compare=compare,
        most=MOST_CODES,
        unit="number of a code",
    )


def of_service(
    kind: str,
    shape: tuple[int, int, int],
    network: nn.Module,
    inputs: np.ndarray,
    card: Mapping[str, Any],
    compare: Callable[[Written, Tensor], Difference],
) -> Side:
    """Make a service's side of a network: `inputs`, (N, C + K, h, w) float32 -> `embeddings`, (N, D) float32.

    Raises ArtefactError if the network is itself an ONNX graph.
    """
    if any(isinstance(part, OnnxNetwork) for part in network.modules()):
        raise ArtefactError("its encoder is itself an ONNX graph, which cannot be joined with ours")
    example = torch.from_numpy(inputs)
    return Side(
        kind=kind,
        side="service",
        part="cloud",
        shape=shape,
        network=network,
        bytes=0,
        card=card,
        graph=lambda: graphs.to_onnx(network, example, "inputs", ["embeddings"], any_batch=True),
        compare=compare,
        most=MOST_EMBEDDINGS,
        unit="number of an embedding, by their root mean square,",
    )


_DEVICES: Mapping[str, Callable[[str], Side]] = {
    masks.KIND: _mask,
    features.KIND: _feature,
    codes.KIND: _code,
}


def _compare_masks(masker: Masker, count: int, written: Written, check: Tensor) -> Difference:
    """Compare scores, and the share of pixels chosen differently.

    Raises ArtefactError if the file shows another number of pixels, or other values.
    """
    expected = pixel_scores(masker.network, check)
    scores = _run(written.model.SerializeToString(), check)[SCORES]
    release = _run(written.file, check)
    values, shown = release["values"], release["shown"]
    if (shown.sum((1, 2, 3)) != count).any() or not torch.equal(values, check * shown):
        raise ArtefactError(
            f"onnxruntime does not show exactly {count} unchanged pixels: nothing was written"
        )
    _, chosen = reveal(check, expected, count=count)
    return Difference(_largest(scores, expected), pixels=float((shown != chosen).double().mean()))


def _compare_logits(model: FeatureModel, written: Written, numbers: Tensor) -> Difference:
    """Compare logits, and the share of equal class decisions."""
    logits = session(written.file).run(graphs.logit_names(model), {"feature": numbers.numpy()})
    ours, theirs = list(map(torch.from_numpy, logits)), list(model.attributes(numbers).values())
    return Difference(_largest(torch.cat(ours, 1), torch.cat(theirs, 1)), decisions=_agreement(ours, theirs))


def _run(model: bytes, images: Tensor) -> dict[str, Tensor]:
    """Run a device's graph on (N, C, H, W) images one by one; return each output."""
    opened = session(model)
    outputs = [output.name for output in opened.session.get_outputs()]
    rows = [opened.run(outputs, {"images": image.numpy()}) for image in images.split(1)]
    columns = zip(*rows, strict=True)
    return {
        output: torch.cat([torch.from_numpy(part) for part in parts])
        for output, parts in zip(outputs, columns, strict=True)
    }


@torch.no_grad()
def _numbers(network: nn.Module, images: Tensor) -> Tensor:
    """Compute the (N, d) numbers of a release without noise, each image by itself."""
    return torch.cat(each_by_itself(network, images))


def _largest(ours: Tensor, theirs: Tensor) -> float:
    """Return the largest difference; NaN if there is a NaN."""
    return float((ours.double() - theirs.double()).abs().max())


def _agreement(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Return the share of equal class decisions of two sets of logits, over images and targets."""
    same = [a.argmax(1) == b.argmax(1) for a, b in zip(ours, theirs, strict=True)]
    return float(torch.stack(same).double().mean())
