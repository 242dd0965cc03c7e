"""Small networks: encoders, classifiers of tasks, and embeddings of images of any size."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import (
    Conv4,
    Convolutional,
    DnCNN,
    FullyConnected,
    Predictor,
    ResNet12,
    TinyDarknet,
    UNet,
)
from sfumato.networks.encoders.small import Embedding, Halve, to_squares


def test_conv4_embeds_28_pixels_in_64_numbers_and_84_in_1600():
    # Snell et al. 2017: "a 64-dimensional output space" for Omniglot, 1600 for miniImageNet.
    assert Conv4(1)(torch.rand(2, 1, 28, 28)).shape == (2, 64)
    assert Conv4(3)(torch.rand(2, 3, 84, 84)).shape == (2, 1600)


def test_conv4_is_the_four_blocks_of_the_paper():
    network = Conv4(1, width=8).eval()
    images = features = torch.rand(2, 1, 16, 16)
    for convolution, norm, _, _ in network.blocks:
        features = functional.conv2d(features, convolution.weight, padding=1)
        deviation = (norm.running_var + norm.eps).sqrt()[:, None, None]
        features = (features - norm.running_mean[:, None, None]) / deviation
        features = functional.max_pool2d(features.clamp(min=0), 2)
    torch.testing.assert_close(network(images), features.flatten(1))


def test_resnet12_ends_in_512_numbers_whatever_the_size():
    network = ResNet12(3).eval()
    assert network(torch.rand(1, 3, 84, 84)).shape == (1, 512)
    assert network(torch.rand(1, 3, 32, 48)).shape == (1, 512)


def test_resnet12_has_twelve_convolutions_on_the_main_path():
    network = ResNet12(3)
    main = [m for block in network.blocks for m in block.convolutions if isinstance(m, torch.nn.Conv2d)]
    assert [m.out_channels for m in main] == [64] * 3 + [128] * 3 + [256] * 3 + [512] * 3


@pytest.mark.parametrize(
    "see",
    [
        Conv4(1, width=4),
        ResNet12(1, widths=(4, 4, 4, 4)),
        TinyDarknet(1, 2, widths=(4,) * 7),
        lambda images: Predictor(images.shape[1:], 5),  # refused before there is an image
    ],
)
def test_images_that_vanish_by_four_halvings_are_refused(see):
    message = "images of 28x15: the encoder halves them 4 times, and needs at least 16x16"
    with pytest.raises(DataError, match=message):
        see(torch.zeros(2, 1, 28, 15))


@pytest.mark.parametrize("pools", range(5))
def test_encoders_pool_as_often_as_they_are_told_in_their_last_blocks(pools):
    conv4 = Conv4(1, width=8, pools=pools)
    assert [any(isinstance(layer, nn.MaxPool2d) for layer in block) for block in conv4.blocks] == [
        n >= 4 - pools for n in range(4)
    ]
    assert conv4(torch.rand(2, 1, 37, 50)).shape == (2, 8 * (37 // 2**pools) * (50 // 2**pools))
    resnet = ResNet12(1, widths=(4, 4, 4, 8), pools=pools)
    assert resnet.blocks(torch.rand(2, 1, 37, 50)).shape == (2, 8, 37 // 2**pools, 50 // 2**pools)
    assert resnet(torch.rand(2, 1, 37, 50)).shape == (2, 8)


@pytest.mark.parametrize("make", [Conv4, ResNet12])
def test_the_smallest_images_of_fewer_halvings_are_smaller(make):
    network = make(1, pools=1).eval()
    assert network(torch.zeros(1, 1, 2, 2)).isfinite().all()
    with pytest.raises(
        DataError, match="images of 1x9: the encoder halves them 1 times, and needs at least 2x2"
    ):
        network(torch.zeros(1, 1, 1, 9))


def test_dncnn_has_eight_convolutions_of_64_filters():
    layers = [m for m in DnCNN(3).modules() if isinstance(m, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in layers] == [64] * 7 + [3]


def test_an_untrained_denoiser_takes_nothing_away():
    images = torch.rand(2, 3, 9, 7)
    assert torch.equal(DnCNN(3, depth=4, width=4)(images), images)


def test_dncnn_takes_what_its_layers_predict_away():
    network = DnCNN(3, depth=3, width=4).eval()
    torch.nn.init.normal_(network.residual[-1].weight)
    images = torch.rand(2, 3, 9, 7)
    first, _, middle, norm, _, last = network.residual
    features = functional.conv2d(images, first.weight, first.bias, padding=1).clamp(min=0)
    features = functional.conv2d(features, middle.weight, padding=1) / (1 + norm.eps) ** 0.5  # as initialised
    residual = functional.conv2d(features.clamp(min=0), last.weight, last.bias, padding=1)
    torch.testing.assert_close(network(images), images - residual)
    assert residual.abs().mean() > 0.01


def test_planes_are_seen_by_the_denoiser_and_not_returned():
    network = DnCNN(3, depth=3, width=4, planes=2).eval()
    torch.nn.init.normal_(network.residual[-1].weight)
    images, planes = torch.rand(2, 3, 9, 7), torch.rand(2, 2, 9, 7)
    denoised = network(torch.cat([images, planes], 1))
    assert denoised.shape == images.shape
    assert not torch.allclose(denoised, network(torch.cat([images, -planes], 1)))
    torch.nn.init.zeros_(network.residual[-1].weight)
    assert torch.equal(network(torch.cat([images, planes], 1)), images)


@pytest.mark.parametrize(
    "network",
    [
        Conv4(1, width=4),
        Conv4(1, width=4, pools=1),
        DnCNN(1, depth=3, width=4),
        UNet(1, width=4, outputs=1),
        Predictor((1, 16, 16), 3, width=4, hidden=8),
        ResNet12(1, widths=(4, 4, 4, 4)),
        ResNet12(1, widths=(4, 4, 4, 4), pools=0),
    ],
)
def test_every_parameter_is_trained(network):
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    for _ in range(2):  # the first step moves only the last layer of a denoiser
        optimiser.zero_grad()
        network(torch.rand(4, 1, 16, 16)).square().mean().backward()
        optimiser.step()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_conv4_pools_before_its_relu_and_gives_the_outputs_and_gradients_of_the_published_order_to_the_bit():
    torch.manual_seed(0)
    images, slope = torch.randn(6, 3, 20, 20), torch.randn(6, 64)
    ours, published = Conv4(3), Conv4(3)
    published.load_state_dict(ours.state_dict())
    for block in published.blocks:
        # Scales of both signs, and windows of which all is below 0.
        nn.init.normal_(block[1].weight, generator=torch.Generator().manual_seed(1))
    ours.load_state_dict(published.state_dict())
    published.blocks = nn.Sequential(
        *(nn.Sequential(block[0], block[1], nn.ReLU(), nn.MaxPool2d(2)) for block in published.blocks)
    )
    found, wanted = ours(images), published(images)
    assert torch.equal(found, wanted)
    found.backward(slope)
    wanted.backward(slope)
    for mine, theirs in zip(ours.parameters(), published.parameters(), strict=True):
        assert torch.equal(mine.grad, theirs.grad)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (1, 2, 7, 5), (3, 1, 2, 2)])
def test_halving_without_gradients_is_the_max_pool_with_them(shape, channels_last):
    maps = torch.randn(shape, generator=torch.Generator().manual_seed(0)).round(decimals=1)
    maps[0, 0, 0, 0] = math.nan
    if channels_last:
        maps = maps.contiguous(memory_format=torch.channels_last)
    expected = functional.max_pool2d(maps, 2)
    with torch.no_grad():
        torch.testing.assert_close(Halve()(maps), expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(Halve()(maps), expected, rtol=0, atol=0, equal_nan=True)


def test_an_exported_encoder_keeps_its_max_pools():
    with torch.no_grad():
        program = torch.export.export(Conv4(3, width=4).eval(), (torch.zeros(2, 3, 16, 16),))
    assert str(program.graph).count("torch.ops.aten.max_pool2d") == 4


def test_it_is_conv4_a_dense_layer_with_batch_norm_and_relu_and_a_dense_layer():
    network, images = Predictor((3, 32, 48), 5, width=8, hidden=12).eval(), torch.rand(4, 3, 32, 48)
    first, norm, _, last = network.head
    features = network.encoder(images) @ first.weight.T
    features = (features - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    expected = features.clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(network(images), expected)
    assert expected.shape == (4, 5)


def test_the_convolutions_are_those_of_tiny_darknet():
    found = [
        (each.in_channels, each.out_channels, each.kernel_size[0])
        for each in TinyDarknet(3, 10).modules()
        if isinstance(each, torch.nn.Conv2d)
    ]
    assert found == [
        (3, 16, 3),
        (16, 32, 3),
        *[(32, 16, 1), (16, 128, 3), (128, 16, 1), (16, 128, 3)],
        *[(128, 32, 1), (32, 256, 3), (256, 32, 1), (32, 256, 3)],
        *[(256, 64, 1), (64, 512, 3), (512, 64, 1), (64, 512, 3)],
        *[(512, 128, 1), (128, 1000, 1)],
    ]


@pytest.mark.parametrize(("side", "left"), [(64, 4), (32, 2), (16, 1), (70, 4)])
def test_four_pools_halve_the_image(side: int, left: int):
    network, seen = TinyDarknet(1, 5, widths=(4, 4, 8, 8, 16, 8, 6)).eval(), []
    network.conv7.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    assert network(torch.rand(2, 1, side, side)).shape == (2, 5)
    assert seen == [(2, 6, left, left)]


TASKS = [FullyConnected((1, 16, 16), 5), Convolutional((1, 16, 16), 5, width=8)]


def test_the_fully_connected_network_has_the_layers_of_the_paper():
    network = FullyConnected((1, 28, 28), 5)
    sizes = [784, 256, 128, 64, 64]
    hidden = sum(a * b + 2 * b for a, b in pairwise(sizes))
    assert sum(p.numel() for p in network.parameters()) == hidden + 64 * 5 + 5


def test_the_convolutional_network_is_conv4_and_a_linear_layer():
    network = Convolutional((1, 28, 28), 5)
    blocks = 9 * 64 + 3 * 9 * 64 * 64 + 4 * 2 * 64
    assert sum(p.numel() for p in network.parameters()) == blocks + 64 * 5 + 5


def test_the_fully_connected_network_normalises_each_batch_by_itself():
    network, images = TASKS[0], torch.rand(6, 1, 16, 16)
    features = images.flatten(1)
    *hidden, last = [each for each in network if isinstance(each, torch.nn.Linear)]
    for linear in hidden:
        features = features @ linear.weight.T
        features = (features - features.mean(0)) / (features.var(0, correction=0) + 1e-5).sqrt()
        features = features.clamp(min=0)
    expected = functional.linear(features, last.weight, last.bias)
    torch.testing.assert_close(network(images), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("network", TASKS, ids=lambda n: type(n).__name__)
def test_nothing_is_kept_from_batch_to_batch_not_even_when_told_to_train(network):
    images = torch.rand(6, 1, 16, 16)
    assert not list(network.buffers())
    before = network(images)
    network.train()(torch.rand(6, 1, 16, 16) * 9)
    assert torch.equal(network.eval()(images), before)


def noise(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "dimension"), [("resnet50", 2048), ("resnet18", 512), ("lenet", 48)])
def test_images_of_any_size_and_colour_have_vectors_of_one_length(name: str, dimension: int):
    embedding = Embedding(name, size=8, normalised=True).eval()
    for shape in ((2, 3, 8, 8), (2, 1, 11, 20)):
        vectors = embedding(noise(*shape))
        assert vectors.shape == (2, dimension)
        assert torch.allclose(vectors.norm(dim=1), torch.ones(2))


def test_grey_is_the_same_in_all_channels():
    images = noise(2, 1, 8, 8)
    assert torch.equal(to_squares(images, 8), torch.cat([images] * 3, dim=1))


def test_what_is_smaller_than_a_pixel_is_averaged_and_not_skipped():
    checks = (torch.arange(64)[:, None] + torch.arange(64)).remainder(2).float().expand(1, 3, 64, 64)
    assert torch.allclose(to_squares(checks, 8), torch.full((1, 3, 8, 8), 0.5), atol=0.02)


def test_a_wide_image_is_squeezed_whole():
    halves = torch.zeros(1, 3, 8, 32)
    halves[..., 16:] = 1
    squeezed = to_squares(halves, 8)
    assert torch.equal(squeezed[..., :3], torch.zeros(1, 3, 8, 3))
    assert torch.equal(squeezed[..., 5:], torch.ones(1, 3, 8, 3))
