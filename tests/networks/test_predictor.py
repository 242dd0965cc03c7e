import pytest
import torch

from sfumato.errors import DataError
from sfumato.networks import Predictor


def test_it_is_conv4_a_dense_layer_with_batch_norm_and_relu_and_a_dense_layer():
    network, images = Predictor((3, 32, 48), 5, width=8, hidden=12).eval(), torch.rand(4, 3, 32, 48)
    first, norm, _, last = network.head
    features = network.encoder(images) @ first.weight.T
    features = (features - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    expected = features.clamp(min=0) @ last.weight.T + last.bias
    torch.testing.assert_close(network(images), expected)
    assert expected.shape == (4, 5)


def test_64_pixels_have_1024_features():
    network = Predictor((3, 64, 64), 5)
    assert network.head[0].weight.shape == (128, 1024)


def test_every_parameter_is_trained():
    network = Predictor((1, 16, 16), 3, width=4, hidden=8)
    network(torch.rand(8, 1, 16, 16)).log_softmax(1)[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_images_that_four_halvings_leave_nothing_of_are_refused_before_there_is_one():
    with pytest.raises(DataError, match=r"images of 28x15: .* at least 16x16"):
        Predictor((1, 28, 15), 5)
