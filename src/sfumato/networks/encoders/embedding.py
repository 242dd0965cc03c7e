"""Embeddings of images of any size, by a network for images of one size."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.networks.encoders.le_net import LeNet
from sfumato.networks.encoders.resnet import ResNet

NETWORKS: dict[str, Callable[[tuple[int, int, int]], nn.Module]] = {
    "resnet50": lambda shape: ResNet(shape, None, depth=50),
    "resnet18": lambda shape: ResNet(shape, None, depth=18),
    "resnet152": lambda shape: ResNet(shape, None, depth=152),
    "lenet": lambda shape: LeNet(shape, None),
}

_COLOURS = 3


class Embedding(nn.Module):
    """A network that embeds images after resizing them and making three channels.

    (N, 1 or 3, H, W) float in [0, 1] -> (N, D) float32, of length 1 if `normalised`.
    """

    def __init__(self, network: str, *, size: int, normalised: bool) -> None:
        """Makes a network of NETWORKS for images of size x size pixels."""
        super().__init__()
        self.network = NETWORKS[network]((_COLOURS, size, size))
        self._size = size
        self._normalised = normalised
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        squares = to_squares(images, self._size).contiguous(memory_format=torch.channels_last)
        vectors = torch.as_tensor(self.network(squares)).float()
        return functional.normalize(vectors) if self._normalised else vectors


def to_squares(images: Tensor, size: int) -> Tensor:
    """(N, 1 or 3, H, W) float -> (N, 3, size, size): grey repeated, and other sizes resized.

    Bilinear; shrinking averages over all pixels that an output pixel covers (antialiased). Other shapes
    are squeezed to a square, not cropped: every part of a pair must be seen.
    """
    if images.shape[2:] != (size, size):
        images = functional.interpolate(
            images, (size, size), mode="bilinear", antialias=True, align_corners=False
        )
    return images.expand(-1, _COLOURS, -1, -1)
