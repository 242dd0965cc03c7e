"""Conv-4, the encoder of prototypical networks."""

import torch
from torch import Tensor, nn

from sfumato.errors import DataError
from sfumato.networks.encoders.halving import Halve


class Conv4(nn.Module):
    """Four blocks of 3x3 convolution, batch norm and ReLU, the last `pools` with 2x2 max-pool; then flat.

    Source: Snell, Swersky & Zemel 2017, Sec. 3.1; Parnami et al. 2022, Fig. 10a.

    There all four pool. Images with one value for each cell of pixels are small already, and need fewer.

    (N, C, H, W) -> (N, width * floor(H / 2^pools) * floor(W / 2^pools)); H and W are at least 2^pools.
    """

    def __init__(self, channels: int, *, width: int = 64, pools: int = 4, running: bool = True) -> None:
        """`running`: batch norm keeps running statistics; otherwise it normalises each batch by itself."""
        super().__init__()
        inputs = [channels, width, width, width]
        self.width = width
        self.pools = pools
        self.blocks = nn.Sequential(
            *(_block(i, width, pool=n >= 4 - pools, running=running) for n, i in enumerate(inputs))
        )

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError for images that the halvings reduce to nothing."""
        check_size(images, self.pools)
        return torch.flatten(self.blocks(images), 1)


def check_size(images: Tensor, pools: int) -> None:
    """Raises DataError unless (N, C, H, W) images can be halved `pools` times."""
    height, width = images.shape[2:]
    if min(height, width) < 2**pools:
        raise DataError(
            f"images of {height}x{width}: the encoder halves them {pools} times, and needs at least "
            f"{2**pools}x{2**pools}: load them at a larger size"
        )


def _block(inputs: int, outputs: int, *, pool: bool, running: bool) -> nn.Sequential:
    layers: list[nn.Module] = [
        # The batch norm would undo a bias.
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs, track_running_stats=running),
    ]
    if pool:
        # Before the ReLU, which then has a quarter of the work; outputs and gradients are equal to the bit.
        layers.append(Halve())
    return nn.Sequential(*layers, nn.ReLU())
