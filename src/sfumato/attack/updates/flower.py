"""Updates of Flower's clients, recorded as they are returned; two lines in the client's code.

This module does not import Flower: a client is an object with a `fit` like that of `flwr.client.NumPyClient`,
and a mod is a function for `flwr.clientapp.ClientApp(mods=[...])`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sfumato.attack.updates.files import save
from sfumato.attack.updates.update import Noise, Watch, of_states, watching
from sfumato.errors import DataError

_Client = TypeVar("_Client")
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def record(client: _Client, folder: str | Path, *, noise: Noise | None = None) -> _Client:
    """Let a NumPyClient's `fit` save every update in a folder, as update-1.safetensors and so on.

        from sfumato.attack.updates import flower
        client = flower.record(client, "updates")

    Steps, rate and batch are those of PyTorch's optimisers meanwhile; the number of images is the one that
    `fit` returns. The client's return values are not changed.

    Args:
        client: has fit(parameters, config) -> (parameters, images, metrics).
        folder: created if missing; updates of earlier runs stay.
        noise: of DP-SGD, if the client adds it.
    """
    fit = client.fit  # type: ignore[attr-defined]

    def recording_fit(parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        before = [np.array(each) for each in parameters]  # the client may train in place
        with watching() as watch:
            after, images, metrics = fit(parameters, config)
        _keep(Path(folder), _number(before), _number(after), watch, images, noise)
        return after, images, metrics

    client.fit = recording_fit  # type: ignore[attr-defined]
    return client


def mod(folder: str | Path, *, images: int | None = None, noise: Noise | None = None) -> Mod:
    """Return a mod that saves every update of a ClientApp: ClientApp(mods=[flower.mod("updates")]).

    Args:
        folder, noise: see `record`.
        images: the client's number of images; None: `num-examples` of the reply.
    """

    def recording_mod(message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        before = _arrays(message)
        with watching() as watch:
            reply = call_next(message, context)
        if watch.steps and before and reply.has_content():
            seen = images if images is not None else _examples(reply)
            _keep(Path(folder), before, _arrays(reply), watch, seen, noise)
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
    save(
        of_states(before, after, watch.training(images), noise=noise), folder / f"update-{number}.safetensors"
    )


def _number(arrays: list[Any]) -> dict[str, Tensor]:
    return {f"arr_{number}": torch.from_numpy(np.array(each)) for number, each in enumerate(arrays)}


def _arrays(message: Any) -> dict[str, Tensor]:
    """Return the arrays of a message's first record that has any, by name."""
    for record in message.content.array_records.values():
        arrays = {name: np.array(array.numpy()) for name, array in record.items()}
        if all(map(str.isdecimal, arrays)):
            return _number(list(arrays.values()))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {}


def _examples(reply: Any) -> int | None:
    """Read the client's number of images from a reply."""
    for record in reply.content.metric_records.values():
        for name, value in record.items():
            if name.replace("_", "-") == "num-examples":
                return int(value)
    return None
