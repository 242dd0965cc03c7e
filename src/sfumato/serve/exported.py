"""A served model as one ONNX file: its network as a graph, and a card with everything a server needs.

`inputs`, (N, C + K, h, w) float32 from served.input_maker -> `embeddings`, (N, D) float32. The card is a JSON
text in the metadata of the file, with a digest of itself and of the graph. It detects damage; it is not a
signature. ONNX Runtime runs the graph, without PyTorch.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

import sfumato
from sfumato import artefacts
from sfumato.base.files import parse_json, whole
from sfumato.base.onnx_graphs import Graph
from sfumato.base.schemas import validate_json
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError, ConfigError, DataError, shorten
from sfumato.learn.refusal import Refusal
from sfumato.protect import parse
from sfumato.protect.spec import check_portable
from sfumato.serve.served import EXPORTED, Demand, Served, example, input_maker

if TYPE_CHECKING:
    from sfumato.images import Images

MOST_DIFFERENCE = 1e-3  # difference of an embedding, in units of the root mean square of its numbers

_CARD = "sfumato"  # the key of the file's metadata
_FORMAT = 1
_EXTRA = ("running an exported model", "serve")


class _DemandCard(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    spec: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(check_portable)]
    made_of: artefacts.Sha256 | None
    weight: Annotated[float, Field(gt=0)]
    position: Annotated[list[float], Field(max_length=16)]


class _Card(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    kind: Literal["few-shot", "meta"]
    side: Literal["cloud"]
    format: Literal[1]
    artefact: artefacts.Sha256
    shape: artefacts.ImageShape
    dimension: Annotated[int, Field(ge=1)]
    cell: artefacts.Side
    demands: Annotated[list[_DemandCard], Field(min_length=1, max_length=1024)]
    refusal: Refusal | None
    graph_bytes: Annotated[int, Field(ge=1)]
    sha256: artefacts.Sha256

    @model_validator(mode="after")
    def _demands_are_told_as_much(self) -> "_Card":
        if len({len(demand.position) for demand in self.demands}) > 1:
            raise ValueError("demands: positions of several lengths")
        return self


@dataclass(frozen=True)
class Written:
    """An exported model, and its difference from PyTorch.

    Attributes:
        path: the file.
        bytes: its size.
        card: its metadata.
        images: the number of releases of each protection that it was checked on.
        difference: the largest difference of an embedding, in units of the root mean square of its numbers.
    """

    path: Path
    bytes: int
    card: dict[str, Any]
    images: int
    difference: float


def export(served: Served, destination: str | os.PathLike[str], *, check: "Images") -> Written:
    """Write a few-shot or a meta model as an ONNX file that a server runs without PyTorch.

    Guarantees: the file appears whole, and only if ONNX Runtime computes, for releases of `check` by each
    protection of the model, the embeddings of PyTorch up to MOST_DIFFERENCE.

    Args:
        served: from models.load.
        destination: the file, whose name ends with ".onnx".
        check: (N, C, H, W) uint8, at least one, of the model's shape. They are released with seeded noise,
            and stay here.

    Raises:
        ArtefactError: the model cannot be exported: see obstacle; or the graph computes something else.
        ConfigError: the suffix is not ".onnx".
        DataError: no images, or of another shape.
        MissingExtraError: the extra `edge` is not installed.
    """
    destination = Path(destination)
    if destination.suffix != EXPORTED:
        raise ConfigError(f"{destination}: an exported model is a file whose name ends with {EXPORTED}")
    if not len(check) or tuple(check.shape[1:]) != served.shape:
        found, wanted = ("x".join(map(str, shape)) for shape in (check.shape, served.shape))
        raise DataError(f"check images of {found}: give at least one of {wanted}")
    written = bytes_of(served)
    again = of_bytes(written, destination, served.name)
    difference = max(_difference(served, again, demand, check) for demand in served.demands)
    if not difference <= MOST_DIFFERENCE:
        raise ArtefactError(
            f"{served.name}: ONNX Runtime differs from PyTorch by {difference:.2g} of an embedding, and "
            f"{MOST_DIFFERENCE:g} is allowed: nothing was written. Numbers this large, or NaN, come from a "
            "training that failed: train it again"
        )
    with whole(destination) as temporary:
        temporary.write_bytes(written)
    card = _check_card(
        written, _graph(written, destination).session.get_modelmeta().custom_metadata_map, destination
    )
    return Written(destination, len(written), card, len(check), difference)


def bytes_of(served: Served) -> bytes:
    """Export a model from `models.load` to the bytes of a file. Raises as `export` does."""
    import torch

    from sfumato.edge.graphs import to_onnx

    if served.network is None:
        raise ArtefactError(
            f"{served.name}: is a {served.kind!r}, for which a server computes nothing: serve it as it is"
        )
    if (reason := obstacle(served)) is not None:
        raise ArtefactError(
            f"{served.name}: {reason}: serve the artefact itself, with the extra torch installed"
        )
    inputs = torch.from_numpy(example(served))
    model = to_onnx(served.network, inputs, "inputs", ["embeddings"], any_batch=True)
    graph = bytes(model.SerializeToString(deterministic=True))
    card = {
        **{"kind": served.kind, "side": "cloud", "format": _FORMAT, "version": sfumato.__version__},
        **{"artefact": served.digest, "shape": list(served.shape), "dimension": served.dimension},
        "cell": served.cell,
        "demands": [
            {
                **{"spec": demand.spec, "made_of": demand.made_of, "weight": demand.weight},
                "position": list((served.positions or {}).get(demand.spec, ())),
            }
            for demand in served.demands
        ],
        "refusal": None if served.refusal is None else served.refusal.card(),
        "graph_bytes": len(graph),
    }
    more = type(model)()  # concatenated parts of a protobuf message are one message
    more.metadata_props.add(
        key=_CARD, value=json.dumps({**card, "sha256": _digest(graph, card)}, sort_keys=True)
    )
    return graph + bytes(more.SerializeToString(deterministic=True))


def obstacle(served: Served) -> str | None:
    """Say why a PyTorch model cannot be run without PyTorch; None if it can."""
    from sfumato.networks.onnx_network import OnnxNetwork

    if any(getattr(demand.protection, "has_shape", False) for demand in served.demands):
        return "it takes masks, and reading their releases needs PyTorch"
    if served.network is not None and any(isinstance(part, OnnxNetwork) for part in served.network.modules()):
        return "its encoder is itself an ONNX graph, which cannot be joined with ours"
    return None


def read(path: str | os.PathLike[str], name: str) -> Served:
    """Read a file of `export` for a server. Raises as of_bytes, and ArtefactError if it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ArtefactError(
            f"{path}: cannot be read ({error.strerror}): name a file of `sfumato export`"
        ) from error
    return of_bytes(content, path, name)


