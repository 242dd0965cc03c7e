"""Artefacts as ONNX graphs, which run without PyTorch.

A device's graph takes exactly one uint8 image: in a larger batch numbers round differently, and the release
of an image would depend on the others (protect.mask.pixel_scores).
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sfumato.errors import ArtefactError, needs_extra
from sfumato.images import to_float
from sfumato.learn.private_feature import FeatureModel
from sfumato.networks.code import CodeNetwork
from sfumato.networks.encoders.pretrained import PretrainedEncoder
from sfumato.networks.onnx_network import OnnxNetwork
from sfumato.protect.code import Encoder
from sfumato.protect.feature import Extractor
from sfumato.protect.mask import Masker, pixels_shown

if TYPE_CHECKING:
    from onnx import ModelProto

EXTRA = ("exporting", "edge")

SCORES = "scores"  # the output of a mask's graph for checks only

_OPSET = 18  # in which torch.onnx writes graphs without conversion


def mask_graph(masker: Masker) -> "ModelProto":
    """Export `images` (1, C, H, W) uint8 -> `values`, alike, `shown` (1, 1, H, W) bool, and the scores.

    Exactly ⌊keep·H·W⌋ pixels are shown, for any scores: by the definition of TopK in ONNX, of equal values
    the lower index comes first. Values of the others are 0. The output SCORES, (1, 1, H, W) float32, reveals
    hidden pixels: `without` removes it from files for devices.

    Raises:
        ArtefactError: the masker's share is less than a pixel.
        MissingExtraError: see to_onnx.
    """
    _, height, width = masker.shape
    count = pixels_shown(masker.keep, (height, width))
    if not count:
        raise ArtefactError(f"keep={masker.keep:g} of {height}x{width} pixels is less than one: no mask")

    def mask(network: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(1, C, H, W) uint8 -> values, shown and scores: protect.mask.reveal, in operations of ONNX."""
        scores = network(to_float(images)).sigmoid()
        flat = scores.flatten(1)
        top = flat.topk(count, dim=1).indices  # PyTorch itself does not order equal scores
        shown = torch.zeros_like(flat, dtype=torch.bool).scatter(1, top, True).view_as(scores)
        # Not a product: onnxruntime multiplies no uint8.
        return torch.where(shown, images, torch.zeros_like(images)), shown, scores

    outputs = ["values", "shown", SCORES]
    return to_onnx(_Applied(masker.network, mask), _image(masker.shape), "images", outputs)


def device_graph(extractor: Extractor) -> "ModelProto":
    """Export `images` (1, C, H, W) uint8 -> `feature` (1, d) float32, without noise. Raises: see to_onnx."""
    return to_onnx(_Applied(extractor.network, _extract), _image(extractor.shape), "images", ["feature"])


def code_graph(encoder: Encoder) -> "ModelProto":
    """Export `images` (1, C, H, W) uint8 -> `numbers` (1, d) float32, for a code.

    An encoder that is itself an ONNX graph is included, converted to our version of ONNX.

    Raises:
        ArtefactError: that graph cannot be converted, or sees mirrored images too.
        MissingExtraError: see to_onnx.
    """
    network = encoder.network
    pretrained = network.encoder.encoder if isinstance(network.encoder, PretrainedEncoder) else None
    if pretrained is None or not isinstance(pretrained.network, OnnxNetwork):
        return to_onnx(_Applied(network, _extract), _image(encoder.shape), "images", ["numbers"])
    if network.mirrored:
        raise ArtefactError(
            "mirrored=true: the encoder sees images twice, and is an ONNX graph, which stands in a device's "
            "graph once: train with mirrored=false"
        )
    image = _image(encoder.shape)
    before, after = _Applied(network, _before), _Applied(network, _after)
    with torch.no_grad():
        raw = pretrained.network(before(image))
    return _join(
        to_onnx(before, image, "images", ["seen"]),
        pretrained.network.content,
        to_onnx(after, raw, "raw", ["numbers"]),
    )


def _join(before: "ModelProto", within: bytes, after: "ModelProto") -> "ModelProto":
    """Join three graphs, each by its one input and first output."""
    import onnx

    middle = onnx.load_from_string(within)
    try:
        middle = onnx.version_converter.convert_version(middle, _OPSET)
        middle.ir_version = before.ir_version
        middle = onnx.compose.add_prefix(middle, "encoder/")
        given = [(before.graph.output[0].name, middle.graph.input[0].name)]
        first = onnx.compose.merge_models(before, middle, io_map=given)
        taken = [(middle.graph.output[0].name, after.graph.input[0].name)]
        after = onnx.compose.add_prefix(after, "code/", rename_inputs=False, rename_outputs=False)
        whole = onnx.compose.merge_models(first, after, io_map=taken, outputs=["numbers"])
        onnx.checker.check_model(whole, full_check=True)
    except Exception as error:  # onnx raises RuntimeError, ValueError and classes of its own
        raise ArtefactError(
            f"the encoder's ONNX graph cannot be joined with ours: write it in opset {_OPSET} "
            f"({str(error).splitlines()[0]})"
        ) from error
    return whole


