"""The Conv-4 that the library ships, which has learned from drawn worlds, as an encoder.

Trainings begin with its weights (learn.start); here it does not change. Its maps are averaged over a grid of
3x3, and square roots are taken, so that few large values do not dominate (of histograms: Arandjelović &
Zisserman 2012). Size, grid and roots were chosen on validation classes of Caltech-101.
"""

import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import ArtefactError
from sfumato.networks.encoders.small import Conv4
from sfumato.networks.weights import load_weights

SHIPPED = Path(__file__).with_name("drawn_conv4.safetensors")
WIDTH = 64
DIMENSION = 9 * WIDTH


class DrawnEncoder(nn.Module):
    """(N, 3, H, W) float in [0, 1] -> (N, 576) float32; H and W of at least 16. State: its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Conv4(3, width=WIDTH)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "DrawnEncoder":
        """Loads the encoder with the weights of a start. Raises ArtefactError as `read` does."""
        encoder = cls()
        encoder.network.load_state_dict(read(path))
        return encoder.eval()

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        return functional.adaptive_avg_pool2d(self.network.blocks(images), 3).flatten(1).sqrt()


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Reads the weights of a start, as float32. Raises ArtefactError for another file."""
    source = "Name a file of `studies/drawn_start.py`"
    weights = load_weights(lambda: Conv4(3, width=WIDTH), path, source=source).state_dict()
    if not all(torch.isfinite(each).all() for each in weights.values()):
        raise ArtefactError(f"{path}: has numbers that are NaN or infinite: train it again")
    return weights
