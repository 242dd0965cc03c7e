"""MTCNN: faces and their five landmarks, found by a cascade of three small networks."""

import math
import os

import torch
from torch import Tensor, nn
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.images import check_batch
from sfumato.networks.faces.finding import WHOLE, Faces, join_faces, nms, reduce_image, search_tiles
from sfumato.networks.weights import load_weights

SOURCE = (
    "MTCNN's three networks are at github.com/timesler/facenet-pytorch (MIT): save "
    "facenet_pytorch.MTCNN().state_dict() by torch.save"
)

_WINDOW, _STRIDE = 12, 2  # of the P-Net, in pixels
_PIXELS = 1 << 22  # of images together in one step; a larger one is searched in tiles
_CROPS = 256  # in one step
_OVERLAP_IN_SCALE, _OVERLAP = 0.5, 0.7  # NMS, as published
_SMALLEST = 20.0  # the side of a face, in pixels: the time grows with the square of its inverse
_SHRINK = 0.709  # from one scale of the pyramid to the next
_LEAST_SIDE = 160  # images with a smaller shorter side are enlarged to it, or the O-Net sees blocks

Thresholds = tuple[float, float, float]  # the least score for each of the three networks
PUBLISHED: Thresholds = (0.6, 0.7, 0.7)  # of the authors


