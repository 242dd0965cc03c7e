"""Residual networks: victims of gradient attacks, and encoders of images."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import ConfigError
from sfumato.networks.encoders.conv4 import check_size

_SMALL = 64  # the longest side, in pixels, for which the stem keeps the resolution
# For each depth: blocks a stage, channels of the first stage, and how much a block widens its output.
_FORMS = {
    18: ((2, 2, 2, 2), 64, 1),
    20: ((3, 3, 3), 16, 1),
    50: ((3, 4, 6, 3), 64, 4),
    152: ((3, 8, 36, 3), 64, 4),
}


class ResNet(nn.Module):
    """Stages of residual blocks, each with twice the channels and half the sides of the one before; the mean.

    Source: He, Zhang, Ren & Sun 2016: depth 20 of Sec. 4.2, for CIFAR; 18, 50 and 152 of Table 1. The
    differences:

    - Shortcuts that change shape are projections (option B) at every depth. In Sec. 4.2 they are identities
      padded with zeros (A), which has 2,752 parameters less at depth 20. Published attacks use projections
      (Geiping et al. 2020).
    - Deep blocks have their stride in the 3x3 convolution, not in the first 1x1, as is usual now.
    - Images of up to 64 pixels, and all at depth 20, see a stem of one 3x3 convolution. Larger ones see that
      of Table 1: 7x7 with stride 2, and 3x3 max-pool with stride 2.

    (N, C, H, W) float in [0, 1] -> (N, classes) logits, or (N, dimension) embeddings without classes.

    Attributes:
        dimension: D, the length of an embedding, the input of `head`.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int | None, *, depth: int, width: int | None = None
    ) -> None:
        """Makes the network for images of one shape.

        Args:
            shape: (C, H, W).
            classes: how many; None for embeddings.
            depth: 18, 20, 50 or 152.
            width: channels of the first stage; None for those of the paper, 16 at depth 20 and 64 otherwise.

        Raises:
            ConfigError: a depth that is not among these.
            DataError: images that the halvings reduce to nothing.
        """
        super().__init__()
        if depth not in _FORMS:
            raise ConfigError(f"depth={depth}: a ResNet has {', '.join(map(str, _FORMS))} layers here")
        stages, published, expansion = _FORMS[depth]
        channels, *sides = shape
        large = max(sides) > _SMALL and depth != 20
        check_size(torch.empty(0, *shape), len(stages) - 1 + 2 * large)
        width = published if width is None else width
        self.stem = _stem(channels, width, large=large)
        blocks: list[nn.Module] = []
        inputs = width
        for stage, count in enumerate(stages):
            for block in range(count):
                stride = 2 if stage and not block else 1
                blocks.append(_Residual(inputs, width * 2**stage, expansion, stride))
                inputs = width * 2**stage * expansion
        self.blocks = nn.Sequential(*blocks)
        self.dimension = inputs
        self.head = nn.Identity() if classes is None else nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Classifies, or embeds, float images."""
        result: Tensor = self.head(self.blocks(self.stem(images)).mean((2, 3)))
        return result


class _Residual(nn.Module):
    """A basic block of two 3x3 convolutions without expansion, else a bottleneck."""

    def __init__(self, inputs: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        outputs = width * expansion
        if expansion == 1:
            layers = [*_convolution(inputs, width, 3, stride), nn.ReLU(), *_convolution(width, width, 3)]
        else:
            layers = [
                *_convolution(inputs, width, 1),
                nn.ReLU(),
                *_convolution(width, width, 3, stride),
                nn.ReLU(),
                *_convolution(width, outputs, 1),
            ]
        self.convolutions = nn.Sequential(*layers)
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*_convolution(inputs, outputs, 1, stride))

    def forward(self, features: Tensor) -> Tensor:
        return functional.relu(self.convolutions(features) + self.shortcut(features))


def _stem(channels: int, width: int, *, large: bool) -> nn.Sequential:
    if large:
        layers = (*_convolution(channels, width, 7, 2), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
        return nn.Sequential(*layers)
    return nn.Sequential(*_convolution(channels, width, 3), nn.ReLU())


def _convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    # The batch norm would undo a bias.
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return convolution, nn.BatchNorm2d(outputs)
