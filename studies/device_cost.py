"""The cost of the device side of artefacts: time, memory and bytes sent, on one core.

    OMP_NUM_THREADS=1 python studies/device_cost.py code.safetensors ...    # one line of JSON for each side

Source: Osia et al. 2018 (docs/papers.md, "DPFE"), Fig. 11: inference time and memory of the layers up to each
possible cut, against the whole network on the device, which sends nothing.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torch import nn

from sfumato.errors import ConfigError, DataError, needs_extra
from sfumato.export import graphs, sides
from sfumato.export.card import EXTRA
from sfumato.export.graphs import SCORES
from sfumato.learn import private_feature
from sfumato.protect.feature import KIND as FEATURE

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Cost:
    """The cost of a graph on one core.

    Attributes:
        artefact: its path.
        part: "mask"; "device", up to the private feature, with the layer of the cut; "whole", that and the
            cloud side together; or "code", with its size.
        milliseconds: the median over images.
        low: the 10th percentile of these.
        high: the 90th.
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


def profile(artefacts: Sequence[str | os.PathLike[str]], *, images: int = 200) -> list[Cost]:
    """Measure the cost of each artefact on one core in onnxruntime, in float32.

    A mask and a code have one line. A private feature has two: its device side, and the whole model, as
    without a cloud. Each is measured in a fresh child process, which imports onnxruntime and not PyTorch, on
    seeded noise: the work of a network does not depend on the image.

    Args:
        artefacts: of kind "mask", "private feature" or "code", of any cuts.
        images: number of timed images, at least 2, after ten untimed ones.

    Raises:
        ArtefactError: damaged, foreign, or of another kind.
        ConfigError: fewer than two images, or a system other than Linux, whose /proc has the peak of memory.
        DataError: no artefacts.
        MissingExtraError: the extra `edge` is not installed.
    """
    if images < 2:
        raise ConfigError(f"images={images}: at least 2, to have percentiles")
    if not Path("/proc/self/status").exists():
        raise ConfigError("no /proc/self/status with the peak of memory: profile on Linux")
    if not artefacts:
        raise DataError("no artefacts: name at least one")
    with needs_extra(*EXTRA):
        import onnxruntime  # noqa: F401, the child needs it, without a short error
    costs = []
    for artefact in [os.fspath(each) for each in artefacts]:
        side = sides.read(artefact)
        graph = graphs.without(side.graph(), SCORES)
        costs.append(cost_of(artefact, side.part, graph, side.network, sent=side.bytes, images=images))
        if side.kind == FEATURE:
            model = private_feature.load(artefact)
            costs.append(cost_of(artefact, "whole", graphs.whole_graph(model), model, sent=0, images=images))
    return costs


def cost_of(
    artefact: str, part: str, graph: "ModelProto", network: nn.Module, *, sent: int, images: int
) -> Cost:
    """Measure the cost of one graph in a fresh child process; see profile.

    Args:
        artefact, part, sent: see Cost.
        graph: has one input, uint8 images.
        network: its source, for the count of parameters.
        images: number of timed images.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.onnx"
        path.write_bytes(graph.SerializeToString())
        words = [sys.executable, str(Path(__file__).parent / "graph_cost.py"), str(path), str(images)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    said = json.loads(done.stdout)
    times = said["milliseconds"]
    tenths = statistics.quantiles(times, n=10, method="inclusive")
    return Cost(
        artefact=artefact,
        part=part,
        milliseconds=statistics.median(times),
        low=tenths[0],
        high=tenths[-1],
        memory=said["memory"] / 2**20,
        parameters=sum(each.numel() for each in network.parameters()),
        bytes=sent,
    )


if __name__ == "__main__":
    for cost in profile(sys.argv[1:]):
        print(json.dumps(asdict(cost)))