class MTCNN(nn.Module):
    """Proposals from every position and scale (P-Net), refined twice (R-Net, O-Net). State: its weights.

    Source: Zhang et al. 2016, with the thresholds and overlaps of the authors' code. Here windows are cut by
    exact averages over fractions of pixels, from one table of sums for each image; the authors round
    boxes to pixels. As theirs, windows are black outside the image.
    """

    def __init__(self) -> None:
        super().__init__()
        self.pnet, self.rnet, self.onet = _PNet(), _RNet(), _ONet()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "MTCNN":
        """Makes the detector with the weights of a file. Raises ArtefactError as load_weights does."""
        return load_weights(cls, path, source=SOURCE)

    @torch.no_grad()
    def detect(self, images: Tensor, thresholds: Thresholds = PUBLISHED) -> list[Faces]:
        """Finds the faces of each of (N, 3, H, W) uint8 images. Raises DataError for grey ones."""
        check_batch(images)
        if images.shape[1] != 3:
            raise DataError("MTCNN reads colour: repeat the grey channel three times")
        self.eval()
        height, width = images.shape[2:]
        if height * width > _PIXELS:
            return [self._detect_large(image, thresholds) for image in images]
        enlarged = max(1.0, _LEAST_SIDE / min(height, width))
        together = max(1, int(_PIXELS / (height * width * enlarged**2)))
        found: list[Faces] = []
        for part in images.split(together):
            found += self._detect(part, enlarged, thresholds)
        return found

    def _detect_large(self, image: Tensor, thresholds: Thresholds) -> Faces:
        """The faces of one large image: in tiles at full size, and of larger faces in a reduced view."""
        scale = WHOLE / max(image.shape)
        reduced = reduce_image(image, scale).round().to(torch.uint8)
        (large,) = self.detect(reduced, thresholds)
        back = torch.tensor([image.shape[i] / reduced.shape[i + 1] for i in (2, 1)])
        large = Faces(large.boxes * back.repeat(2), large.scores, (large.landmarks + 0.5) * back - 0.5)
        small = search_tiles(image, lambda tile: self.detect(tile[None], thresholds)[0])
        return join_faces([large, small], overlap=_OVERLAP, within=_OVERLAP)

    def _detect(self, images: Tensor, enlarged: float, thresholds: Thresholds) -> list[Faces]:
        pixels = images.float()
        if enlarged > 1:
            height, width = (math.ceil(n * enlarged) for n in images.shape[2:])
            pixels = functional.interpolate(pixels, (height, width), mode="bilinear", align_corners=False)
        table = _sums(pixels)
        first, second, third = thresholds

        boxes, rows = self._propose(table, _SMALLEST * enlarged, first)

        boxes = _square(boxes)
        scores, shifts = self._judge(self.rnet, table, boxes, rows, 24)
        sure = (scores >= second).nonzero().flatten()
        sure = sure[nms(boxes[sure], scores[sure], rows[sure], overlap=_OVERLAP)]
        boxes, rows = _square(_shift(boxes[sure], shifts[sure])), rows[sure]

        scores, shifts, landmarks = self._judge(self.onet, table, boxes, rows, 48)
        sure = (scores >= third).nonzero().flatten()
        boxes, scores, shifts, rows = boxes[sure], scores[sure], shifts[sure], rows[sure]
        # Relative to the window that the O-Net saw, all x before all y.
        landmarks = landmarks[sure].reshape(-1, 2, 5).transpose(1, 2)
        landmarks = boxes[:, None, :2] + landmarks * (boxes[:, None, 2:] - boxes[:, None, :2])
        boxes = _shift(boxes, shifts)
        kept = nms(boxes, scores, rows, overlap=_OVERLAP, of_smaller=True)
        boxes, scores, landmarks, rows = boxes[kept], scores[kept], landmarks[kept], rows[kept]
        back = torch.tensor([images.shape[i] / pixels.shape[i] for i in (3, 2)])
        boxes, landmarks = boxes * back.repeat(2), (landmarks + 0.5) * back - 0.5
        return [
            Faces(boxes[mine], scores[mine], landmarks[mine])
            for mine in (rows == i for i in range(len(images)))
        ]

    def _propose(self, table: Tensor, smallest: float, threshold: float) -> tuple[Tensor, Tensor]:
        """Boxes, and their images, from all scales."""
        count, (height, width) = len(table), (n - 1 for n in table.shape[2:])
        whole = torch.tensor([[0.0, 0.0, width, height]]).expand(count, 4)
        found = [(torch.empty(0, 4), torch.empty(0), torch.empty(0, 4), torch.empty(0, dtype=torch.int64))]
        scale = _WINDOW / smallest
        while min(height, width) * scale >= _WINDOW:
            size = math.ceil(height * scale), math.ceil(width * scale)
            reduced = _averages(table, torch.arange(count), whole, size)
            scores, shifts = self.pnet(_scale(reduced))  # (N, h, w), (N, 4, h, w)
            rows, y, x = (scores >= threshold).nonzero().unbind(1)
            corners = _STRIDE * torch.stack([x, y], 1)
            pixel = torch.tensor([width / size[1], height / size[0]])
            boxes = torch.cat([corners * pixel, (corners + _WINDOW) * pixel], 1)
            scores, shifts = scores[rows, y, x], shifts[rows, :, y, x]
            kept = nms(boxes, scores, rows, overlap=_OVERLAP_IN_SCALE)
            found.append((boxes[kept], scores[kept], shifts[kept], rows[kept]))
            scale *= _SHRINK
        boxes, scores, shifts, rows = (torch.cat(column) for column in zip(*found, strict=True))
        kept = nms(boxes, scores, rows, overlap=_OVERLAP)
        return _shift(boxes[kept], shifts[kept]), rows[kept]

    def _judge(
        self, network: nn.Module, table: Tensor, boxes: Tensor, rows: Tensor, side: int
    ) -> tuple[Tensor, ...]:
        """The results of a network for the contents of boxes, at side x side pixels."""
        # At least one part, so that no boxes give empty results of the right shapes.
        starts = range(0, max(1, len(boxes)), _CROPS)
        parts = [(rows[i : i + _CROPS], boxes[i : i + _CROPS]) for i in starts]
        said = [network(_scale(_averages(table, *part, (side, side)))) for part in parts]
        return tuple(torch.cat(column) for column in zip(*said, strict=True))


class _PNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 10, 3), nn.PReLU(10)
        self.conv2, self.prelu2 = nn.Conv2d(10, 16, 3), nn.PReLU(16)
        self.conv3, self.prelu3 = nn.Conv2d(16, 32, 3), nn.PReLU(32)
        self.conv4_1 = nn.Conv2d(32, 2, 1)
        self.conv4_2 = nn.Conv2d(32, 4, 1)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = functional.max_pool2d(self.prelu1(self.conv1(images)), 2, ceil_mode=True)
        features = self.prelu3(self.conv3(self.prelu2(self.conv2(features))))
        return self.conv4_1(features).softmax(1)[:, 1], self.conv4_2(features)


