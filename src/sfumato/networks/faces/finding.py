"""Faces that were found; and large pictures searched in tiles, so that a face is found by its own pixels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

WHOLE = 1920  # pixels of the longer side at which larger images are searched as a whole
_SIDE = 1920  # of a tile at most, in pixels after scaling: bounds memory
# Neighbours share the longer side through this: a face up to it is whole in one of them, and a larger one has
# at least 24 pixels in a search of the whole at WHOLE.
_SHARED = 80
_LEAST_SHARED = 64
_CUT = 2  # pixels from an inner edge: a box that reaches so far is of a part of a face


@dataclass(frozen=True)
class Faces:
    """The faces of one image, the surest first."""

    boxes: Tensor  # (F, 4): left, top, right and bottom edge in pixels; may reach past the image
    scores: Tensor  # (F,), in [0, 1]
    landmarks: Tensor  # (F, 5, 2) x, y of eyes, nose and mouth, as in networks.alignment

    def central(self, height: int, width: int) -> int | None:
        """The face that is the subject of a portrait of that size, or None.

        Among the faces whose box holds the centre of the image, the one with the nearest centre.
        """
        centre = torch.tensor([width, height]) / 2
        holds = ((self.boxes[:, :2] <= centre) & (centre <= self.boxes[:, 2:])).all(1)
        if not bool(holds.any()):
            return None
        away = ((self.boxes[:, :2] + self.boxes[:, 2:]) / 2 - centre).norm(dim=1)
        return int(away.where(holds, math.inf).argmin())


def reduce_image(image: Tensor, scale: float) -> Tensor:
    """Resizes a (C, H, W) uint8 image by a scale. -> (1, C, h, w) float32.

    One channel at a time, since a large image in floating point takes 4 bytes a value.
    """
    size = [max(1, round(n * scale)) for n in image.shape[1:]]
    channels = [
        functional.interpolate(
            channel[None, None].float(), size, mode="bilinear", antialias=scale < 1, align_corners=False
        )
        for channel in image
    ]
    return torch.cat(channels, 1)


def search_tiles(image: Tensor, search: Callable[[Tensor], Faces], scale: float = 1.0) -> Faces:
    """Searches a (C, H, W) image in tiles that overlap, and shifts what was found to its own pixels.

    A box at an inner edge of a tile is left out: the face is whole in the next tile, or larger than what
    tiles share, and the caller's search of the reduced image finds it.

    Args:
        image: uint8, of any size.
        search: finds faces in one tile, in the tile's pixels.
        scale: by which `search` enlarges; tiles are smaller by it.

    Returns:
        All faces of all tiles: one face may be found twice.
    """
    limits = torch.tensor(image.shape[:0:-1])  # width, height
    parts = []
    for left, top in ((x, y) for y in _spans(image, 1, scale) for x in _spans(image, 2, scale)):
        tile = image[:, top[0] : top[1], left[0] : left[1]]
        start, end = torch.tensor([left[0], top[0]]), torch.tensor([left[1], top[1]])
        faces = search(tile)
        boxes = faces.boxes + start.repeat(2)
        inside = (start == 0) | (boxes[:, :2] > start + _CUT)
        inside &= (end == limits) | (boxes[:, 2:] < end - _CUT)
        whole = inside.all(1)
        parts.append((boxes[whole], faces.scores[whole], (faces.landmarks + start)[whole]))
    return Faces(*(torch.cat(column) for column in zip(*parts, strict=True)))


def join_faces(views: Sequence[Faces], *, overlap: float, within: float) -> Faces:
    """Joins what several searches of one image found: each face once, the surest first.

    Of boxes that overlap by more than a share of their union, the surest stays. Of a box that lies by
    more than a share within another, the larger stays, however sure: parts of a large face look like faces,
    and to cover a part is not enough.
    """
    boxes, scores, landmarks = (
        torch.cat([getattr(view, name) for view in views]) for name in ("boxes", "scores", "landmarks")
    )
    one = torch.zeros(len(boxes), dtype=torch.int64)  # image
    kept = nms(boxes, scores, one, overlap=overlap)
    areas = (boxes[kept, 2:] - boxes[kept, :2]).prod(1)
    kept = kept[nms(boxes[kept], areas, one[kept], overlap=within, of_smaller=True)]
    kept = kept[scores[kept].argsort(descending=True, stable=True)]
    return Faces(boxes[kept], scores[kept], landmarks[kept])


def nms(boxes: Tensor, scores: Tensor, groups: Tensor, *, overlap: float, of_smaller: bool = False) -> Tensor:
    """Non-maximum suppression: of boxes that overlap too much, it keeps the surest.

    A box is kept unless a surer kept box overlaps it; of equal scores the earlier counts as surer.
    All groups are settled together, one box of each at a time, in memory linear in the boxes.

    Args:
        boxes: (n, 4) left, top, right, bottom.
        scores: (n,)
        groups: (n,) int64: boxes of different groups, here images, are independent.
        overlap: the most allowed overlap, as a share of the union of both.
        of_smaller: as a share of the smaller box instead, which also removes a box within another.

    Returns:
        Indices of the boxes kept, by group, and within it the surest first.
    """
    order = scores.argsort(descending=True, stable=True)
    order = order[groups[order].argsort(stable=True)]
    _, sizes = groups[order].unique_consecutive(return_counts=True)
    if not len(order):
        return order
    # (G, M): group by group, padded to the largest.
    group = torch.arange(len(sizes)).repeat_interleave(sizes)
    place = torch.arange(len(order)) - (sizes.cumsum(0) - sizes)[group]
    ranked = boxes.new_zeros(len(sizes), int(sizes.max()), 4)
    ranked[group, place] = boxes[order]
    areas = (ranked[:, :, 2:] - ranked[:, :, :2]).clamp(min=0).prod(2)
    undecided = torch.zeros(ranked.shape[:2], dtype=torch.bool)
    undecided[group, place] = True
    kept = torch.zeros_like(undecided)
    every = torch.arange(len(sizes))
    while bool((left := undecided.any(1)).any()):
        first = undecided.int().argmax(1)  # the first of equals
        box, area = ranked[every, first][:, None], areas[every, first][:, None]
        corners = torch.minimum(box[:, :, 2:], ranked[:, :, 2:]) - torch.maximum(
            box[:, :, :2], ranked[:, :, :2]
        )
        common = corners.clamp(min=0).prod(2)
        against = torch.minimum(area, areas) if of_smaller else area + areas - common
        kept[every, first] |= left
        undecided &= common <= overlap * against
        undecided[every, first] = False
    return order[kept[group, place]]


def _spans(image: Tensor, axis: int, scale: float) -> list[tuple[int, int]]:
    """The first and the last pixel of each tile along an axis; all of one length, within a pixel."""
    length, most = image.shape[axis], max(2, int(_SIDE / scale))
    shared = min(most // 2, int(max(_LEAST_SHARED, max(image.shape) / _SHARED) / scale))
    count = max(1, math.ceil((length - shared) / (most - shared)))
    side = min(length, math.ceil((length + (count - 1) * shared) / count))
    starts = [round(i * (length - side) / max(1, count - 1)) for i in range(count)]
    return [(start, start + side) for start in starts]
