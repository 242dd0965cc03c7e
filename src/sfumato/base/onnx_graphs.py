"""ONNX graphs from strangers: their allowed content, and running them.

ONNX Runtime trusts a file: it reads weights from any other file, and runs loops without an
end, functions, operators of other parties, and shapes that follow from the values of an image. So the file is
read here first, by the wire format of protobuf alone, without `onnx`. Only operators are allowed, in their
order, each of which computes numbers from numbers, of shapes that follow from those of the inputs.

The memory and time of such a graph depend only on the shape of its inputs. So the first run of each
shape has a bound of memory; and a run that takes too long is ended.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.base.threads import thread_count
from sfumato.errors import ArtefactError, needs_extra, shorten

MOST_MEMORY = 4 << 30  # bytes that a first run may add to the memory of the process
MOST_SECONDS = 60.0  # of a run

_NAMES = """
Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization Cast CastLike
Ceil Celu Clip Concat Constant ConstantOfShape Conv ConvInteger ConvTranspose Cos Cosh CumSum
DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten
Floor Gather GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual
GroupNormalization HardSigmoid HardSwish Identity InstanceNormalization LRN LayerNormalization LeakyRelu
Less LessOrEqual Log LogSoftmax LpNormalization MatMul MatMulInteger Max MaxPool Mean Min Mish Mod Mul
Neg Not Or PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear Range Reciprocal ReduceL1 ReduceL2
ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu
Reshape Resize Round ScatterElements ScatterND Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax Softplus
Softsign SpaceToDepth Split Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Tile TopK Transpose Trilu Unsqueeze
Upsample Where Xor
"""
_OPERATORS = frozenset(_NAMES.split())  # of inference, without chance: numbers from numbers
_DOMAINS = frozenset({b"", b"ai.onnx"})
# The first input that gives a shape; all later ones do too.
_SHAPE_FROM = {
    **{"ConstantOfShape": 0, "Range": 0, "Expand": 1, "Reshape": 1, "Resize": 1, "Tile": 1, "Pad": 1},
    **{"Slice": 1, "Split": 1, "TopK": 1, "Upsample": 1, "Unsqueeze": 1, "Squeeze": 1},
}
_SHAPES = frozenset({"Shape", "Size"})  # their output follows from a shape, and not from values

# The fields that a message may have, by their numbers in onnx.proto: True if bytes or a message, False if a
# number, None if either.
_Known = dict[int, bool | None]
_MODEL: _Known = {2: True, 3: True, 4: True, 6: True, 7: True, 8: True, 14: True, 1: False, 5: False}
_GRAPH: _Known = dict.fromkeys((1, 2, 5, 10, 11, 12, 13, 14, 16), True)
_NODE: _Known = dict.fromkeys((1, 2, 3, 4, 5, 6, 7, 9), True)
_ATTRIBUTE: _Known = {1: True, 4: True, 5: True, 9: True, 10: True, 13: True, 2: False, 3: False, 20: False}
_ATTRIBUTE |= {7: None, 8: None}
_TENSOR: _Known = {8: True, 9: True, 12: True, 16: True, 2: False, 14: False}
_TENSOR |= dict.fromkeys((1, 4, 5, 7, 10, 11))
_WHY_NOT = {
    "model": {20: "how it is trained", 25: "functions of its own"},
    "graph": {15: "sparse weights"},
    "node": {8: "functions of its own"},
    "attribute": {6: "a graph within (a loop or a condition)", 11: "graphs within", 22: "sparse weights"},
    "tensor": {6: "texts", 13: "weights that lie in another file: write it as one file"},
}
_CURE = "Export the network for inference, as one file, with standard operators"


def _number(data: memoryview, start: int) -> tuple[int, int]:
    """A varint, and its end."""
    value = 0
    for place in range(10):
        byte = data[start + place]
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            return value, start + place + 1
    raise ValueError("a number without an end")


def _fields(data: memoryview, kind: str, known: _Known) -> Iterator[tuple[int, Any]]:
    """The numbers and the values of the fields of a message. Raises ValueError for an unknown one."""
    start = 0
    while start < len(data):
        key, start = _number(data, start)
        number, form = key >> 3, key & 7
        if number not in known:
            raise ValueError(
                f"it has {_WHY_NOT.get(kind, {}).get(number, f'a field {number} in its {kind}')}"
            )
        if form == 2:
            length, start = _number(data, start)
            value: Any = data[start : start + length]
            start += length
        elif form == 0:
            value, start = _number(data, start)
        elif form in (1, 5):
            value, start = None, start + (8 if form == 1 else 4)
        else:
            raise ValueError("a field of another form")
        if start > len(data) or known[number] not in (None, form == 2):
            raise ValueError(f"field {number} of its {kind} is damaged")
        yield number, value


class _Checked:
    """The content of a file. State: the names of its constants and inputs, and its operators, so far."""

    def __init__(self) -> None:
        self.constants: set[bytes] = set()
        self.inputs: list[bytes] = []
        self.nodes: list[tuple[str, list[bytes], list[bytes]]] = []

    def model(self, data: memoryview) -> None:
        for number, value in _fields(data, "model", _MODEL):
            if number == 7:
                self._graph(value)
        self._order()

    def _graph(self, data: memoryview) -> None:
        for number, value in _fields(data, "graph", _GRAPH):
            if number == 1:
                self._node(value)
            elif number == 5:
                self.constants.add(_tensor(value))
            elif number == 11:
                self.inputs += [bytes(name) for key, name in _loosely(value) if key == 1]

    def _node(self, data: memoryview) -> None:
        inputs, outputs, names = [], [], []
        for number, value in _fields(data, "node", _NODE):
            if number == 1:
                inputs.append(bytes(value))
            elif number == 2:
                outputs.append(bytes(value))
            elif number == 4:
                names.append(bytes(value).decode("ascii", "replace"))
            elif number == 7 and bytes(value) not in _DOMAINS:
                raise ValueError(f"it has an operator of {bytes(value)[:40].decode('ascii', 'replace')!r}")
            elif number == 5:
                for key, part in _fields(value, "attribute", _ATTRIBUTE):
                    if key in (5, 10):
                        _tensor(part)
        if len(names) != 1 or names[0] not in _OPERATORS:
            raise ValueError(f"it has the operator {' '.join(names)[:40]!r}")
        self.nodes.append((names[0], inputs, outputs))

    def _order(self) -> None:
        """Checks that operators follow their inputs, and that no shape depends on the values of an input."""
        values = set(self.inputs) - self.constants
        known = self.constants | values | {b""}
        for name, inputs, outputs in self.nodes:
            if not known.issuperset(inputs):
                raise ValueError("its operators are not in the order in which they are computed")
            if known.intersection(outputs) - {b""}:
                raise ValueError("two of its operators give the same output")
            if not values.isdisjoint(inputs[_SHAPE_FROM.get(name, len(inputs)) :]):
                raise ValueError(f"{name} makes a shape of the values of an image")
            known.update(outputs)
            if name not in _SHAPES and not values.isdisjoint(inputs):
                values.update(outputs)


def _tensor(data: memoryview) -> bytes:
    """The name of a tensor that holds its numbers itself."""
    name = b""
    for number, value in _fields(data, "tensor", _TENSOR):
        if number == 8:
            name = bytes(value)
        elif number == 14 and value:
            raise ValueError(f"it has {_WHY_NOT['tensor'][13]}")
    return name


def _loosely(data: memoryview) -> Iterator[tuple[int, Any]]:
    """The fields of the description of an input; only the name counts."""
    return _fields(data, "input", dict.fromkeys(range(1, 100)))


def check(content: bytes) -> None:
    """Raises ArtefactError for a file that is not a plain graph: see the module."""
    try:
        _Checked().model(memoryview(content))
    except IndexError as error:
        raise ArtefactError("is damaged, or not a graph of ONNX") from error
    except ValueError as error:
        raise ArtefactError(f"is not a graph that is run here: {error}. {_CURE}") from error


class Graph:
    """A checked graph, run by ONNX Runtime on the CPU. State: its session, and which shapes were run."""

    def __init__(self, content: bytes, *, extra: tuple[str, str], threads: int | None = None) -> None:
        """Checks a graph, and opens it.

        Args:
            content: the bytes of a file.
            extra: its use, and the extra that has ONNX Runtime, in errors.
            threads: None: as many as PyTorch would use.

        Raises:
            ArtefactError: not a graph, or one with forbidden content.
            MissingExtraError: ONNX Runtime is not installed.
        """
        with needs_extra(*extra):
            import onnxruntime
        check(content)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = thread_count() if threads is None else threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 4  # no lines of its own: an error has the message
        # Without its arena, which keeps the memory of the largest batch.
        options.enable_cpu_mem_arena = False
        options.add_session_config_entry("session.load_model_format", "ONNX")
        try:
            with _within_memory():
                self._session = onnxruntime.InferenceSession(
                    content, options, providers=["CPUExecutionProvider"]
                )
        except Exception as error:  # its classes differ by the fault of the file
            raise ArtefactError("is damaged, or not a graph of ONNX that can be run") from error
        self._run_options = onnxruntime.RunOptions
        self._run_before: set[tuple[tuple[int, ...], ...]] = set()

    def get_inputs(self) -> list[Any]:
        """Its inputs, each with a name, a type and a shape."""
        return list(self._session.get_inputs())

    def get_outputs(self) -> list[Any]:
        """Its outputs, in the same form."""
        return list(self._session.get_outputs())

    @property
    def metadata(self) -> dict[str, str]:
        """The texts of the file's metadata."""
        return dict(self._session.get_modelmeta().custom_metadata_map)

    def run(self, outputs: Sequence[str] | None, inputs: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Computes outputs; None: all.

        Raises:
            ArtefactError: it takes more than MOST_SECONDS or, for a new shape of inputs, MOST_MEMORY.
        """
        shapes = tuple(array.shape for array in inputs.values())
        options = self._run_options()
        watchdog = threading.Timer(MOST_SECONDS, setattr, (options, "terminate", True))
        watchdog.daemon = True
        watchdog.start()
        try:
            if shapes in self._run_before:
                return list(self._session.run(outputs, dict(inputs), options))
            with _within_memory():
                found = list(self._session.run(outputs, dict(inputs), options))
        except Exception as error:
            if options.terminate:
                raise ArtefactError(f"a run of this graph took more than {MOST_SECONDS:g} s") from error
            if shapes not in self._run_before:
                why = shorten(str(error).partition("\n")[0])
                raise ArtefactError(f"this graph does not run on inputs of {shapes}: {why}") from error
            raise
        finally:
            watchdog.cancel()
        self._run_before.add(shapes)
        return found


_LIMITING = threading.Lock()


@contextmanager
def _within_memory() -> Iterator[None]:
    """Limits the process to MOST_MEMORY beyond its present memory, if Linux can bound it."""
    status = Path("/proc/self/statm")
    if not status.exists():
        yield
        return
    import resource

    with _LIMITING:
        before = resource.getrlimit(resource.RLIMIT_AS)
        most = int(status.read_text().split()[0]) * resource.getpagesize() + MOST_MEMORY
        if before[0] != resource.RLIM_INFINITY:
            most = min(most, before[0])
        resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
