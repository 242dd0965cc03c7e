"""dlib's recogniser of faces, from a wheel: a second public network, taught by other photographs."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import needs_extra
from sfumato.images import check_batch
from sfumato.networks.faces.alignment import align
from sfumato.networks.wheels import WheelFile

WEIGHTS = WheelFile(
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
_BATCH = 64


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
        return cls(str(WEIGHTS.path()))

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
