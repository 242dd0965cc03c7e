"""The cards of models, about data and protections: nothing about the folders of this machine.

A source of data is identified by its kind and by the digest of its images, an artefact by the name of its
file and its digest. A model finds another artefact that it needs in its own folder.
"""

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import AfterValidator, Field
from torch import nn

from sfumato import artefacts
from sfumato.base.precision import resolve
from sfumato.data.labelled import LabelledImages
from sfumato.errors import ArtefactError
from sfumato.learn.refusal import Share
from sfumato.networks.weights import no_larger_than, take_weights
from sfumato.protect import Protection, parse
from sfumato.protect.parameters import artefact_digest
from sfumato.protect.spec import check_portable, portable

_Model = TypeVar("_Model", bound=nn.Module)


def _is_spec(text: str) -> str:
    parse(text)
    return check_portable(text)


Spec = Annotated[str, Field(max_length=4096), AfterValidator(_is_spec)]
Names = Annotated[list[artefacts.Name], Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=1 << 53)]
Precision = Literal["float32", "bfloat16"]


class Checkpoint(artefacts.Card):
    """The card of a training under way."""

    run: Any
    epoch: Count = 0
    accuracies: list[Share] = Field(default=[])


def kind_of(data: LabelledImages) -> str:
    """The name of a source on a card: "folder" for "folder:photos/anna", "faces" for "faces"."""
    kind = data.name.partition(":")[0]
    return "images" if {"/", "\\"} & set(kind) else kind


def training_card(
    data: LabelledImages,
    settings: Mapping[str, Any],
    *,
    seed: int,
    precision: str,
    device: torch.device | None,
    **more: Any,
) -> dict[str, Any]:
    """The training part of a model's card, with `more` of a method's own.

    Args:
        data: the training images.
        settings: of the method.
        seed: of the training.
        precision: of the settings.
        device: that trains.
    """
    return {
        "config": dict(settings),
        "data": {"name": kind_of(data), "digest": data.digest, "images": len(data)},
        "seed": seed,
        "precision": resolve(precision, device),
        "privacy_spent": None,  # of the TRAINING images: these methods protect users' images, not these
        **more,
    }


def finite(number: float) -> float | None:
    """A number for a card, whose file has no infinity: None replaces it, or NaN."""
    return number if math.isfinite(number) else None


def make_portable(card: Mapping[str, Any]) -> dict[str, Any]:
    """A card for saving: its specs without folders."""
    saved = dict(card)
    if "spec" in saved:
        saved["spec"] = portable(saved["spec"])
    if "specs" in saved:
        saved["specs"] = [portable(spec) for spec in saved["specs"]]
    if "weights" in saved:
        saved["weights"] = {portable(spec): weight for spec, weight in saved["weights"].items()}
    return saved


def protection_of(spec: str, digest: str | None, path: str | os.PathLike[str]) -> Protection:
    """The protection of a saved spec, with the artefact next to the model, if that is the right one.

    Args:
        spec: of the card.
        digest: of the artefact that it names; None if the card does not have it.
        path: of the model.
    """
    protection = parse(spec)
    named = getattr(protection, "artefact", None)
    if named is None or digest is None:
        return protection
    beside = Path(path).parent / Path(named).name
    try:
        if "," not in os.fspath(beside) and artefact_digest(os.fspath(beside)) == digest:
            return dataclasses.replace(protection, artefact=os.fspath(beside))  # type: ignore[type-var]
    except ArtefactError:
        pass  # it is missing: its user reports it
    return protection


def load_model(
    path: str | os.PathLike[str],
    *,
    kind: str,
    schema: type[artefacts.Card],
    untrained: Callable[[dict[str, Any]], _Model],
) -> _Model:
    """Reads a model whose card has all settings of an untrained one.

    Args:
        path: of the artefact.
        kind: of the artefact.
        schema: of its card.
        untrained: card -> a model to load the weights into.

    Raises:
        ArtefactError: damaged, foreign, or of another kind.
    """
    tensors, card = artefacts.load(path, kind=kind, schema=schema)
    with describing(path, kind), no_larger_than(tensors):
        model = untrained(card)
    take_weights(model, tensors, path)
    return model.eval()


@contextmanager
def describing(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Wraps making a network by a card that fits its schema. Raises ArtefactError."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ArtefactError(
            f"{path}: damaged, or of another version: its card does not describe a {kind}: {error}"
        ) from error
