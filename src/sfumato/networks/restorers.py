"""Networks that draw images: the denoiser of a protection, images to images, and images from a vector."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import float32
from sfumato.errors import DataError
from sfumato.networks.encoders.small import convolution, halve

_LEAST, _MOST, _MULTIPLE = 8, 128, 4  # of an image's sides, in pixels
_GRID = 4  # the longer side of the grid, at most
_KERNEL = 5
_SLOPE = 0.2


class DnCNN(nn.Module):
    """Residual denoiser x = y - R(y), R a stack of 3x3 convolutions at full resolution.

    Source: Zhang et al. 2017, Sec. III; Parnami et al. 2022, Fig. 9, with 8 layers of 64 filters:
    conv + ReLU, depth - 2 times conv + batch norm + ReLU, conv.

    (N, C + K, H, W) -> (N, C, H, W); the last K planes describe the noise, as in FFDNet (Zhang, Zuo & Zhang
    2018). The result is not clamped: the encoder after it is trained with it.
    """

    def __init__(self, channels: int, *, depth: int = 8, width: int = 64, planes: int = 0) -> None:
        super().__init__()
        self.channels = channels
        layers: list[nn.Module] = [nn.Conv2d(channels + planes, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        last = nn.Conv2d(width, channels, 3, padding=1)
        # It starts by subtracting nothing: the next network does not have to learn from its first guesses.
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
        self.residual = nn.Sequential(*layers, last)

    def forward(self, protected: Tensor) -> Tensor:
        """Estimates the clean float images."""
        # The difference of nearly equal images is taken in float32 for any autocast type.
        residual: Tensor = self.residual(protected)
        return protected[:, : self.channels] - residual.to(protected.dtype)


class UNet(nn.Module):
    """U-Net: halve, double the filters, and climb back with the maps of the way down.

    Source: Ronneberger, Fischer & Brox 2015, with padded convolutions and batch norm. Sides may be any
    number: upsampling restores the sizes that pooling rounded down.

    (N, C, H, W) -> (N, outputs, H, W); H and W are at least 2^levels. The result is not clamped.
    """

    def __init__(
        self, channels: int, *, width: int = 32, levels: int = 3, outputs: int | None = None
    ) -> None:
        """`outputs`: how many planes to make of an image; None for an image, residual: x = y + U(y)."""
        super().__init__()
        self.residual = outputs is None
        widths = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(_block(i, o) for i, o in zip([channels, *widths], widths, strict=False))
        self.up = nn.ModuleList(_block(i + o, o) for i, o in zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.last = nn.Conv2d(width, channels if outputs is None else outputs, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Maps float images to float images, or planes."""
        features, passed = images, []
        for level, block in enumerate(self.down):
            if level:
                features = halve(features)
            features = block(features)
            passed.append(features)
        for block, beside in zip(self.up, passed[-2::-1], strict=True):
            larger = functional.interpolate(features, size=beside.shape[2:])
            features = block(torch.cat([larger, beside], 1))
        if self.residual:
            # The sum of nearly equal images is taken in float32 for any autocast type.
            residual: Tensor = self.last(features)
            return images + residual.to(images.dtype)
        # Planes may be ranked: among 4096 scores in bfloat16, many would be equal.
        with float32(images.device):
            planes: Tensor = self.last(features.float())
        return planes


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in (inputs, outputs):
        layers += [*convolution(i, outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UpConvolutional(nn.Module):
    """Three dense layers to a small grid, and up-convolutions that double its sides to those of the image.

    Source: Dosovitskiy & Brox 2016, Sec. 3 and Table 1, the network for features without positions (AlexNet's
    FC8): up-convolutions of 5x5 with stride 2, which take 4x4 grids to 128x128 pixels, and leaky ReLU after
    all layers but the last (its numbers are from memory, and to be checked against the paper). With `width`
    32 the filters are theirs: 256 on the grid, then 256, 128, 64, 32. Unlike there, the hidden dense layers
    have 16·width outputs instead of 4096, which were for the photographs of a thousand classes; and smaller
    images have fewer up-convolutions, so that the longer side of the grid has 3 or 4 cells.

    (N, D) -> (N, C, H, W). The result is not clamped.
    """

    def __init__(self, dimension: int, shape: tuple[int, int, int], *, width: int = 32) -> None:
        """`dimension`: D; `shape`: (C, H, W). Raises DataError for sides that it cannot draw."""
        super().__init__()
        channels, *sides = shape
        cure = [min(max(round(side / _MULTIPLE) * _MULTIPLE, _LEAST), _MOST) for side in sides]
        if cure != sides:
            raise DataError(
                f"images of {sides[0]}x{sides[1]}: an up-convolutional decoder draws sides of {_LEAST} to "
                f"{_MOST} pixels that are multiples of {_MULTIPLE}: load them at {cure[0]}x{cure[1]}"
            )
        sizes = [sides]
        while max(sizes[0]) > _GRID:
            sizes.insert(0, [-(-side // 2) for side in sizes[0]])
        self._grid, *self._sizes = sizes
        widths = [min(width * 2**level, 8 * width) for level in reversed(range(len(self._sizes)))]
        hidden, places = 16 * width, widths[0] * math.prod(self._grid)
        dense = [nn.Linear(i, o) for i, o in pairwise((dimension, hidden, hidden, places))]
        up = [
            nn.ConvTranspose2d(i, o, _KERNEL, stride=2, padding=_KERNEL // 2)
            for i, o in pairwise((*widths, channels))
        ]
        # PyTorch's own weights have a third of this variance and less, and after eight layers hardly a trace
        # of the vector would be left. A pixel after an up-convolution sees a quarter of a kernel's weights.
        gain = nn.init.calculate_gain("leaky_relu", _SLOPE)
        for linear in dense:
            nn.init.normal_(linear.weight, std=gain * linear.in_features**-0.5)
        for layer in up:
            nn.init.normal_(layer.weight, std=gain * (layer.in_channels * _KERNEL**2 / 4) ** -0.5)
        with torch.no_grad():
            # As pixels vary: a short training would spend long on unlearning larger first guesses.
            up[-1].weight *= 0.1
        self.dense, self.up = nn.ModuleList(dense), nn.ModuleList(up)

    def forward(self, vectors: Tensor) -> Tensor:
        """Draws float images."""
        features = vectors
        for linear in self.dense:
            features = functional.leaky_relu(linear(features), _SLOPE)
        features = features.unflatten(1, (-1, *self._grid))
        *inner, last = zip(self.up, self._sizes, strict=True)
        for layer, size in inner:
            features = functional.leaky_relu(layer(features, output_size=size), _SLOPE)
        layer, size = last
        return torch.as_tensor(layer(features, output_size=size))
