"""Networks from images to classes, and encoders, by their names in settings and cards."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from sfumato.base.registry import Registry
from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks.encoders.pretrained import (
    PretrainedClassifier,
    PretrainedEncoder,
    is_pretrained,
    open_pretrained,
    parse_pretrained,
)
from sfumato.networks.encoders.small import (
    Conv4,
    ConvNet8,
    LeNet,
    ResNet,
    ResNet12,
    check_size,
    convolution,
)


class Predictor(nn.Sequential):
    """Conv-4, a dense layer with batch norm and ReLU, and a dense layer.

    Source: the mask paper (docs/papers.md, "Mask"), Sec. III-B. It does not give the widths of its layers:
    the convolutions have the 64 filters of Conv-4, the dense layer twice as many.

    (N, C, H, W) -> (N, classes) logits. Raises DataError for images below 16x16, before it is made.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, *, width: int = 64, hidden: int = 128
    ) -> None:
        channels, height, side = shape
        check_size(torch.empty(0, *shape), 4)
        encoder = Conv4(channels, width=width)
        head = nn.Sequential(
            # The batch norm would undo a bias.
            nn.Linear(width * (height // 16) * (side // 16), hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )
        super().__init__(OrderedDict(encoder=encoder, head=head))


# The next four are for meta-learning: without running statistics, which would carry one task's images into
# another. So images are normalised together: the class of one depends on the others.


class Linear(nn.Sequential):
    """One linear layer without a bias: softmax regression on pixels. (N, C, H, W) -> (N, way).

    It learns little. Audits use it, since each task's part of its update is known in closed form.
    """

    def __init__(self, shape: tuple[int, int, int], way: int) -> None:
        channels, height, width = shape
        super().__init__(nn.Flatten(), nn.Linear(channels * height * width, way, bias=False))


class FullyConnected(nn.Sequential):
    """Layers of 256, 128, 64 and 64 units with batch norm and ReLU, then a linear one. -> (N, way).

    Source: Finn, Abbeel & Levine 2017, Sec. 5.2 and App. A.1, for Omniglot.
    """

    def __init__(self, shape: tuple[int, int, int], way: int) -> None:
        channels, height, width = shape
        sizes = (channels * height * width, 256, 128, 64, 64)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            linear = nn.Linear(inputs, outputs, bias=False)  # the batch norm would undo a bias
            layers += [linear, nn.BatchNorm1d(outputs, track_running_stats=False), nn.ReLU()]
        super().__init__(nn.Flatten(), *layers, nn.Linear(sizes[-1], way))


class Convolutional(nn.Sequential):
    """Conv-4 without running statistics, and a linear layer. (N, C, H, W) -> (N, way).

    Source: Finn, Abbeel & Levine 2017, App. A.1, for MiniImageNet. Raises DataError below 16x16 pixels.
    """

    def __init__(self, shape: tuple[int, int, int], way: int, *, width: int = 64) -> None:
        channels, height, side = shape
        check_size(torch.empty(0, *shape), 4)
        encoder = Conv4(channels, width=width, running=False)
        head = nn.Linear(width * (height // 16) * (side // 16), way)
        super().__init__(OrderedDict(encoder=encoder, head=head))


class Strided(nn.Module):
    """Four 3x3 convolutions of stride 2 with batch norm and ReLU, the mean of all pixels, and a linear layer.

    Source: Finn, Abbeel & Levine 2017, App. A.1, for Omniglot. (N, C, H, W) -> (N, way).
    """

    def __init__(self, shape: tuple[int, int, int], way: int, *, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (shape[0], width, width, width):
            layers += [*convolution(inputs, width, stride=2, running=False), nn.ReLU()]
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(width, way)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        return torch.as_tensor(self.head(self.encoder(images).mean((2, 3))))


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
    """Makes the encoder of ENCODERS, which halve maps `pools` times, or of networks.pretrained.

    (N, C, H, W) float images -> (N, D). Raises as check_widths and open_pretrained do.
    """
    if not is_pretrained(name):
        check_widths(name, widths)
        chosen = {} if widths is None else {"widths": tuple(widths)}
        return ENCODERS[name](channels, pools=pools, **chosen)
    return PretrainedEncoder(open_pretrained(parse_pretrained(name)))


def make_classifier(name: str, shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Makes the classifier of CLASSIFIERS, or a linear layer on an encoder; raises as make_encoder does."""
    if not is_pretrained(name):
        return CLASSIFIERS[name](shape, classes)
    return PretrainedClassifier(open_pretrained(parse_pretrained(name)), classes)
