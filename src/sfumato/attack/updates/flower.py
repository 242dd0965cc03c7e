"""Updates of Flower's clients, recorded as they are returned; two lines in the client's code.

Nothing of Flower is imported: a client is what has a `fit` like that of `flwr.client.NumPyClient`, and a mod
is what `flwr.clientapp.ClientApp(mods=[...])` calls.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from sfumato.attack.updates.files import save
from sfumato.attack.updates.recording import Watch, watching
from sfumato.attack.updates.update import Noise, of_states
from sfumato.errors import DataError

_Client = TypeVar("_Client")
Mod = Callable[[Any, Any, Callable[[Any, Any], Any]], Any]


def recorded(client: _Client, folder: str | Path, *, noise: Noise | None = None) -> _Client:
    """The same NumPyClient, whose `fit` leaves every update in a folder, as update-1.safetensors and so on.

        from sfumato.attack.updates import flower
        client = flower.recorded(client, "updates")

    Steps, rate and batch are those that the optimisers of PyTorch make meanwhile; the number of images is
    what `fit` returns. What the client returns is not touched.

    Args:
        client: has fit(parameters, config) -> (parameters, images, metrics).
        folder: is made where it is missing; updates of earlier runs stay.
        noise: of DP-SGD, where the client adds it.
    """
    fit = client.fit  # type: ignore[attr-defined]

    def recording_fit(parameters: list[Any], config: dict[str, Any]) -> tuple[list[Any], int, dict[str, Any]]:
        before = [np.array(each) for each in parameters]  # the client may train in place
        with watching() as watch:
            after, images, metrics = fit(parameters, config)
        _keep(Path(folder), _numbered(before), _numbered(after), watch, images, noise)
        return after, images, metrics

    client.fit = recording_fit  # type: ignore[attr-defined]
    return client


def mod(folder: str | Path, *, images: int | None = None, noise: Noise | None = None) -> Mod:
    """A mod that leaves every update of a ClientApp in a folder: ClientApp(mods=[flower.mod("updates")]).

    Args:
        folder, noise: see `recorded`.
        images: how many images the client has; None: what the reply says, as `num-examples`.
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
            "the client returned other arrays than it was given: an update is recorded only if `fit` takes "
            "and returns the same parameters"
        )
    number = 1 + len(list(folder.glob("update-*.safetensors"))) if folder.exists() else 1
    save(
        of_states(before, after, watch.training(images), noise=noise), folder / f"update-{number}.safetensors"
    )


def _numbered(arrays: list[Any]) -> dict[str, Tensor]:
    return {f"arr_{number}": torch.from_numpy(np.array(each)) for number, each in enumerate(arrays)}


def _arrays(message: Any) -> dict[str, Tensor]:
    """The arrays of the first record of a message that has some, by their names."""
    for record in message.content.array_records.values():
        arrays = {name: np.array(array.numpy()) for name, array in record.items()}
        if all(map(str.isdecimal, arrays)):
            return _numbered(list(arrays.values()))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}
    return {}


def _examples(reply: Any) -> int | None:
    """How many images a reply says that the client has."""
    for record in reply.content.metric_records.values():
        for name, value in record.items():
            if name.replace("_", "-") == "num-examples":
                return int(value)
    return None
