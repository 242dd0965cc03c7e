"""DnCNN, the denoiser: it predicts the protection's change of an image, and subtracts it."""

from torch import Tensor, nn


class DnCNN(nn.Module):
    """Residual denoiser x = y - R(y), R a stack of 3x3 convolutions at full resolution.

    Source: Zhang et al. 2017, Sec. III; Parnami et al. 2022, Fig. 9, with 8 layers of 64 filters:
    conv + ReLU, depth - 2 times conv + batch norm + ReLU, conv.

    (N, C + K, H, W) -> (N, C, H, W); the last K planes describe the noise, as in FFDNet (Zhang, Zuo & Zhang
    2018). The result is not clamped: the encoder after it is trained with it.
    """

    def __init__(self, channels: int, *, depth: int = 8, width: int = 64, planes: int = 0) -> None:
        super().__init__()
        self.channels = channels
        layers: list[nn.Module] = [nn.Conv2d(channels + planes, width, 3, padding=1), nn.ReLU()]
        for _ in range(depth - 2):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        last = nn.Conv2d(width, channels, 3, padding=1)
        # It starts by subtracting nothing: the next network does not have to learn from its first guesses.
        for parameter in last.parameters():
            nn.init.zeros_(parameter)
        self.residual = nn.Sequential(*layers, last)

    def forward(self, protected: Tensor) -> Tensor:
        """Estimates the clean float images."""
        # The difference of nearly equal images is taken in float32 for any autocast type.
        residual: Tensor = self.residual(protected)
        return protected[:, : self.channels] - residual.to(protected.dtype)
