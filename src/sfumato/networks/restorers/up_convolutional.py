"""The up-convolutional decoder: from a feature vector to an image."""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError

_LEAST, _MOST, _MULTIPLE = 8, 128, 4  # of an image's sides, in pixels
_GRID = 4  # the longer side of the grid, at most
_KERNEL = 5
_SLOPE = 0.2


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
        """`dimension`: D; `shape`: (C, H, W). Raises DataError as check_sides does."""
        super().__init__()
        channels, *sides = shape
        check_sides(*sides)
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


def check_sides(height: int, width: int) -> None:
    """Raises DataError unless both sides are multiples of 4 from 8 to 128."""
    cure = [min(max(round(side / _MULTIPLE) * _MULTIPLE, _LEAST), _MOST) for side in (height, width)]
    if cure != [height, width]:
        raise DataError(
            f"images of {height}x{width}: an up-convolutional decoder draws sides of {_LEAST} to {_MOST} "
            f"pixels that are multiples of {_MULTIPLE}: load them at {cure[0]}x{cure[1]}"
        )
