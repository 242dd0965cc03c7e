"""Read an image from the gradient of a first linear layer: exact, without a search.

Sources: Phong et al. 2017, Sec. 3; Geiping et al. 2020, Proposition 3.1. With u = W·x + b, dL/dW is the outer
product of dL/du and x, and dL/db is dL/du: so x is a row of dL/dW divided by the same entry of dL/db. A sum
of such gradients, of several steps on one image, is an outer product with the same x. Without a bias x is
known up to a factor, which the slopes dL/du tell.
"""

import copy
import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from sfumato.attack import label_inference
from sfumato.errors import ConfigError, DataError

PARALLEL = 1e-2  # rounding in half precision stays below, two different images are far above
_NOTHING = 1e-3  # of the largest number: smaller ones do not count as signs
_NEAR, _MOSTLY = 0.2, 0.4  # if most numbers are as large as the median one, up to this, they are signs
_AGREES = 0.99999  # cosine of slopes from which a factor is right
_CLEARLY = 0.1  # times as far from 1 as for a factor of 1
_ROUNDS = 5  # of a power iteration
_REACH, _POINTS, _ZOOMS = 30.0, 33, 5  # of the search for a factor
_CLASSES = 20  # at most, for which it is tried


def recover(model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]) -> Tensor:
    """Recover the one image behind a gradient. -> (1, C, H, W) float, as the model's input.

    The sources use one row: x = dW_i / db_i. Here all rows count by least squares, x = dW' · db / |db|², so
    that rows with small gradients, which rounding hits most, count little. Numbers that are 0 do not count:
    some clients send the largest alone.

    Args:
        model: its first layer is linear, and sees the image itself, flattened.
        shared: name of a parameter -> its gradient, or the sum of those of several steps.
        shape: (C, H, W) of the image.

    Raises:
        ConfigError: the first layer with parameters is another, or takes images of another shape.
        DataError: the gradient does not fit, is 0 for all biases, is of several images, or has signs alone.
    """
    image, apart, _ = nearest(model, shared, shape)
    name, _, slopes, scaled = _gradient(model, shared, shape)
    if apart > PARALLEL:
        raise DataError(
            f"the rows of the gradient of {name}.weight are not parallel, {100 * apart:.1f}% of it lies "
            "apart: more than one image is behind it, or noise, take sfumato.attack.gradient_inversion"
        )
    return scale_images(model, shared, image.double(), slopes[:, None], scaled=scaled).float()


def nearest(
    model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]
) -> tuple[Tensor, float, float]:
    """Return the result of `recover` as if the gradient were of one image, and how far it is from that.

    For a gradient of several images it is their mixture, weighted by their shares of the biases' gradient;
    for one with noise it is the image with noise. Arguments and errors: see recover, which refuses both.

    Returns:
        (1, C, H, W) float, any values; the share of the gradient that lies apart; and the variance of the
        image's pixels if this share is noise.
    """
    name, weight, slopes, scaled = _gradient(model, shared, shape)
    if not bool(slopes.any()):
        raise DataError(
            f"the gradient of {name}.bias is 0 everywhere: no unit of this layer passed anything on, and the "
            "image is not in the gradient"
        )
    sent, squares = weight.ne(0).double(), slopes.square()
    energy = (sent.T @ squares).clamp(min=1e-300)
    image = weight.T @ slopes / energy
    rest = (weight - torch.outer(slopes, image)) * sent
    apart = rest.norm() / weight.norm().clamp(min=float(slopes.norm()) * scaled)
    variances = (rest.square().T @ squares) / energy.square()
    common = slopes  # to all pixels: what the slopes are without noise of their own
    for _ in range(_ROUNDS):
        common = weight @ (weight.T @ common)
        common = common / common.norm()
    paler = squares.sum() / (common @ slopes) ** 2 - 1  # the image, by noise in the slopes
    variance = variances.mean() + image.square().mean() * paler**2
    return image.reshape(1, *shape).float().cpu(), float(apart), float(variance)


def _gradient(
    model: nn.Module, shared: Mapping[str, Tensor], shape: tuple[int, int, int]
) -> tuple[str, Tensor, Tensor, bool]:
    """Return the first layer's name, its gradients by weights and by outputs, and if a bias gave the latter.

    Without a bias they are those of the largest singular value, for an image with a largest value of 1.
    """
    name, first = first_linear(model, shape, biased=False)
    weight, slopes = check_layer(shared, name, first)
    sizes = weight[weight.abs() > _NOTHING * weight.abs().amax()].abs()
    if len(sizes) and float(((sizes / sizes.median() - 1).abs() < _NEAR).double().mean()) > _MOSTLY:
        raise DataError(
            f"most numbers in the gradient of {name}.weight are of one size: these are signs, as of signSGD "
            "and of the first steps of Adam, or the largest alone, and no pixel comes of dividing them"
        )
    if len(slopes):
        return name, weight, slopes, True
    image = largest_one(torch.linalg.svd(weight, full_matrices=False).Vh[:1])[0]
    return name, weight, weight @ image / image.square().sum(), False


