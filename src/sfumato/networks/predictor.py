"""The classifier of the mask paper, as predictor for shown pixels and as obfuscator for hidden ones."""

import torch
from torch import Tensor, nn

from sfumato.networks.encoders.conv4 import Conv4, check_size


class Predictor(nn.Module):
    """Conv-4, a dense layer with batch norm and ReLU, and a dense layer.

    Source: the mask paper (docs/papers.md, "Mask"), Sec. III-B. It does not give the widths of its layers:
    the convolutions have the 64 filters of Conv-4, the dense layer twice as many.

    (N, C, H, W) -> (N, classes) logits. Raises DataError for images below 16x16, before it is made.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, *, width: int = 64, hidden: int = 128
    ) -> None:
        super().__init__()
        channels, height, side = shape
        check_size(torch.empty(0, *shape), 4)
        self.encoder = Conv4(channels, width=width)
        self.head = nn.Sequential(
            # The batch norm would undo a bias.
            nn.Linear(width * (height // 16) * (side // 16), hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        return torch.as_tensor(self.head(self.encoder(images)))
