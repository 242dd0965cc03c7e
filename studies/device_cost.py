"""The cost of the device side of artefacts: time, memory and bytes sent, on one core, in onnxruntime, in float32.

    OMP_NUM_THREADS=1 python studies/device_cost.py code.safetensors ...    # one line of JSON for each side

A mask and a code have one line. A private feature has two: its device side, up to the layer of the cut, and the whole
model, as without a cloud, which sends nothing. Each graph is measured in a fresh process, which imports onnxruntime and not
PyTorch, on seeded noise: the work of a network does not depend on the image. Linux alone says the peak of memory.

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Fig. 11.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

IMAGES, WARM_UP = 200, 10  # timed, after untimed ones: the first ones allocate


@dataclass(frozen=True)
class Cost:
    """The cost of a graph.

    Attributes:
        artefact: its path.
        part: "mask"; "device", with the layer of the cut; "whole"; or "code", with its size.
        milliseconds: the median over images; low and high are the 10th and the 90th percentile.
        memory: MiB, the growth of a fresh process's peak resident set since before the file was read: the
            graph, its weights, and values between layers, but not the library that runs it.
        parameters: number of trained numbers, without statistics of batch norms.
        bytes: sent for one image, before any compression; 0 for the whole model.
    """

    artefact: str
    part: str
    milliseconds: float
    low: float
    high: float
    memory: float
    parameters: int
    bytes: int


def profile(artefacts: Sequence[str], *, images: int = IMAGES) -> list[Cost]:
    """Measure artefacts of kind "mask", "private feature" or "code", of any cuts, on two images or more."""
    from sfumato.export import graphs, sides
    from sfumato.learn import private_feature
    from sfumato.protect.feature import KIND as FEATURE

    costs = []
    for artefact in artefacts:
        side = sides.read(artefact)
        measured = [(side.part, graphs.without(side.graph(), graphs.SCORES), side.network, side.bytes)]
        if side.kind == FEATURE:
            model = private_feature.load(artefact)
            measured.append(("whole", graphs.whole_graph(model), model, 0))
        for part, graph, network, sent in measured:
            parameters = sum(each.numel() for each in network.parameters())
            costs.append(Cost(artefact, part, *_run(graph.SerializeToString(), images), parameters, sent))
    return costs


def _run(graph: bytes, images: int) -> tuple[float, float, float, float]:
    """Median, 10th and 90th percentile of milliseconds, and MiB, of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        path.write_bytes(graph)
        words = [sys.executable, __file__, "--graph", str(path), str(images)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    said = json.loads(done.stdout)
    tenths = statistics.quantiles(said["milliseconds"], n=10, method="inclusive")
    return statistics.median(said["milliseconds"]), tenths[0], tenths[-1], said["memory"] / 2**20


def peak() -> int:
    """The most bytes of memory that this process ever had. After a fork, getrusage starts with the parent's peak."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def run_graph(path: str, count: int) -> None:
    """Time a graph of one input, uint8 images, one by one, and print milliseconds and the growth of memory."""
    import numpy as np
    import onnx  # noqa: F401, imported before the first peak is read
    import onnxruntime  # noqa: F401, imported before the first peak is read

    from sfumato.export.card import session

    draw, before = np.random.default_rng(0), peak()
    run = session(path)
    (given,) = run.session.get_inputs()
    milliseconds = []
    for _ in range(WARM_UP + count):
        image = draw.integers(0, 256, given.shape, dtype=np.uint8)
        start = time.perf_counter()
        run.run(None, {given.name: image})
        milliseconds.append(1e3 * (time.perf_counter() - start))
    print(json.dumps({"milliseconds": milliseconds[WARM_UP:], "memory": peak() - before}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--graph"]:
        run_graph(sys.argv[2], int(sys.argv[3]))
    else:
        for cost in profile(sys.argv[1:]):
            print(json.dumps(asdict(cost)))
