"""Initial weights: of an encoder that has learned from drawn worlds, or random ones.

The library ships the first, 230 kB; `studies/drawn_start.py` makes them. They have seen images of nobody,
clear and protected: they are public, and cost no privacy. They fit Conv-4 of 64 filters of any images.
"""

import hashlib
from functools import cache

import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks import Conv4
from sfumato.networks.encoders import drawn
from sfumato.networks.weights import initial_weights

STARTS = ("drawn", "random")
KIND = "start"


def check_start(name: str) -> None:
    """Raises ConfigError for an unknown start."""
    if name not in STARTS:
        raise ConfigError(
            f"no start is called {name!r}: {did_you_mean(name, STARTS)}; weights of your own are an encoder, "
            "such as encoder=drawn:FILE,rate=0.1"
        )


@torch.no_grad()
def begin(network: nn.Module, name: str) -> str | None:
    """Gives every Conv-4 within a network the weights of a start; the rest does not change.

    If a Conv-4 reads more planes than colours, such as those for the protection of an image, their filters do
    not change. Returns the entry of a card, see by_content; None if nothing was changed.
    """
    check_start(name)
    fitting = [part for part in network.modules() if isinstance(part, Conv4) and part.width == drawn.WIDTH]
    if name == "random" or not fitting:
        return None
    weights = _read()
    for part in fitting:
        own = part.state_dict()
        for key in own.keys() & weights.keys():  # a batch norm may keep no running statistics
            own[key].copy_(_first(weights[key], own[key]) if key == "blocks.0.0.weight" else weights[key])
    return by_content(name)


@cache
def by_content(name: str) -> str:
    """The identity of a start by its weights: for cards, and for the digest of settings."""
    check_start(name)
    digest = hashlib.sha256(drawn.SHIPPED.read_bytes()).hexdigest()
    return name if name == "random" else f"{name} {digest[:12]}"


# The metadata of a field of settings named `start`. The default was "random" once, and so it is in
# digests of settings that do not name it.
START_FIELD = {"before": "random", "by_content": by_content}


def _first(given: Tensor, own: Tensor) -> Tensor:
    """Filters of red, green and blue, for the planes that a network reads."""
    if own.shape[1] < 3:  # in grey images all colours are equal
        return torch.cat([given.sum(1, keepdim=True), own[:, 1:]], 1)
    return torch.cat([given, own[:, 3:]], 1)


@cache
def _read() -> dict[str, Tensor]:
    with initial_weights():  # a network is made to compare with, whose draws are no caller's
        return drawn.read(drawn.SHIPPED)
