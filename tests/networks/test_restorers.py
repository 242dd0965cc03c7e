"""Networks that draw images."""

import pytest
import torch
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import UNet, UpConvolutional


def unet_by_hand(network, images):
    """The U-Net of two levels, written out, up to its last layer."""
    top = network.down[0](images)
    middle = network.down[1](functional.max_pool2d(top, 2))
    low = network.down[2](functional.max_pool2d(middle, 2))
    middle = network.up[0](torch.cat([low.repeat_interleave(2, 2).repeat_interleave(2, 3), middle], 1))
    return network.up[1](torch.cat([middle.repeat_interleave(2, 2).repeat_interleave(2, 3), top], 1))


@pytest.mark.parametrize("outputs", [None, 1])
def test_without_outputs_it_adds_to_the_image_and_with_some_it_makes_planes(outputs):
    network, images = UNet(3, width=4, levels=2, outputs=outputs).eval(), torch.rand(2, 3, 16, 12)
    made = network.last(unet_by_hand(network, images))
    assert made.shape == (2, outputs or 3, 16, 12)
    torch.testing.assert_close(network(images), made if outputs else images + made)


@pytest.mark.parametrize("size", [(8, 8), (9, 15), (30, 17)])
def test_sides_need_not_be_multiples_of_anything(size):
    assert UNet(1, width=4, levels=3, outputs=1).eval()(torch.rand(2, 1, *size)).shape == (2, 1, *size)


def test_planes_keep_the_digits_of_float32_under_autocast():
    network, images = UNet(3, width=4, outputs=1).eval(), torch.rand(4, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        planes = network(images)
    assert planes.dtype == torch.float32
    assert not torch.equal(planes, planes.bfloat16().float())
    # Ranked, they are hardly ever equal; rounded to bfloat16, of 1024 most are.
    for plane in planes:
        assert len(plane.unique()) > 2 * len(plane.bfloat16().unique())


def test_it_is_three_dense_layers_and_up_convolutions_with_leaky_relu_between():
    network, vectors = UpConvolutional(5, (3, 16, 12), width=2), torch.randn(4, 5)
    features = vectors
    for dense in network.dense:
        features = functional.leaky_relu(features @ dense.weight.T + dense.bias, 0.2)
    features = features.reshape(4, 4, 4, 3)
    first, second = network.up
    settings = {"stride": 2, "padding": 2, "output_padding": 1}
    features = functional.conv_transpose2d(features, first.weight, first.bias, **settings)
    features = functional.leaky_relu(features, 0.2)
    expected = functional.conv_transpose2d(features, second.weight, second.bias, **settings)
    torch.testing.assert_close(network(vectors), expected)


def test_128_pixels_have_the_filters_that_the_docstring_says():
    # Dosovitskiy & Brox 2016, Table 1: three dense layers, 4x4x256, five up-convolutions of 5x5.
    network = UpConvolutional(1000, (3, 128, 128))
    assert len(network.dense) == 3
    assert network.dense[-1].out_features == 4 * 4 * 256
    assert [layer.out_channels for layer in network.up] == [256, 128, 64, 32, 3]
    assert {layer.kernel_size for layer in network.up} == {(5, 5)}


@pytest.mark.parametrize(
    "size", [*((side, side) for side in range(8, 129, 4)), (8, 128), (128, 8), (84, 20), (12, 44)]
)
def test_it_draws_every_size_that_it_takes(size):
    network = UpConvolutional(3, (1, *size), width=1)
    assert network(torch.randn(2, 3)).shape == (2, 1, *size)


def test_vectors_are_told_apart_before_any_training():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        images = UpConvolutional(10, (3, 64, 64), width=8)(torch.randn(100, 10))
    assert 0.03 < images.std(dim=0).mean() < 0.5  # of pixels in [0, 1]; by PyTorch's own weights 0.0004


@pytest.mark.parametrize(
    ("size", "cure"), [((30, 24), "32x24"), ((4, 8), "8x8"), ((64, 218), "64x128"), ((17, 129), "16x128")]
)
def test_other_sides_are_refused_with_the_nearest_that_are_not(size, cure):
    message = f"images of {size[0]}x{size[1]}: .* sides of 8 to 128 .* multiples of 4: load them at {cure}"
    with pytest.raises(DataError, match=message):
        UpConvolutional(3, (1, *size))
