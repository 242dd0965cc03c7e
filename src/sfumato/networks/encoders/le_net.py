"""The LeNet of deep leakage from gradients: the victim that is easiest to attack."""

import torch
from torch import Tensor, nn

from sfumato.networks.encoders.conv4 import check_size

_FILTERS = 12
_SPREAD = 0.5


class LeNet(nn.Module):
    """Three 5x5 convolutions of 12 filters with sigmoids, of strides 2, 2 and 1, and a linear layer.

    Source: Zhu, Liu & Han 2019, Sec. 4.1: sigmoids, not ReLU, since the attack needs second derivatives. The
    rest is from their published code, for 32x32 pixels: strides, filters, and weights and biases
    that are uniform in [-0.5, 0.5]. Other sizes change only the linear layer. Weights this large matter:
    with PyTorch's own, sigmoids hardly pass the image on (from one image of noise to the next, features
    deviate by 0.0006, not 0.05).

    (N, C, H, W) float in [0, 1] -> (N, classes) logits, or (N, dimension) embeddings without classes.

    Attributes:
        dimension: D, the length of an embedding, the input of `head`; 768 for 32x32 pixels.
    """

    def __init__(self, shape: tuple[int, int, int], classes: int | None) -> None:
        """`shape`: (C, H, W); `classes`: None for embeddings. Raises DataError for images below 4x4."""
        super().__init__()
        channels, height, width = shape
        check_size(torch.empty(0, *shape), 2)
        layers: list[nn.Module] = []
        for inputs, stride in ((channels, 2), (_FILTERS, 2), (_FILTERS, 1)):
            layers += [nn.Conv2d(inputs, _FILTERS, 5, stride, padding=2), nn.Sigmoid()]
        self.body = nn.Sequential(*layers, nn.Flatten())
        self.dimension = _FILTERS * -(-height // 4) * -(-width // 4)
        self.head = nn.Identity() if classes is None else nn.Linear(self.dimension, classes)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -_SPREAD, _SPREAD)

    def forward(self, images: Tensor) -> Tensor:
        """Classifies, or embeds, float images."""
        result: Tensor = self.head(self.body(images))
        return result
