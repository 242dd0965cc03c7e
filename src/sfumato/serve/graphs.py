"""The network of a served artefact as a graph of ONNX, made by a process of its own.

What exports is far larger than what runs: PyTorch's exporter brings some 170 MB into a process, which would
stay in each server. So another process reads the artefact, exports it, and ends.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sfumato.errors import ArtefactError, MissingExtraError

if TYPE_CHECKING:
    from sfumato.serve.models import Served

_COMMAND = "from sfumato.serve import graphs; graphs.export()"
_EXTRA = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Origin:
    """What a served model was read from: the arguments of models.load, and the SHA-256 of the file."""

    path: str
    reference: str | None
    size: tuple[int, int] | None
    digest: str


def exported(origin: Origin) -> bytes:
    """The graph: `images`, what Served.prepare gives, (N, ...) float32 -> `embeddings`, (N, D) float32.

    Raises:
        MissingExtraError: the extra `edge` is not installed.
        ArtefactError: the other process failed, or the file has changed.
    """
    for library in _EXTRA:
        if find_spec(library) is None:
            raise MissingExtraError(
                f"ONNX Runtime needs {library}: run pip install 'sfumato[edge]'", name=library
            )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, json.dumps(asdict(origin)), str(path)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # It finds what this process finds.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise ArtefactError(f"{origin.path}: its network cannot be exported: {last}")
        return path.read_bytes()


def export() -> None:
    """In that process: read an artefact, and write its graph to the file that the last argument names."""
    from sfumato.edge.graphs import to_onnx
    from sfumato.serve import models

    told = json.loads(sys.argv[1])
    size = None if told["size"] is None else (told["size"][0], told["size"][1])
    served: Served = models.load(told["path"], name="model", reference=told["reference"], size=size)
    if served.digest != told["digest"]:
        raise ArtefactError(f"{told['path']}: it has changed since it was read: start the server again")
    assert served.network is not None
    graph = to_onnx(served.network, models.example(served), "images", ["embeddings"], any_batch=True)
    Path(sys.argv[2]).write_bytes(graph.SerializeToString())
