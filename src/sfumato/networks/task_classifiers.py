"""Classifiers for meta-learning: no running statistics, which would carry one task's images into another."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from sfumato.networks.encoders.conv4 import Conv4, check_size


class Linear(nn.Sequential):
    """One linear layer without a bias: softmax regression on pixels.

    It learns little. Audits use it, since each task's part of its update is known in closed form.

    (N, C, H, W) -> (N, way).
    """

    def __init__(self, shape: tuple[int, int, int], way: int) -> None:
        channels, height, width = shape
        super().__init__(nn.Flatten(), nn.Linear(channels * height * width, way, bias=False))


class FullyConnected(nn.Sequential):
    """Layers of 256, 128, 64 and 64 units with batch norm and ReLU, then a linear one.

    Source: Finn, Abbeel & Levine 2017, Sec. 5.2 and App. A.1, for Omniglot.

    (N, C, H, W) -> (N, way). Images are normalised together: the class of one depends on the others.
    """

    def __init__(self, shape: tuple[int, int, int], way: int) -> None:
        channels, height, width = shape
        sizes = (channels * height * width, 256, 128, 64, 64)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            layers += [
                nn.Linear(inputs, outputs, bias=False),  # the batch norm would undo a bias
                nn.BatchNorm1d(outputs, track_running_stats=False),
                nn.ReLU(),
            ]
        super().__init__(nn.Flatten(), *layers, nn.Linear(sizes[-1], way))


class Convolutional(nn.Module):
    """Conv-4 without running statistics, and a linear layer.

    Source: Finn, Abbeel & Levine 2017, App. A.1, for MiniImageNet.

    (N, C, H, W) -> (N, way). Images are normalised together: the class of one depends on the others.
    Raises DataError for images below 16x16, before it is made.
    """

    def __init__(self, shape: tuple[int, int, int], way: int, *, width: int = 64) -> None:
        super().__init__()
        channels, height, side = shape
        check_size(torch.empty(0, *shape), 4)
        self.encoder = Conv4(channels, width=width, running=False)
        self.head = nn.Linear(width * (height // 16) * (side // 16), way)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        return torch.as_tensor(self.head(self.encoder(images)))


class Strided(nn.Module):
    """Four 3x3 convolutions of stride 2 with batch norm and ReLU, the mean of all pixels, and a linear layer.

    Source: Finn, Abbeel & Levine 2017, App. A.1, for Omniglot.

    (N, C, H, W) -> (N, way). Images are normalised together: the class of one depends on the others.
    """

    def __init__(self, shape: tuple[int, int, int], way: int, *, width: int = 64) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for inputs in (shape[0], width, width, width):
            layers += [
                nn.Conv2d(inputs, width, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width, track_running_stats=False),
                nn.ReLU(),
            ]
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(width, way)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        return torch.as_tensor(self.head(self.encoder(images).mean((2, 3))))