def cloud_graph(model: FeatureModel) -> "ModelProto":
    """Export `feature` (N, d) float32, N at least 1 -> for each target `logits.TARGET`, (N, classes) float32.

    Raises: see to_onnx.
    """
    example = torch.zeros(2, model.device.encoder.out_features)
    return to_onnx(_Applied(model, _logits), example, "feature", logit_names(model), any_batch=True)


def whole_graph(model: FeatureModel) -> "ModelProto":
    """Export both sides as one: `images` (1, C, H, W) uint8 -> cloud_graph's outputs. Raises: see to_onnx."""
    channels, height, width = model.card["shape"]
    whole = _Applied(model, lambda model, images: _logits(model, model.device(to_float(images))))
    return to_onnx(whole, _image((channels, height, width)), "images", logit_names(model))


def logit_names(model: FeatureModel) -> list[str]:
    """List the outputs of a cloud side, in the order of the targets."""
    return [f"logits.{target}" for target in model.classes]


def to_onnx(
    network: nn.Module, example: Tensor, name: str, outputs: Sequence[str], *, any_batch: bool = False
) -> "ModelProto":
    """Export a network in evaluation mode, a function of one tensor, as a graph that is well formed.

    It contains only the graph and its weights: torch.onnx also records the source lines of every node, with
    the paths of this machine. It takes the shape of `example`, of any length along the first axis if
    `any_batch`.

    Raises:
        MissingExtraError: onnx or onnxscript is not installed.
    """
    with needs_extra(*EXTRA):
        import onnx
        import onnxscript  # noqa: F401, torch.onnx needs it, with a long error
    shapes = ({0: torch.export.Dim("N")},) if any_batch else None
    with torch.no_grad(), _quiet():
        program = torch.onnx.export(
            network.eval(),
            (example,),
            dynamo=True,
            verbose=False,
            opset_version=_OPSET,
            input_names=[name],
            output_names=list(outputs),
            dynamic_shapes=shapes,
        )
    assert program is not None  # set when no file is written
    model = program.model_proto
    graph = model.graph
    parts = [graph.node, graph.value_info, graph.input, graph.output, graph.initializer]
    for each in (model, graph, *chain.from_iterable(parts)):
        del each.metadata_props[:]
        each.doc_string = ""
    onnx.checker.check_model(model, full_check=True)
    return model


def without(model: "ModelProto", output: str) -> "ModelProto":
    """Copy a graph without one of its outputs."""
    copied = type(model)()
    copied.CopyFrom(model)
    kept = [each for each in model.graph.output if each.name != output]
    del copied.graph.output[:]
    copied.graph.output.extend(kept)
    return copied


class _Applied(nn.Module):
    """A function of a network and one tensor, as a network."""

    def __init__(self, network: nn.Module, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.network = network
        self.function = function

    def forward(self, given: Tensor) -> Any:
        return self.function(self.network, given)


def _extract(network: nn.Module, images: Tensor) -> Tensor:
    """(1, C, H, W) uint8 -> (1, d) float32."""
    return torch.as_tensor(network(to_float(images)))


def _before(network: CodeNetwork, images: Tensor) -> Tensor:
    """(1, C, H, W) uint8 -> the input of an ONNX encoder."""
    assert isinstance(network.encoder, PretrainedEncoder)
    return network.encoder.encoder.prepare(network.shrink(to_float(images)))


def _after(network: CodeNetwork, raw: Tensor) -> Tensor:
    """The output of an ONNX encoder -> (1, d) float32."""
    assert isinstance(network.encoder, PretrainedEncoder)
    outputs = raw.mean((2, 3)) if raw.ndim == 4 else raw
    return network.code(network.encoder.whitened(network.encoder.encoder.scale(outputs)))


def _logits(model: FeatureModel, feature: Tensor) -> tuple[Tensor, ...]:
    """(N, d) float32 -> the logits of each target."""
    return tuple(model.by_target(model.cloud(feature)).values())


def _image(shape: tuple[int, int, int]) -> Tensor:
    return torch.zeros(1, *shape, dtype=torch.uint8)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence messages of torch.onnx that users cannot act on."""
    # One line for each function of torchvision, which is not needed here.
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # torch.export copies its own LeafSpec (torch 2.13), in a way that torch calls deprecated.
            warnings.filterwarnings("ignore", r".*LeafSpec.* is deprecated", FutureWarning)
            yield
    finally:
        logger.setLevel(level)
