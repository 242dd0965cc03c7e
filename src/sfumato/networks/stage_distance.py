"""A distance over the stages of a perceptual network, with learned weights: a sum of few numbers.

Two kinds of terms, for each of the last stages of SqueezeNet 1.0, which has nine:

"placed": the squared distance of the unit vectors of channels at each pixel, averaged over pixels. With
weights of 1, over all nine, this is `assess.perceptual.Perceptual.of_squeezenet`; it has the form of LPIPS
(Zhang et al. 2018, Sec. 3.1, Eq. (1)). The published LPIPS heads do not fit: "squeeze" is SqueezeNet 1.1,
whose stages differ.

"relative": the distance of the averages of a stage over pixels, for any position (as DISTS, Ding et al.
2020, Sec. III-B), divided by the average distance to OTHER images. 0 for equal images, and 1 for an image
that is no more like its original than like any other: to recognise is to distinguish from others. A
disturbance that moves all images the same way, as noise does in a network that never saw any, counts for
little, and so does turning.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.networks.encoders.small import to_squares
from sfumato.networks.encoders.squeeze_net import WIDTHS, SqueezeNet

LEAST_SIZE = 32  # of images: the last stages of smaller ones have a pixel or two
KINDS = ("relative", "placed")

_PIXELS = 1 << 18  # of images together in one step
_TINY = 1e-10
_EQUAL = 1e-9  # a squared distance of all averages below this: another image is the original itself


class StageDistance(nn.Module):
    """d(a, b) = sum over k of w_k t_k(a, b), with weights w_k of 0 or more. (N, C, H, W) pairs -> (N,).

    Images are resized to one size, LEAST_SIZE or more, see `small.to_squares`: another size gives other
    distances. State: weights of the network, which is frozen; `weights`, (K,), of the terms, one for each
    counted stage of each of `kinds`; `others`, the (G, 2656) `averages` of other images, for relative terms;
    and `calibration`, a and b of `probability`.
    """

    calibration: Tensor
    others: Tensor

    def __init__(self, *, size: int, kinds: Sequence[str], stages: int, others: int) -> None:
        """Makes a network without weights, and equal terms of the last `stages` of 9, with blank others."""
        super().__init__()
        self.size, self.kinds = size, tuple(kinds)
        self.backbone = SqueezeNet().eval().requires_grad_(False)
        self._last = stages
        self.weights = nn.Parameter(torch.ones(len(self.kinds) * stages))
        self.register_buffer("others", torch.zeros(others, sum(WIDTHS)))
        self.register_buffer("calibration", torch.tensor([0.0, 1.0]))

    def train(self, mode: bool = True) -> "StageDistance":
        """As in nn.Module; the frozen network stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    @torch.no_grad()
    def stages(self, images: Tensor) -> list[Tensor]:
        """Maps after each stage of (N, 1 or 3, H, W) float images in [0, 1], (N, C_l, H_l, W_l)."""
        return self.backbone.features(to_squares(images, self.size))

    @torch.no_grad()
    def averages(self, images: Tensor) -> Tensor:
        """The averages of all stages for float images, see `average`. -> (N, 2656)."""
        return torch.cat([average(self.stages(part)) for part in images.split(self._together)])

    @torch.no_grad()
    def terms(self, originals: Tensor, others: Tensor) -> Tensor:
        """(N, 1 or 3, H, W) float pairs in [0, 1] -> (N, K), of 0 or more; 0 for equal images."""
        pairs = zip(originals.split(self._together), others.split(self._together), strict=True)
        return torch.cat([self._terms(self.stages(first), self.stages(second)) for first, second in pairs])

    def _terms(self, first: list[Tensor], second: list[Tensor]) -> Tensor:
        made = {
            "placed": lambda: terms_by_pixel(first, second),
            "relative": lambda: relative_terms(average(first), average(second), self.others),
        }
        return torch.cat([made[kind]()[:, -self._last :] for kind in self.kinds], dim=1)

    @property
    def _together(self) -> int:
        return max(1, _PIXELS // self.size**2)

    def forward(self, originals: Tensor, others: Tensor) -> Tensor:
        """The distance of each pair; see `terms`."""
        return self.terms(originals, others) @ self.weights

    def probability(self, distances: Tensor) -> Tensor:
        """The probability that a person recognises each, fitted to answers: 1 / (1 + exp(b d - a))."""
        intercept, slope = self.calibration
        return torch.sigmoid(intercept - slope * distances)


def average(stages: list[Tensor]) -> Tensor:
    """The average of each stage's maps over pixels, of unit length, side by side. -> (N, 2656)."""
    return torch.cat([_unit(maps.mean((2, 3))) for maps in stages], dim=1)


def terms_by_pixel(first: list[Tensor], second: list[Tensor]) -> Tensor:
    """Squared distances of unit vectors, averaged over pixels. Maps of nine stages -> (N, 9)."""
    pairs = zip(first, second, strict=True)
    return torch.stack([(_unit(a) - _unit(b)).square().sum(1).mean((1, 2)) for a, b in pairs], dim=1)


def relative_terms(originals: Tensor, shown: Tensor, others: Tensor) -> Tensor:
    """The distance of shown images from their originals, relative to the average distance to other images.

    (N, 2656) twice, see `average`, and (G, 2656) of other images; those that equal an original do not count
    for it. -> (N, 9), 0 for equal images; about 1, and rarely much above, for unrelated ones.
    """
    counted = (_apart(originals, others) > _EQUAL).to(originals)  # (N, G)
    terms = []
    for a, b, x in zip(*(each.split(WIDTHS, dim=1) for each in (originals, shown, others)), strict=True):
        away = (_apart(b, x) * counted).sum(1) / counted.sum(1).clamp(min=1)
        terms.append((a - b).square().sum(1) / away.clamp(min=_TINY))
    return torch.stack(terms, dim=1)


def _apart(first: Tensor, second: Tensor) -> Tensor:
    """Squared distances, (N, D) and (G, D) -> (N, G); by differences, so that equal vectors are at 0."""
    return torch.cdist(first, second, compute_mode="donot_use_mm_for_euclid_dist").square()


def _unit(maps: Tensor) -> Tensor:
    return functional.normalize(maps, dim=1, eps=_TINY)
