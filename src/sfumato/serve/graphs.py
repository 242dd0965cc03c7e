"""Measure, in a process of its own, whether a model runs faster as an ONNX graph.

Exporting needs far more memory than running: PyTorch and its exporter add some 400 MB to a process, which
would stay in each server. So another process reads the artefact, exports it, measures, and ends.
"""

import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from sfumato import artefacts
from sfumato.base import logs
from sfumato.errors import ArtefactError, MissingExtraError
from sfumato.protect.parameters import artefact_digest
from sfumato.serve import exported, models
from sfumato.serve.served import EXPORTED, Served, example

_COMMAND = "from sfumato.serve import graphs; graphs.measure()"
_LIBRARIES = ("torch", "onnx", "onnxscript", "onnxruntime")
_RUNS = 5
_MOST_SECONDS = 300  # for exporting and measuring

_log = logging.getLogger("sfumato.serve")


def fastest(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    reference: str | None = None,
) -> Served:
    """Load like models.load, and run a network by the faster of PyTorch and ONNX Runtime, measured here.

    Another process exports and measures. If ONNX Runtime is faster, this process never imports PyTorch, which
    would be most of its memory and start-up time. Without the extra `edge`, PyTorch is used; so it is for an
    encoder that is itself an ONNX graph, and if that process fails, which the log says.
    """
    name = models.check_name(path, name)
    artefact_digest(os.fspath(path))  # as in load, before other errors of the file
    if Path(path).suffix != EXPORTED and artefacts.read_card(path).get("kind") in models.TRAINED:
        try:
            graph = export_if_faster(os.fspath(path), reference)
        except MissingExtraError:
            graph = None
        except (ArtefactError, subprocess.TimeoutExpired) as error:
            model = models.load(path, name=name, reference=reference)  # a damaged file ends here
            logs.event(_log, logging.WARNING, "not measured, and run by PyTorch", error=str(error))
            return model
        if graph is not None:
            return exported.of_bytes(graph, path, name)
    return models.load(path, name=name, reference=reference)


def export_if_faster(path: str, reference: str | None) -> bytes | None:
    """Export a model if ONNX Runtime is faster here, now; None if PyTorch is.

    Args:
        path, reference: see models.load.

    Raises:
        MissingExtraError: a package for exporting is not installed.
        ArtefactError: the other process failed.
    """
    for library in _LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtraError(
                f"exporting {path} needs {library}: run pip install 'sfumato[edge]'", name=library
            )
    with tempfile.TemporaryDirectory() as folder:
        graph = Path(folder) / "model.onnx"
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, json.dumps([path, reference]), str(graph)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # It imports from the same paths as this process.
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            check=False,
            timeout=_MOST_SECONDS,
        )
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            raise ArtefactError(f"{path}: its network cannot be exported: {last}")
        return graph.read_bytes() if graph.exists() else None


def measure() -> None:
    """Run in that process: read an artefact, and write its graph if that is faster."""
    path, reference = json.loads(sys.argv[1])
    from sfumato.export.export import export

    served = models.load(path, name="model", reference=reference)
    try:
        side = exported.side(served)
    except ArtefactError:
        return
    check = np.zeros((1, *served.shape), np.uint8)
    export(path, sys.argv[2], check=check, side=side)
    if not _is_faster(exported.read(sys.argv[2], "model"), served):
        Path(sys.argv[2]).unlink()


def _is_faster(one: Served, other: Served) -> bool:
    """Whether one model runs a batch in less time than another."""
    inputs = example(other)
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(_RUNS + 1):
        for served, taken in zip((one, other), times, strict=True):
            start = time.perf_counter()
            served.run(inputs)
            if number:  # the first call does more
                taken.append(time.perf_counter() - start)
    return statistics.median(times[0]) < statistics.median(times[1])
