"""Runs graphs by onnxruntime, on one core.

Does not import PyTorch, which would be most of the memory of `measure`'s process.
"""

from os import PathLike
from pathlib import Path

from sfumato.base.onnx_graphs import Graph

EXTRA = ("running an exported graph", "edge")


def session(model: str | PathLike[str] | bytes) -> Graph:
    """Open a graph on one thread of the CPU.

    Args:
        model: a path, or the bytes of a file.

    Raises:
        MissingExtraError, ArtefactError: as Graph.
    """
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    return Graph(content, extra=EXTRA, threads=1)