def of_bytes(content: bytes, path: str | os.PathLike[str], name: str) -> Served:
    """Load a model from the bytes of a file; ONNX Runtime runs it.

    Args:
        content: the whole file.
        path: named in errors.
        name: of the model, for clients.

    Raises:
        ArtefactError: damaged, foreign, or another side of an artefact.
        MissingExtraError: ONNX Runtime is not installed.
    """
    graph = _graph(content, path)
    card = _check_card(content, graph.session.get_modelmeta().custom_metadata_map, path)
    run = _run(graph, card["dimension"])
    demands = tuple(
        Demand(each["spec"], each["made_of"], parse(each["spec"]), each["weight"]) for each in card["demands"]
    )
    positions = {each["spec"]: each["position"] for each in card["demands"] if each["position"]} or None
    channels, height, width = card["shape"]
    refusal = Refusal.of_card(card["refusal"])
    shape, prepare = (channels, height, width), input_maker(card["cell"], positions)
    served = Served(
        *(name, card["kind"], demands, shape, card["dimension"], refusal, prepare, run),
        by="ONNX Runtime",
        digest=card["artefact"],
        cell=card["cell"],
        positions=positions,
    )
    try:
        run(example(served))
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}: export it again") from error
    return served


def _graph(content: bytes, path: str | os.PathLike[str]) -> Graph:
    """Read the graph of a file. Raises ArtefactError."""
    try:
        return Graph(content, extra=_EXTRA)
    except ArtefactError as error:
        raise ArtefactError(
            f"{path}: damaged, or not written by `sfumato export`: export it again: it {error}"
        ) from error


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


def _check_card(content: bytes, told: dict[str, str], path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the card of a file from its metadata, and check it against its digest."""
    try:
        card = parse_json(told.get(_CARD, ""))
    except ValueError as error:
        raise ArtefactError(
            f"{path}: has no card of sfumato: export a few-shot or a meta model with `sfumato export`"
        ) from error
    if not isinstance(card, dict) or card.get("kind") not in ("few-shot", "meta"):
        kind = card.get("kind") if isinstance(card, dict) else card
        raise ArtefactError(
            f"{path}: exported from a {shorten(str(kind), 60)!r}, which a server does not run: export a "
            "few-shot or a meta model; a code or a private feature is served as it is, from its .safetensors "
            "file"
        )
    try:
        validate_json(_Card, json.dumps(card))
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "the card"
        raise ArtefactError(f"{path}: damaged, or of another version: {key}: {problem['msg']}") from error
    alone = {key: value for key, value in card.items() if key != "sha256"}
    if _digest(content[: card["graph_bytes"]], alone) != card["sha256"]:
        raise ArtefactError(
            f"{path}: damaged, or edited after it was written: its card and graph do not match its digest: "
            "take an unchanged copy, or export it again"
        )
    return card


def _digest(graph: bytes, card: dict[str, Any]) -> str:
    sha = hashlib.sha256(json.dumps(card, sort_keys=True).encode())
    sha.update(graph)
    return sha.hexdigest()


def _difference(ours: Served, theirs: Served, demand: Demand, images: "Images") -> float:
    """Measure the largest difference of embeddings for releases by one protection; NaN if one is NaN."""
    assert demand.protection is not None
    inputs = ours.prepare(demand.protection.release(images, seeded_noise(0)), demand)
    expected, found = ours.run(inputs).astype(np.float64), theirs.run(inputs).astype(np.float64)
    scale = math.sqrt(np.square(expected).mean())
    return float(np.abs(found - expected).max() / scale) if scale else float(np.abs(found).max())
