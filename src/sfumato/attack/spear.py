"""SPEAR: the images of a whole batch, read exactly from the gradient of a first linear layer before a ReLU.

Source: Dimitrov, Baader, Müller & Vechev 2024 (arXiv:2403.03945). With Z = X·W' + b, the gradient by W is
G = D'·X, where the rows of D are dL/dZ: its rank is the number of images. Any factorisation G = L·R of that
rank is D' = L·Q and X = Q⁻¹·R for one matrix Q (Theorem 3.1), and a ReLU makes D sparse: a row of L at which
image i is not active is orthogonal to column i of Q. So kernels of B - 1 rows of L, drawn at random, are such
columns from time to time (Sec. 3.2); those that make most entries of L·q zero are kept. Their lengths follow
from the gradient by b, which is D'·1 (Theorem 3.3). Whether they are right is seen by how well the
activations that the images would have match the entries of D that are not zero (Sec. 3.3).

Differs from it: factors and kernels are float64; rows at which no image is active are left out of the draw;
and directions are taken by their zeros alone, see `_sparsest`, where the source swaps them by the match.

Where it ends: of K classes behind ONE hidden layer. The slopes of the loss by the logits then have K - 1
dimensions, so that some mixture of K images is zero wherever all of them are active, which can be oftener
than one image is not. A batch of 8 of 3 classes was not found, and is refused, since its match is low.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sfumato.attack.first_layer import checked, first_linear
from sfumato.errors import ConfigError, DataError

_DRAWN = 2048  # sets of rows at once
_NOISE = 1e-6  # singular values below this share of the first are rounding, in float32
_GAP = 20.0  # least ratio of the last singular value of the signal to the first of rounding
_ROUNDING = 30.0  # how far above the rounding that the singular values show an entry is not zero
_SURELY = 2.0  # times a root mean square
_LEAST_ZERO, _MOST_ZERO = 1e-9, 1e-3
_DEPENDENT = 1e-3  # a unit vector that lies this near to others depends on them, at least
EXACT = 0.995  # of units and images that match: less is no rounding; one wrong image of 16 costs 2%
_LEAST_MATCH = 0.9  # below, what was found is no batch


@dataclass(frozen=True)
class Recovered:
    """The batch behind a gradient.

    Attributes:
        images: (B, C, H, W) float32, as the model took them, in no order.
        match: share of units and images at which the activation of the image and its gradient agree; from
            EXACT on the images are those of the batch. The sparsity matching coefficient of the source.
        drawn: how many sets of rows were tried.
    """

    images: Tensor
    match: float
    drawn: int


def recover(
    model: nn.Module,
    shared: Mapping[str, Tensor],
    shape: tuple[int, int, int],
    *,
    generator: torch.Generator,
    most: int = 400_000,
    rounding: Tensor | None = None,
) -> Recovered:
    """All images behind one gradient, without a search over pixels.

    The expected number of draws grows as 2^B where half of the units are active: batches of 8 take a second,
    batches of 16 minutes.

    Args:
        model: its first layer with parameters is linear, has a bias, sees the images themselves, flattened,
            and is followed by a ReLU.
        shared: name of a parameter -> its gradient, of one step on the whole batch.
        shape: (C, H, W) of an image.
        generator: draws rows.
        most: sets of rows that are tried before it gives up.
        rounding: (m,), what it may have added to a number of each row of the gradient by the weight, as a
            root mean square: numbers of 16 bits have the rank of their rounding, and not of the images.

    Raises:
        ConfigError: the first layer is another, or takes images of another shape.
        DataError: the gradient has no low rank (as with noise, or more images than units), or no images were
            found that match it (as without a ReLU, or for a batch too large).
    """
    name, first = first_linear(model)
    pixels = shape[0] * shape[1] * shape[2]
    if first.in_features != pixels:
        raise ConfigError(
            f"images of shape {tuple(shape)} are {pixels} numbers, and {name} takes {first.in_features}: "
            "give the shape (C, H, W) of what the model was shown"
        )
    weight, bias = checked(shared, name, first)
    left, right, near = low_rank(weight.cpu(), name, rounding=rounding)
    own = (first.weight.detach().double().cpu(), first.bias.detach().double().cpu())
    best, match, drawn = Tensor(), 0.0, 0
    directions = left.new_ones(1, 1) if left.shape[1] == 1 else left.new_empty(left.shape[1], 0)
    while True:
        if directions.shape[1] == left.shape[1]:
            images, agreement = _images(directions, left, right, bias.cpu(), own, near)
            if agreement > match:
                best, match = images, agreement
        if match >= EXACT or drawn >= most or left.shape[1] == 1:
            break
        directions = _sparsest(torch.cat([directions, _draw(left, near, generator)], 1), left, near)
        drawn += _DRAWN
    if match < _LEAST_MATCH:
        raise DataError(
            f"in {drawn:,} draws no {left.shape[1]} images were found that match the gradient: the batch is "
            f"too large, or {name} is not followed by a ReLU; take sfumato.attack.gradient_inversion"
        )
    return Recovered(best.reshape(-1, *shape).float(), match, drawn)


@dataclass(frozen=True)
class Near:
    """How near to zero counts as zero.

    Attributes:
        zero: of the entries of a column, as a share of the largest.
        floor: (m, 1), of the entries of each row, whose rounding is known.
        dependent: of what is left of a unit vector, less what others span. A kernel of rows that are nearly
            dependent is off by their rounding over what is left of them: a root balances the two.
    """

    zero: float
    floor: Tensor
    dependent: float

    def differs(self, values: Tensor) -> Tensor:
        """(m, K) -> which entries are not zero."""
        sizes = values.abs()
        return sizes > torch.maximum(self.zero * sizes.amax(0), self.floor)


def low_rank(gradient: Tensor, name: str, *, rounding: Tensor | None = None) -> tuple[Tensor, Tensor, Near]:
    """(m, n) float64 -> L (m, B) and R (B, n), with B the number of images, and how exact they are.

    The largest singular value of an (m, n) matrix of rounding is near √m + √n times that of a number
    (Rudelson & Vershynin 2010): what is not above is rounding.

    Raises:
        DataError: the gradient is zero, or of no low rank.
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
            f"several steps, or of {len(s)} images or more; take sfumato.attack.gradient_inversion"
        )
    share = float(s[rank] / s[rank - 1])
    if rounded > _NOISE * float(s[0]):
        near = Near(_LEAST_ZERO, floor, max(_DEPENDENT, math.sqrt(share)))
    else:
        zero = min(max(_ROUNDING * share, _LEAST_ZERO), _MOST_ZERO)
        near = Near(zero, torch.zeros_like(floor), _DEPENDENT)
    return u[:, :rank] * s[:rank], v[:rank], near


