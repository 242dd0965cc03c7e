"""SPEAR: the images of a whole batch, read exactly from the gradient of a first linear layer before a ReLU.

Source: Dimitrov, Baader, Müller & Vechev 2024 (arXiv:2403.03945). With Z = X·W' + b, the gradient by W is
G = D'·X, where the rows of D are dL/dZ: its rank is the number of images. Any factorisation G = L·R of that
rank is D' = L·Q and X = Q⁻¹·R for one matrix Q (Theorem 3.1), and a ReLU makes D sparse: a row of L at which
image i is not active is orthogonal to column i of Q. So kernels of B - 1 random rows of L are such columns
from time to time (Sec. 3.2); those with most zeros in L·q are kept. Their lengths follow from the gradient by
b, which is D'·1 (Theorem 3.3). They are checked by comparing the activations of the images with the nonzero
entries of D (Sec. 3.3).

Several steps on the same images have a gradient of the same form, D being the sum of theirs: an image is then
compared at units that it lights both before and after, or neither. Without a bias the lengths of the columns
of Q, which make images brighter or darker, come from the slopes of the loss (`first_layer.scale_images`).

Differences: factors and kernels are float64; rows at which no image is active are not drawn; and directions
are chosen by their zeros alone, see `_sparsest`, where the source swaps them by the match.

Limit: K classes after ONE hidden layer. The slopes of the loss by the logits then have K - 1 dimensions, so
that some mixture of K images is zero wherever all of them are active, which can be more often than one image
is inactive. A batch of 8 with 3 classes was not found, and is refused because of its low match.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.attack.first_layer import check_layer, first_linear, largest_one, scale_images
from sfumato.errors import DataError

_DRAWN = 2048  # sets of rows at once
_NOISE = 1e-6  # singular values below this share of the first are rounding, in float32
_GAP = 20.0  # least ratio of the last singular value of the signal to the first of rounding
_ROUNDING = 30.0  # an entry this far above the rounding of the singular values is not zero
_SURELY = 2.0  # times a root mean square
_LEAST_ZERO, _MOST_ZERO = 1e-9, 1e-3
_DEPENDENT = 1e-3  # a unit vector this near to the span of others depends on them
EXACT = 0.99  # share of units and images that match: less is not rounding; one wrong image of 16 costs 2%
LIKELY = 0.8  # of an image: steps turn units on and off, but mixtures of two images are at 0.7 or less


@dataclass(frozen=True)
class Recovered:
    """The batch behind a gradient.

    Attributes:
        images: (B, C, H, W) float32, as the model's input, in no particular order.
        match: share of units and images whose activation and gradient agree; from EXACT on, the images are
            those of the batch. The sparsity matching coefficient of the source.
        matches: (B,), the same of each image; LIKELY or more for one of the batch.
        drawn: the number of sets of rows tried.
    """

    images: Tensor
    match: float
    matches: Tensor
    drawn: int


def recover(
    model: nn.Module,
    shared: Mapping[str, Tensor],
    shape: tuple[int, int, int],
    *,
    generator: torch.Generator,
    most: int = 400_000,
    rounding: Tensor | None = None,
    moved: Mapping[str, Tensor] | None = None,
) -> Recovered:
    """Recover all images behind a gradient, or behind the sum of those of several steps, without a search.

    The expected number of draws grows as 2^B if half of the units are active: batches of 8 take a second,
    batches of 16 minutes.

    Args:
        model: its first layer with parameters is linear, takes the flattened images, and is followed by a
            ReLU.
        shared: name of a parameter -> its gradient.
        shape: (C, H, W) of an image.
        generator: draws rows.
        most: the most sets of rows to try.
        rounding: (m,), rounding error of a number in each row of the gradient by the weight, as a root mean
            square: 16-bit numbers have the rank of their rounding, and not of the images.
        moved: name of a parameter -> its value before these steps minus that after; None if it stayed.

    Raises:
        ConfigError: the first layer is of another kind, or takes images of another shape.
        DataError: the gradient has no low rank (as with noise, or more images than units), or no images were
            found that match it (as without a ReLU, or for a batch too large).
    """
    name, first = first_linear(model, shape, biased=False)
    weight, bias = check_layer(shared, name, first)
    left, right, near = low_rank(weight.cpu(), name, rounding=rounding)
    states = [[each.detach().double().cpu() for each in first.parameters()]]
    if moved is not None:
        steps = [moved[f"{name}.{kind}".lstrip(".")] for kind, _ in first.named_parameters()]
        states += [[own - step.double().cpu() for own, step in zip(states[0], steps, strict=True)]]
    best, slopes, matches, match, drawn = Tensor(), Tensor(), Tensor(), 0.0, 0
    directions = left.new_ones(1, 1) if left.shape[1] == 1 else left.new_empty(left.shape[1], 0)
    while True:
        if directions.shape[1] == left.shape[1]:
            images, mixing = _images(directions, left, right, bias.cpu())
            agreement, agreements = _match(images, left @ mixing, states, near)
            if agreement > match:
                best, slopes, match, matches = images, left @ mixing, agreement, agreements
        if match >= EXACT or drawn >= most or left.shape[1] == 1:
            break
        directions = _sparsest(torch.cat([directions, _draw(left, near, generator)], 1), left, near)
        drawn += _DRAWN
    if not bool((matches >= LIKELY).any()):
        raise DataError(
            f"in {drawn:,} draws no {left.shape[1]} images were found that match the gradient: the batch is "
            f"too large, or {name} is not followed by a ReLU; use sfumato.attack.gradient_inversion"
        )
    best = best.reshape(-1, *shape)
    if not len(bias):
        best = scale_images(model, shared, best, slopes, scaled=False)
    return Recovered(best.float(), match, matches, drawn)


@dataclass(frozen=True)
class Near:
    """Tolerances around zero.

    Attributes:
        zero: for the entries of a column, as a share of the largest.
        floor: (m, 1), for the entries of each row with known rounding.
        dependent: for the rest of a unit vector outside the span of others. A kernel of nearly dependent rows
            has an error of their rounding divided by this rest: the square root balances the two.
    """

    zero: float
    floor: Tensor
    dependent: float

    def differs(self, values: Tensor) -> Tensor:
        """Mark the entries of (m, K) that are not zero."""
        sizes = values.abs()
        return sizes > torch.maximum(self.zero * sizes.amax(0), self.floor)


def low_rank(gradient: Tensor, name: str, *, rounding: Tensor | None = None) -> tuple[Tensor, Tensor, Near]:
    """Factor (m, n) float64 into L (m, B) and R (B, n), B the number of images, with their tolerances.

    The largest singular value of an (m, n) matrix of rounding errors is near √m + √n times the error of a
    number (Rudelson & Vershynin 2010): smaller singular values are rounding.

    Raises:
        DataError: the gradient is zero, or has no low rank.
    """
    u, s, v = torch.linalg.svd(gradient, full_matrices=False)
    height, width = map(math.sqrt, gradient.shape)
    floor = gradient.new_zeros(len(gradient), 1) if rounding is None else _SURELY * rounding.double()[:, None]
    rounded = float(floor.square().mean().sqrt()) * (height + width)
    rank = int((s > max(_NOISE * float(s[0]), rounded)).sum())
    if not rank:
        raise DataError(f"the gradient of {name}.weight is 0 everywhere: no image is in it")
    if rank == len(s) or s[rank - 1] < _GAP * s[rank]:
        raise DataError(
            f"the gradient of {name}.weight has rank {rank} and no gap below it: noise was added, it is of "
            f"several steps, or of {len(s)} images or more; use sfumato.attack.gradient_inversion"
        )
    share = float(s[rank] / s[rank - 1])
    if rounded > _NOISE * float(s[0]):
        near = Near(_LEAST_ZERO, floor, max(_DEPENDENT, math.sqrt(share)))
    else:
        zero = min(max(_ROUNDING * share, _LEAST_ZERO), _MOST_ZERO)
        near = Near(zero, torch.zeros_like(floor), _DEPENDENT)
    return u[:, :rank] * s[:rank], v[:rank], near


def _images(directions: Tensor, left: Tensor, right: Tensor, shared_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Compute (B, n) images from (B, B) directions, and Q."""
    if len(shared_bias):
        lengths = torch.linalg.lstsq(left @ directions, shared_bias[:, None]).solution
        mixing = directions * lengths.T
        return torch.linalg.solve(mixing, right), mixing
    images = torch.linalg.solve(directions, right)
    bright = largest_one(images)
    return bright, directions * ((images * bright).sum(1) / bright.square().sum(1))


