"""Inception-ResNet-v1, the network of public FaceNet weights."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.images import check_batch, to_float
from sfumato.networks.weights import load_weights

SOURCE = (
    "InceptionResnetV1 weights, trained on VGGFace2 or CASIA-WebFace, are among the releases of "
    "github.com/timesler/facenet-pytorch (20180402-114759-vggface2.pt): MIT, and the training photographs "
    "are for research"
)

_BATCH = 32
_Branch = Sequence[tuple[int, int | tuple[int, int], int]]  # of each unit: channels, kernel, stride


class InceptionResnetV1(nn.Module):
    """Inception blocks with residual connections, to a point on the sphere of 512 dimensions.

    Source: Szegedy et al. 2017, Sec. 3.1; as trained by Sandberg for FaceNet (Schroff et al. 2015), and named
    as in facenet-pytorch (SOURCE). The layer of classes and the dropout, for training only, are left out.

    (N, 3, 160, 160) float in [0, 1], RGB -> (N, 512) of unit length. The public weights have seen boxes of a
    detector with a margin (MTCNN here), not turned; other sizes of at least 75 pixels work, less well.
    State: its weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv2d_1a = _unit(3, 32, 3, stride=2)
        self.conv2d_2a = _unit(32, 32, 3)
        self.conv2d_2b = _unit(32, 64, 3, padding=1)
        self.conv2d_3b = _unit(64, 80, 1)
        self.conv2d_4a = _unit(80, 192, 3)
        self.conv2d_4b = _unit(192, 256, 3, stride=2)
        at35: list[_Branch] = [[(32, 1, 1)], [(32, 1, 1), (32, 3, 1)], [(32, 1, 1), (32, 3, 1), (32, 3, 1)]]
        self.repeat_1 = nn.Sequential(*(_Residual(256, at35, scale=0.17) for _ in range(5)))
        self.mixed_6a = _Reduction(256, [[(384, 3, 2)], [(192, 1, 1), (192, 3, 1), (256, 3, 2)]])
        at17: list[_Branch] = [[(128, 1, 1)], [(128, 1, 1), (128, (1, 7), 1), (128, (7, 1), 1)]]
        self.repeat_2 = nn.Sequential(*(_Residual(896, at17, scale=0.1) for _ in range(10)))
        self.mixed_7a = _Reduction(
            896,
            [[(256, 1, 1), (384, 3, 2)], [(256, 1, 1), (256, 3, 2)], [(256, 1, 1), (256, 3, 1), (256, 3, 2)]],
        )
        at8: list[_Branch] = [[(192, 1, 1)], [(192, 1, 1), (192, (1, 3), 1), (192, (3, 1), 1)]]
        self.repeat_3 = nn.Sequential(*(_Residual(1792, at8, scale=0.2) for _ in range(5)))
        self.block8 = _Residual(1792, at8, scale=1.0, linear=True)
        self.last_linear = nn.Linear(1792, 512, bias=False)
        self.last_bn = nn.BatchNorm1d(512, eps=0.001)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "InceptionResnetV1":
        """Makes the network with the weights of a file. Raises ArtefactError as load_weights does."""
        return load_weights(cls, path, source=SOURCE, unused=("logits.weight", "logits.bias"))

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError for too small ones."""
        if images.shape[1] != 3 or min(images.shape[2:]) < 75:
            raise DataError(
                f"faces of {tuple(images.shape[1:])}: InceptionResnetV1 reads (3, 160, 160), nothing below 75"
            )
        features = (images * 255 - 127.5) / 128
        features = self.conv2d_2b(self.conv2d_2a(self.conv2d_1a(features)))
        features = self.conv2d_3b(functional.max_pool2d(features, 3, 2))
        features = self.repeat_1(self.conv2d_4b(self.conv2d_4a(features)))
        features = self.repeat_2(self.mixed_6a(features))
        features = self.block8(self.repeat_3(self.mixed_7a(features)))
        return functional.normalize(self.last_bn(self.last_linear(features.mean((2, 3)))), dim=1)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """(N, 3, 160, 160) uint8 -> (N, 512) float32 of unit length."""
        check_batch(images)
        self.eval()
        return torch.cat([self(to_float(part)) for part in images.split(_BATCH)])


def _unit(inputs: int, outputs: int, kernel: Any, *, stride: int = 1, padding: Any = 0) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    return nn.Sequential(OrderedDict(conv=convolution, bn=nn.BatchNorm2d(outputs, eps=0.001), relu=nn.ReLU()))


def _branch(inputs: int, units: _Branch) -> nn.Module:
    """Units in a row: those of stride 1 keep the size, those of stride 2 are not padded."""
    made = []
    for outputs, kernel, stride in units:
        height, width = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        padding = (height // 2, width // 2) if stride == 1 else 0
        made.append(_unit(inputs, outputs, kernel, stride=stride, padding=padding))
        inputs = outputs
    return made[0] if len(made) == 1 else nn.Sequential(*made)


class _Branches(nn.Module):
    def __init__(self, channels: int, branches: Sequence[_Branch]) -> None:
        super().__init__()
        for i, units in enumerate(branches):
            self.add_module(f"branch{i}", _branch(channels, units))
        self.count = len(branches)

    def parts(self, features: Tensor) -> list[Tensor]:
        return [self.get_submodule(f"branch{i}")(features) for i in range(self.count)]


class _Residual(_Branches):
    def __init__(
        self, channels: int, branches: Sequence[_Branch], *, scale: float, linear: bool = False
    ) -> None:
        super().__init__(channels, branches)
        self.conv2d = nn.Conv2d(sum(units[-1][0] for units in branches), channels, 1)
        self.scale, self.linear = scale, linear

    def forward(self, features: Tensor) -> Tensor:
        changed: Tensor = self.scale * self.conv2d(torch.cat(self.parts(features), 1)) + features
        return changed if self.linear else functional.relu(changed)


class _Reduction(_Branches):
    def forward(self, features: Tensor) -> Tensor:
        return torch.cat([*self.parts(features), functional.max_pool2d(features, 3, 2)], 1)
