import pytest
import torch

from sfumato.errors import DataError
from sfumato.networks import TinyDarknet


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


def test_it_has_as_many_weights_as_tiny_darknet():
    # Four bytes each make the 4.0 MB that Redmon gives; the head comes on top.
    network = TinyDarknet(3, 1)
    assert sum(p.numel() for n, p in network.named_parameters() if not n.startswith("head")) * 4 < 4.2e6


def test_the_layers_of_the_paper_have_names():
    names = [name for name, _ in TinyDarknet(1, 2, widths=(4,) * 7).named_children()]
    assert names[:4] == ["conv1", "pool1", "conv2", "pool2"]
    assert {"conv4_2", "conv5_1", "conv6_1", "conv7"} <= set(names)


@pytest.mark.parametrize(("side", "left"), [(64, 4), (32, 2), (16, 1), (70, 4)])
def test_four_pools_halve_the_image(side: int, left: int):
    network, seen = TinyDarknet(1, 5, widths=(4, 4, 8, 8, 16, 8, 6)).eval(), []
    network.conv7.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    assert network(torch.rand(2, 1, side, side)).shape == (2, 5)
    assert seen == [(2, 6, left, left)]


def test_images_that_the_pools_leave_nothing_of_are_refused():
    with pytest.raises(DataError, match="images of 15x40: the encoder halves them 4 times"):
        TinyDarknet(1, 2, widths=(4,) * 7)(torch.rand(1, 1, 15, 40))
