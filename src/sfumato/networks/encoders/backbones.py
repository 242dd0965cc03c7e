"""AlexNet, VGG-16 and SqueezeNet 1.1 up to their last convolution: the stages that LPIPS compares images by.

Layers are named as in torchvision, whose published weights fit. Like all networks here they take
floats in [0, 1], and normalise inside.
"""

import os
from collections.abc import Collection
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from sfumato.errors import DataError
from sfumato.networks.encoders.squeeze_net import Fire
from sfumato.networks.weights import load_weights

# For ImageNet's photographs in [0, 1]. LPIPS subtracts (-0.030, -0.088, -0.188) from images in [-1, 1] and
# divides by (0.458, 0.448, 0.450), which is the same: 2x - 1 + 0.030 = 2 (x - 0.485).
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


class Backbone(nn.Module):
    """(N, 3, H, W) float in [0, 1], RGB -> maps of `widths` channels after each stage. State: its weights."""

    widths: ClassVar[tuple[int, ...]]
    least: ClassVar[int]  # H and W, in pixels: below, a pool has nothing to read
    _file: ClassVar[str]  # of torchvision
    _taken: ClassVar[Collection[int]]  # layers, after which maps are taken
    _classifier: ClassVar[tuple[int, ...]]  # layers after the last stage, which are not needed

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(*layers)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Makes the network with the weights of a file. Raises ArtefactError as load_weights does."""
        source = (
            f"{cls.__name__}'s weights are {cls._file} of torchvision (github.com/pytorch/vision, BSD; "
            "trained on the photographs of ImageNet)"
        )
        unused = [f"classifier.{layer}.{kind}" for layer in cls._classifier for kind in ("weight", "bias")]
        return load_weights(cls, path, source=source, unused=unused)

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps of the stages. Raises DataError for grey images, and for too small ones."""
        if images.shape[1] != 3 or min(images.shape[2:]) < self.least:
            raise DataError(
                f"images of {tuple(images.shape[1:])}: this network reads (3, H, W) from "
                f"{self.least}x{self.least}: enlarge smaller images, and repeat the channel of grey ones"
            )
        mean, deviation = (
            torch.tensor(each, device=images.device)[:, None, None] for each in (_MEAN, _DEVIATION)
        )
        maps = (images - mean) / deviation
        stages = []
        for place, layer in enumerate(self.features):
            maps = layer(maps)
            if place in self._taken:
                stages.append(maps)
        return stages


class AlexNet(Backbone):
    """Five convolutions. Source: Krizhevsky 2014 (one tower), which torchvision follows."""

    widths, least = (64, 192, 384, 256, 256), 31
    _file, _taken, _classifier = "alexnet-owt-7be5be79.pth", (1, 4, 7, 9, 11), (1, 4, 6)

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(192, 384, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.ReLU()),
            *(nn.Conv2d(256, 256, 3, padding=1), nn.ReLU()),
        )


class VGG16(Backbone):
    """Thirteen 3x3 convolutions. Source: Simonyan & Zisserman 2015, Table 1, column D."""

    widths, least = (64, 128, 256, 512, 512), 16
    _file, _taken, _classifier = "vgg16-397923af.pth", (3, 8, 15, 22, 29), (0, 3, 6)

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        channels = 3
        for width, convolutions in zip(self.widths, (2, 2, 3, 3, 3), strict=True):
            if layers:
                layers.append(nn.MaxPool2d(2))
            for _ in range(convolutions):
                layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
                channels = width
        super().__init__(*layers)


class SqueezeNet11(Backbone):
    """Fire modules, with earlier pools and fewer channels at first than version 1.0, networks.SqueezeNet.

    Source: Iandola et al. 2016, and the authors' version 1.1, which torchvision follows. Maps are taken
    before each pool and after each of the last four modules.
    """

    widths, least = (64, 128, 256, 384, 384, 512, 512), 17
    _file, _taken, _classifier = "squeezenet1_1-b8a52dc0.pth", (1, 4, 7, 9, 10, 11, 12), (1,)

    def __init__(self) -> None:
        super().__init__(
            *(nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True)),
            *(Fire(64, 16), Fire(128, 16), nn.MaxPool2d(3, 2, ceil_mode=True)),
            *(Fire(128, 32), Fire(256, 32), nn.MaxPool2d(3, 2, ceil_mode=True)),
            *(Fire(256, 48), Fire(384, 48), Fire(384, 64), Fire(512, 64)),
        )
