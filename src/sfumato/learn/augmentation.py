"""Variants of training images: moved and mirrored, or changed by a policy of operations."""

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.learn.method import check_known

Operation = Callable[[Tensor, torch.Generator], Tensor]

_HEIGHT, _WIDTH = 2, 3  # axes of a batch
_TRIES = 10  # rectangles drawn for a crop; the first that fits is taken


def augment(
    images: Tensor, generator: torch.Generator, *, flips: bool = False, shifts: int = 0, warps: float = 0
) -> Tensor:
    """Mirrors, moves and warps (N, C, H, W) images, each by itself; of the same type.

    `flips` mirrors every other image left to right, by chance; `shifts` moves each by up to this many pixels
    along each axis; `warps` turns, scales and shears each about its middle: it is the most that is added to
    each entry of the identity, 2 x 2. Edges are repeated.
    """
    if flips:
        mirrored = torch.rand(len(images), generator=generator) < 0.5
        images = torch.where(mirrored[:, None, None, None], images.flip(3), images)
    if shifts:
        steps = torch.randint(-shifts, shifts + 1, (2, len(images), 1), generator=generator)  # down, right
        for axis, by in zip((_HEIGHT, _WIDTH), steps, strict=True):
            side = images.shape[axis]
            images = _take(images, (torch.arange(side) + by).clamp(0, side - 1), axis=axis)
    return _warp(images, warps, generator) if warps else images


def _warp(images: Tensor, warps: float, generator: torch.Generator) -> Tensor:
    change = warps * (2 * torch.rand(len(images), 2, 2, generator=generator) - 1)
    maps = torch.cat([torch.eye(2) + change, torch.zeros(len(images), 2, 1)], 2)  # (N, 2, 3)
    grid = functional.affine_grid(maps, list(images.shape), align_corners=False)
    warped = functional.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
    return (warped if images.is_floating_point() else warped.round()).to(images.dtype)


def apply(images: Tensor, policy: str, generator: torch.Generator) -> Tensor:
    """Changes (N, C, H, W) images by the operations of one of POLICIES, in turn; of the same type.

    Source: Gao et al. 2021, "Privacy-preserving collaborative learning with automatic transformation search"
    (ATS): a client trains on transformed images, so gradients show no others. Table 3 of the SemSim paper
    (docs/papers.md, "SemSim") names the operations:

    - "none": nothing, and nothing is drawn.
    - "crop-flip": a crop of 8% to 100% of the area and of 3:4 to 4:3, resized to the whole (bilinear), then
      mirrored by chance: torchvision's defaults.
    - "ats-3-1-7": TranslateX, Invert, TranslateY. "ats-43-18-18": TranslateY, Autocontrast, Autocontrast.
      Sides are moved by 9, 2 and 3 ninths of 150 / 331, one way or the other, and the new border is black.
    - "ats": one of these two for each image, by chance.

    Numbers 1 and 18 of the list of ATS are Contrast, not the Invert and Autocontrast of the table, which we
    follow. The published code crops and mirrors small images before a policy: `augment` does that.
    """
    check_known("policy", policy, POLICIES)
    alternatives = POLICIES[policy]
    if len(alternatives) == 1:
        return _in_turn(images, alternatives[0], generator)
    chosen = torch.randint(len(alternatives), (len(images),), generator=generator)
    result = images.clone()
    for place, operations in enumerate(alternatives):
        result[chosen == place] = _in_turn(images[chosen == place], operations, generator)
    return result


def _in_turn(images: Tensor, operations: Sequence[Operation], generator: torch.Generator) -> Tensor:
    return reduce(lambda changed, operation: operation(changed, generator), operations, images)


def _take(images: Tensor, places: Tensor, *, axis: int) -> Tensor:
    """The rows or columns of each image at its own places, (N, side)."""
    return images.gather(axis, _along(places, axis).expand_as(images))


def _along(values: Tensor, axis: int) -> Tensor:
    """(N, side) -> (N, 1, side, 1) for rows, (N, 1, 1, side) for columns."""
    return values[:, None, :, None] if axis == _HEIGHT else values[:, None, None]


