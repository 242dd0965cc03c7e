"""Updates as files: safetensors with the training in its header, or .npz; never a pickle.

Clients of Flower record theirs as they return them, by two lines in their code. Flower is not imported: a
client is an object with a `fit` like that of `flwr.client.NumPyClient`, and a mod is a function for
`flwr.clientapp.ClientApp(mods=[...])`.
"""

import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sfumato.attack.updates.update import LocalTraining, Noise, Update, Watch, of_states, watching
from sfumato.base.files import open_regular, parse_json, whole
from sfumato.errors import ConfigError, DataError

_HEADER = "sfumato-update"
_BEFORE = "before/"
_DAMAGES = (SafetensorError, OSError, EOFError, ValueError, TypeError, zipfile.BadZipFile)

_Client = TypeVar("_Client")
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def save(update: Update, path: str | os.PathLike[str]) -> Path:
    """Write an update as .safetensors, whole or not at all, with its training and its noise."""
    path = Path(path)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in update.change.items()}
    for name, tensor in (update.before or {}).items():
        tensors[_BEFORE + name] = tensor.detach().cpu().contiguous().clone()
    noise = None if update.noise is None else asdict(update.noise)
    facts = {"training": asdict(update.training), "noise": noise}
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
    if not all(name.removeprefix("arr_").isdecimal() for name in tensors):
        return tensors
    return {name: tensors[name] for name in sorted(tensors, key=lambda name: int(name.removeprefix("arr_")))}


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


def record_client(client: _Client, folder: str | Path, *, noise: Noise | None = None) -> _Client:
    """Let the `fit` of a NumPyClient of Flower save every update in a folder, as update-1.safetensors, ...

    Steps, rate and batch are those of PyTorch's optimisers meanwhile; the number of images is the one that
    `fit` returns. The client's return values are not changed.

    Args:
        client: has fit(parameters, config) -> (parameters, images, metrics).
        folder: created if missing; updates of earlier runs stay.
        noise: of DP-SGD, if the client adds it.
    """
    fit = client.fit  # type: ignore[attr-defined]

    def recording_fit(parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        before = _number(parameters)  # copies: the client may train in place
        with watching() as watch:
            after, images, metrics = fit(parameters, config)
        _keep(Path(folder), before, _number(after), watch, images, noise)
        return after, images, metrics

    client.fit = recording_fit  # type: ignore[attr-defined]
    return client


def client_mod(folder: str | Path, *, images: int | None = None, noise: Noise | None = None) -> Mod:
    """Return a mod of Flower that saves every update: ClientApp(mods=[client_mod("updates")]).

    See `record_client`; the number of images may be given, or is `num-examples` of the reply.
    """

    def recording_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        before = _arrays(message)
        with watching() as watch:
            reply = call_next(message, context)
        if watch.steps and before and reply.has_content():
            told = {
                name.replace("_", "-"): value
                for record in reply.content.metric_records.values()
                for name, value in record.items()
            }
            seen = told.get("num-examples") if images is None else images
            _keep(Path(folder), before, _arrays(reply), watch, None if seen is None else int(seen), noise)
        return reply

    return recording_mod


def _keep(
    folder: Path,
    before: dict[str, Tensor],
    after: dict[str, Tensor],
    watch: Watch,
    images: int | None,
    noise: Noise | None,
) -> None:
    if list(before) != list(after):
        raise DataError(
            "the client returned other arrays than it got: an update is recorded only if `fit` takes "
            "and returns the same parameters"
        )
    number = 1 + len(list(folder.glob("update-*.safetensors"))) if folder.exists() else 1
    update = of_states(before, after, watch.training(images), noise=noise)
    save(update, folder / f"update-{number}.safetensors")


def _number(arrays: list[Any]) -> dict[str, Tensor]:
    return {f"arr_{number}": torch.from_numpy(np.array(each)) for number, each in enumerate(arrays)}


def _arrays(message: Any) -> dict[str, Tensor]:
    """Return the arrays of a message's first record, by name."""
    for record in message.content.array_records.values():
        arrays = {name: np.array(array.numpy()) for name, array in record.items()}
        if all(map(str.isdecimal, arrays)):
            return _number(list(arrays.values()))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {}
