"""SPEAR: a whole batch read from the gradient of a first linear layer before a ReLU, or refused."""

import io
from itertools import pairwise

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from sfumato.assess.matching import match
from sfumato.assess.similarity import psnr
from sfumato.attack import first_layer, spear
from sfumato.attack.victim import share
from sfumato.errors import ConfigError, DataError

SHAPE = (3, 8, 8)


def perceptron(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), activation())]
        return nn.Sequential(nn.Flatten(), *layers, nn.Linear(sizes[-1], 10))


def noise(count: int) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(1))


def recover(model: nn.Module, shared: dict[str, Tensor], **options: int) -> spear.Recovered:
    return spear.recover(model, shared, SHAPE, generator=torch.Generator().manual_seed(0), **options)


def photographs(folder, count: int) -> tuple[Tensor, Tensor]:
    packed = dict(np.load(folder / "cifar10_jpeg_subset.npz"))
    rows = torch.randperm(len(packed["label"]), generator=torch.Generator().manual_seed(count))[
        :count
    ].numpy()
    blobs = [packed["blob"][packed["offset"][row] : packed["offset"][row + 1]].tobytes() for row in rows]
    pixels = [np.array(Image.open(io.BytesIO(blob)).convert("RGB")) for blob in blobs]
    images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).double() / 255
    return images, torch.from_numpy(packed["label"][rows].astype(np.int64))


@pytest.mark.parametrize("count", [2, 4, 8])
def test_real_photographs_of_a_whole_batch_come_back_exactly(shared_data, count: int):
    model = perceptron(3072, 200, 200).double()
    images, labels = photographs(shared_data, count)
    shape, generator = (3, 32, 32), torch.Generator().manual_seed(0)
    found = spear.recover(model, share(model, images, labels), shape, generator=generator)
    assert found.match == 1
    assert psnr(images.float(), found.images[match(images.float(), found.images)]).min() > 140


@pytest.mark.parametrize("count", [1, 3, 5])
def test_single_precision_is_enough(count: int):
    model, images = perceptron(192, 128), noise(count)
    found = recover(model, share(model, images, torch.arange(count)))
    assert len(found.images) == count  # nobody said how many they are
    assert psnr(images, found.images[match(images, found.images)]).min() > 60


def test_one_image_is_what_the_first_layer_alone_gives():
    model = perceptron(192, 64)
    shared = share(model, noise(1), torch.tensor([3]))
    torch.testing.assert_close(recover(model, shared).images, first_layer.recover(model, shared, SHAPE))


def test_images_of_the_same_label_come_back_too():
    model, images = perceptron(192, 128), noise(4)
    found = recover(model, share(model, images, torch.full((4,), 7)))
    assert psnr(images, found.images[match(images, found.images)]).min() > 60


def test_without_a_relu_nothing_is_claimed():
    model = perceptron(192, 128, activation=nn.Sigmoid)
    with pytest.raises(DataError, match=r"no 4 images .* is not followed by a ReLU"):
        recover(model, share(model, noise(4), torch.arange(4)), most=2048)


def test_noise_is_named_where_it_hides_the_rank():
    model = perceptron(192, 128)
    generator = torch.Generator().manual_seed(0)
    shared = share(model, noise(2), torch.arange(2))
    noisy = {
        name: each + 0.01 * torch.randn(each.shape, generator=generator) for name, each in shared.items()
    }
    with pytest.raises(DataError, match=r"no gap below it: noise was added"):
        recover(model, noisy)


def test_a_model_that_sees_other_images_or_begins_with_a_convolution_is_refused():
    model = perceptron(100, 16)
    with pytest.raises(ConfigError, match=r"are 192 numbers, and 1 takes 100"):
        recover(model, {})
    with pytest.raises(ConfigError, match="the first layer with parameters is Conv2d"):
        recover(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 4)), {})


def test_a_gradient_of_zero_holds_no_image():
    model = perceptron(192, 16)
    nothing = {name: torch.zeros_like(weight) for name, weight in model.named_parameters()}
    with pytest.raises(DataError, match="is 0 everywhere: no image is in it"):
        recover(model, nothing)
