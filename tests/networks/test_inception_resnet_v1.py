import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import InceptionResnetV1


@pytest.fixture(scope="module")
def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return InceptionResnetV1().eval()


def test_it_has_the_parameters_that_were_published(network):
    # OpenVINO's model zoo states 23.469 million for the TensorFlow original, whose norms have no scale.
    without_scales = sum(p.numel() for n, p in network.named_parameters() if not n.endswith("bn.weight"))
    assert without_scales / 1e6 == pytest.approx(23.469, abs=0.002)


def test_parameters_are_named_and_shaped_as_in_facenet_pytorch(network):
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    expected = {
        "conv2d_1a.conv.weight": (32, 3, 3, 3),
        "conv2d_4b.bn.running_var": (256,),
        "repeat_1.4.branch0.conv.weight": (32, 256, 1, 1),
        "repeat_1.4.branch2.2.conv.weight": (32, 32, 3, 3),
        "repeat_1.0.conv2d.weight": (256, 96, 1, 1),
        "mixed_6a.branch0.conv.weight": (384, 256, 3, 3),
        "mixed_6a.branch1.2.conv.weight": (256, 192, 3, 3),
        "repeat_2.9.branch1.1.conv.weight": (128, 128, 1, 7),
        "repeat_2.9.branch1.2.conv.weight": (128, 128, 7, 1),
        "repeat_2.0.conv2d.bias": (896,),
        "mixed_7a.branch0.1.conv.weight": (384, 256, 3, 3),
        "mixed_7a.branch2.2.conv.weight": (256, 256, 3, 3),
        "repeat_3.4.branch1.1.conv.weight": (192, 192, 1, 3),
        "block8.branch1.2.conv.weight": (192, 192, 3, 1),
        "block8.conv2d.weight": (1792, 384, 1, 1),
        "last_linear.weight": (512, 1792),
        "last_bn.running_mean": (512,),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    # 6 + 5 * 6 + 4 + 10 * 4 + 7 + 6 * 4 convolutions with a norm of 5 tensors, 21 with a bias, and the end.
    assert len(shapes) == 111 * 6 + 21 * 2 + 1 + 5


def test_an_inception_block_adds_a_share_of_its_branches(network):
    block, features = network.repeat_2[3], torch.rand(1, 896, 5, 6)

    def unit(layer, maps, padding):
        maps = functional.conv2d(maps, layer.conv.weight, padding=padding)
        return ((maps - layer.bn.running_mean[:, None, None]) / (1 + 1e-3) ** 0.5).clamp(min=0)

    one = unit(block.branch0, features, 0)
    other = unit(block.branch1[0], features, 0)
    other = unit(block.branch1[2], unit(block.branch1[1], other, (0, 3)), (3, 0))
    expected = (features + 0.1 * block.conv2d(torch.cat([one, other], 1))).clamp(min=0)
    torch.testing.assert_close(block(features), expected)


def test_the_published_file_loads_without_its_layer_of_classes(network, tmp_path):
    published = network.state_dict() | {"logits.weight": torch.zeros(9, 512), "logits.bias": torch.zeros(9)}
    save_file(published, tmp_path / "vggface2.safetensors")
    loaded = InceptionResnetV1.load(tmp_path / "vggface2.safetensors")
    assert torch.equal(loaded.last_linear.weight, network.last_linear.weight)


def test_images_of_which_nothing_would_be_left_are_refused(network):
    with pytest.raises(DataError, match=r"faces of \(3, 74, 160\): InceptionResnetV1 reads \(3, 160, 160\)"):
        network(torch.zeros(1, 3, 74, 160))
    assert network(torch.zeros(1, 3, 75, 75)).shape == (1, 512)
