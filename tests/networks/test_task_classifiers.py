from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import Convolutional, FullyConnected

NETWORKS = [FullyConnected((1, 16, 16), 5), Convolutional((1, 16, 16), 5, width=8)]


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
    network, images = NETWORKS[0], torch.rand(6, 1, 16, 16)
    features = images.flatten(1)
    *hidden, last = [each for each in network if isinstance(each, torch.nn.Linear)]
    for linear in hidden:
        features = features @ linear.weight.T
        features = (features - features.mean(0)) / (features.var(0, correction=0) + 1e-5).sqrt()
        features = features.clamp(min=0)
    expected = functional.linear(features, last.weight, last.bias)
    torch.testing.assert_close(network(images), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: type(n).__name__)
def test_nothing_is_kept_from_batch_to_batch_not_even_when_told_to_train(network):
    images = torch.rand(6, 1, 16, 16)
    assert not list(network.buffers())
    before = network(images)
    network.train()(torch.rand(6, 1, 16, 16) * 9)
    assert torch.equal(network.eval()(images), before)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: type(n).__name__)
def test_every_image_has_a_number_for_every_class(network):
    assert network(torch.rand(7, 1, 16, 16)).shape == (7, 5)


def test_images_need_not_be_square_nor_grey():
    assert Convolutional((3, 33, 64), 4, width=8)(torch.rand(3, 3, 33, 64)).shape == (3, 4)
    assert FullyConnected((3, 5, 7), 4)(torch.rand(3, 3, 5, 7)).shape == (3, 4)


def test_images_that_four_halvings_leave_nothing_of_are_refused_before_there_is_one():
    with pytest.raises(DataError, match=r"images of 28x15: .* at least 16x16"):
        Convolutional((1, 28, 15), 5)
