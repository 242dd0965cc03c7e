"""DenseNet for small images: a victim of gradient attacks."""

import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError
from sfumato.networks.encoders.conv4 import check_size

_FIRST = 16  # filters of the first convolution
_BLOCKS = 3


class DenseNet(nn.Module):
    """Three blocks whose layers each see the maps of ALL layers before them in the block.

    Source: Huang, Liu, van der Maaten & Weinberger 2017, Sec. 3, the basic form for CIFAR: a 3x3 convolution
    of 16 filters; three blocks of (depth - 4) / 3 layers of batch norm, ReLU and 3x3 convolution; between
    them batch norm, ReLU, 1x1 convolution that keeps the channels, and 2x2 mean; batch norm, ReLU, mean,
    linear. Neither bottlenecks nor compression (DenseNet-BC), and no dropout.

    A layer keeps two copies of its input for the way back: at depth 40 with 12 new maps a layer, 18
    MiB for each image of 32x32 pixels. Copies that are recomputed would rule out gradients of
    gradients by torch.func.

    (N, C, H, W) float in [0, 1] -> (N, classes) logits.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, *, depth: int = 40, growth: int = 12
    ) -> None:
        """Makes the network for images of one shape.

        Args:
            shape: (C, H, W).
            classes: how many.
            depth: of convolutions and the linear layer: 3·n + 4, n >= 1 the layers of a block.
            growth: k, the maps that a layer adds.

        Raises:
            ConfigError: a depth that is not 3·n + 4.
            DataError: images below 4x4.
        """
        super().__init__()
        if depth < 7 or (depth - 4) % _BLOCKS:
            raise ConfigError(f"depth={depth}: a DenseNet has 3n + 4 layers, such as 22, 40 or 100")
        check_size(torch.empty(0, *shape), _BLOCKS - 1)
        channels = _FIRST
        layers: list[nn.Module] = [nn.Conv2d(shape[0], channels, 3, padding=1, bias=False)]
        for block in range(_BLOCKS):
            for _ in range((depth - 4) // _BLOCKS):
                layers.append(_Layer(channels, growth))
                channels += growth
            if block < _BLOCKS - 1:
                layers += [*_convolution(channels, channels, 1), nn.AvgPool2d(2)]
        self.body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU())
        self.head = nn.Linear(channels, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        logits: Tensor = self.head(self.body(images).mean((2, 3)))
        return logits


class _Layer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(*_convolution(inputs, growth, 3))

    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([features, self.new(features)], 1)


def _convolution(inputs: int, outputs: int, kernel: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)
    return nn.BatchNorm2d(inputs), nn.ReLU(), convolution
