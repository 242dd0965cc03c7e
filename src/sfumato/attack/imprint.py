"""A malicious server: a layer built so that each image of a batch can be read separately; and its detection.

Source: Fowl, Geiping, Czaja, Goldblum & Goldstein 2021, "Robbing the Fed", Sec. 3: every row of a linear
layer before a ReLU measures the same value of an image, its mean brightness, and row i passes values above
threshold i. Rows i and i + 1 differ only in images between their thresholds: if that is one image, it is the
difference of their gradients by weights, divided by the difference of their gradients by biases.

The threat model is stronger than that of reading: the server sends parameters that nobody trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.attack.first_layer import check_layer, first_linear
from sfumato.errors import ConfigError, DataError

_PARALLEL = 0.999  # cosine above which rows measure the same
_SUSPECT = 0.5  # share of rows; in trained or random networks, hardly any are parallel
_LEAST_ROWS = 4
_OUTSIDE = 0.02  # how far beyond [0, 1] an image may lie by rounding
_LEAST = 1e-6  # share of the largest difference below which a bin is empty


@dataclass(frozen=True)
class Suspect:
    """A linear layer built to read images.

    Attributes:
        layer: its name.
        share: the share of its rows that are parallel to one direction.
    """

    layer: str
    share: float


def imprint_(layer: nn.Linear, following: nn.Linear, brightness: Tensor) -> None:
    """Turn a first layer into an imprint layer, in place, and let the next treat all bins alike.

    Args:
        layer: takes flattened images; each of its units is a bin.
        following: takes the bins; its columns become equal, so that a gradient is equal in every bin
            that an image passes.
        brightness: (M,) mean values of images that the server has; their quantiles are the thresholds.

    Raises:
        ConfigError: the layer has no bias, or the other does not follow it.
    """
    if layer.bias is None:
        raise ConfigError("an imprint layer needs a bias, which holds its thresholds")
    if following.in_features != layer.out_features:
        raise ConfigError(f"{layer.out_features} bins, and the next layer takes {following.in_features}")
    levels = torch.linspace(0, 1, layer.out_features + 2, dtype=torch.float64)[1:-1]
    thresholds = torch.quantile(brightness.double(), levels)
    with torch.no_grad():
        layer.weight.fill_(1 / layer.in_features)
        layer.bias.copy_(-thresholds)
        following.weight.copy_(following.weight[:, :1].expand_as(following.weight))


def recover(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Recover the images that are alone in a bin from an imprint layer's gradient. -> (K, C, H, W) float.

    A bin of several images gives their mixture, which this attack does not distinguish from an image.

    Raises:
        ConfigError: the first layer with parameters is not linear, or takes other images.
        DataError: no bin holds an image.
    """
    name, first = first_linear(model, shape)
    weight, bias = check_layer(shared, name, first)
    order = first.bias.detach().argsort(descending=True)  # the lowest threshold first
    weight, bias = weight[order], bias[order]
    above = torch.cat([bias[1:], bias.new_zeros(1)])
    beyond = torch.cat([weight[1:], weight.new_zeros(1, weight.shape[1])])
    slopes, pixels = bias - above, weight - beyond  # of the images in each bin
    held = slopes.abs() > _LEAST * slopes.abs().max()
    if not bool(held.any()):
        raise DataError(f"no bin of {name} holds an image: none is above its lowest threshold")
    images = pixels[held] / slopes[held, None]
    inside = (images.amin(1) > -_OUTSIDE) & (images.amax(1) < 1 + _OUTSIDE)
    return images[inside].reshape(-1, *shape).float().cpu()


def detect(model: nn.Module) -> Suspect | None:
    """Find a linear layer most of whose rows measure the same value, or None.

    For people who receive a model. It finds parallel rows in any order and scale; it does not find a server
    that takes another measurement in each row, or hides the rows among many others.
    """
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear) or module.out_features < _LEAST_ROWS or module.in_features < 2:
            continue
        rows = nn.functional.normalize(module.weight.detach().double(), dim=1)
        axis = torch.linalg.svd(rows, full_matrices=False).Vh[0]
        share = float(((rows @ axis).abs() > _PARALLEL).double().mean())
        if share >= _SUSPECT:
            return Suspect(name, share)
    return None
