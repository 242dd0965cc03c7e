"""Device graphs whose convolutions compute in whole numbers of 8 bits, for devices with fast integers."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from sfumato.edge.graphs import SCORES
from sfumato.errors import needs_extra

if TYPE_CHECKING:
    from onnx import ModelProto

# Operators between convolutions are included. Linear layers stay in float32: the encoder of a private feature
# is trained so (protect.feature.DeviceSide), and a feature has few numbers.
_OPERATORS = ["Conv", "MaxPool", "Concat", "Resize", "LeakyRelu"]


def quantize(model: "ModelProto", images: Tensor) -> "ModelProto":
    """Quantize a graph of sfumato.edge.graphs to 8-bit weights and activations (onnxruntime, static, QDQ).

    Weights have one scale for each filter; activations have one for each tensor, from their least and largest
    value on the images. The last convolution of a mask stays in float32: many 8-bit scores would be equal,
    and their position would choose the pixels.

    Args:
        model: takes one image; it is not changed.
        images: (M, C, H, W) uint8, at least one, like those on the device.

    Raises:
        MissingExtraError: onnx or onnxruntime is not installed.
    """
    with needs_extra("int8", "edge"):
        import onnx
        from onnxruntime import quantization

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Passes the images to onnxruntime one by one."""

        def __init__(self) -> None:
            self._rest = iter(images.split(1))

        def get_next(self) -> dict[str, Any] | None:
            image = next(self._rest, None)
            return None if image is None else {"images": image.numpy()}

    ready = onnx.shape_inference.infer_shapes(model)
    # Marks the pre-processing as done, since torch.onnx has folded the batch norms.
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
            # 7 bits of weights: on a processor with AVX2 and without VNNI, the sum of two 8-bit products
            # overflows 16 bits, and a release would depend on the processor.
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            calibrate_method=quantization.CalibrationMethod.MinMax,
        )
        result = onnx.load(path)
    del result.metadata_props[:]
    return result


def _scoring(model: "ModelProto") -> list[str]:
    """Find the convolution before the sigmoid of a mask's scores."""
    before = {output: node for node in model.graph.node for output in node.output}
    if SCORES not in before:
        return []
    return [before[before[SCORES].input[0]].name]