def _match(images: Tensor, slopes: Tensor, states: list[list[Tensor]], near: Near) -> tuple[float, Tensor]:
    """Compute how often activations, in all states, agree with (m, B) slopes: over all, and (B,) by image."""
    active = torch.stack([images @ weight.T + sum(bias) > 0 for weight, *bias in states])  # (S, B, m)
    passed = near.differs(slopes).T
    # A unit may be active without a slope, if later units are dead: these rows say nothing.
    known = passed.any(0) & (active == active[0]).all(0)
    right = (passed == active[0]) & known
    return float(right.sum() / known.sum().clamp(min=1)), right.sum(1) / known.sum(1).clamp(min=1)


def _draw(left: Tensor, near: Near, generator: torch.Generator) -> Tensor:
    """Draw (B, K) unit directions, each determined by B - 1 rows of L orthogonal to it."""
    norms = left.norm(dim=1, keepdim=True)
    rows = (left / norms)[near.differs(norms)[:, 0]]  # of units that are active for some image
    least = left.shape[1] - 1
    if len(rows) < least:
        return left.new_empty(left.shape[1], 0)
    chosen = torch.rand(_DRAWN, len(rows), generator=generator).topk(least, dim=1).indices
    _, sizes, kernels = torch.linalg.svd(rows[chosen])
    kept: Tensor = kernels[sizes[:, -1] > near.dependent, -1].T
    return kept


def _sparsest(directions: Tensor, left: Tensor, near: Near) -> Tensor:
    """Choose at most B independent directions, (B, K), with most zeros among the entries of L·q.

    If the columns of Q for all images are among them, these are chosen: an entry of a mixture is zero only if
    it is zero for all its images, so that each of these has more zeros and comes before it.
    """
    active = near.differs(left.norm(dim=1, keepdim=True))
    zeros = (active & ~near.differs(left @ directions)).sum(0)
    taken: list[Tensor] = []
    rest = directions  # without the span of those taken
    while len(taken) < len(left.T):
        zeros = zeros.where(rest.norm(dim=0) > near.dependent, -1)
        best = int(zeros.argmax()) if len(zeros) else 0
        if not len(zeros) or zeros[best] < 0:
            break
        taken.append(directions[:, best])
        axis = rest[:, best] / rest[:, best].norm()
        rest = rest - torch.outer(axis, axis @ rest)
    return torch.stack(taken, 1) if taken else directions[:, :0]
