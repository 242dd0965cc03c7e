"""Open the model of an audit, by its name in a command.

A file of weights cannot run code. Your own architecture is code, and runs: see `open_model`.
"""

import copy
import math
import runpy
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from sfumato.base.registry import load
from sfumato.errors import ConfigError, DataError, did_you_mean, shorten
from sfumato.networks.classifiers import CLASSIFIERS, make_classifier
from sfumato.networks.weights import initial_weights, load_weights


def runs_code(name: str) -> bool:
    """Whether opening this model runs code of the user's."""
    return not name.endswith(".safetensors") and ":" in name


def open_model(
    name: str, shape: tuple[int, int, int], *, weights: str | Path | None = None, classes: int | None = None
) -> nn.Module:
    """Open a model in training mode without dropout, as clients train it and an adversary simulates it.

    It is a file of `sfumato train classifier`; a network of `networks.CLASSIFIERS`, with its `classes`; or
    `FILE.py:FUNCTION` or `MODULE:FUNCTION`, a function of yours without arguments that returns an nn.Module:
    importing it RUNS that file, so read it first. Without `weights` these are the file's, the function's, or
    of seed 0. Raises ArtefactError, ConfigError or DataError.
    """
    if name.endswith(".safetensors"):
        from sfumato.learn.classifier import load as load_classifier

        model: nn.Module = load_classifier(name).network
    else:
        make = _import(name) if runs_code(name) else _named(name, shape, classes)
        if weights is not None:
            model = load_weights(make, weights, source="--weights has the state dict of --model")
        else:
            with initial_weights(0):
                model = make()
    for module in model.train().modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.eval()
    return model


def _named(name: str, shape: tuple[int, int, int], classes: int | None) -> Callable[[], nn.Module]:
    if name not in CLASSIFIERS:
        raise ConfigError(
            f"no network is called {name!r}: {did_you_mean(name, CLASSIFIERS)}; one of your own is "
            "FILE.py:FUNCTION, and a trained classifier FILE.safetensors"
        )
    if classes is None:
        raise ConfigError(f"{name} needs its number of classes: --classes 10")
    return lambda: make_classifier(name, shape, classes)


def _import(name: str) -> Callable[[], nn.Module]:
    """Import the user's own function that makes the network."""
    source, _, function = name.rpartition(":")
    try:
        own = runpy.run_path(source).get(function) if source.endswith(".py") else load(name)
    except Exception as error:
        raise DataError(f"{name}: cannot be imported ({type(error).__name__}: {error})") from error
    if own is None:
        raise DataError(f"{name}: {source} has no {function!r}: name a function that it defines")

    def make() -> nn.Module:
        try:
            network = own()
        except Exception as error:
            raise DataError(f"{name}: failed ({type(error).__name__}: {error})") from error
        if not isinstance(network, nn.Module):
            raise DataError(f"{name}: returned {type(network).__name__}: return an nn.Module")
        return network

    return make


def check_takes(model: nn.Module, shape: tuple[int, int, int]) -> int:
    """Run a copy of a model on two grey images, and return the number of its classes. Raises ConfigError."""
    size = "x".join(map(str, shape))
    try:
        given = copy.deepcopy(model).eval().float()(torch.full((2, *shape), 0.5))
    except Exception as error:
        layers = (each for each in model.modules() if next(each.parameters(False), None) is not None)
        first, takes = next(layers, model), ""
        for name, words in (("in_features", "numbers"), ("in_channels", "channels")):
            if hasattr(first, name):
                takes = f"; its first layer takes {getattr(first, name)} {words}"
        raise ConfigError(
            f"--shape {size}: the model does not take such images, of {shape[0]} channels and "
            f"{math.prod(shape)} numbers{takes}: give the shape (C, H, W) of its input "
            f"({type(error).__name__}: {shorten(str(error))})"
        ) from error
    made = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
    if len(made) == 2 and made[0] == 2:
        return int(made[1])
    said = f"the model makes {made} of two such images"
    raise ConfigError(f"--shape {size}: {said}: it has to return (2, classes) logits")
