"""A malicious server: a layer made so that each image of a batch comes back by itself, and how to tell it.

Source: Fowl, Geiping, Czaja, Goldblum & Goldstein 2021, "Robbing the Fed", Sec. 3: every row of a linear
layer before a ReLU measures the same of an image, its mean brightness, and row i passes what lies above
threshold i. Rows i and i + 1 differ in the images between their thresholds alone: where that is one image, it
is the difference of their gradients by weights, over that of their gradients by biases.

The threat model is another than that of reading: the server sends parameters that nobody trained.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.attack.first_layer import checked, first_linear
from sfumato.errors import ConfigError, DataError

_PARALLEL = 0.999  # cosine above which rows measure the same
_SUSPECT = 0.5  # share of rows; of a network that was trained or drawn, hardly any are parallel
_LEAST_ROWS = 4
_OUTSIDE = 0.02  # how far beyond [0, 1] an image may lie by rounding
_LEAST = 1e-6  # share of the largest difference below which a bin holds no image


@dataclass(frozen=True)
class Suspect:
    """A linear layer that is made to read images.

    Attributes:
        layer: its name.
        share: of its rows, that are parallel to one and the same direction.
    """

    layer: str
    share: float


def imprint_(layer: nn.Linear, following: nn.Linear, brightness: Tensor) -> None:
    """Make an imprint layer of a first one, in place, and let the next treat all bins alike.

    Args:
        layer: sees images, flattened; each of its units is a bin.
        following: sees the bins; its columns become the same, so that a gradient is the same in every bin
            that an image passes.
        brightness: (M,) mean values of images that the server has; their quantiles are the thresholds.

    Raises:
        ConfigError: the layer has no bias, or the other does not follow it.
    """
    if layer.bias is None:
        raise ConfigError("an imprint layer needs a bias: its thresholds are there")
    if following.in_features != layer.out_features:
        raise ConfigError(f"{layer.out_features} bins, and the next layer takes {following.in_features}")
    levels = torch.linspace(0, 1, layer.out_features + 2, dtype=torch.float64)[1:-1]
    thresholds = torch.quantile(brightness.double(), levels)
    with torch.no_grad():
        layer.weight.fill_(1 / layer.in_features)
        layer.bias.copy_(-thresholds)
        following.weight.copy_(following.weight[:, :1].expand_as(following.weight))


def recover(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """The images behind a gradient of an imprint layer, those that are alone in a bin. -> (K, C, H, W) float.

    A bin of several images gives their mixture, which the adversary cannot tell from an image by this alone.

    Raises:
        ConfigError: the first layer with parameters is not linear, or of other images.
        DataError: no bin holds an image.
    """
    name, first = first_linear(model)
    if first.in_features != shape[0] * shape[1] * shape[2]:
        raise ConfigError(f"{name} takes {first.in_features} numbers, and images are {tuple(shape)}")
    weight, bias = checked(shared, name, first)
    order = first.bias.detach().argsort(descending=True)  # the lowest threshold first
    weight, bias = weight[order], bias[order]
    above = torch.cat([bias[1:], bias.new_zeros(1)])
    beyond = torch.cat([weight[1:], weight.new_zeros(1, weight.shape[1])])
    slopes, pixels = bias - above, weight - beyond  # of what lies in each bin
    held = slopes.abs() > _LEAST * slopes.abs().max()
    if not bool(held.any()):
        raise DataError(f"no bin of {name} holds an image: none is above its lowest threshold")
    images = pixels[held] / slopes[held, None]
    inside = (images.amin(1) > -_OUTSIDE) & (images.amax(1) < 1 + _OUTSIDE)
    return images[inside].reshape(-1, *shape).float().cpu()


def detect(model: nn.Module) -> Suspect | None:
    """The linear layer, if any, of which most rows measure one and the same thing.

    For whoever receives a model. It looks at parallel rows in whatever order and scale; a server that takes
    another measurement in each row, or hides them among many others, is not found.
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
