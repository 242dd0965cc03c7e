"""A protection on parts of an image: on the faces, on all but the faces, or in boxes.

`blur:radius=8@faces` blurs the faces that CenterFace finds, whose weights come with the extra `faces`;
`blur:radius=8@faces:file=mtcnn.safetensors` those that MTCNN finds. A face, with a margin around it, is
protected as an image of its own, so `cell=1/8` is an eighth of the face. Overlapping boxes are merged, so
no pixel is released twice.

The protection's guarantee holds for the pixels within each box, given the boxes. Nothing is proved about the
image: its other pixels, the positions of the faces, and a face that the detector misses are shown.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sfumato.base.files import read_table
from sfumato.dp.mechanisms import Noise
from sfumato.errors import ArtefactError, DataError, ImageError, SpecError
from sfumato.images import Images, Pixels, as_array, as_tensor, check_batch, digest, read_array
from sfumato.protect.parameters import PLACES, check_path, file_parameters
from sfumato.protect.pixels import Block
from sfumato.protect.release import FilePath, Protection, Release, artefact_digest, canonical, kind_of

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.networks.faces.finding import Faces

MISSING = ("stop", "all")

NO_FACE = "no face was found"  # the causes of an image's failure
OUTSIDE = "a box outside of the picture"

LEAST_FACE = 24  # pixels, the width from which faces are found; docs/results/protections.md

# The counts of an image.
COUNTED = {"faces": "faces covered", "background": "faces shown", "box": "boxes covered"}

Box = tuple[int, int, int, int]  # top, bottom, left and right edge in pixels, as in two slices
Edges = tuple[float, float, float, float]  # left, top, right and bottom, as in files

_MOST_MARGIN = 3.0
_MOST_KNOWN = 256  # images whose boxes are kept
# Lower than usual for faces: a box too many costs little, a missed face everything.
_THRESHOLDS = (0.6, 0.6, 0.5)


@dataclass(frozen=True)
class RegionRelease(Release):
    """A release with parts of the original."""

    covered: NDArray[np.bool_] | None = None  # (N, 1, H, W), which pixels are protected; it does not travel
    boxes: tuple[int, ...] = ()  # the number of faces found in each image, or of its boxes

    def rows(self, rows: list[int]) -> Self:
        """See Released.rows."""
        return replace(super().rows(rows), boxes=tuple(self.boxes[row] for row in rows))


@dataclass(frozen=True)
class Region(Protection):
    """A protection of pixels on parts of an image; the rest is shown unchanged.

    `file`: the weights of MTCNN for faces and background, or "" for CenterFace; for "box" a CSV with the
    columns left, top, right and bottom, all in shares of the image up to 1 or all in pixels, and a column
    `file` if each image has its own boxes.
    """

    inner: Any
    place: str  # "faces"; "background", all but the faces; or "box", from a file
    file: FilePath = ""
    margin: float = 0.25  # how much a face is widened on each side, as a share of its longer side
    missing: str = "stop"  # an image without a face is not released; "all" protects all of it

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise SpecError(f"@{self.place}: one of {', '.join(PLACES)}")
        if file_parameters(type(self.inner)) or kind_of(self.inner) != "pixels" or self.inner.spec == "none":
            raise SpecError(
                f"{self.inner.spec}: cannot be applied to a part of an image: choose blur, pixelize, "
                "gaussian, dp-pix or block"
            )
        if self.place == "box" and not self.file:
            raise SpecError("@box: file is missing: write @box:file=...")
        if self.file:
            check_path(f"@{self.place}", "file", self.file)
        if not 0 <= self.margin <= _MOST_MARGIN:
            raise SpecError(f"margin={self.margin:g}: from 0 to {_MOST_MARGIN:g} times the side of a face")
        if self.missing not in MISSING:
            raise SpecError(f"missing={self.missing}: stop, to release nothing of such an image, or all")

    @property
    def spec(self) -> str:
        """See Protection.spec."""
        return canonical(f"{self.inner.spec}@{self.place}", self, but=("inner", "place"))

    @property
    def draws_noise(self) -> bool:
        """See Protection.draws_noise."""
        return bool(self.inner.draws_noise)

    def digest(self) -> str:
        """The digest of the file of the detector or of the boxes; see release.file_digest_of."""
        if self.file:
            return artefact_digest(self.file)
        from sfumato.networks.faces.finding import WEIGHTS

        return WEIGHTS.sha256

    def release(self, images: Images, noise: Noise) -> RegionRelease:
        """See Protection.release. Raises as `boxes` does, and SpecError if it does not fit a face."""
        check_batch(images)
        edges = [self._find_or_refuse(image) for image in as_array(images)]
        values, covered = as_array(images).copy(), np.zeros((len(images), 1, *images.shape[2:]), bool)
        for row, (image, found) in enumerate(zip(as_array(images), edges, strict=True)):
            values[row], covered[row] = self.apply(image, found, noise)
        counts = tuple(map(len, edges))
        size = (images.shape[2], images.shape[3])
        return RegionRelease(values, self.spec, size, covered=covered, boxes=counts)

    def apply(self, image: Pixels, boxes: Sequence[Box], noise: Noise) -> tuple[Pixels, NDArray[np.bool_]]:
        """Protects the boxes of a (C, H, W) uint8 image, or all else; and (1, H, W) bool, which pixels.

        Boxes that overlap are protected as one; a block hides all of such a box. Without boxes, all of the
        image is protected. Raises SpecError as release does.
        """
        covered = self.mask_of(image, boxes)
        if not boxes or self.place == "background":
            values = self.inner.release(image[None], noise).pictures()[0].copy()
            np.copyto(values, image, where=~covered)
            return values, covered
        values = image.copy()
        for box in disjoint(boxes):
            part = slice(*box[:2]), slice(*box[2:])
            joined = isinstance(self.inner, Block) and sum(overlap(box, each) for each in set(boxes)) > 1
            inner = Block(share=1) if joined else self.inner
            values[:, *part] = inner.release(image[None, :, *part], noise).pictures()[0]
        return values, covered

    def mask_of(self, image: Pixels, boxes: Sequence[Box]) -> NDArray[np.bool_]:
        """(1, H, W) bool, which pixels of a (C, H, W) image with these boxes are protected."""
        outside = not boxes or self.place == "background"
        covered = np.full((1, *image.shape[1:]), outside)
        for top, bottom, left, right in boxes:
            covered[:, top:bottom, left:right] = self.place != "background"
        return covered

    def boxes(self, image: Images) -> list[Box]:
        """The disjoint boxes of a (C, H, W) uint8 image; none without a face: then all is protected.

        Raises ImageError for one without a box, or without a face if `missing` is "stop"; and as find does.
        """
        return disjoint(self._find_or_refuse(image))

    def _find_or_refuse(self, image: Images) -> list[Box]:
        boxes = self.find(image)
        if not boxes and (self.missing == "stop" or self.place == "box"):
            what = "no box in the image" if self.place == "box" else NO_FACE
            cure = "" if self.place == "box" else ", or protect all of such images (faces:missing=all)"
            raise ImageError(
                f"{what}: it is not released: look at it yourself, and protect it without --where{cure}",
                cause=what,
            )
        return boxes

    @property
    def searched(self) -> str | None:
        """States how images are searched for faces; None for boxes of a file."""
        detector = "MTCNN" if self.file else "CenterFace"
        said = f"{detector}, at full size: faces down to {LEAST_FACE} pixels; smaller ones may be missed"
        return None if self.place == "box" else said

    def find(self, image: Images) -> list[Box]:
        """Finds the boxes of a (C, H, W) uint8 image of any size, which may overlap; the same image once.

        Raises ArtefactError if the file cannot be read, MissingExtraError if there is none and the extra
        `faces` is not installed, and ImageError if a box of the file is not one of this image.
        """
        known: dict[bytes, list[Box]] = self.__dict__.setdefault("_known", {})
        name = digest(image)
        if name not in known:
            known[name] = self._search(image, name)
            if len(known) > _MOST_KNOWN:
                del known[next(iter(known))]
        return list(known[name])

    def _search(self, image: Images, name: bytes) -> list[Box]:
        _, height, width = image.shape
        listed = self.place == "box"
        edges = self._read_listed(height, width, name) if listed else self._around_faces(as_tensor(image))
        boxes = [
            (
                *(max(0, math.floor(top)), min(height, math.ceil(bottom))),
                *(max(0, math.floor(left)), min(width, math.ceil(right))),
            )
            for left, top, right, bottom in edges
        ]
        return [box for box in boxes if box[0] < box[1] and box[2] < box[3]]

    def bound_in_words(self, shape: tuple[int, int, int]) -> str:
        """The proved bound for (C, H, W) images instead of a guarantee, in words."""
        inside = {"faces": "within each box around a face", "background": "outside of the faces"}
        where = inside.get(self.place, "within the boxes")
        proved = str(self.inner.guarantee(shape) or "nothing is proved").partition(";")[0]
        return f"{where}: {proved}; all else is shown unchanged, and so is a face that was not found"

    def _around_faces(self, image: "Tensor") -> list[list[float]]:
        """Left, top, right and bottom edges of the detected faces, widened by the margin."""
        import torch  # here: a protection in boxes does not need it

        found = self._find(image[None].expand(1, 3, *image.shape[1:]))[0].boxes
        sides = (found[:, 2:] - found[:, :2]).amax(1, keepdim=True) * self.margin
        edges: list[list[float]] = torch.cat([found[:, :2] - sides, found[:, 2:] + sides], 1).tolist()
        return edges

    @cached_property
    def _find(self) -> "Callable[[Tensor], list[Faces]]":
        """Loads the detector of faces."""
        if not self.file:
            from sfumato.networks.faces.finding import CenterFace

            return CenterFace.load().detect
        from sfumato.networks.faces.mtcnn import MTCNN

        return partial(MTCNN.load(self.file).detect, thresholds=_THRESHOLDS)

    @cached_property
    def _table(self) -> dict[bytes | None, list[Edges]]:
        return _read_boxes(Path(self.file))

    @property
    def of_original(self) -> bool:
        """Whether its boxes are measured on the original, so that they fit no image of another size."""
        return self.place == "box" and (
            None not in self._table or any(max(box) > 1 for box in self._table[None])
        )

    def _read_listed(self, height: int, width: int, name: bytes) -> list[Edges]:
        """The boxes of the file for an image, in pixels, which may reach over an edge by less than half.

        Raises ImageError if one is not of this image.
        """
        table, size, boxes = self._table, (width, height), []
        for box in table.get(None, []) if None in table else table.get(name, []):
            edges = box if max(box) > 1 else tuple(edge * size[i % 2] for i, edge in enumerate(box))
            across, down = (edges[i + 2] - edges[i] for i in (0, 1))
            within = [min(edges[i + 2], size[i]) - edges[i] for i in (0, 1)]
            if min(across, down) < 1 or min(within) <= 0 or 2 * within[0] * within[1] < across * down:
                shown = ",".join(f"{edge:g}" for edge in box)
                raise ImageError(
                    f"{self.file}: the box {shown} (left,top,right,bottom) is not one of a picture of "
                    f"{width}x{height} pixels: it was measured on another picture or size, or before EXIF "
                    "turned it: give the boxes of this picture",
                    cause=OUTSIDE,
                )
            boxes.append((edges[0], edges[1], edges[2], edges[3]))
        return boxes


def _read_boxes(path: Path) -> dict[bytes | None, list[Edges]]:
    """Edges by the digest of the image; by None if they are for all. A row that repeats counts once."""
    sides = ("left", "top", "right", "bottom")
    found: dict[bytes | None, list[Edges]] = {}
    digests: dict[str, bytes] = {}
    try:
        header, rows = read_table(path)
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read ({error.strerror})") from error
    if missing := [name for name in sides if name not in header]:
        raise DataError(f"{path}: no column {missing[0]!r}: write left,top,right,bottom")
    for line, row in rows:
        try:
            left, top, right, bottom = (float(row[name]) for name in sides)
        except ValueError as error:
            raise DataError(f"{line}: an edge is not a number: write left,top,right,bottom") from error
        if not (0 <= left < right < math.inf and 0 <= top < bottom < math.inf):
            raise DataError(f"{line}: left must be below right, top below bottom, and none below 0")
        name = row.get("file") or None
        if name is not None and name not in digests:
            # Only read, not released: it may lie anywhere.
            digests[name] = digest(read_array(path.parent / name, channels=None))
        key = None if name is None else digests[name]
        boxes = found.setdefault(key, [])
        if (left, top, right, bottom) not in boxes:
            boxes.append((left, top, right, bottom))
    every = [box for boxes in found.values() for box in boxes]
    if len({max(box) > 1 for box in every}) > 1:
        raise DataError(
            f"{path}: some boxes have edges up to 1, which are shares of the image, and some are in pixels: "
            "write all in one of them"
        )
    if None in found and len(found) > 1:
        raise DataError(f"{path}: some rows name a file and some do not: name one in every row, or never")
    return found


def disjoint(boxes: Iterable[Box]) -> list[Box]:
    """Merges overlapping boxes into the least box around them, until all are disjoint."""
    kept: list[Box] = []
    for box in boxes:
        joined = box
        while overlapping := [each for each in kept if overlap(each, joined)]:
            kept = [each for each in kept if each not in overlapping]
            joined = around([joined, *overlapping])
        kept.append(joined)
    return sorted(kept)


def around(boxes: Iterable[Box]) -> Box:
    """The least box around some."""
    tops, bottoms, lefts, rights = zip(*boxes, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def overlap(one: Box, other: Box) -> bool:
    """Whether two boxes share a pixel."""
    return one[0] < other[1] and other[0] < one[1] and one[2] < other[3] and other[2] < one[3]
