"""How graphs are run here: by onnxruntime, on one core.

Knows nothing of PyTorch, which would be most of the memory of the process that `measure` runs in.
"""

from os import PathLike
from pathlib import Path

from sfumato.base.onnx_graphs import Graph

EXTRA = ("running an exported graph", "edge")


def session(model: str | PathLike[str] | bytes) -> Graph:
    """A graph on one thread of the CPU.

    Args:
        model: a path, or the bytes of a file.

    Raises:
        MissingExtraError, ArtefactError: as Graph does.
    """
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    return Graph(content, extra=EXTRA, threads=1)
