"""Device graphs whose convolutions compute in whole numbers of 8 bits, for devices that are fast at these."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sfumato.edge.graphs import SCORES
from sfumato.errors import needs_extra

if TYPE_CHECKING:
    from onnx import ModelProto

# What lies between convolutions goes with them. Linear layers stay in float32: the encoder of a private
# feature is trained so (protect.feature.DeviceSide), and a feature is few numbers.
_OPERATORS = ["Conv", "MaxPool", "Concat", "Resize", "LeakyRelu"]


def quantized(model: "ModelProto", images: Tensor) -> "ModelProto":
    """A graph of sfumato.edge.graphs with 8-bit weights and activations (onnxruntime, static, QDQ).

    Weights have a scale for each filter; activations one for each tensor, from the least and the largest
    value that it takes on the images. The last convolution of a mask stays in float32: of scores of 8 bits
    many would be equal, and the pixels chosen by where they are.

    Args:
        model: takes one image, and is left as it is.
        images: (M, C, H, W) uint8, at least one, like those that the device will see.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
    """
    with needs_extra("int8", "edge"):
        import onnx
        from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Gives onnxruntime the images one by one."""

        def __init__(self) -> None:
            self._rest = iter(images.split(1))

        def get_next(self) -> dict[str, Any] | None:
            image = next(self._rest, None)
            return None if image is None else {"images": image.numpy()}

    ready = onnx.shape_inference.infer_shapes(model)
    # What its pre-processing is for is done, or it would advise it: torch.onnx has folded the batch norms.
    ready.metadata_props.add(key="onnx.quant.pre_process", value="onnxruntime.quant")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "int8.onnx"
        quantization.quantize_static(
            ready,
            path,
            Reader(),
            quant_format=quantization.QuantFormat.QDQ,
            op_types_to_quantize=_OPERATORS,
            nodes_to_exclude=_scoring(model),
            per_channel=True,
            # 7 bits of weights: the sum of two products of 8 bits overflows 16 where a processor has AVX2 and
            # no VNNI, and a release would depend on the processor.
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
        )
        result = onnx.load(path)
    del result.metadata_props[:]
    return result


def _scoring(model: "ModelProto") -> list[str]:
    """The convolution that a mask's scores are the sigmoid of."""
    before = {output: node for node in model.graph.node for output in node.output}
    if SCORES not in before:
        return []
    return [before[before[SCORES].input[0]].name]
