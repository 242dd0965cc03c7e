"""Artefacts: weights, the settings that made them, and the privacy they cost, in one .safetensors file.

The JSON card in the header says what the weights are. There is no pickle anywhere: a file can be damaged
or foreign, and is then refused, but it cannot run code.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

import sfumato
from sfumato.errors import ArtefactError
from sfumato.files import whole

_CARD = "sfumato"


def save(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], card: Mapping[str, Any]) -> None:
    """Write tensors and card, whole or not at all.

    Args:
        path: the file; its folder is made where it is missing.
        tensors: name -> tensor.
        card: fit for JSON; "kind" says what this is, and the library version is added.
    """
    text = json.dumps({"version": sfumato.__version__, **card}, sort_keys=True)
    # Copies, since safetensors refuses tensors that share memory, as tied weights do.
    copies = {k: v.detach().clone(memory_format=torch.contiguous_format) for k, v in tensors.items()}
    with whole(Path(path)) as temporary:
        save_file(copies, temporary, metadata={_CARD: text})


def load(path: str | os.PathLike[str], *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors and the card of an artefact of one kind.

    Raises:
        ArtefactError: no such file, damaged, not written by sfumato, or of another kind.
    """
    card = read_card(path)
    if card.get("kind") != kind:
        raise ArtefactError(f"{path}: is a {card.get('kind')!r}, and a {kind!r} is needed")
    with _readable(path), safe_open(path, framework="pt") as opened:
        return {name: opened.get_tensor(name) for name in opened.keys()}, card  # noqa: SIM118


def read_card(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the card of an artefact of any kind.

    Raises:
        ArtefactError: no such file, damaged, or not written by sfumato.
    """
    with _readable(path), safe_open(path, framework="pt") as opened:
        metadata = opened.metadata() or {}
    if _CARD not in metadata:
        raise ArtefactError(f"{path}: has no sfumato card: it was written by another program")
    try:
        card = json.loads(metadata[_CARD])
    except ValueError as error:
        raise ArtefactError(f"{path}: damaged: its card is not JSON") from error
    if not isinstance(card, dict):
        raise ArtefactError(f"{path}: damaged: its card is not a mapping")
    return card


@contextmanager
def _readable(path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file") from error
    except (SafetensorError, OSError) as error:
        raise ArtefactError(f"{path}: damaged or not a .safetensors file ({error})") from error
