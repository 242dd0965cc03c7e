"""Conversion of weights that other projects publish to the files that are read here.

| kind | from |
|---|---|
| mtcnn | facenet-pytorch: pnet.pt, rnet.pt and onet.pt, or the state dict of its MTCNN |
| facenet | facenet-pytorch: InceptionResnetV1 |
| mobile-face-net | a checkpoint of MobileFaceNet |
| squeeze-net | torchvision's squeezenet1_0 |
| lpips-alex, lpips-vgg, lpips-squeeze | the backbone in the state dict of lpips.LPIPS |
| lpips-heads | its heads |

A checkpoint may hold the state dict below a key such as state_dict, and its names may begin with `module.`,
as DataParallel leaves them. Files are opened by PyTorch's reader of tensors alone, which runs none of their
code. Each written file has been read as its network, except heads, which need their backbone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from sfumato.base.files import whole
from sfumato.errors import ArtefactError, ConfigError, did_you_mean
from sfumato.networks import weights
from sfumato.networks.encoders import squeeze_net
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.faces import inception_resnet_v1, mobile_face_net, mtcnn

_WRAPPERS = ("state_dict", "model_state_dict", "net_state_dict", "model", "net")
_PICKLES = (".pt", ".pth", ".ckpt", ".bin")
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of torchvision, RGB, of images in [0, 1]
# The indices of torchvision's `features` and `classifier` among the stages of SqueezeNet 1.0.
_STAGES = {
    **{"features.0": "conv1", "features.3": "fire2", "features.4": "fire3", "features.5": "fire4"},
    **{"features.7": "fire5", "features.8": "fire6", "features.9": "fire7", "features.10": "fire8"},
    **{"features.12": "fire9", "classifier.1": "conv10"},
}
_HEADS = re.compile(r"lin[0-6]\.model\.1\.weight")

_Tensors = dict[str, Tensor]


@dataclass(frozen=True)
class _Kind:
    """The conversion of files to the tensors of a network, and its reader; `note`: any difference."""

    convert: Callable[[Sequence[tuple[str, _Tensors]]], _Tensors]
    load: Callable[[Path], nn.Module] | None
    source: str
    note: str = ""


def convert(kind: str, files: Sequence[Path], destination: Path) -> str:
    """Writes weights of others as a .safetensors file that is read here, whole or not at all.

    Args:
        kind: see the module.
        files: one, or the three of mtcnn.
        destination: a .safetensors file.

    Returns:
        the difference to the network that they are from, in a sentence, or "".

    Raises:
        ConfigError: no such kind, another suffix, or another number of files.
        ArtefactError: a file is missing, damaged, could run code, or belongs to another network.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"nothing is converted as {kind!r}: {did_you_mean(kind, KINDS)}. Other networks, such as timm's, "
            "are read as ONNX: see docs/guides/encoder.md"
        )
    if destination.suffix != ".safetensors":
        raise ConfigError(f"{destination}: name a .safetensors file")
    if len(files) != 1 and not (kind == "mtcnn" and len(files) == 3):
        wanted = "one file, or pnet, rnet and onet," if kind == "mtcnn" else "one file"
        raise ConfigError(f"{kind}: {wanted} is needed, got {len(files)}")
    way = KINDS[kind]
    tensors = way.convert([(path.stem, _read(path, way.source)) for path in files])
    if not tensors:
        raise ArtefactError(f"{files[0]}: holds no {kind}. {way.source}")
    with whole(destination) as temporary:
        written = temporary.with_suffix(".safetensors")
        try:
            save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, written)
            if way.load is not None:
                _check(way.load, written, files[0])
            written.replace(temporary)
        finally:
            written.unlink(missing_ok=True)
    return way.note


def _check(load: Callable[[Path], nn.Module], written: Path, original: Path) -> None:
    try:
        load(written)
    except ArtefactError as error:
        raise ArtefactError(str(error).replace(str(written), str(original))) from error


def _read(path: Path, source: str) -> _Tensors:
    """The state dict of a file, without its wrapping and the prefix of its names."""
    if path.suffix not in _PICKLES:
        return weights.read(path, source=source)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise ArtefactError(f"{path}: no such file. {source}") from error
    except Exception as error:  # of pickle, zipfile and torch, whose kinds differ by version
        raise ArtefactError(
            f"{path}: not a checkpoint of tensors, numbers and text alone, and anything else could run code: "
            "if you trust it, open it once yourself, and save its state_dict() by torch.save"
        ) from error
    while isinstance(content, Mapping) and (inner := _unwrap(content)) is not None:
        content = inner
    tensors = {
        str(name).removeprefix("module."): value
        for name, value in (content.items() if isinstance(content, Mapping) else ())
        if isinstance(value, Tensor)
    }
    if not tensors:
        raise ArtefactError(f"{path}: holds no state dict. {source}")
    return tensors


