"""U-Net: images to images, with wide context at little cost."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import float32
from sfumato.networks.encoders.halving import halve


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
        layers += [nn.Conv2d(i, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)
