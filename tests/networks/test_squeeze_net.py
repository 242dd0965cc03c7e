import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.networks import SqueezeNet
from sfumato.networks.encoders.squeeze_net import STAGES

WEIGHTS = "weights/squeezenet1_0_imagenet_deepcomp.npz"
# Categories of Caltech-101 that ImageNet has under the same name, and their numbers there.
NAMESAKES = {"accordion": 401, "llama": 355, "pizza": 963, "grand_piano": 579, "soccer_ball": 805}
NAMESAKES |= {"revolver": 763, "dalmatian": 251, "strawberry": 949, "starfish": 327, "minaret": 667}


@pytest.fixture(scope="module")
def network(shared_data):
    return SqueezeNet.load(shared_data / WEIGHTS)


@pytest.fixture(scope="module")
def photographs(shared_data):
    """Six photographs of each of NAMESAKES, enlarged to 140 pixels, and the numbers of ImageNet."""
    packed = dict(np.load(shared_data / "caltech101_84.npz"))
    classes, pixels, numbers = packed["classes"].tolist(), [], []
    for name, number in NAMESAKES.items():
        for i in np.flatnonzero(packed["label"] == classes.index(name))[::5][:6]:
            file = packed["blob"][packed["offset"][i] : packed["offset"][i + 1]].tobytes()
            pixels.append(np.array(Image.open(io.BytesIO(file)).convert("RGB").resize((140, 140))))
            numbers.append(number)
    return torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2).copy()), torch.tensor(numbers)


def test_it_has_the_parameters_that_were_published():
    # torchvision states 1248424 for squeezenet1_0, which has the layers of the paper.
    assert sum(p.numel() for p in SqueezeNet().parameters()) == 1_248_424


def test_maps_of_the_stages_have_the_sizes_of_the_paper():
    # Iandola et al. 2016, Table 1: 111, 55, 27 and 13, which come from 227 pixels (the table says 224).
    maps = SqueezeNet().features(torch.rand(1, 3, 227, 227))
    assert [tuple(m.shape[1:]) for m in maps] == [
        (96, 111, 111),
        *[(128, 55, 55)] * 2,
        (256, 55, 55),
        (256, 27, 27),
        *[(384, 27, 27)] * 2,
        (512, 27, 27),
        (512, 13, 13),
    ]
    assert len(maps) == len(STAGES)


def test_the_first_stage_sees_blue_first_and_less_the_mean_of_caffe():
    network, images = SqueezeNet(), torch.rand(2, 3, 32, 32)
    red, green, blue = (images * 255).unbind(1)
    caffe = torch.stack([blue - 104, green - 117, red - 123], 1)
    expected = functional.conv2d(caffe, network.conv1.weight, network.conv1.bias, stride=2).clamp(min=0)
    torch.testing.assert_close(network.features(images)[0], expected)


def test_objects_on_real_photographs_are_named(network, photographs):
    # Of 1000 classes. On 20 such categories 44% and 70% were measured when the data were packed.
    images, numbers = photographs
    best = network.classify(images).topk(5).indices  # (60, 5)
    named = (best[:, 0] == numbers).float().mean()
    assert named >= 0.42
    assert (best == numbers[:, None]).any(1).float().mean() >= 0.55
    exchanged = network.classify(images.flip(1)).argmax(1)  # red for blue
    assert (exchanged == numbers).float().mean() < named - 0.08


def test_small_and_grey_images_are_refused():
    network = SqueezeNet()
    assert network(torch.rand(1, 3, 21, 21)).shape == (1, 1000)
    for shape in ((3, 20, 40), (1, 84, 84)):
        with pytest.raises(DataError, match=r"SqueezeNet reads \(3, H, W\) from 21x21"):
            network(torch.rand(1, *shape))


def test_torchvisions_weights_have_the_same_features_of_images_that_it_scales_otherwise(tmp_path):
    ours = SqueezeNet().eval()
    places = dict(zip((0, 3, 4, 5, 7, 8, 9, 10, 12), STAGES, strict=True))  # among torchvision's `features`
    theirs = {
        name.replace(f"{stage}.", f"features.{place}.", 1): tensor
        for place, stage in places.items()
        for name, tensor in ours.state_dict().items()
        if name.startswith(f"{stage}.")
    }
    theirs |= {f"classifier.1.{part}": ours.state_dict()[f"conv10.{part}"] for part in ("weight", "bias")}
    torch.save(theirs, tmp_path / "squeezenet1_0.pth")
    images = torch.rand(2, 3, 64, 50)
    mean, std = (torch.tensor(each)[:, None, None] for each in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        read = SqueezeNet.load(tmp_path / "squeezenet1_0.pth").features(images)
        expected = functional.relu(ours.conv1((images - mean) / std))
        torch.testing.assert_close(read[0], expected, rtol=1e-3, atol=1e-4)
        for stage, before in (("fire2", read[0]), ("fire5", read[3])):
            pooled = functional.max_pool2d(before, 3, 2, ceil_mode=True)
            torch.testing.assert_close(read[STAGES.index(stage)], ours.get_submodule(stage)(pooled))
