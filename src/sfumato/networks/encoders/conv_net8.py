"""ConvNet, eight convolutions in a row: a victim of gradient attacks."""

from torch import Tensor, nn

from sfumato.errors import DataError

_LEAST = 9  # pixels a side: two max-pools of 3x3 leave one value


class ConvNet8(nn.Module):
    """Eight 3x3 convolutions with batch norm and ReLU, 3x3 max-pool after the sixth and eighth; linear.

    Source: Geiping, Bauermeister, Dröge & Moeller 2020, "ConvNet" of their published code; the "CoveNet8" of
    the SemSim paper (docs/papers.md, "SemSim"), Table 3. Convolutions have no bias here. There they have one,
    which the batch norm undoes: its gradient is 0.

    (N, C, H, W) float in [0, 1] -> (N, classes) logits.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int, *, width: int = 64) -> None:
        """`shape`: (C, H, W); `width`: filters of the first layer. Raises DataError below 9x9 pixels."""
        super().__init__()
        channels, *sides = shape
        if min(sides) < _LEAST:
            raise DataError(
                f"images of {sides[0]}x{sides[1]}: ConvNet8 pools 3x3 values into one twice, and needs at "
                f"least {_LEAST}x{_LEAST}: load them at a larger size"
            )
        layers: list[nn.Module] = []
        for place, factor in enumerate((1, 2, 2, 4, 4, 4, 4, 4)):
            outputs = factor * width
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)]
            layers.append(nn.ReLU())
            if place in (5, 7):
                layers.append(nn.MaxPool2d(3))
            channels = outputs
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.head = nn.Linear(channels * (sides[0] // 9) * (sides[1] // 9), classes)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies float images."""
        logits: Tensor = self.head(self.body(images))
        return logits
