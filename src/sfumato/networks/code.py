"""The encoder of codes: a few numbers between -1 and 1 of an image, or their signs."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import float32
from sfumato.networks.classifiers import make_encoder
from sfumato.networks.encoders.pretrained import PretrainedEncoder
from sfumato.networks.weights import initial_weights


class CodeNetwork(nn.Module):
    """An encoder, a linear layer, batch norm without scale and shift, and tanh.

    Source: ours. Batch norm without scale and shift keeps each number's mean over training images at 0, so
    its sign is the most informative bit. (N, C, H, W) float32 -> (N, d) float32. State: its weights.
    """

    def __init__(self, encoder: nn.Module, size: int, *, dimension: int, side: int | None = None) -> None:
        """`encoder`: images to (N, size); `dimension`: d; `side`: to which images are shrunk, or None."""
        super().__init__()
        self.encoder = encoder
        self.project = nn.Linear(size, dimension)
        self.norm = nn.BatchNorm1d(dimension, affine=False)
        self.side = side

    def encode(self, images: Tensor) -> Tensor:
        """(N, D) float32 of float images: the encoder's output, before the code."""
        outputs: Tensor = self.encoder(self.shrink(images)).float()
        return outputs

    def shrink(self, images: Tensor) -> Tensor:
        """(N, C, h, w) of float images: the encoder's input."""
        if self.side is None:
            return images
        return functional.interpolate(
            images, (self.side, self.side), mode="bilinear", align_corners=False, antialias=True
        )

    def forward(self, images: Tensor) -> Tensor:
        """The numbers of float images, from -1 to 1. All layers after the encoder compute in float32."""
        return self.code(self.encode(images))

    def code(self, outputs: Tensor) -> Tensor:
        """The numbers for the result of `encode`."""
        with float32(outputs.device):
            return torch.tanh(self.norm(self.project(outputs)))


def make_code_network(
    encoder: str,
    shape: tuple[int, int, int],
    *,
    dimension: int,
    side: int | None = None,
    seed: int | None = None,
) -> CodeNetwork:
    """Makes the network of an encoder of `classifiers.make_encoder` for images of (C, H, W).

    `seed` decides the initial weights; None if others replace these at once. Raises DataError for images that
    are too small for the encoder.
    """
    channels, height, width = shape
    size = (height, width) if side is None else (side, side)
    with initial_weights(seed):
        network = make_encoder(encoder, channels)
        if isinstance(network, PretrainedEncoder):
            outputs = network.encoder.dimension
        else:
            with torch.no_grad():
                outputs = network.eval()(torch.zeros(1, channels, *size)).shape[1]
        return CodeNetwork(network.train(), outputs, dimension=dimension, side=side)
