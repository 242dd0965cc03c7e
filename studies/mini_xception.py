"""mini-Xception: seven emotions of a face, in 58 thousand weights."""

import os

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.images import check_batch, to_float
from sfumato.networks.weights import load_weights

SOURCE = (
    "The emotion network is fer2013_mini_XCEPTION.102-0.66 of github.com/oarriaga/face_classification: MIT; "
    "its Keras file has to be written as .safetensors, kernels in the order of PyTorch, names kept"
)
EMOTIONS = ("angry", "disgust", "fear", "happy", "sad", "surprise", "neutral")
SIDE = 64

_EPSILON = 1e-3  # of Keras's batch norm
_WIDTHS = (16, 32, 64, 128)
_BATCH = 256
_GREY = (0.299, 0.587, 0.114)


class MiniXception(nn.Module):
    """Separable convolutions around strided 1x1 ones.

    Source: Arriaga, Valdenegro-Toro & Plöger 2017, "Real-time Convolutional Neural Networks for Emotion and
    Gender Classification", Fig. 5, in the conventions of Keras: "same" padding puts the odd pixel at the end.

    (N, 1, 64, 64) float in [0, 1] -> (N, 7) logits, in the order of EMOTIONS. State: its weights.
    """

    def __init__(self) -> None:
        super().__init__()
        channels, norms = 1, 0
        for number in (1, 2):
            self.add_module(f"conv2d_{number}", nn.Conv2d(channels, 8, 3, bias=False))
            self._norm(number, 8)
            channels, norms = 8, number
        for block, width in enumerate(_WIDTHS):
            self.add_module(f"conv2d_{block + 3}", nn.Conv2d(channels, width, 1, stride=2, bias=False))
            for half, inputs in enumerate((channels, width)):
                self.add_module(f"separable_conv2d_{2 * block + half + 1}", _Separable(inputs, width))
            for each in range(3):
                self._norm(norms + each + 1, width)
            channels, norms = width, norms + 3
        self.conv2d_7 = nn.Conv2d(channels, len(EMOTIONS), 3, padding=1)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MiniXception":
        """Makes the network with the weights of a file. Raises ArtefactError as load_weights does."""
        return load_weights(cls, path, source=SOURCE)

    def forward(self, faces: Tensor) -> Tensor:
        """Logits of grey faces. Raises DataError for images of another shape."""
        if tuple(faces.shape[1:]) != (1, SIDE, SIDE):
            raise DataError(f"faces of {tuple(faces.shape[1:])}: mini-Xception reads (1, {SIDE}, {SIDE})")
        maps = faces * 2 - 1
        for number in (1, 2):
            maps = functional.relu(
                self._of(f"batch_normalization_{number}", self._of(f"conv2d_{number}", maps))
            )
        for block in range(len(_WIDTHS)):
            norm = 3 * block + 3
            beside = self._of(f"batch_normalization_{norm}", self._of(f"conv2d_{block + 3}", maps))
            maps = self._of(f"separable_conv2d_{2 * block + 1}", maps)
            maps = functional.relu(self._of(f"batch_normalization_{norm + 1}", maps))
            maps = self._of(f"separable_conv2d_{2 * block + 2}", maps)
            maps = _pool(self._of(f"batch_normalization_{norm + 2}", maps)) + beside
        logits: Tensor = self.conv2d_7(maps).mean((2, 3))
        return logits

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """(N, 1 or 3, H, W) uint8 faces of any size -> (N, 7) probabilities."""
        check_batch(images)
        self.eval()
        return torch.cat([self(_prepare(to_float(part))).softmax(1) for part in images.split(_BATCH)])

    def _norm(self, number: int, channels: int) -> None:
        self.add_module(f"batch_normalization_{number}", nn.BatchNorm2d(channels, eps=_EPSILON))

    def _of(self, name: str, maps: Tensor) -> Tensor:
        """The maps of one layer."""
        made: Tensor = self.get_submodule(name)(maps)
        return made


class _Separable(nn.Module):
    """A 3x3 convolution of each channel, and a 1x1 one over channels."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, padding=1, groups=inputs, bias=False)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """Maps of the same size."""
        made: Tensor = self.pointwise(self.depthwise(maps))
        return made


def _pool(maps: Tensor) -> Tensor:
    """Max-pools 3x3 pixels with stride 2: odd sides are padded at both ends, even ones at one."""
    down, right = (side % 2 for side in maps.shape[2:])
    return functional.max_pool2d(functional.pad(maps, (right, 1, down, 1), value=-torch.inf), 3, 2)


def _prepare(faces: Tensor) -> Tensor:
    """Converts to grey, and to the network's size."""
    if faces.shape[1] == 3:
        faces = torch.einsum("nchw,c->nhw", faces, faces.new_tensor(_GREY))[:, None]
    return functional.interpolate(faces, (SIDE, SIDE), mode="bilinear", antialias=True, align_corners=False)
