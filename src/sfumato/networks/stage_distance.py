"""A distance over the stages of a perceptual network, with weights that are learned: a sum of few numbers.

Source: the form of LPIPS, Zhang et al. 2018, Sec. 3.1, Eq. (1), over all nine stages of SqueezeNet 1.0;
    beside it differences of what a stage has on average, wherever it lies, as DISTS compares them (Ding et
    al. 2020, Sec. III-B). The published LPIPS heads are of other networks: that called "squeeze" is of
    SqueezeNet 1.1, whose stages have other widths, and fits none here. So weights begin equal.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.networks.embedding import to_squares
from sfumato.networks.squeeze_net import WIDTHS, SqueezeNet

LEAST_SIZE = 32  # of images: the last stages of smaller ones are a place or two

_KINDS = 2  # of terms
_PIXELS = 1 << 18  # of images together in one step
_TINY = 1e-10


class StageDistance(nn.Module):
    """d(a, b) = sum over k of w_k t_k(a, b), with weights w_k of 0 or more. (N, C, H, W) pairs -> (N,).

    Terms t_k of a stage: how far the unit vectors of channels at each place lie apart, squared and averaged
        over places ("placed"; with w = 1 and without the others, this is
        `assess.perceptual.Perceptual.of_squeezenet`); and how far those of the stage's average over places
        do ("pooled"), which does not change where things move.

    Images are brought to one size, see `embedding.to_squares`: distances of another size are other distances.

    State: weights of the network, which is frozen; those of the terms; and the calibration.

    Attributes:
        weights: (K,) of the terms: K = 18, a kind and stage each, or 2 x 2,656 of channels.
        calibration: (2,) a and b of `probability`.
        size: H and W that images are brought to.
    """

    calibration: Tensor

    def __init__(self, *, size: int, channels: bool) -> None:
        """A network without weights, and terms that weigh alike.

        Args:
            size: see the attribute; LEAST_SIZE or more.
            channels: whether each channel has a weight of its own, as in LPIPS.
        """
        super().__init__()
        self.size, self._channels = size, channels
        self.backbone = SqueezeNet().eval().requires_grad_(False)
        self.weights = nn.Parameter(torch.ones(_KINDS * (sum(WIDTHS) if channels else len(WIDTHS))))
        self.register_buffer("calibration", torch.tensor([0.0, 1.0]))

    def train(self, mode: bool = True) -> "StageDistance":
        """As nn.Module has it; the frozen network stays in evaluation mode."""
        super().train(mode)
        self.backbone.eval()
        return self

    @torch.no_grad()
    def terms(self, originals: Tensor, others: Tensor) -> Tensor:
        """(N, 1 or 3, H, W) float pairs in [0, 1] -> (N, K), of 0 or more; 0 where images are equal."""
        together = max(1, _PIXELS // self.size**2)
        pairs = zip(originals.split(together), others.split(together), strict=True)
        return torch.cat([self._terms(*pair) for pair in pairs])

    def _terms(self, originals: Tensor, others: Tensor) -> Tensor:
        stages = [self.backbone.features(to_squares(each, self.size)) for each in (originals, others)]
        placed, pooled = [], []
        for first, second in zip(*stages, strict=True):
            placed.append((_unit(first) - _unit(second)).square().mean((2, 3)))  # (n, C_l)
            pooled.append((_unit(first.mean((2, 3))) - _unit(second.mean((2, 3)))).square())
        terms = [*placed, *pooled]
        return torch.cat(terms if self._channels else [each.sum(1, keepdim=True) for each in terms], dim=1)

    def forward(self, originals: Tensor, others: Tensor) -> Tensor:
        """The distance of each pair; see `terms`."""
        return self.terms(originals, others) @ self.weights

    def probability(self, distances: Tensor) -> Tensor:
        """With which a person recognises each, by what people said of others: 1 / (1 + exp(b d - a))."""
        intercept, slope = self.calibration
        return torch.sigmoid(intercept - slope * distances)


def _unit(maps: Tensor) -> Tensor:
    return functional.normalize(maps, dim=1, eps=_TINY)