def _images(
    directions: Tensor,
    left: Tensor,
    right: Tensor,
    shared_bias: Tensor,
    own: tuple[Tensor, Tensor],
    near: Near,
) -> tuple[Tensor, float]:
    """(B, B) directions -> (B, n) images, and the share of units and images that match, `own` at hand."""
    lengths = torch.linalg.lstsq(left @ directions, shared_bias[:, None]).solution
    mixing = directions * lengths.T  # Q
    images = torch.linalg.solve(mixing, right)
    slopes = left @ mixing  # (m, B), dL/dZ
    weight, bias = own
    active = images @ weight.T + bias > 0  # (B, m)
    passed = near.differs(slopes)
    # A unit may be active and have no slope, as where what follows it is dead: these rows say nothing.
    known = passed.any(1)
    return images, (passed == active.T)[known].double().mean().item()


def _draw(left: Tensor, near: Near, generator: torch.Generator) -> Tensor:
    """Unit directions, (B, K), each orthogonal to B - 1 rows of L that leave no choice."""
    norms = left.norm(dim=1, keepdim=True)
    rows = (left / norms)[near.differs(norms)[:, 0]]  # of units at which some image is active
    least = left.shape[1] - 1
    if len(rows) < least:
        return left.new_empty(left.shape[1], 0)
    chosen = torch.rand(_DRAWN, len(rows), generator=generator).topk(least, dim=1).indices
    _, sizes, kernels = torch.linalg.svd(rows[chosen])
    kept: Tensor = kernels[sizes[:, -1] > near.dependent, -1].T
    return kept


def _sparsest(directions: Tensor, left: Tensor, near: Near) -> Tensor:
    """At most B independent directions, (B, K), those with most zeros among the entries of L·q.

    Where the column of Q of each image is among them, they are these: of a mixture of several, an entry is
    zero only where it is zero of all, so that each of these has more zeros and is taken before it.
    """
    active = near.differs(left.norm(dim=1, keepdim=True))
    zeros = (active & ~near.differs(left @ directions)).sum(0)
    taken: list[Tensor] = []
    rest = directions  # less what lies in the span of those taken
    while len(taken) < len(left.T):
        zeros = zeros.where(rest.norm(dim=0) > near.dependent, -1)
        best = int(zeros.argmax()) if len(zeros) else 0
        if not len(zeros) or zeros[best] < 0:
            break
        taken.append(directions[:, best])
        axis = rest[:, best] / rest[:, best].norm()
        rest = rest - torch.outer(axis, axis @ rest)
    return torch.stack(taken, 1) if taken else directions[:, :0]
