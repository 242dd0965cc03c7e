"""The protection that a picture looks like, from its pixels alone.

Thresholds were chosen on half of LFW and Caltech-101; studies/folders.py at 2f64c651 has the others' rates.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sfumato.protect.region import Box, disjoint

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
_CELLS, _EXACT = range(3, 62), 6  # of a mosaic on a part, in pixels; smaller ones are whole
_GRID, _EDGE = 4.0, 1.5  # times the differences off a grid, and grey levels on it, at least
_FEW, _MANY, _QUIET = 4, 12, 1.0  # lines: few need a higher ratio, unless a picture has little else
_NOISE = 12.0  # grey levels
_BLUR = 3.4  # times as large squares of differences two pixels apart: 4 on a ramp, less on any detail
_LEAST = 12  # pixels, a side of a part of one colour
_FILLED, _SQUARE = 0.85, 0.93  # the share of its box, inside and at the border
_SAME, _CONTRAST = 4, 12  # grey levels: between most pixels of one colour, and to those around it
_WHOLE = 0.5  # of a picture: then it is protected as a whole

Grey = NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """The protection that a picture looks like."""

    kind: str  # "mosaic", "blur", "noise", "one colour" or "none"
    strength: float = 0.0  # the side of a cell in pixels, the deviation of noise in grey levels
    parts: tuple[Box, ...] = ()  # of the picture that are protected, if it is not the whole


def look(picture: Tensor) -> Look:
    """Say which protection a (3, H, W) uint8 picture looks like; a mosaic may have noise in its cells."""
    values = picture.numpy()
    grey: Grey = np.tensordot(_LUMA, values.astype(np.float32), 1)
    if all(np.ptp(np.percentile(plane[::3, ::3], (2, 98))) <= _SAME for plane in values):
        return Look("one colour")
    cell, grids, filled = _whole_grid(grey), [], []
    if not cell or 4 * cell > min(grey.shape):  # a few lines may be the edges of a part
        grids, filled = _grids(grey), _find_filled(values)
    hidden = any(2 * _area(box) > grey.size and max(box[0], box[2]) > 0 for box in filled)
    if cell and all(2 * part > cell for _, part in grids) and not hidden:
        return Look("mosaic", cell)
    if grids and not hidden:
        cells = sorted(cell for _, cell in grids)
        whole = sum(_area(box) for box, _ in grids) >= _WHOLE * grey.size
        parts = () if whole else tuple(disjoint(box for box, _ in grids))
        return Look("mosaic", cells[len(cells) // 2], parts)
    if filled:
        return Look("one colour", 0.0, tuple(disjoint(filled)))
    noise = float(np.mean([_noise(plane) for plane in values]))
    if noise > _NOISE:
        return Look("noise", noise)
    even = grey[: grey.shape[0] // 2 * 2, : grey.shape[1] // 2 * 2]
    coarse = even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]  # with less noise of JPEG
    blurred = any(min(map(_rate_ramps, (each, each.T))) > _BLUR for each in (grey, coarse))
    return Look("blur" if blurred else "none")


def _area(box: Box) -> int:
    return (box[1] - box[0]) * (box[3] - box[2])


def _whole_grid(grey: Grey) -> float:
    """Find the cell of a mosaic over a whole picture, in pixels and their fractions; 0 if none."""
    rows, columns = (_fit_grid(np.abs(np.diff(grey, axis=axis)).mean(1 - axis)) for axis in (0, 1))
    if not rows or not columns:
        return 0.0
    # One that sees every second line alone has twice the cell; else they are of one square, or nearly.
    alike = max(rows, columns) < 1.4 * min(rows, columns)
    cell = float((rows * columns) ** 0.5) if alike else min(rows, columns)
    return float(round(cell)) if abs(cell / round(cell) - 1) * min(grey.shape) < 0.5 else cell


def _fit_grid(profile: Grey) -> float:
    """Fit a line of equal cells to the mean difference of each pixel from the one before; 0 if none fits.

    Programs that shrink and enlarge make cells of no whole number: their edges lie within a pixel of a grid.
    """
    best, cell = 0.0, 0.0
    padded, usual = np.pad(profile, 1), np.percentile(profile, 30) + 0.25
    peaks = np.maximum(profile, np.maximum(padded[:-2], padded[2:])) == profile
    for least in (2.5 * usual, 5 * usual, 12 * usual, 0.2 * profile.max(), 0.4 * profile.max()):
        edges = np.flatnonzero(peaks & (profile > max(_EDGE, least)))
        if len(edges) == 1:
            tried = [(float(max(edges[0] + 1, len(profile) - edges[0])), float(edges[0]))]
        else:
            gaps = np.diff(edges) if len(edges) else np.zeros(1)
            steps = {*np.percentile(gaps, (10, 30, 50)), gaps.mean()}
            tried = [_regress(edges, gap) for gap in steps if gap >= 2]
        for step, start in tried:
            if (share := _rate_grid(profile, step, start)) > best:
                best, cell = share, step
    return cell


def _regress(edges: NDArray[np.int64], gap: float) -> tuple[float, float]:
    """Fit positions to whole multiples of about a gap: the cell, and the position of the first line."""
    numbers, near = np.cumsum(np.append(0, np.rint(np.diff(edges) / gap))), np.ones(len(edges), bool)
    step, start = gap, float(edges[0])
    for _ in range(3):  # the second time without those that lie off the line
        if near.sum() < 2 or np.ptp(numbers[near]) == 0 or step < 2:
            return gap, float(edges[0])
        step, start = np.polyfit(numbers[near], edges[near], 1)
        near = np.abs(edges - start - step * numbers) < 1.5
        numbers = np.rint((edges - start) / step) if step >= 2 else numbers
    return float(max(step, 2)), float(start)


def _rate_grid(profile: Grey, step: float, start: float) -> float:
    """The share of all differences that lies on a grid, within a pixel; 0 if its weak ones are too low.

    A grid with every second line has about half.
    """
    lines = np.arange(start % step, len(profile), step)
    places = np.add.outer(np.rint(lines).astype(int), (-1, 0, 1)).clip(0, len(profile) - 1)
    on = profile[places]
    places = np.unique(np.take_along_axis(places, on.argmax(1)[:, None], 1))
    weak = np.sort(on.max(1))[len(lines) // 3]
    off = np.delete(profile, places)
    if weak < _EDGE or not off.size:
        return 0.0
    # JPEG rings near edges. A few lines may be the edges of a box.
    doubt = 1 + _FEW / len(lines) if off.mean() > _QUIET else 1.0
    ratio = weak / (np.percentile(off, 60) + 0.25) / (doubt if len(lines) < _MANY else 0.7)
    return float(profile[places].sum() / profile.sum()) if ratio > _GRID else 0.0


def _grids(grey: Grey) -> list[tuple[Box, float]]:
    """Find mosaics on parts: windows of 3 x 3 cells whose differences lie on lines a cell apart."""
    from scipy import ndimage  # type: ignore[import-untyped]

    found, sums = [], []
    for lines in (grey, grey.T):  # of the differences along each line, down to each row
        steps = np.abs(np.diff(lines, axis=1, prepend=lines[:, :1]))
        sums.append(np.cumsum(np.pad(steps, ((1, 0), (0, 0))), 0, dtype=np.float64))
    for cell in _CELLS:
        side = 3 * cell
        if side > min(grey.shape):
            break
        tops, lefts = (np.arange(0, length - side + 1, cell) for length in grey.shape)
        across, down = _fold(sums[0], tops, lefts, cell), _fold(sums[1], lefts, tops, cell)
        on = np.minimum(across[0], down[0].T)
        ratio = np.minimum(across[1], down[1].T)
        labels, _ = ndimage.label((ratio > _GRID) & (on > _EDGE), np.ones((3, 3)))
        for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
            mine = labels[rows, columns] == number
            top, left = int(tops[rows.start]), int(lefts[columns.start])
            box = top, int(tops[rows.stop - 1]) + side, left, int(lefts[columns.stop - 1]) + side
            found.append((float(np.median(ratio[rows, columns][mine])) * mine.sum() ** 0.5, box, cell))
    kept: list[tuple[Box, float]] = []
    for _, box, cell in sorted(found, reverse=True):  # the clearest of those that overlap
        if all(len(disjoint([box, other])) == 2 for other, _ in kept):
            kept.append((box, _whole_grid(grey[box[0] : box[1], box[2] : box[3]]) or float(cell)))
    return kept


def _fold(sums: Grey, tops: Grey, lefts: Grey, cell: int) -> tuple[Grey, Grey]:
    """Return the weakest of 3 lines, within a pixel of the clearest offset, and its ratio to the others."""
    side = 3 * cell
    lines = (sums[tops + side] - sums[tops]) / side  # (T, W)
    windows = np.stack([lines[:, left : left + side] for left in lefts], 1)
    windows = windows.reshape(len(tops), len(lefts), 3, cell)
    beside = (0,) if cell < _EXACT else (-1, 0, 1)
    near = np.max([np.roll(windows, by, 3) for by in beside], 0)
    offset = near.min(2).argmax(-1)[..., None]
    on = np.take_along_axis(near, offset[:, :, None], 3)[..., 0]
    off = (windows.sum((2, 3)) - on.sum(-1)) / (3 * (cell - 1))
    return on.min(-1), on.min(-1) / (off + 0.25)


def _find_filled(values: NDArray[np.uint8]) -> list[Box]:
    """Find boxes and ellipses of one colour, other than that around them.

    Backgrounds and bars touch the border. There a part counts if it is square and does not end a whole side.
    """
    from scipy import ndimage

    shape = np.array(values.shape[1:])
    flat: NDArray[np.bool_] = np.ones(shape, bool)
    for plane in values.astype(np.int16):
        flat[:-1] &= np.abs(np.diff(plane, axis=0)) <= 1
        flat[:, :-1] &= np.abs(np.diff(plane, axis=1)) <= 1
    labels, _ = ndimage.label(flat)
    sizes, found = np.bincount(labels.ravel()), []
    for number, place in enumerate(ndimage.find_objects(labels), 1):
        starts, stops = (np.array([getattr(part, end) for part in place]) for end in ("start", "stop"))
        sides, share = stops - starts, sizes[number] / np.prod(stops - starts)
        if min(sides) < _LEAST or max(sides) > 2.5 * min(sides):
            continue
        bar = (sides >= shape - 1).any() and 2 * np.prod(sides) < np.prod(shape)
        if (min(starts) == 0 or (stops >= shape - 1).any()) and (bar or share < _SQUARE):
            continue
        area = tuple(slice(max(0, part.start - 6), part.stop + 6) for part in place)
        mine, part = labels[area] == number, values[:, *area]
        inside, around = part[:, mine], part[:, ~ndimage.binary_dilation(mine, iterations=3)]
        differs = np.abs(around - np.median(inside, 1)[:, None]).max(0)
        same = np.ptp(np.percentile(inside, (2, 98), axis=1), axis=0).max() <= _SAME
        large = share > _SQUARE and 20 * np.prod(sides) > np.prod(shape)
        alone = differs.size == 0 or large or np.median(differs) > _CONTRAST
        if (share > _FILLED or abs(share - np.pi / 4) < 0.05) and same and alone:
            found.append((int(starts[0]), int(stops[0]) + 1, int(starts[1]), int(stops[1]) + 1))  # last lines
    return found


def _noise(plane: Grey) -> float:
    """Estimate the deviation of noise by the finest diagonal detail. Donoho & Johnstone 1994."""
    plane = plane.astype(np.float32)
    even = plane[: plane.shape[0] // 2 * 2, : plane.shape[1] // 2 * 2]
    detail = (even[::2, ::2] - even[1::2, ::2] - even[::2, 1::2] + even[1::2, 1::2]) / 2
    return float(np.median(np.abs(detail)) / 0.6745)


def _rate_ramps(grey: Grey) -> float:
    """The mean square of differences of pixels two apart by that of neighbours: a blur leaves ramps alone."""
    return float(np.square(grey[:, 2:] - grey[:, :-2]).mean() / (np.square(np.diff(grey)).mean() + 1e-6))
