"""ResNet-12, the larger encoder of few-shot learning."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.networks.encoders.conv4 import check_size
from sfumato.networks.encoders.halving import halve


class ResNet12(nn.Module):
    """Four residual blocks of three 3x3 convolutions, the last `pools` with 2x2 max-pool; then the mean.

    Source: Parnami et al. 2022, Fig. 10b and c: widths 64, 128, 256, 512.

    There all four pool; see Conv4 for fewer.

    (N, C, H, W) -> (N, 512); H and W are at least 2^pools.
    """

    def __init__(
        self,
        channels: int,
        *,
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        pools: int = 4,
    ) -> None:
        super().__init__()
        inputs = (channels, *widths[:-1])
        self.pools = pools
        self.blocks = nn.Sequential(
            *(
                _Residual(i, o, pool=n >= 4 - pools)
                for n, (i, o) in enumerate(zip(inputs, widths, strict=True))
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError as Conv4 does."""
        check_size(images, self.pools)
        return torch.as_tensor(self.blocks(images).mean((2, 3)))


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, *, pool: bool) -> None:
        super().__init__()
        self.pool = pool
        self.convolutions = nn.Sequential(
            *_convolution(inputs, outputs),
            nn.LeakyReLU(0.1),
            *_convolution(outputs, outputs),
            nn.LeakyReLU(0.1),
            *_convolution(outputs, outputs),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        joined = functional.leaky_relu(self.convolutions(features) + self.shortcut(features), 0.1)
        return halve(joined) if self.pool else joined


def _convolution(inputs: int, outputs: int) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)
