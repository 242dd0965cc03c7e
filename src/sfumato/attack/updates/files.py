"""Updates as files: safetensors with the training in its header, or .npz; never a pickle."""

import json
import os
import zipfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato.attack.updates.update import LocalTraining, Noise, Update, of_states
from sfumato.base.files import open_regular, parse_json, whole
from sfumato.errors import ConfigError, DataError

_HEADER = "sfumato-update"
_BEFORE = "before/"
_DAMAGES = (SafetensorError, OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile)


def save(update: Update, path: str | os.PathLike[str]) -> Path:
    """Write an update as .safetensors, whole or not at all, with its training and its noise."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in update.change.items()}
    for name, tensor in (update.before or {}).items():
        tensors[_BEFORE + name] = tensor.detach().cpu().contiguous().clone()
    facts = {
        "training": asdict(update.training),
        "noise": None if update.noise is None else asdict(update.noise),
    }
    with whole(path) as temporary:
        save_file(tensors, temporary, metadata={_HEADER: json.dumps(facts, sort_keys=True)})
    return path


def load(
    path: str | os.PathLike[str],
    *,
    training: LocalTraining | None = None,
    noise: Noise | None = None,
    before: str | os.PathLike[str] | None = None,
) -> Update:
    """Read an update from a file.

    Args:
        path: .safetensors, or .npz of plain arrays; from `save`, or with tensors by the names of a model.
        training: the client's training; overrides the file's. Needed if the file has none.
        noise: likewise; None: the file's.
        before: a file of the parameters before; then `path` has those after, not the difference.

    Raises:
        DataError: no such file, damaged, of another kind, or its training is unknown.
    """
    path = Path(path)
    tensors, facts = read(path)
    try:
        training = training or (LocalTraining(**facts["training"]) if facts else None)
        noise = noise or (Noise(**facts["noise"]) if facts and facts["noise"] else None)
    except (KeyError, TypeError, ConfigError) as error:
        raise DataError(f"{path}: the training in its header cannot be read ({error})") from error
    if training is None:
        raise DataError(
            f"{path}: does not say how the client trained: give the number of images, and steps, rate and "
            "batch unless it is a plain gradient"
        )
    if before is not None:
        return replace(of_states(read(Path(before))[0], tensors, training), noise=noise)
    began = {name.removeprefix(_BEFORE): each for name, each in tensors.items() if name.startswith(_BEFORE)}
    change = {name: each for name, each in tensors.items() if not name.startswith(_BEFORE)}
    return Update(change=_in_order(change), training=training, noise=noise, before=_in_order(began) or None)


def _in_order(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Order arrays without names by their numbers: a file orders them alphabetically."""
    numbered = {name: name.removeprefix("arr_") for name in tensors}
    if not all(number.isdecimal() for number in numbered.values()):
        return tensors
    return {name: tensors[name] for name in sorted(tensors, key=lambda name: int(numbered[name]))}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any] | None]:
    """Read tensors, and the training in the header, or None. Raises DataError."""
    if path.suffix not in (".safetensors", ".npz"):
        raise DataError(
            f"{path}: updates are read from .safetensors and .npz, since a pickle could run code: write its "
            "tensors with safetensors.torch.save_file"
        )
    try:
        if path.suffix == ".npz":
            with open_regular(path) as file, np.load(file, allow_pickle=False) as arrays:
                return {name: torch.from_numpy(arrays[name]) for name in arrays}, None
        open_regular(path).close()
        with safe_open(path, framework="pt") as file:
            said = (file.metadata() or {}).get(_HEADER)
            return dict(zip(file.keys(), map(file.get_tensor, file.keys()), strict=True)), (
                parse_json(said) if said else None
            )
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file") from error
    except _DAMAGES as error:
        raise DataError(f"{path}: damaged, or not plain numbers ({error})") from error
