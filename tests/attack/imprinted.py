"""A model that a malicious server made to read images, for tests of what reads and of what notices it."""

import torch
from torch import Tensor, nn


@torch.no_grad()
def imprint_(layer: nn.Linear, following: nn.Linear, brightness: Tensor) -> None:
    """Make each unit of a layer a bin of images, by the (M,) mean values of the server's own."""
    levels = torch.linspace(0, 1, layer.out_features + 2, dtype=torch.float64)[1:-1]
    layer.weight.fill_(1 / layer.in_features)
    layer.bias.copy_(-torch.quantile(brightness.double(), levels))
    following.weight.copy_(following.weight[:, :1].expand_as(following.weight))
