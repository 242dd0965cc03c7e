"""Tiny Darknet, the attribute network of DPFE, layer by layer under names to cut it at."""

from collections import OrderedDict

import torch
from torch import Tensor, nn

from sfumato.networks.encoders.conv4 import check_size

DARKNET_WIDTHS = (16, 32, 128, 256, 512, 128, 1000)


class TinyDarknet(nn.Sequential):
    """Sixteen convolutions with batch norm and leaky ReLU, four max-pools, the mean, and a linear layer.

    Source: Redmon, Tiny Darknet (pjreddie.com/darknet/tiny-darknet), the network of Osia et al. 2018,
    Sec. 6.1. There conv7 has an output for each of 1000 classes, and the mean of these is the end; here a
    linear layer, `head`, comes after it, as attributes are fewer than a useful layer is wide.

    Layers in order: conv1, pool1, conv2, pool2, conv3_1 to conv3_4, pool3, conv4_1 to conv4_4, pool4,
    conv5_1 to conv5_4, conv6_1, conv7, mean, flat, head. In the stages 3 to 5 a 1x1 convolution to an eighth
    of the width comes before each 3x3 convolution.

    (N, C, H, W) -> (N, outputs); H and W are at least 16. Raises DataError for smaller images.
    """

    def __init__(self, channels: int, outputs: int, *, widths: tuple[int, ...] = DARKNET_WIDTHS) -> None:
        """`widths`: of conv1, conv2, the 3x3 convolutions of stages 3, 4 and 5, conv6_1 and conv7."""
        first, second, *stages, sixth, seventh = widths
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inputs = channels

        def convolve(name: str, width: int, *, side: int) -> None:
            nonlocal inputs
            layers[name] = nn.Sequential(
                # The batch norm would undo a bias.
                nn.Conv2d(inputs, width, side, padding=side // 2, bias=False),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1),
            )
            inputs = width

        for number, width in ((1, first), (2, second)):
            convolve(f"conv{number}", width, side=3)
            layers[f"pool{number}"] = nn.MaxPool2d(2)
        for number, width in enumerate(stages, 3):
            for layer in (1, 3):
                convolve(f"conv{number}_{layer}", max(1, width // 8), side=1)
                convolve(f"conv{number}_{layer + 1}", width, side=3)
            if number < 5:
                layers[f"pool{number}"] = nn.MaxPool2d(2)
        convolve("conv6_1", sixth, side=1)
        convolve("conv7", seventh, side=1)
        layers["mean"] = nn.AdaptiveAvgPool2d(1)
        layers["flat"] = nn.Flatten()
        layers["head"] = nn.Linear(seventh, outputs)
        super().__init__(layers)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        check_size(images, 4)
        return torch.as_tensor(super().forward(images))  # type: ignore[no-untyped-call]
