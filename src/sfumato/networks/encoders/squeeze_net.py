"""SqueezeNet 1.0: features of objects from ImageNet, in 1.2 million weights."""

import os
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.images import check_batch, to_float
from sfumato.networks.weights import load_weights

SOURCE = (
    "SqueezeNet 1.0 for ImageNet is at github.com/songhan/SqueezeNet_compressed: BSD; its compressed weights "
    "have to be unpacked into an .npz with the names conv1, fire2.squeeze, ..., conv10; or torchvision's "
    "squeezenet1_0, whose features are the same; its class probabilities are not"
)

STAGES = ("conv1", "fire2", "fire3", "fire4", "fire5", "fire6", "fire7", "fire8", "fire9")

_BATCH = 64
MEAN_BGR = (104.0, 117.0, 123.0)
_SQUEEZED = (16, 16, 32, 32, 48, 48, 64, 64)  # channels of fire2 to fire9; their outputs have 8 times as many
WIDTHS = (96, *(8 * squeezed for squeezed in _SQUEEZED))  # channels of each of STAGES
_POOLED = ("conv1", "fire4", "fire8")
# torchvision normalises RGB images in [0, 1] by these; and has the layers of STAGES at these places.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_LAYERS = {
    f"features.{place}": name for place, name in zip((0, 3, 4, 5, 7, 8, 9, 10, 12), STAGES, strict=True)
}
_LAYERS["classifier.1"] = "conv10"


class SqueezeNet(nn.Module):
    """Fire modules: squeeze by 1x1 convolutions, expand by 1x1 and 3x3 ones.

    Source: Iandola et al. 2016, Table 1, version 1.0 and not 1.1, in the conventions of Caffe: pools that
    round up, BGR less (104, 117, 123), and a last convolution padded by 1.

    (N, 3, H, W) float in [0, 1], RGB -> (N, 1000) logits. Trained at 227 pixels; H and W are at least 21.
    State: its weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 7, stride=2)
        channels = 96
        for name, squeezed in zip(STAGES[1:], _SQUEEZED, strict=True):
            self.add_module(name, Fire(channels, squeezed))
            channels = 8 * squeezed
        self.conv10 = nn.Conv2d(channels, 1000, 1, padding=1)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "SqueezeNet":
        """Makes the network with the weights of a file. Raises ArtefactError as load_weights does."""
        return load_weights(cls, path, source=SOURCE, rename=_from_torchvision)

    def features(self, images: Tensor) -> list[Tensor]:
        """Maps of float images after each of STAGES, before any pool. Raises DataError below 21 pixels."""
        if images.shape[1] != 3 or min(images.shape[2:]) < 21:
            raise DataError(f"images of {tuple(images.shape[1:])}: SqueezeNet reads (3, H, W) from 21x21")
        mean = torch.tensor(MEAN_BGR, device=images.device)[:, None, None]
        maps = functional.relu(self.conv1(images.flip(1) * 255 - mean))
        stages = [maps]
        for before, name in pairwise(STAGES):
            if before in _POOLED:
                maps = functional.max_pool2d(maps, 3, 2, ceil_mode=True)
            maps = self.get_submodule(name)(maps)
            stages.append(maps)
        return stages

    def forward(self, images: Tensor) -> Tensor:
        """Logits of float images over the 1000 classes of ImageNet, in their usual order."""
        return functional.relu(self.conv10(self.features(images)[-1])).mean((2, 3))

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """(N, 3, H, W) uint8 -> (N, 1000) probabilities."""
        check_batch(images)
        self.eval()
        return torch.cat([self(to_float(part)).softmax(1) for part in images.split(_BATCH)])


class Fire(nn.Module):
    """Squeezes by 1x1 convolutions, expands by 1x1 and 3x3 ones to eight times as many channels."""

    def __init__(self, inputs: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeezed, 1)
        self.expand1x1 = nn.Conv2d(squeezed, 4 * squeezed, 1)
        self.expand3x3 = nn.Conv2d(squeezed, 4 * squeezed, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        """Maps of the same size."""
        small = functional.relu(self.squeeze(features))
        return functional.relu(torch.cat([self.expand1x1(small), self.expand3x3(small)], 1))


def _from_torchvision(given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Converts torchvision's names and scaling to those of Caffe; other weights stay as they are.

    torchvision's first convolution sees (x - m) / s of RGB in [0, 1], Caffe's 255 x - mean of BGR: the
    weights of a channel are divided by 255 s, and the shift is added to the bias. It has no padding, so both
    compute the same.
    """
    layers = {name: name.rpartition(".expand")[0] or name.rpartition(".squeeze")[0] for name in given}
    layers |= {name: name.rpartition(".")[0] for name, layer in layers.items() if not layer}
    if not all(layer in _LAYERS for layer in layers.values()) or given["features.0.weight"].shape[1] != 3:
        return given
    tensors = {_LAYERS[layer] + name.removeprefix(layer): given[name] for name, layer in layers.items()}
    weight = tensors["conv1.weight"].double()
    mean, std = (torch.tensor(each, dtype=weight.dtype)[:, None, None] for each in (_MEAN, _STD))
    caffe = torch.tensor(MEAN_BGR, dtype=weight.dtype).flip(0)[:, None, None]
    shift = (weight * (caffe / 255 - mean) / std).sum((1, 2, 3))
    tensors["conv1.bias"] = (tensors["conv1.bias"].double() + shift).float()
    tensors["conv1.weight"] = (weight / (255 * std)).flip(1).float()
    return tensors
