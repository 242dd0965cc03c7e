"""The service side of an artefact for `sfumato export`, and its file as a model that runs without PyTorch."""

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sfumato.base.onnx_graphs import Graph
from sfumato.dp.mechanisms import seeded_noise
from sfumato.errors import ArtefactError
from sfumato.export import card
from sfumato.learn.refusal import Refusal
from sfumato.protect import parse
from sfumato.serve.served import Demand, Served, example, input_maker

if TYPE_CHECKING:
    from sfumato.export.sides import Side
    from sfumato.images import Images


def side(served: Served) -> "Side":
    """Make the service side of a few-shot or a meta model of `models.load`, for export.export.

    Its difference is the largest of an embedding, for releases of the check images, with seeded
    noise. Raises ArtefactError if the model cannot be run without PyTorch, or a server
    computes nothing for it.
    """
    from sfumato.export.sides import Difference, Written, of_service

    if served.network is None:
        raise ArtefactError(
            f"{served.name}: is a {served.kind!r}, for which a server computes nothing: serve it as it is"
        )

    def compare(written: Written, check: "Images") -> Difference:
        again = of_bytes(written.file, served.name, served.name)
        return Difference(_difference(served, again, check))

    said = {
        "dimension": served.dimension,
        "cell": served.cell,
        "demand": {"spec": served.demand.spec, "made_of": served.demand.made_of},
        "refusal": None if served.refusal is None else served.refusal.card(),
    }
    try:
        if getattr(served.demand.protection, "has_shape", False):
            raise ArtefactError("it takes masks, and reading their releases needs PyTorch")
        return of_service(served.kind, served.shape, served.network, example(served), said, compare)
    except ArtefactError as error:
        raise ArtefactError(
            f"{served.name}: {error}: serve the artefact itself, with the extra torch installed"
        ) from error


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

    Raises ArtefactError: damaged, foreign, or another side of an artefact; MissingExtraError.
    """
    try:
        graph = Graph(content, extra=("running an exported model", "serve"))
    except ArtefactError as error:
        raise ArtefactError(
            f"{path}: damaged, or not written by `sfumato export`: export it again: it {error}"
        ) from error
    try:
        said = card.read(graph, content, card.ServiceCard)
    except ArtefactError as error:
        raise ArtefactError(
            f"{path}: {error} (a server runs few-shot and meta models; a code or a private feature is served "
            "as it is, from its .safetensors file)"
        ) from error
    spec = said["demand"]["spec"]
    demand = Demand(spec, said["demand"]["made_of"], parse(spec))
    served = Served(
        *(name, said["kind"], demand, tuple(said["shape"]), said["dimension"]),
        *(Refusal.of_card(said["refusal"]), input_maker(said["cell"])),
        card.embedder(graph, said["dimension"]),
        by="ONNX Runtime",
        digest=said["artefact"],
        cell=said["cell"],
    )
    try:
        served.run(example(served))
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}: export it again") from error
    return served


def _difference(ours: Served, theirs: Served, images: Any) -> float:
    """Measure the largest difference of embeddings for releases by one protection; NaN if one is NaN."""
    assert ours.demand.protection is not None
    inputs = ours.prepare(ours.demand.protection.release(images, seeded_noise(0)))
    expected, found = ours.run(inputs).astype(np.float64), theirs.run(inputs).astype(np.float64)
    scale = math.sqrt(np.square(expected).mean())
    return float(np.abs(found - expected).max() / scale) if scale else float(np.abs(found).max())