def _translate(images: Tensor, generator: torch.Generator, *, axis: int, magnitude: int) -> Tensor:
    """Moves each by `magnitude` ninths of 150 / 331 of a side (Cubuk et al. 2019), either way, over black."""
    count, side = len(images), images.shape[axis]
    sign = 2 * torch.randint(2, (count,), generator=generator) - 1
    # To the nearest pixel, as Pillow's transform, which the published code calls.
    by = (sign * (magnitude / 9 * 150 / 331 * side) + 0.5).floor().long()
    source = torch.arange(side) + by[:, None]  # (N, side)
    moved = _take(images, source.clamp(0, side - 1), axis=axis)
    return moved * _along((source >= 0) & (source < side), axis)


def _invert(images: Tensor, generator: torch.Generator) -> Tensor:
    return _white(images) - images


def _autocontrast(images: Tensor, generator: torch.Generator) -> Tensor:
    """Stretches each channel of each image to the whole range; a flat one stays."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    flat = low == high
    stretched = (images - low).float() * (_white(images) / (high - low).float().masked_fill(flat, 1))
    # Cut, not rounded, as Pillow; the small addition undoes float32's loss on whole numbers.
    whole = stretched if images.is_floating_point() else (stretched + 1e-3).floor()
    return torch.where(flat, images, whole.to(images.dtype))


def _crop(images: Tensor, generator: torch.Generator) -> Tensor:
    """Crops each to its own rectangle, resized to the whole; no crop if none of ten draws fits."""
    count, height, width = len(images), *images.shape[2:]
    area = torch.empty(count, _TRIES).uniform_(0.08, 1, generator=generator) * height * width
    log_ratio = torch.empty(count, _TRIES).uniform_(math.log(3 / 4), math.log(4 / 3), generator=generator)
    widths = (area * log_ratio.exp()).sqrt().round().clamp(min=1)
    heights = (area / log_ratio.exp()).sqrt().round().clamp(min=1)
    fits = (widths <= width) & (heights <= height)  # (N, tries)
    first = fits.int().argmax(1, keepdim=True)
    fits = fits.gather(1, first)
    result = images.float()
    for axis, side, drawn in ((_HEIGHT, height, heights), (_WIDTH, width, widths)):
        length = torch.where(fits, drawn.gather(1, first), side)  # (N, 1)
        start = (torch.rand(count, 1, generator=generator) * (side - length + 1)).floor()
        result = _stretch(result, start, length, axis=axis)
    return result if images.is_floating_point() else result.round().to(images.dtype)


def _stretch(images: Tensor, start: Tensor, length: Tensor, *, axis: int) -> Tensor:
    """Enlarges the pixels from `start`, (N, 1), to the whole of an axis: linear between their centres."""
    side = images.shape[axis]
    # Centres of the new pixels among the old; beyond the first and last, these are repeated.
    place = ((torch.arange(side) + 0.5) * length / side - 0.5).clamp(min=0).minimum(length - 1)  # (N, side)
    before = place.floor()
    after = (before + 1).minimum(length - 1)
    near, far = (_take(images, (start + each).long(), axis=axis) for each in (before, after))
    return torch.lerp(near, far, _along(place - before, axis))


def _white(images: Tensor) -> int:
    return 1 if images.is_floating_point() else 255


_across, _down = partial(_translate, axis=_WIDTH), partial(_translate, axis=_HEIGHT)
_3_1_7 = (partial(_across, magnitude=9), _invert, partial(_down, magnitude=2))
_43_18_18 = (partial(_down, magnitude=3), _autocontrast, _autocontrast)
# The rows of operations of each policy; an image goes through one row.
POLICIES: dict[str, tuple[tuple[Operation, ...], ...]] = {
    "none": ((),),
    "crop-flip": ((_crop, partial(augment, flips=True)),),
    "ats-3-1-7": (_3_1_7,),
    "ats-43-18-18": (_43_18_18,),
    "ats": (_3_1_7, _43_18_18),
}
