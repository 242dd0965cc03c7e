"""Conv-4, the encoder of prototypical networks."""

import torch
from torch import Tensor, nn

from sfumato.errors import DataError


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm, ReLU and 2x2 max-pool; then flat.

    Source: Snell, Swersky & Zemel 2017, Sec. 3.1; Parnami et al. 2022, Fig. 10a.

    (N, C, H, W) -> (N, width * floor(H / 16) * floor(W / 16)); H and W are at least 16.
    """

    def __init__(self, channels: int, *, width: int = 64) -> None:
        super().__init__()
        inputs = [channels, width, width, width]
        self.blocks = nn.Sequential(*(_block(i, width) for i in inputs))

    def forward(self, images: Tensor) -> Tensor:
        """Embed float images. Raises DataError for images that four halvings leave nothing of."""
        check_size(images)
        return torch.flatten(self.blocks(images), 1)


def check_size(images: Tensor) -> None:
    """Raise DataError unless (N, C, H, W) images can be halved four times."""
    if min(images.shape[2:]) < 16:
        raise DataError(f"images of {images.shape[2]}x{images.shape[3]}: the encoders need at least 16x16")


def _block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        # A bias would be undone by the batch norm.
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
