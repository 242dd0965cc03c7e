"""The distance of two images to a network that names objects: LPIPS, and its unweighted form.

LPIPS is a measure of one network with one file of trained heads; figures of two networks do not compare. This
library contains neither weights nor heads; each error says where to get them.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.assess.similarity import check_pairs
from sfumato.errors import ConfigError, did_you_mean
from sfumato.networks import SqueezeNet
from sfumato.networks.encoders.backbones import VGG16, AlexNet, SqueezeNet11
from sfumato.networks.weights import load_weights

BACKBONES: dict[str, type[AlexNet] | type[VGG16] | type[SqueezeNet11]] = {
    "alex": AlexNet,
    "vgg": VGG16,
    "squeeze": SqueezeNet11,
}
HEADS_SOURCE = (
    "The heads of LPIPS v0.1 are alex.pth, vgg.pth and squeeze.pth in lpips/weights/v0.1 of "
    "github.com/richzhang/PerceptualSimilarity (BSD), and come with torchmetrics in "
    "functional/image/lpips_models; an .npz has all three, with names that begin alex., vgg. and squeeze."
)

_LEAST_SQUEEZENET = 21  # H and W, the least of SqueezeNet.features
_ENLARGED = 64  # side in pixels of the patches that the heads were trained on (Zhang et al. 2018, Sec. 2)
_PIXELS = 1 << 18  # pixels of images in one step: stages have a hundred times as many values
_TINY = 1e-10  # added to the length of a position's channels, as published


@dataclass(frozen=True)
class Compared:
    """The distances and features of image pairs.

    Attributes:
        distances: (N,).
        originals, others: (N, D) features: the last stage, averaged over positions.
    """

    distances: Tensor
    originals: Tensor
    others: Tensor


class Perceptual:
    """A distance of image pairs by the features of a network. State: its weights, and those of the heads.

    Source: Zhang et al. 2018, Sec. 3.1, Eq. (1): features of each stage are scaled to unit length over their
    channels at each position; the squared differences are weighted by channel, averaged over positions, and
    summed over stages. The weights are those of the published heads, which hold the squares of the equation's
    w.

    If the shorter side of a pair is below the network's least size, both images are enlarged until it has 64
    pixels (bilinear). Published implementations fail on these, so that no published figure changes.
    """

    def __init__(
        self,
        name: str,
        stages: Callable[[Tensor], list[Tensor]],
        *,
        least: int,
        heads: Sequence[Tensor] | None = None,
    ) -> None:
        """Build a distance from its parts.

        Args:
            name: of this distance.
            stages: (N, 3, H, W) float in [0, 1] -> maps, (N, C_l, H_l, W_l) each.
            least: the smallest H and W that `stages` reads.
            heads: for each stage (C_l,) weights; None weights all channels by 1.
        """
        self.name = name
        self._stages = stages
        self._least = least
        self._heads = heads

    @classmethod
    def load(
        cls, *, network: str, backbone: str | os.PathLike[str], heads: str | os.PathLike[str]
    ) -> "Perceptual":
        """Load LPIPS, version 0.1.

        Args:
            network: "alex" (the usual one), "vgg" or "squeeze" (version 1.1).
            backbone: file of Weights of the network of LPIPS, as torchvision publishes them.
            heads: file of the trained heads: an .npz of all three, or the published .pth of that one.
        """
        if network not in BACKBONES:
            raise ConfigError(f"LPIPS has no network {network!r}: {did_you_mean(network, BACKBONES)}")
        loaded = BACKBONES[network].load(backbone)
        holder = network if os.fspath(heads).endswith(".npz") else None
        others = [f"{each}.{name}" for each in BACKBONES if each != network for name in _NAMES]
        trained = load_weights(
            lambda: LPIPSHeads(loaded.widths, holder), heads, source=HEADS_SOURCE, unused=others
        )
        weights = [weight.detach().flatten() for weight in trained.parameters()]
        return cls(f"LPIPS v0.1 ({network})", loaded, least=loaded.least, heads=weights)

    @classmethod
    def of_squeezenet(cls, path: str | os.PathLike[str]) -> "Perceptual":
        """Load the unweighted distance of all nine stages of SqueezeNet 1.0. It is not LPIPS: no head fits.

        All channels have the weight w = 1: at each position this is twice the cosine distance of features.
        """
        network = SqueezeNet.load(path)
        name = "unweighted distance of SqueezeNet 1.0 features"
        return cls(name, network.features, least=_LEAST_SQUEEZENET)

    def distance(self, originals: Tensor, others: Tensor) -> Tensor:
        """Compute the distance of each pair, 0 when equal. -> (N,). Arguments: see compare."""
        return self.compare(originals, others).distances

    @torch.no_grad()
    def compare(self, originals: Tensor, others: Tensor) -> Compared:
        """Compute the distance of each pair; also returns the features of both images.

        Args:
            originals, others: (N, C, H, W) float in [0, 1], RGB or grey, whose channel is repeated. They are
                scaled here as the network was trained, for LPIPS to [-1, 1] minus a shift.
        """
        check_pairs(originals, others, channels=(1, 3))
        for images in (originals, others):
            if not bool(((images >= 0) & (images <= 1)).all()):
                raise ConfigError(
                    f"compared are floats in [0, 1], got {images.min().item():g} to "
                    f"{images.max().item():g}: clamp them; the scaling to [-1, 1] is done here"
                )
        size = self._size(originals.shape[2], originals.shape[3])
        together = max(1, _PIXELS // (size[0] * size[1]))
        parts = [
            self._compare(_prepare(a, size), _prepare(b, size))
            for a, b in zip(originals.split(together), others.split(together), strict=True)
        ]
        return Compared(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _size(self, height: int, width: int) -> tuple[int, int]:
        side = min(height, width)
        if side >= self._least:
            return height, width
        return math.ceil(height * _ENLARGED / side), math.ceil(width * _ENLARGED / side)

    def _compare(self, originals: Tensor, others: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distances = originals.new_zeros(len(originals))
        ours, theirs = self._stages(originals), self._stages(others)
        unit = partial(functional.normalize, dim=1, eps=_TINY)
        for stage, (first, second) in enumerate(zip(ours, theirs, strict=True)):
            squares = (unit(first) - unit(second)).square()  # (n, C_l, H_l, W_l)
            if self._heads is not None:
                squares = squares * self._heads[stage][:, None, None]
            distances += squares.sum(1).mean((1, 2))
        return distances, ours[-1].mean((2, 3)), theirs[-1].mean((2, 3))


def _prepare(images: Tensor, size: tuple[int, int]) -> Tensor:
    images = images.expand(-1, 3, -1, -1)
    if images.shape[2:] == size:
        return images
    return functional.interpolate(images, size, mode="bilinear", align_corners=False)


_NAMES = [f"lin{stage}.model.1.weight" for stage in range(7)]


class LPIPSHeads(nn.Module):
    """A 1x1 convolution a stage, under the published names; in an .npz below the name of the network."""

    def __init__(self, widths: Sequence[int], network: str | None) -> None:
        super().__init__()
        holder = self if network is None else nn.Module()
        for stage, width in enumerate(widths):
            layers = nn.Sequential(nn.Identity(), nn.Conv2d(width, 1, 1, bias=False))  # the first: a dropout
            holder.add_module(f"lin{stage}", nn.ModuleDict({"model": layers}))
        if network is not None:
            self.add_module(network, holder)
