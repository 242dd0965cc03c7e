"""The service side of an artefact for `sfumato export`, and its file as a model that runs without PyTorch.

`inputs`, (N, C + K, h, w) float32 from served.input_maker -> `embeddings`, (N, D) float32. The card has
everything that a server needs to know.
"""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from sfumato import artefacts
from sfumato.base.onnx_graphs import Graph
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError
from sfumato.export import card
from sfumato.learn.refusal import Refusal
from sfumato.protect import parse
from sfumato.protect.spec import check_portable
from sfumato.serve.served import Demand, Served, example, input_maker

if TYPE_CHECKING:
    from sfumato.export.sides import Side
    from sfumato.images import Images

MOST_DIFFERENCE = 1e-3  # difference of an embedding, in units of the root mean square of its numbers


class _DemandCard(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    spec: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(check_portable)]
    made_of: artefacts.Sha256 | None
    weight: Annotated[float, Field(gt=0)]
    position: Annotated[list[float], Field(max_length=16)]


class _Card(card.Card):
    kind: Literal["few-shot", "meta"]
    side: Literal["service"]
    dimension: Annotated[int, Field(ge=1)]
    cell: artefacts.Side
    demands: Annotated[list[_DemandCard], Field(min_length=1, max_length=1024)]
    refusal: Refusal | None

    @model_validator(mode="after")
    def _demands_are_told_as_much(self) -> "_Card":
        if len({len(demand.position) for demand in self.demands}) > 1:
            raise ValueError("demands: positions of several lengths")
        return self


def side(served: Served) -> "Side":
    """Make the service side of a few-shot or a meta model of `models.load`, for export.export.

    Its difference is the largest of an embedding, for releases of the check images by each protection of the
    model, with seeded noise.

    Raises:
        ArtefactError: the model cannot be run without PyTorch, or a server computes nothing for it.
    """
    import torch

    from sfumato.export.graphs import to_onnx
    from sfumato.export.sides import Difference, Side, Written
    from sfumato.networks.onnx_network import OnnxNetwork

    network = served.network
    if network is None:
        raise ArtefactError(
            f"{served.name}: is a {served.kind!r}, for which a server computes nothing: serve it as it is"
        )
    reason = None
    if any(getattr(demand.protection, "has_shape", False) for demand in served.demands):
        reason = "it takes masks, and reading their releases needs PyTorch"
    elif any(isinstance(part, OnnxNetwork) for part in network.modules()):
        reason = "its encoder is itself an ONNX graph, which cannot be joined with ours"
    if reason is not None:
        raise ArtefactError(
            f"{served.name}: {reason}: serve the artefact itself, with the extra torch installed"
        )

    def compare(written: Written, check: "Images") -> Difference:
        again = of_bytes(written.file, served.name, served.name)
        return Difference(max(_difference(served, again, demand, check) for demand in served.demands))

    inputs = torch.from_numpy(example(served))
    return Side(
        kind=served.kind,
        side="service",
        part="cloud",
        shape=served.shape,
        network=network,
        bytes=0,
        card={
            "dimension": served.dimension,
            "cell": served.cell,
            "demands": [
                {
                    **{"spec": demand.spec, "made_of": demand.made_of, "weight": demand.weight},
                    "position": list((served.positions or {}).get(demand.spec, ())),
                }
                for demand in served.demands
            ],
            "refusal": None if served.refusal is None else served.refusal.card(),
        },
        graph=lambda: to_onnx(network, inputs, "inputs", ["embeddings"], any_batch=True),
        compare=compare,
        most=MOST_DIFFERENCE,
        unit="number of an embedding, by their root mean square,",
    )


def read(path: str | os.PathLike[str], name: str) -> Served:
    """Read a file for a server. Raises as of_bytes, and ArtefactError if it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{path}: cannot be read ({error.strerror}): name a file of `sfumato export`"
        ) from error
    return of_bytes(content, path, name)


def of_bytes(content: bytes, path: str | os.PathLike[str], name: str) -> Served:
    """Load a model from the bytes of a file, named in errors; ONNX Runtime runs it.

    Raises:
        ArtefactError: damaged, foreign, or another side of an artefact.
        MissingExtraError: ONNX Runtime is not installed.
    """
    try:
        graph = Graph(content, extra=("running an exported model", "serve"))
    except ArtefactError as error:
        raise ArtefactError(
            f"{path}: damaged, or not written by `sfumato export`: export it again: it {error}"
        ) from error
    try:
        said = card.read(graph, content, _Card)
    except ArtefactError as error:
        raise ArtefactError(
            f"{path}: {error} (a server runs few-shot and meta models; a code or a private feature is served "
            "as it is, from its .safetensors file)"
        ) from error
    demands = tuple(
        Demand(each["spec"], each["made_of"], parse(each["spec"]), each["weight"]) for each in said["demands"]
    )
    positions = {each["spec"]: each["position"] for each in said["demands"] if each["position"]} or None
    channels, height, width = said["shape"]
    refusal, run = Refusal.of_card(said["refusal"]), _run(graph, said["dimension"])
    shape, prepare = (channels, height, width), input_maker(said["cell"], positions)
    served = Served(
        *(name, said["kind"], demands, shape, said["dimension"], refusal, prepare, run),
        by="ONNX Runtime",
        digest=said["artefact"],
        cell=said["cell"],
        positions=positions,
    )
    try:
        run(example(served))
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}: export it again") from error
    return served


def _run(graph: Graph, dimension: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that makes (N, D) embeddings; it raises ArtefactError for other outputs."""

    def run(inputs: np.ndarray) -> np.ndarray:
        found = graph.run(("embeddings",), {"inputs": inputs})[0]
        wanted = (np.dtype(np.float32), (len(inputs), dimension))
        given = (getattr(found, "dtype", None), getattr(found, "shape", None))
        if given != wanted:
            raise ArtefactError(
                f"gives {given[0]} of shape {given[1]} instead of embeddings, {wanted[0]} of {wanted[1]}"
            )
        return found

    return run


def _difference(ours: Served, theirs: Served, demand: Demand, images: Any) -> float:
    """Measure the largest difference of embeddings for releases by one protection; NaN if one is NaN."""
    assert demand.protection is not None
    inputs = ours.prepare(demand.protection.release(images, seeded_noise(0)), demand)
    expected, found = ours.run(inputs).astype(np.float64), theirs.run(inputs).astype(np.float64)
    scale = math.sqrt(np.square(expected).mean())
    return float(np.abs(found - expected).max() / scale) if scale else float(np.abs(found).max())
