"""An image read from a first linear layer: exact, from one gradient, and refused where it cannot be."""

import io
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.similarity import psnr
from sfumato.attack.first_layer import first_linear, nearest, recover
from sfumato.attack.victim import share
from sfumato.errors import ConfigError, DataError
from sfumato.networks import LeNet

SHAPE = (3, 4, 5)


def perceptron(pixels: int = 60, *hidden: int, seed: int = 0) -> nn.Module:
    sizes = (pixels, *(hidden or (16, 8)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            layer for inputs, outputs in pairwise(sizes) for layer in (nn.Linear(inputs, outputs), nn.ReLU())
        ]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], 10))


def photographs(count: int = 1) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def gradient(model: nn.Module, count: int = 1) -> dict[str, Tensor]:
    return share(model, photographs(count), torch.arange(count))


@pytest.mark.parametrize("hidden", [(256, 128, 64, 64), (32,)])
def test_real_images_come_back_exactly(shared_data, hidden: tuple[int, ...]):
    packed = dict(np.load(shared_data / "cifar10_jpeg_subset.npz"))
    model = perceptron(3072, *hidden)
    for row in (0, 700, 1400, 2100):
        start, end = packed["offset"][row : row + 2]
        pixels = np.array(Image.open(io.BytesIO(packed["blob"][start:end].tobytes())).convert("RGB"))
        original = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
        shared = share(model, original, torch.tensor([int(packed["label"][row])]))
        assert psnr(original, recover(model, shared, (3, 32, 32))).item() > 45


def test_a_row_over_its_bias_is_the_image_as_published():
    model = perceptron()
    shared = gradient(model)
    row = int(shared["1.bias"].abs().argmax())
    published = (shared["1.weight"][row] / shared["1.bias"][row]).reshape(1, *SHAPE)
    torch.testing.assert_close(recover(model, shared, SHAPE), published)


def test_all_rows_together_are_hit_less_by_rounding_than_one():
    model, original = perceptron(), photographs()
    shared = {name: each.half().float() for name, each in gradient(model).items()}
    together = (recover(model, shared, SHAPE) - original).norm()
    active = shared["1.bias"].nonzero().flatten()
    rows = shared["1.weight"][active] / shared["1.bias"][active, None]
    assert together < (rows - original.flatten()).norm(dim=1).mean()


def test_two_copies_of_one_image_are_one_image():
    model, twice = perceptron(), photographs().expand(2, -1, -1, -1)
    shared = share(model, twice, torch.tensor([0, 1]))
    torch.testing.assert_close(recover(model, shared, SHAPE), photographs(), rtol=0, atol=1e-4)


def test_the_loss_does_not_matter():
    model = perceptron()
    functional.mse_loss(model(photographs()), torch.ones(1, 10)).backward()
    shared = {name: each.grad for name, each in model.named_parameters()}
    torch.testing.assert_close(recover(model, shared, SHAPE), photographs(), rtol=0, atol=1e-4)


def test_a_model_that_is_one_layer_has_no_name_before_its_weights():
    layer, flat = nn.Linear(60, 10), photographs().flatten(1)
    functional.cross_entropy(layer(flat), torch.tensor([3])).backward()
    shared = {"weight": layer.weight.grad, "bias": layer.bias.grad}
    assert first_linear(layer) == ("", layer)
    torch.testing.assert_close(recover(layer, shared, SHAPE), photographs(), rtol=0, atol=1e-4)


# Mistakes


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeNet((3, 8, 8), 10), "the first layer with parameters is Conv2d: .*gradient_inversion"),
        (lambda: nn.Flatten(), "is Flatten: inputs are read from"),
        (
            lambda: perceptron(61),
            r"images of shape \(3, 4, 5\) are 60 numbers, and 1 takes 61: give the shape",
        ),
    ],
)
def test_a_model_that_sees_the_image_otherwise_is_refused(make: Callable, message: str):
    with pytest.raises(ConfigError, match=message):
        recover(make(), gradient(perceptron()), SHAPE)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: g.pop("1.bias"), "the gradient lacks 1.bias: it is of another model, or the layer is not"),
        (
            lambda g: g.update({"1.weight": torch.ones(16, 59)}),
            r"of 1.weight is \(16, 59\) where the parameter is \(16, 60\)",
        ),
        (lambda g: g["1.weight"].fill_(float("inf")), "of 1.weight has numbers that are not finite"),
        (
            lambda g: g["1.bias"].zero_(),
            "of 1.bias is 0 everywhere: no unit of this layer passed anything on",
        ),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused(change: Callable, message: str):
    shared = gradient(perceptron())
    change(shared)
    with pytest.raises(DataError, match=message):
        recover(perceptron(), shared, SHAPE)


def test_the_nearest_image_is_the_image_where_one_is_behind_the_gradient():
    model = perceptron()
    image, apart, variance = nearest(model, gradient(model), SHAPE)
    torch.testing.assert_close(image, recover(model, gradient(model), SHAPE))
    assert max(apart, variance) < 1e-6


def test_the_nearest_image_of_a_batch_is_a_mixture_of_its_images():
    model = perceptron()
    found = nearest(model, gradient(model, 3), SHAPE)[0].flatten()
    images = photographs(3).flatten(1)
    shares = torch.linalg.lstsq(images.T, found[:, None]).solution[:, 0]
    torch.testing.assert_close(images.T @ shares, found, rtol=0, atol=1e-4)


def test_the_nearest_image_of_a_noisy_gradient_is_least_squares_by_numpy():
    model, shared = perceptron(), gradient(perceptron())
    noise = torch.Generator().manual_seed(2)
    noisy = {name: each + 0.01 * torch.randn(each.shape, generator=noise) for name, each in shared.items()}
    weight, bias = noisy["1.weight"].double().numpy(), noisy["1.bias"].double().numpy()
    expected = np.linalg.lstsq(bias[:, None], weight, rcond=None)[0][0]
    image, _, variance = nearest(model, noisy, SHAPE)
    np.testing.assert_allclose(image.flatten(), expected, rtol=1e-4, atol=1e-5)
    assert variance > 0.5 * float((image - photographs()).square().mean())  # not nearer than it is


def test_several_images_behind_a_gradient_are_noticed():
    with pytest.raises(DataError, match=r"not parallel, \d+\.\d% of it lies apart: more than one image"):
        recover(perceptron(), gradient(perceptron(), 2), SHAPE)
