"""Networks from images to classes, by the names that settings and cards have for them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from sfumato.networks.conv4 import Conv4, check_size
from sfumato.networks.conv_net8 import ConvNet8
from sfumato.networks.dense_net import DenseNet
from sfumato.networks.le_net import LeNet
from sfumato.networks.predictor import Predictor
from sfumato.networks.resnet import ResNet
from sfumato.networks.resnet12 import ResNet12


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
ENCODERS: dict[str, Callable[..., nn.Module]] = {"conv4": Conv4, "resnet12": ResNet12}
