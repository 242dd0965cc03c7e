"""Exported files: an ONNX graph with a card. PyTorch is not needed to read or run one.

The card is a JSON text in the metadata of the file, with a digest of itself and of the graph. It detects
damage; it is not a signature.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sfumato import artefacts
from sfumato.base.files import parse_json
from sfumato.base.onnx_graphs import Graph
from sfumato.base.schemas import validate_json
from sfumato.errors import ArtefactError, first_problem
from sfumato.learn.refusal import Refusal
from sfumato.protect.spec import check_portable

EXTRA = ("running an exported graph", "edge")
SUFFIX = ".onnx"

_KEY = "sfumato"  # of the file's metadata


class Card(BaseModel):
    """The keys of all cards; a side has more."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    kind: str
    side: Literal["device", "cloud", "service"]
    format: Literal[1]
    version: str
    artefact: artefacts.Sha256
    shape: artefacts.ImageShape
    graph_bytes: Annotated[int, Field(ge=1)]
    sha256: artefacts.Sha256


class _DemandCard(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

    spec: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(check_portable)]
    made_of: artefacts.Sha256 | None


class ServiceCard(Card):
    """The card of a service's side: everything that a server needs to know."""

    kind: Literal["few-shot", "meta"]
    side: Literal["service"]
    dimension: Annotated[int, Field(ge=1)]
    cell: artefacts.Side
    demand: _DemandCard
    refusal: Refusal | None


def join(graph: bytes, said: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return the bytes of a file, and its card: `said` with digests."""
    from onnx import ModelProto

    card = {**said, "format": 1, "graph_bytes": len(graph)}
    card["sha256"] = _digest(graph, card)
    more = ModelProto()  # concatenated parts of a protobuf message are one message
    more.metadata_props.add(key=_KEY, value=json.dumps(card, sort_keys=True))
    return graph + more.SerializeToString(deterministic=True), card


def session(model: str | os.PathLike[str] | bytes) -> Graph:
    """Open a graph, a path or the bytes of a file, on one thread of the CPU. Raises as Graph."""
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    return Graph(content, extra=EXTRA, threads=1)


def read(graph: Graph, content: bytes, schema: type[Card]) -> dict[str, Any]:
    """Read the card of a file from its graph and its bytes. Raises ArtefactError: foreign, or damaged."""
    try:
        card = parse_json(graph.session.get_modelmeta().custom_metadata_map.get(_KEY, ""))
        validate_json(schema, json.dumps(card))
    except ValidationError as error:
        problem = first_problem(error, "the card")
        raise ArtefactError(f"damaged, or of another version or kind: {problem}") from error
    except ValueError as error:
        raise ArtefactError("has no card of sfumato: export an artefact with `sfumato export`") from error
    alone = {key: value for key, value in card.items() if key != "sha256"}
    if _digest(content[: card["graph_bytes"]], alone) != card["sha256"]:
        raise ArtefactError(
            "damaged, or edited after it was written: its card and graph do not match its digest: take an "
            "unchanged copy, or export it again"
        )
    return dict(card)


def embedder(graph: Graph, dimension: int) -> Callable[[np.ndarray], np.ndarray]:
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


def _digest(graph: bytes, card: dict[str, Any]) -> str:
    sha = hashlib.sha256(json.dumps(card, sort_keys=True).encode())
    sha.update(graph)
    return sha.hexdigest()
