"""Networks from images to classes, by their names in settings and cards."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import nn

from sfumato.base.registry import Registry
from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks.encoders.conv4 import Conv4, check_size
from sfumato.networks.encoders.conv_net8 import ConvNet8
from sfumato.networks.encoders.dense_net import DenseNet
from sfumato.networks.encoders.le_net import LeNet
from sfumato.networks.encoders.pretrained import (
    PretrainedClassifier,
    PretrainedEncoder,
    is_pretrained,
    open_pretrained,
    parse_pretrained,
)
from sfumato.networks.encoders.resnet import ResNet
from sfumato.networks.encoders.resnet12 import ResNet12
from sfumato.networks.predictor import Predictor


def _conv4(shape: tuple[int, int, int], classes: int) -> nn.Module:
    channels, height, width = shape
    check_size(torch.empty(0, *shape), 4)
    return nn.Sequential(Conv4(channels), nn.Linear(64 * (height // 16) * (width // 16), classes))


# (C, H, W) and the number of classes -> (N, C, H, W) float images to (N, classes) logits.
CLASSIFIERS: dict[str, Callable[[tuple[int, int, int], int], nn.Module]] = {
    "predictor": Predictor,
    "conv4": _conv4,
    "lenet": LeNet,
    "convnet8": ConvNet8,
    "resnet20": partial(ResNet, depth=20),
    "resnet50": partial(ResNet, depth=50),
    "resnet152": partial(ResNet, depth=152),
    "densenet": DenseNet,
}

# The number of channels, and how often maps are halved -> (N, C, H, W) float images to (N, D) embeddings.
ENCODERS: Registry[Callable[..., nn.Module]] = Registry(
    "encoders",
    "encoder",
    lambda name, make: "" if callable(make) else f"it is {type(make).__name__}: register a function",
    {"conv4": Conv4, "resnet12": ResNet12},
)


def check_network(name: str, known: Iterable[str], *, what: str) -> None:
    """Raises ConfigError unless a name is among those known, or of an encoder that was trained before."""
    if is_pretrained(name):
        parse_pretrained(name)
    elif name not in known:
        raise ConfigError(
            f"no {what} is called {name!r}: {did_you_mean(name, known)}; one that was "
            "trained before is efficientnet-lite0, drawn, onnx:FILE, squeeze-net:FILE or "
            "mobile-face-net:FILE (see networks.pretrained)"
        )


def check_widths(name: str, widths: Sequence[int] | None) -> None:
    """Raises ConfigError unless an encoder can have these widths; None, for its own, suits every one."""
    if widths is None:
        return
    if name != "resnet12":
        raise ConfigError(
            f"widths={list(widths)}: only resnet12 has widths, and the encoder is {name}: leave them out"
        )
    if len(widths) != 4 or min(widths) < 1:
        raise ConfigError(f"widths={list(widths)}: four numbers of at least 1, such as 32, 64, 128, 256")


def make_encoder(
    name: str, channels: int, *, pools: int = 4, widths: Sequence[int] | None = None
) -> nn.Module:
    """Makes the encoder of ENCODERS, or of networks.pretrained: (N, C, H, W) float images -> (N, D).

    Args:
        name: see check_network.
        channels: C.
        pools: how often ENCODERS halve maps.
        widths: see check_widths.

    Raises:
        ArtefactError, ConfigError: see check_widths and open_pretrained.
    """
    if not is_pretrained(name):
        check_widths(name, widths)
        chosen = {} if widths is None else {"widths": tuple(widths)}
        return ENCODERS[name](channels, pools=pools, **chosen)
    return PretrainedEncoder(open_pretrained(parse_pretrained(name)))


def make_classifier(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Makes the classifier of CLASSIFIERS, or a linear layer on an encoder of networks.pretrained.

    (N, C, H, W) float images -> (N, classes) logits. Raises as make_encoder does.
    """
    if not is_pretrained(name):
        return CLASSIFIERS[name](shape, classes)
    return PretrainedClassifier(open_pretrained(parse_pretrained(name)), classes)