class _RNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 28, 3), nn.PReLU(28)
        self.conv2, self.prelu2 = nn.Conv2d(28, 48, 3), nn.PReLU(48)
        self.conv3, self.prelu3 = nn.Conv2d(48, 64, 2), nn.PReLU(64)
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1 = nn.Linear(128, 2)
        self.dense5_2 = nn.Linear(128, 4)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor]:
        features = functional.max_pool2d(self.prelu1(self.conv1(crops)), 3, 2, ceil_mode=True)
        features = functional.max_pool2d(self.prelu2(self.conv2(features)), 3, 2, ceil_mode=True)
        features = self.prelu4(self.dense4(_flat(self.prelu3(self.conv3(features)))))
        return self.dense5_1(features).softmax(1)[:, 1], self.dense5_2(features)


class _ONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.prelu1 = nn.Conv2d(3, 32, 3), nn.PReLU(32)
        self.conv2, self.prelu2 = nn.Conv2d(32, 64, 3), nn.PReLU(64)
        self.conv3, self.prelu3 = nn.Conv2d(64, 64, 3), nn.PReLU(64)
        self.conv4, self.prelu4 = nn.Conv2d(64, 128, 2), nn.PReLU(128)
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1 = nn.Linear(256, 2)
        self.dense6_2 = nn.Linear(256, 4)
        self.dense6_3 = nn.Linear(256, 10)

    def forward(self, crops: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = functional.max_pool2d(self.prelu1(self.conv1(crops)), 3, 2, ceil_mode=True)
        features = functional.max_pool2d(self.prelu2(self.conv2(features)), 3, 2, ceil_mode=True)
        features = functional.max_pool2d(self.prelu3(self.conv3(features)), 2, 2, ceil_mode=True)
        features = self.prelu5(self.dense5(_flat(self.prelu4(self.conv4(features)))))
        return self.dense6_1(features).softmax(1)[:, 1], self.dense6_2(features), self.dense6_3(features)


def _scale(pixels: Tensor) -> Tensor:
    return (pixels - 127.5) / 128


def _flat(maps: Tensor) -> Tensor:
    """(N, C, H, W) -> (N, W * H * C), the order of the public weights."""
    return maps.permute(0, 3, 2, 1).flatten(1)


def _square(boxes: Tensor) -> Tensor:
    """The square of the longer side about the same centre, of at least a pixel."""
    centre, side = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).amax(1).clamp(min=1)
    half = side[:, None] / 2
    return torch.cat([centre - half, centre + half], 1)


def _shift(boxes: Tensor, shifts: Tensor) -> Tensor:
    """Moves each edge by a share of the box's width or height."""
    return boxes + shifts * (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)


def _sums(pixels: Tensor) -> Tensor:
    """Sums over all rectangles from the first corner. (N, C, H, W) -> (N, C, H+1, W+1) float64."""
    return functional.pad(pixels.double().cumsum(2).cumsum(3), (1, 0, 1, 0))


def _averages(table: Tensor, rows: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Cuts boxes out of images and averages each to (h, w) pixels, black outside the image.

    A bilinear reading of the table of `_sums` is the sum over a rectangle that covers parts of pixels. The
    image of each of F boxes is in `rows`. -> (F, C, h, w) float32.
    """
    height, width = table.shape[2] - 1, table.shape[3] - 1
    left, top, right, bottom = boxes.double().T[:, :, None]
    ys = top + (bottom - top) * torch.linspace(0, 1, size[0] + 1, dtype=torch.float64)  # (F, h+1)
    xs = left + (right - left) * torch.linspace(0, 1, size[1] + 1, dtype=torch.float64)
    area = (ys[:, 1:] - ys[:, :-1])[:, :, None] * (xs[:, 1:] - xs[:, :-1])[:, None]
    ys, xs = ys.clamp(0, height)[:, :, None], xs.clamp(0, width)[:, None]
    y, x = ys.floor().clamp(max=height - 1).long(), xs.floor().clamp(max=width - 1).long()
    dy, dx = (ys - y)[..., None], (xs - x)[..., None]
    row = rows[:, None, None]
    upper = torch.lerp(table[row, :, y, x], table[row, :, y, x + 1], dx)  # (F, h+1, w+1, C)
    lower = torch.lerp(table[row, :, y + 1, x], table[row, :, y + 1, x + 1], dx)
    corners = torch.lerp(upper, lower, dy)
    sums = corners.diff(dim=1).diff(dim=2)
    averages: Tensor = sums / area[..., None]
    return averages.permute(0, 3, 1, 2).float()