def _unwrap(content: Mapping[Any, Any]) -> Mapping[Any, Any] | None:
    return next((content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)), None)


def _as_they_are(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    return files[0][1]


def _mtcnn(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    """Joins three files, with the name of the network before each name; a single file is joined already."""
    if len(files) == 1:
        return files[0][1]
    names = {stem: stem.lower()[:4] for stem, _ in files}
    if sorted(names.values()) != ["onet", "pnet", "rnet"]:
        raise ConfigError(f"mtcnn: name the three files pnet, rnet and onet, got {', '.join(names)}")
    return {f"{names[stem]}.{name}": tensor for stem, tensors in files for name, tensor in tensors.items()}


def _facenet(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    return {name: tensor for name, tensor in files[0][1].items() if not name.startswith("logits.")}


def _squeeze_net(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    """Converts torchvision's names and scaling to those of Caffe, which sfumato.networks.SqueezeNet has.

    torchvision's first convolution sees (x - m) / s of RGB in [0, 1], Caffe's 255 x - mean of BGR: the
    weights of a channel are divided by 255 s, and the shift is added to the bias. It has no padding,
    so both compute the same.
    """
    tensors: _Tensors = {}
    for name, tensor in files[0][1].items():
        stage = next((each for each in _STAGES if name.startswith(f"{each}.")), None)
        if stage is None:
            return files[0][1]  # of another network, or converted already: its reader reports it
        tensors[_STAGES[stage] + name.removeprefix(stage)] = tensor
    if {"conv1.weight", "conv1.bias"} <= tensors.keys() and tensors["conv1.weight"].shape[1:2] == (3,):
        weight = tensors["conv1.weight"].double()
        mean, std = (torch.tensor(each, dtype=weight.dtype)[:, None, None] for each in (_MEAN, _STD))
        caffe = torch.tensor(squeeze_net.MEAN_BGR, dtype=weight.dtype).flip(0)[:, None, None]
        shift = (weight * (caffe / 255 - mean) / std).sum((1, 2, 3))
        tensors["conv1.bias"] = (tensors["conv1.bias"].double() + shift).float()
        tensors["conv1.weight"] = (weight / (255 * std)).flip(1).float()
    return tensors


def _backbone(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    """`net.slice2.3.weight` of lpips is `features.3.weight` of torchvision."""
    found = {}
    for name, tensor in files[0][1].items():
        if match := re.fullmatch(r"net\.slice\d+\.(.+)", name):
            found[f"features.{match[1]}"] = tensor
        elif name.startswith("features."):
            found[name] = tensor
    return found


def _heads(files: Sequence[tuple[str, _Tensors]]) -> _Tensors:
    return {name: tensor for name, tensor in files[0][1].items() if _HEADS.fullmatch(name)}


_LPIPS = "lpips.LPIPS(net=...).state_dict() of github.com/richzhang/PerceptualSimilarity (BSD) has both parts"

KINDS: dict[str, _Kind] = {
    "mtcnn": _Kind(_mtcnn, mtcnn.MTCNN.load, mtcnn.SOURCE),
    "facenet": _Kind(_facenet, inception_resnet_v1.InceptionResnetV1.load, inception_resnet_v1.SOURCE),
    "mobile-face-net": _Kind(_as_they_are, mobile_face_net.MobileFaceNet.load, mobile_face_net.SOURCE),
    "squeeze-net": _Kind(
        _squeeze_net,
        squeeze_net.SqueezeNet.load,
        "torchvision.models.squeezenet1_0 has such weights (BSD)",
        "features are the same; class probabilities are not, since the last convolution is padded here",
    ),
    "lpips-alex": _Kind(_backbone, AlexNet.load, _LPIPS),
    "lpips-vgg": _Kind(_backbone, VGG16.load, _LPIPS),
    "lpips-squeeze": _Kind(_backbone, SqueezeNet11.load, _LPIPS),
    "lpips-heads": _Kind(_heads, None, _LPIPS),
}