def largest_one(images: Tensor) -> Tensor:
    """Scale images, (B, pixels), to a positive sum and a largest value of 1, as those in [0, 1] have."""
    images = images * images.sum(1, keepdim=True).sign()
    return images / images.amax(1, keepdim=True).clamp(min=1e-300)


def scale_images(
    model: nn.Module,
    shared: Mapping[str, Tensor],
    images: Tensor,
    slopes: Tensor,
    *,
    scaled: bool,
) -> Tensor:
    """Find the factors of images that are known up to these. -> (B, C, H, W), multiplied by them.

    The direction of the slopes depends on the factor: the one is taken whose slopes agree with those of the
    gradient. Factors stay 1 if none does, as for several steps.

    Args:
        model, shared: see recover; the last layer's gradient tells the classes to try.
        images: (B, C, H, W).
        slopes: (m, B) by the outputs of the first layer, up to factors.
        scaled: whether to begin with factors of 1: they are others if a client scales the gradient of each
            parameter by itself.
    """
    model = copy.deepcopy(model).double().eval().cpu()
    try:
        classes = label_inference.slopes(model, shared).argsort()[:_CLASSES].tolist()
    except ConfigError:
        return images
    found = []
    for image, wanted in zip(images.cpu(), slopes.T.cpu(), strict=True):
        factor = 1.0
        best = first = float(_agreement(model, image[None], wanted, classes))
        for zoom in range(0 if scaled and best > _AGREES else _ZOOMS):
            reach = _REACH ** ((4 / _POINTS) ** zoom)
            factors = factor * torch.logspace(-1, 1, _POINTS, base=reach, dtype=torch.float64)
            agreements = _agreement(model, factors[:, None, None, None] * image, wanted, classes)
            best, factor = float(agreements.max()), float(factors[agreements.argmax()])
        clearly = best > _AGREES and 1 - best < _CLEARLY * (1 - first)
        found.append(image * (factor if clearly else 1.0))
    return torch.stack(found)


def _agreement(model: nn.Module, images: Tensor, wanted: Tensor, classes: list[int]) -> Tensor:
    """(K, C, H, W) -> (K,) cosines of wanted slopes and those of each image, for the best of some classes."""
    outputs: list[Tensor] = []
    layer = first_linear(model, biased=False)[1]
    hook = layer.register_forward_hook(lambda _, inputs, output: outputs.append(output))
    logits = model((images.flatten(1) if layer is model else images).requires_grad_())
    hook.remove()
    slopes = [
        torch.autograd.grad(-logits.log_softmax(1)[:, label].sum(), outputs[0], retain_graph=True)[0]
        for label in classes
    ]
    return cosine_similarity(torch.stack(slopes), wanted, dim=2).amax(0)


def first_linear(
    model: nn.Module, shape: tuple[int, int, int] | None = None, *, biased: bool = True
) -> tuple[str, nn.Linear]:
    """Return name and module of the first layer with parameters, in the order of registration.

    Raises:
        ConfigError: it is not linear, has no bias but is to be `biased`, or takes no images of a shape.
    """
    named = [
        (name, module)
        for name, module in model.named_modules()
        if next(module.parameters(False), None) is not None
    ]
    name, first = named[0] if named else ("", model)
    if not isinstance(first, nn.Linear) or (biased and first.bias is None):
        kind = "nn.Linear without a bias" if isinstance(first, nn.Linear) else type(first).__name__
        raise ConfigError(
            f"the first layer with parameters is {kind}: inputs are read from an nn.Linear with a bias, "
            "for others take sfumato.attack.gradient_inversion"
        )
    if shape is not None and first.in_features != math.prod(shape):
        raise ConfigError(
            f"images of shape {tuple(shape)} are {math.prod(shape)} numbers, and {name} takes "
            f"{first.in_features}: give the shape (C, H, W) of the model's input"
        )
    return name, first


def check_layer(shared: Mapping[str, Tensor], name: str, layer: nn.Linear) -> tuple[Tensor, Tensor]:
    """Check the gradients of weight and bias of a layer. Raises DataError.

    -> (out, in) and (out,) float64; without a bias nothing is in the second.
    """
    found = []
    for kind, parameter in layer.named_parameters(recurse=False):
        full = _name(name, kind)
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
    return found[0], found[1] if len(found) > 1 else found[0].new_empty(0)


def _name(layer: str, parameter: str) -> str:
    return f"{layer}.{parameter}" if layer else parameter
