import pytest
import torch
from torch.nn import functional

from sfumato.networks import UNet


def reference(network, images):
    """The U-Net of two levels, written out, up to its last layer."""
    top = network.down[0](images)
    middle = network.down[1](functional.max_pool2d(top, 2))
    low = network.down[2](functional.max_pool2d(middle, 2))
    middle = network.up[0](torch.cat([low.repeat_interleave(2, 2).repeat_interleave(2, 3), middle], 1))
    return network.up[1](torch.cat([middle.repeat_interleave(2, 2).repeat_interleave(2, 3), top], 1))


def test_without_outputs_it_adds_to_the_image():
    network, images = UNet(3, width=4, levels=2).eval(), torch.rand(2, 3, 16, 12)
    torch.testing.assert_close(network(images), images + network.last(reference(network, images)))


def test_with_outputs_it_makes_planes_and_adds_nothing():
    network, images = UNet(3, width=4, levels=2, outputs=1).eval(), torch.rand(2, 3, 16, 12)
    assert network(images).shape == (2, 1, 16, 12)
    torch.testing.assert_close(network(images), network.last(reference(network, images)))


def test_outputs_change_the_last_layer_alone():
    shapes, others = (
        {name: tensor.shape for name, tensor in network.state_dict().items()}
        for network in (UNet(3, width=4), UNet(3, width=4, outputs=1))
    )
    assert {name for name in shapes | others if shapes.get(name) != others.get(name)} == {
        "last.weight",
        "last.bias",
    }
    assert others["last.weight"] == (1, 4, 1, 1)


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


def test_every_parameter_is_trained():
    network = UNet(1, width=4, outputs=1)
    network(torch.rand(4, 1, 16, 16)).square().mean().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())
