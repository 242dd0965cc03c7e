"""The kind of protection that a picture looks like, and its strength, from its pixels alone.

Thresholds were chosen on every second image of LFW and Caltech-101; studies/folders.py states the rates on
the others.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sfumato.protect.region import Box, disjoint

_LUMA = np.array([0.299, 0.587, 0.114])[:, None, None]
_CELLS = range(3, 41)  # of a mosaic on a part, in pixels
_MOST = 128  # pixels of a cell of a whole picture
_GRID, _EDGE = 4.0, 1.5  # times the differences off a grid, and grey levels on it, at least
_NOISE, _SOFT, _BLUR = 12.0, 0.8, 1.5  # grey levels; pixels
_LEAST, _FILLED = 12, 0.85  # the side of a part of one colour, and its share of its box
_CHANGED = 8  # grey levels, between a picture and its original
_WHOLE = 0.5  # of a picture: then it is protected as a whole

Grey = NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """The protection that a picture looks like.

    Attributes:
        kind: "mosaic", "blur", "soft", "noise", "one colour", "changed" or "none".
        strength: the side of a cell or the deviation of a blur in pixels, that of noise in grey levels.
        parts: of the picture that are protected, if it is not the whole.
    """

    kind: str
    strength: float = 0.0
    parts: tuple[Box, ...] = field(default=())

    @property
    def spec(self) -> str | None:
        """The protection of this library that makes such pictures, or None."""
        names = {
            "mosaic": "pixelize:cell={:.0f}",
            "blur": "blur:radius={:.2g}",
            "noise": "gaussian:sigma={:.3g}",
        }
        return names[self.kind].format(self.strength) if self.kind in names else None


def look(picture: Tensor) -> Look:
    """Say which protection a (3, H, W) uint8 picture looks like; a mosaic may have noise in its cells."""
    values = picture.numpy().astype(np.float64)
    grey: Grey = (values * _LUMA).sum(0)
    if cell := _whole_grid(grey):
        return Look("mosaic", cell)
    grids = _grids(grey)
    area = sum((bottom - top) * (right - left) for (top, bottom, left, right), _ in grids)
    if grids:
        cells = sorted(cell for _, cell in grids)
        boxes = tuple(disjoint(box for box, _ in grids)) if area < _WHOLE * grey.size else ()
        return Look("mosaic", cells[len(cells) // 2], boxes)
    if parts := _find_filled(values):
        return Look("one colour", 0.0, tuple(disjoint(parts)))
    noise = float(np.mean([_noise(plane) for plane in values]))
    if noise > _NOISE:
        return Look("noise", noise)
    sigma = blur_of(grey)
    return Look(
        "blur" if sigma > _BLUR else "soft" if sigma > _SOFT else "none", sigma if sigma > _SOFT else 0.0
    )


def compare(found: Look, original: Tensor, picture: Tensor) -> Look:
    """Name the parts that differ from the original, if nothing else is seen in them."""
    from scipy import ndimage  # type: ignore[import-untyped]

    if found.parts or found.kind not in ("none", "soft") or original.shape != picture.shape:
        return found
    differs = (original.float() - picture.float()).abs().amax(0).numpy() > _CHANGED
    labels, _ = ndimage.label(ndimage.binary_closing(differs, iterations=4))
    slices = [
        each
        for each in ndimage.find_objects(labels)
        if min(part.stop - part.start for part in each) >= _LEAST
    ]
    boxes = disjoint((rows.start, rows.stop, columns.start, columns.stop) for rows, columns in slices)
    return Look("changed", 0.0, tuple(boxes)) if boxes else found


def _whole_grid(grey: Grey) -> int:
    """Find the cell of a mosaic over a whole picture, whose grid begins in its corner; 0 if none."""
    profiles = [np.abs(np.diff(grey, axis=axis)).mean(1 - axis) for axis in (0, 1)]
    for cell in range(2, min(_MOST, min(grey.shape) // 2) + 1):
        ratios = []
        for profile in profiles:
            on = profile[cell - 1 :: cell]
            off = (profile.sum() - on.sum()) / (len(profile) - len(on))
            weak = np.sort(on)[len(on) // 5]
            ratios.append(weak / (off + 0.25) if weak > _EDGE else 0.0)
        if min(ratios) > _GRID:  # the smallest: its multiples are grids, too
            return cell
    return 0


def _grids(grey: Grey) -> list[tuple[Box, int]]:
    """Find mosaics on parts: windows of 3 x 3 cells whose differences lie on lines a cell apart."""
    from scipy import ndimage

    found = []
    for cell in _CELLS:
        side = 3 * cell
        if side > min(grey.shape):
            break
        tops, lefts = (np.arange(0, length - side + 1, cell) for length in grey.shape)
        across = _fold(np.abs(np.diff(grey, axis=1, prepend=grey[:, :1])), tops, lefts, cell)
        down = _fold(np.abs(np.diff(grey, axis=0, prepend=grey[:1])).T, lefts, tops, cell)
        on = np.minimum(across[0], down[0].T)
        ratio = np.minimum(across[1], down[1].T)
        labels, _ = ndimage.label((ratio > _GRID) & (on > _EDGE), np.ones((3, 3)))
        for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
            mine = labels[rows, columns] == number
            top, left = int(tops[rows.start]), int(lefts[columns.start])
            box = top, int(tops[rows.stop - 1]) + side, left, int(lefts[columns.stop - 1]) + side
            found.append((float(np.median(ratio[rows, columns][mine])) * mine.sum() ** 0.5, box, cell))
    kept: list[tuple[Box, int]] = []
    for _, box, cell in sorted(found, reverse=True):  # the clearest of those that overlap
        if all(len(disjoint([box, other])) == 2 for other, _ in kept):
            kept.append((box, cell))
    return kept


def _fold(steps: Grey, tops: Grey, lefts: Grey, cell: int) -> tuple[Grey, Grey]:
    """Return the weakest of 3 lines at the clearest offset in each window, and its ratio to the others."""
    side = 3 * cell
    sums = np.cumsum(np.pad(steps, ((1, 0), (0, 0))), 0)
    lines = (sums[tops + side] - sums[tops]) / side  # (T, W)
    windows = np.stack([lines[:, left : left + side] for left in lefts], 1)
    windows = windows.reshape(len(tops), len(lefts), 3, cell)
    total = windows.sum(2)
    offset = total.argmax(-1)[..., None]
    on = np.take_along_axis(windows, offset[:, :, None], 3)[..., 0].min(-1)
    off = (total.sum(-1) - np.take_along_axis(total, offset, 2)[..., 0]) / (3 * (cell - 1))
    return on, on / (off + 0.25)


def _find_filled(values: Grey) -> list[Box]:
    """Find boxes and ellipses of one colour that do not touch the border, as backgrounds do."""
    from scipy import ndimage

    flat: NDArray[np.bool_] = np.ones(values[0].shape, bool)
    flat[:-1] &= (np.abs(np.diff(values, axis=1)) <= 1).all(0)
    flat[:, :-1] &= (np.abs(np.diff(values, axis=2)) <= 1).all(0)
    labels, _ = ndimage.label(flat)
    found = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if not (rows.start and columns.start and rows.stop < len(flat) and columns.stop < len(flat[0])):
            continue
        if min(height, width) < _LEAST or max(height, width) > 2.5 * min(height, width):
            continue
        share = (labels[rows, columns] == number).mean()
        if share > _FILLED or abs(share - np.pi / 4) < 0.05:
            found.append((rows.start, rows.stop + 1, columns.start, columns.stop + 1))  # with its last line
    return found


def _noise(plane: Grey) -> float:
    """Estimate the deviation of noise by the finest diagonal detail. Donoho & Johnstone 1994."""
    even = plane[: plane.shape[0] // 2 * 2, : plane.shape[1] // 2 * 2]
    detail = (even[::2, ::2] - even[1::2, ::2] - even[::2, 1::2] + even[1::2, 1::2]) / 2
    return float(np.median(np.abs(detail)) / 0.6745)


_SIGMAS = np.concatenate([np.arange(0, 3, 0.1), np.arange(3, 12.1, 0.5)])


def blur_of(grey: Grey) -> float:
    """Estimate the deviation of a Gaussian blur in pixels.

    The power of photographs falls with frequency as 1 / w^2.2, that of a blurred one as exp(-s² w²) faster,
    down to the rounding of values. The fit is to the mean spectrum of rows and columns.
    """
    length = 64 if min(grey.shape) >= 64 else 32
    if min(grey.shape) < length:
        return 0.0
    window = np.hanning(length + 2)[1:-1]
    frequencies = np.fft.rfftfreq(length)[1:] * 2 * np.pi
    power = np.zeros(length // 2)
    for lines in (grey, grey.T):
        for start in np.unique(np.linspace(0, lines.shape[1] - length, 5).astype(int)):
            part = lines[:, start : start + length]
            part = (part - part.mean(1, keepdims=True)) * window
            power += (np.abs(np.fft.rfft(part, axis=1)[:, 1:]) ** 2).mean(0) / (window**2).sum()
    power = np.log(power / 10 + 1e-9)
    models = np.log(frequencies**-2.2) - _SIGMAS[:, None] ** 2 * frequencies**2  # (S, F)
    few = max(4, length // 8)
    level = np.median(power[:few] - models[:, :few], axis=1, keepdims=True)
    errors = (np.log(np.exp(models + level) + 0.25) - power) ** 2
    return float(_SIGMAS[errors.mean(1).argmin()])
