"""ONNX graphs from strangers: their allowed content, and running them.

ONNX Runtime trusts a file: it reads weights from any other file, and runs endless loops, functions, operators
of other parties, and shapes that follow from the values of an image. So the file is read here first. It may
have only operators, in their order, that compute numbers from numbers, of shapes that follow from those of
the inputs. The first run of each shape has a bound of memory, and a run that takes too long is ended.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from sfumato.base.hardware import thread_count
from sfumato.base.memory import limit_memory
from sfumato.errors import ArtefactError, needs_extra, shorten

MOST_MEMORY = 4 << 30  # bytes that a first run may add to the memory of the process
MOST_SECONDS = 60.0  # of a run

_NAMES = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast CastLike Ceil
Celu Clip Concat Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum DepthToSpace
DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten Floor Gather
GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GroupNormalization
HardSigmoid HardSwish Identity InstanceNormalization LRN LayerNormalization LeakyRelu Less LessOrEqual Log
LogSoftmax LpNormalization MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul Neg Not Or PRelu Pad Pow
QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp
ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Resize Round ScatterElements
ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax Softplus Softsign SpaceToDepth Split Sqrt
Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze Upsample Where Xor
"""
_OPERATORS = frozenset(_NAMES.split())  # of inference, without chance: numbers from numbers
# The first input that gives a shape; all later ones do too.
_SHAPED = "Expand Reshape Resize Tile Pad Slice Split TopK Upsample Unsqueeze Squeeze"
_SHAPE_FROM = dict.fromkeys(_SHAPED.split(), 1) | {"ConstantOfShape": 0, "Range": 0}
_SHAPES = frozenset({"Shape", "Size"})  # their output follows from a shape, and not from values
# The fields that the messages of a file may have, by their names in onnx.proto.
_FIELDS = """
ir_version producer_name producer_version domain model_version doc_string graph opset_import metadata_props
node name initializer input output value_info quantization_annotation op_type attribute type f i s t floats
ints strings tensors dims data_type raw_data float_data int32_data int64_data double_data uint64_data version
key value tensor_type elem_type shape dim dim_value dim_param denotation tensor_name
quant_parameter_tensor_names
"""
_ALLOWED = frozenset(_FIELDS.split())
_WHY_NOT = {
    "g": "a graph within (a loop or a condition)",
    "functions": "functions of its own",
    "external_data": "weights that lie in another file: write it as one file",
}


def check(content: bytes) -> None:
    """Raises ArtefactError for a file that is not a plain graph."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load_model_from_string(content)
        size = model.ByteSize()
        model.DiscardUnknownFields()
        if model.ByteSize() != size:  # ONNX Runtime may know them
            raise ValueError("it has a field that is not known here")
        _check_fields(model)
        _check_nodes(model.graph)
    except (DecodeError, UnicodeDecodeError) as error:
        raise ArtefactError("is damaged, or not a graph of ONNX") from error
    except ValueError as error:
        cure = "Export the network for inference, as one file, with standard operators"
        raise ArtefactError(f"is not a graph that is run here: {error}. {cure}") from error


def _check_fields(message: Any) -> None:
    for field, value in message.ListFields():
        name = field.name
        if name == "data_location" and value == 0:  # in the file itself
            continue
        if name not in _ALLOWED:
            name = name.replace("data_location", "external_data")
            raise ValueError(f"it has {_WHY_NOT.get(name, f'a field {name}')}")
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                _check_fields(part)


def _check_nodes(graph: Any) -> None:
    """Checks operators and their order, and that no shape depends on the values of an input."""
    constants = {tensor.name for tensor in graph.initializer}
    values = {given.name for given in graph.input} - constants
    known = constants | values | {""}
    for node in graph.node:
        if node.domain not in ("", "ai.onnx"):
            raise ValueError(f"it has an operator of {node.domain[:40]!r}")
        if node.op_type not in _OPERATORS:
            raise ValueError(f"it has the operator {node.op_type[:40]!r}")
        if not known.issuperset(node.input):
            raise ValueError("its operators are not in the order in which they are computed")
        if known.intersection(node.output) - {""}:
            raise ValueError("two of its operators give the same output")
        if not values.isdisjoint(node.input[_SHAPE_FROM.get(node.op_type, len(node.input)) :]):
            raise ValueError(f"{node.op_type} makes a shape of the values of an image")
        known.update(node.output)
        if node.op_type not in _SHAPES and not values.isdisjoint(node.input):
            values.update(node.output)


class Graph:
    """A checked graph, run by ONNX Runtime on the CPU. State: its session, and which shapes were run."""

    def __init__(self, content: bytes, *, extra: tuple[str, str], threads: int | None = None) -> None:
        """Checks the bytes of a file, and opens it. `extra`: the use and the name for a MissingExtraError."""
        with needs_extra(*extra):
            import onnx  # noqa: F401, for `check`
            import onnxruntime
        check(content)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads or thread_count(), 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4  # no lines of its own: an error has the message
        options.enable_cpu_mem_arena = False  # which keeps the memory of the largest batch
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            with limit_memory(MOST_MEMORY):
                self.session = onnxruntime.InferenceSession(content, options, ["CPUExecutionProvider"])
        except Exception as error:  # its classes differ by the fault of the file
            raise ArtefactError("is damaged, or not a graph of ONNX that can be run") from error
        self._run_options = onnxruntime.RunOptions
        self._run_before: set[tuple[tuple[int, ...], ...]] = set()

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Computes outputs; None: all. Raises ArtefactError beyond MOST_SECONDS or, at first, MOST_MEMORY."""
        shapes = tuple(array.shape for array in inputs.values())
        options = self._run_options()
        watchdog = threading.Timer(MOST_SECONDS, setattr, (options, "terminate", True))
        watchdog.daemon, known = True, shapes in self._run_before
        watchdog.start()
        try:
            with nullcontext() if known else limit_memory(MOST_MEMORY):
                results = list(self.session.run(outputs, dict(inputs), options))
        except Exception as error:
            if options.terminate:
                raise ArtefactError(f"a run of this graph took more than {MOST_SECONDS:g} s") from error
            if known:
                raise
            why = shorten(str(error).partition("\n")[0])
            raise ArtefactError(f"this graph does not run on inputs of {shapes}: {why}") from error
        finally:
            watchdog.cancel()
        self._run_before.add(shapes)
        return results
