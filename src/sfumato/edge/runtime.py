"""How graphs are run here: onnxruntime, on one core.

Knows nothing of PyTorch, which would be most of the memory of the process that `measure` runs in.
"""

from os import PathLike, fspath
from typing import Any

from sfumato.errors import needs_extra

EXTRA = ("running an exported graph", "edge")


def session(model: str | PathLike[str] | bytes) -> Any:
    """An onnxruntime.InferenceSession on one thread of the CPU.

    Args:
        model: a path, or the bytes of a file.

    Raises:
        MissingExtraError: onnxruntime is not installed.
    """
    with needs_extra(*EXTRA):
        import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3  # errors: a machine without a graphics card is no news
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else fspath(model), options, providers=["CPUExecutionProvider"]
    )
