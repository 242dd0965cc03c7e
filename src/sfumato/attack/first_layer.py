"""Read an image from the gradient of a first linear layer: exact, without a search.

Sources: Phong et al. 2017, Sec. 3; Geiping et al. 2020, Proposition 3.1. With u = W·x + b, dL/dW is the outer
product of dL/du and x, and dL/db is dL/du: so x is a row of dL/dW divided by the same entry of dL/db.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from sfumato.errors import ConfigError, DataError

_PARALLEL = 1e-2  # rounding in half precision stays below, two different images are far above


def recover(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Recover the one image behind a gradient. -> (1, C, H, W) float, as the model's input.

    The sources use one row: x = dW_i / db_i. Here all rows count by least squares, x = dW' · db / |db|², so
    that rows with small gradients, which rounding hits most, count little.

    Args:
        model: its first layer is linear, with a bias, and sees the image itself, flattened.
        shared: name of a parameter -> its gradient; those of the first layer are used.
        shape: (C, H, W) of the image.

    Raises:
        ConfigError: the first layer with parameters is another, or takes images of another shape.
        DataError: the gradient does not fit, is 0 for all biases, or is of several images.
    """
    name, weight, bias = _gradient(model, shared, shape)
    image = _least_squares(name, weight, bias)
    scale = weight.norm().clamp(min=bias.norm())
    apart = ((weight - torch.outer(bias, image)).norm() / scale).item()
    if apart > _PARALLEL:
        raise DataError(
            f"the rows of the gradient of {name}.weight are not parallel, {100 * apart:.1f}% of it lies "
            "apart: more than one image is behind it, or noise, take sfumato.attack.gradient_inversion"
        )
    return image.reshape(1, *shape).float().cpu()


def nearest(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Return the result of `recover` as if the gradient were of one image. -> (1, C, H, W) float, any values.

    For a gradient of several images it is their mixture, weighted by their shares of the biases' gradient;
    for one with noise it is the image with noise. Arguments and errors: see recover, which refuses both.
    """
    return _least_squares(*_gradient(model, shared, shape)).reshape(1, *shape).float().cpu()


def _gradient(
    model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]
) -> tuple[str, Tensor, Tensor]:
    """Return the name of the first layer, and the gradients of its weight and bias."""
    name, first = first_linear(model)
    pixels = shape[0] * shape[1] * shape[2]
    if first.in_features != pixels:
        raise ConfigError(
            f"images of shape {tuple(shape)} are {pixels} numbers, and {name} takes {first.in_features}: "
            "give the shape (C, H, W) of the model's input"
        )
    return name, *check_layer(shared, name, first)


def _least_squares(name: str, weight: Tensor, bias: Tensor) -> Tensor:
    """Solve dW = db x' for x, (pixels,)."""
    energy = bias.square().sum()
    if not bool(energy):
        raise DataError(
            f"the gradient of {name}.bias is 0 everywhere: no unit of this layer passed anything on, and the "
            "image is not in the gradient"
        )
    return weight.T @ bias / energy


def first_linear(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return name and module of the first layer with parameters, in the order of registration.

    Raises:
        ConfigError: it is not linear, or has no bias.
    """
    named = [
        (name, module)
        for name, module in model.named_modules()
        if next(module.parameters(False), None) is not None
    ]
    name, first = named[0] if named else ("", model)
    if not isinstance(first, nn.Linear) or first.bias is None:
        kind = "nn.Linear without a bias" if isinstance(first, nn.Linear) else type(first).__name__
        raise ConfigError(
            f"the first layer with parameters is {kind}: inputs are read from an nn.Linear with a bias, "
            "for others take sfumato.attack.gradient_inversion"
        )
    return name, first


def check_layer(shared: Mapping[str, Tensor], name: str, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Check the gradients of weight and bias of a layer, (out, in) and (out,) float64. Raises DataError."""
    found = []
    for full, parameter in ((_name(name, "weight"), layer.weight), (_name(name, "bias"), layer.bias)):
        if full not in shared:
            raise DataError(f"the gradient lacks {full}: it is of another model, or the layer is not trained")
        gradient = shared[full]
        if gradient.shape != parameter.shape:
            raise DataError(
                f"the gradient of {full} is {tuple(gradient.shape)} where the parameter is "
                f"{tuple(parameter.shape)}: it is of another model"
            )
        if not bool(gradient.isfinite().all()):
            raise DataError(f"the gradient of {full} has numbers that are not finite, so nothing can be read")
        found.append(gradient.detach().double())
    return found[0], found[1]


def _name(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}" if layer else parameter
