"""The classifier of the mask paper: predictor of what is revealed, obfuscator of what is hidden."""

import torch
from torch import Tensor, nn

from sfumato.networks.encoders.conv4 import Conv4, check_size


class Predictor(nn.Module):
    """Conv-4, a dense layer with batch norm and ReLU, and a dense layer.

    Source: the mask paper (docs/papers.md, "Mask"), Sec. III-B. It does not say how wide its layers are:
    the convolutions have the 64 filters of Conv-4, the dense layer twice as many.

    (N, C, H, W) -> (N, classes) logits. Raises DataError for images below 16x16, before there is one.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, *, width: int = 64, hidden: int = 128
    ) -> None:
        super().__init__()
        channels, height, side = shape
        check_size(torch.empty(0, *shape), 4)
        self.encoder = Conv4(channels, width=width)
        self.head = nn.Sequential(
            # A bias would be undone by the batch norm.
            nn.Linear(width * (height // 16) * (side // 16), hidden, bias=False),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Classify float images."""
        return torch.as_tensor(self.head(self.encoder(images)))
