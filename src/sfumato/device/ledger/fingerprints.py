"""Fingerprints of images: an index looks near copies up by them; near_copies then compares the candidates.

Blobs of a picture stay in position when it is cropped. 25 signs describe the surroundings of each blob, the
same for every mirroring and quarter turn (after Lowe 2004, with polynomials under a Gaussian window instead
of histograms of gradients). An image is stored under these signs, and looked up under its own and under those
that differ in the least certain signs.
"""

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sfumato.device.ledger.near_copies import DETAIL, LEVELS, THUMBNAIL, Fingerprint, smoothing
from sfumato.images import Images, Pixels, as_array, check_batch, resize
from sfumato.protect.pixels import cell_sums

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601
_BASE = 48  # the side to which a picture is reduced at first

_STORED = 36  # the side at which blobs are found under which an image is stored
# Lookup: sides, and the largest number of blobs at each: crops of 3/4, and to 3/4.
_PROBED = {27: 10, 29: 11, 32: 14, 36: 20, 40: 15, 45: 18, 48: 18}
_WHOLE = 13  # the side at which a square is described whole
_RADIUS, _WINDOW, _ORDER = 6, 3.0, 6  # cells around a blob; sigma of the window; highest order of polynomials
_PROBES = 200
_FAINT = 0.5  # grey levels: weaker extremes are not blobs
_LEAST_CONTRAST = 1.0  # grey levels, of a thumbnail: flatter ones have no fingerprint
# A frame: lines with this share within so many grey levels of one; nested frames; lines looked at.
_OF_A_LINE, _PLAIN, _FRAMES, _LINES = 0.9, 12.0, 4, 256


def fingerprints(images: Images) -> list[Fingerprint | None]:
    """Compute the fingerprint of each image, independently of the batch; None if it is too flat.

    It describes one or two views: the centre square; and the whole picture without its frame, stretched to a
    square, if that is another: so a frame and another shape change nothing. Raises ImageError unless images
    are (N, C, H, W) uint8 with C of 1 or 3.
    """
    check_batch(images)
    if not len(images):
        return []
    pixels = as_array(images)
    height, width = pixels.shape[2:]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    centres = _squares(pixels[:, :, top : top + side, left : left + side])
    views = [(row, square, side) for row, square in enumerate(centres)]
    for row, image in enumerate(pixels):
        inner = _without_frame(image)
        if inner.shape[1:] != (side, side):
            views.append((row, _squares(inner[None])[0], min(inner.shape[1:])))
    squares = np.stack([square for _, square, _ in views])
    thumbnails, contrasts = _thumbnails(squares, THUMBNAIL)
    details, _ = _thumbnails(squares, DETAIL)
    keys, probes = _index(squares)
    found: list[Fingerprint | None] = [None] * len(pixels)
    for number, (row, _, side) in enumerate(views):
        if contrasts[number] >= _LEAST_CONTRAST:
            bits = thumbnails[number].tobytes() + details[number].tobytes() + bytes([min(255, side)])
            before = found[row] or Fingerprint(b"", (), ())
            found[row] = Fingerprint(
                before.bits + bits,
                tuple(dict.fromkeys(before.keys + keys[number])),
                tuple(dict.fromkeys(before.probes + probes[number])),
            )
    return found


def _without_frame(image: Pixels) -> Pixels:
    """Cut frames off: lines along an edge of nearly one colour; not if hardly anything would be left."""
    step = max(1, min(image.shape[1:]) // _LINES)
    grey = image[:, ::step, ::step].mean(0)  # (h, w)
    ends = [0, grey.shape[0], 0, grey.shape[1]]
    for _ in range(_FRAMES):
        before = list(ends)
        for edge in range(4):
            part = grey[ends[0] : ends[1], ends[2] : ends[3]]
            lines = (part if edge < 2 else part.T)[:: -1 if edge % 2 else 1]
            if not lines.size:
                return image
            plain = (np.abs(lines - np.median(lines[0])) <= _PLAIN).mean(1) >= _OF_A_LINE
            cut = len(plain) if plain.all() else int(plain.argmin())
            ends[edge] += -cut if edge % 2 else cut
        if ends == before:
            break
    if ends[1] - ends[0] < grey.shape[0] / 4 or ends[3] - ends[2] < grey.shape[1] / 4:
        return image
    return image[:, ends[0] * step : ends[1] * step, ends[2] * step : ends[3] * step]


def look(image: Pixels, size: int | None) -> tuple[Pixels, Fingerprint | None]:
    """Resize a (C, H, W) picture for release, if a size is given; take its fingerprint at full size."""
    (printed,) = fingerprints(image[None])
    return (image if size is None else resize(image, size)), printed


def _squares(pixels: Pixels) -> np.ndarray:
    """(N, C, H, W) uint8 -> (N, 48, 48) float32, in grey, stretched to squares."""
    height, width = pixels.shape[2:]
    cell = max(1, min(height, width) // (2 * _BASE))
    if cell > 1:  # sums of whole cells first: the cost of a large image is then that of reading its bytes
        pixels = cell_sums(pixels, cell=cell)
    values = pixels.astype(np.float32)
    grey = values[:, 0]
    if values.shape[1] == 3:
        grey = grey * _LUMA[0] + values[:, 1] * _LUMA[1]
        grey += values[:, 2] * _LUMA[2]
    down, along = _averages(height, cell, _BASE), _averages(width, cell, _BASE)
    return np.asarray(np.matmul(np.matmul(down, grey), along.T))


@lru_cache(64)
def _averages(side: int, cell: int, parts: int) -> np.ndarray:
    """(parts, cells) weights that turn a line of sums over cells of pixels into averages over equal parts."""
    edges = np.append(np.arange(0, side, cell), side).astype(float)
    ends = np.arange(parts + 1) * side / parts
    overlap = np.minimum(ends[1:, None], edges[1:]) - np.maximum(ends[:-1, None], edges[:-1])
    return np.asarray(overlap.clip(0) / (edges[1:] - edges[:-1]) * parts / side, np.float32)


def _thumbnails(squares: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, 48, 48) -> (N, cells^2 / 2) uint8, values of 4 bits each, and (N,) the contrast of each square.

    Slow variation is subtracted, and the rest is divided by the local contrast: otherwise any two portraits
    before a dark wall would be alike, and a pasted logo would decide everything.
    """
    shares, level = _averages(_BASE, 1, cells), LEVELS[cells]
    values = np.matmul(np.matmul(shares, squares), shares.T)
    values -= np.matmul(np.matmul(level, values), level.T)
    contrasts = values.std((1, 2))
    usual = np.sqrt(np.matmul(np.matmul(level, values * values), level.T))
    values /= usual + 0.3 * contrasts[:, None, None] + np.float32(1e-6)
    values /= values.std((1, 2), keepdims=True) + np.float32(1e-6)
    steps = np.rint(4 * values.reshape(len(squares), -1) + 7.5).clip(0, 15).astype(np.uint8)
    return steps[:, ::2] << 4 | steps[:, 1::2], contrasts


# The index.


def _bands(squares: np.ndarray, side: int, sigmas: tuple[float, float]) -> np.ndarray:
    """Squares resized to `side`, the difference of two Gaussians. (N, 48, 48) -> (N, side, side)."""
    fine, coarse = (smoothing(side, sigma) @ _averages(_BASE, 1, side) for sigma in sigmas)
    band = np.matmul(np.matmul(fine, squares), fine.T)
    return np.asarray(band - np.matmul(np.matmul(coarse, squares), coarse.T))


def _polynomials() -> tuple[list[tuple[int, int]], np.ndarray]:
    """Orders (x, y) and (27, 15, 15) products of polynomials, orthogonal under a Gaussian window."""
    at = np.arange(-_RADIUS, _RADIUS + 1, dtype=float)
    window = np.exp(-(at**2) / (4 * _WINDOW**2))
    lines: list[np.ndarray] = []
    for order in range(_ORDER + 1):
        line = at**order * window
        for lower in lines:
            line = line - (line @ lower) * lower
        lines.append(line / np.linalg.norm(line))
    lines = [np.pad(line * window, 1) for line in lines]
    orders = [(1, 0), (0, 1)]
    orders += [(x, y) for x in range(_ORDER + 1) for y in range(_ORDER + 1) if 2 <= x + y <= _ORDER]
    return orders, np.stack([np.outer(lines[y], lines[x]) for x, y in orders])


_ORDERS, _POLYNOMIALS = _polynomials()
_MIRROR_X = np.array([(-1) ** x for x, _ in _ORDERS], np.float32)
_MIRROR_Y = np.array([(-1) ** y for _, y in _ORDERS], np.float32)
_TRANSPOSE = np.array([_ORDERS.index((y, x)) for x, y in _ORDERS])
# The median around blobs of photographs (of LFW, Caltech-101 and CIFAR-10), in the order of _ORDERS[2:].
_MEDIANS = np.divide(
    [-20, -3, 16, -2, -6, -2, -6, 1, -1, 0, -32, -3, 16, 0, -9, -11, 2, -1, -1, 26, 0, -11, -5, -1, -10],
    np.float32(100),
    dtype=np.float32,
)
_SIGNS = 1 << np.arange(len(_ORDERS) - 2)
# Responses, then their change when a blob lies one cell to the right, or below.
_CHANGES = [(np.roll(_POLYNOMIALS, 1, axis) - np.roll(_POLYNOMIALS, -1, axis)) / 2 for axis in (2, 1)]
_FILTERS = np.concatenate([_POLYNOMIALS, *_CHANGES])
_FILTERS = _FILTERS.reshape(len(_FILTERS), -1).T.astype(np.float32)  # (225, 81)


def _index(squares: np.ndarray) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """The keys and the probes of each of (N, 48, 48) squares."""
    parts = [_whole(squares), *(_blobs(squares, side, limit) for side, limit in _PROBED.items())]
    sides = np.repeat([_WHOLE, *_PROBED], [len(owners) for owners, _, _ in parts])
    owners, kinds, responses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(owners, kind="stable")
    words, costs = _variants(_canonical(responses[order]))
    words += kinds[order, None] << len(_SIGNS)
    stored = np.isin(sides[order], (_WHOLE, _STORED))
    ends = np.searchsorted(owners[order], np.arange(len(squares) + 1))
    keys, probes = [], []
    for start, end in pairwise(ends):
        keys.append(tuple(dict.fromkeys(words[start:end, 0][stored[start:end]].tolist())))
        cost = costs[start:end].ravel()
        cheapest = cost.argpartition(min(_PROBES, cost.size) - 1)[:_PROBES]
        probes.append(tuple(dict.fromkeys(words[start:end].ravel()[cheapest].tolist())))
    return keys, probes


def _variants(responses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words that a blob may have in a copy, (P, 28), and (P, 28) the distance of its responses from each.

    Its own; those of the nearly chosen mirroring and turn; those with one sign flipped.
    """
    words, margins = _words(responses)
    mirrored, _ = _words(responses * _MIRROR_Y)
    turned, _ = _words(responses[:, _TRANSPOSE])
    to_mirror, to_turn = responses[:, 1], (responses[:, 0] - responses[:, 1]) * np.float32(0.7)
    costs = np.column_stack([np.zeros_like(to_turn), to_mirror, to_turn, margins])
    return np.column_stack([words, mirrored, turned, words[:, None] ^ _SIGNS]), costs


def _whole(squares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The square itself, described as if it were a blob, of kind 0. See _blobs."""
    bands = _bands(squares, _WHOLE, (0.8, 3.0)).reshape(len(squares), -1)
    inner = _POLYNOMIALS[:, 1:-1, 1:-1].reshape(len(_ORDERS), -1).T.astype(np.float32)
    numbers = np.arange(len(squares))
    return numbers, np.zeros_like(numbers), np.matmul(bands[:, None], inner)[:, 0]


def _blobs(squares: np.ndarray, side: int, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The strongest blobs: (P,) their squares, (P,) 1 if dark and 2 if bright, (P, 27) their responses."""
    bands = _bands(squares, side, (1.2, 2.4))
    edge = _RADIUS + 1
    centre = bands[:, edge:-edge, edge:-edge]
    around = bands[:, edge - 1 : 1 - edge, edge - 1 : 1 - edge]
    peaks = (centre == _extreme(around, np.maximum)) | (centre == _extreme(around, np.minimum))
    peaks &= np.abs(centre) > _FAINT
    owners, rows, columns = peaks.nonzero()
    order = np.lexsort((-np.abs(centre[owners, rows, columns]), owners))
    rank = np.arange(len(order)) - np.searchsorted(owners, owners)
    order = order[rank < limit]
    owners, rows, columns = owners[order], rows[order], columns[order]
    patches = sliding_window_view(bands, (2 * edge + 1, 2 * edge + 1), (1, 2))[owners, rows, columns]
    value = patches[:, edge, edge]
    right = _vertex(patches[:, edge, edge - 1], value, patches[:, edge, edge + 1])
    below = _vertex(patches[:, edge - 1, edge], value, patches[:, edge + 1, edge])
    filtered = (patches.reshape(-1, len(_FILTERS)) @ _FILTERS).reshape(len(patches), 3, len(_ORDERS))
    responses = filtered[:, 0] + right[:, None] * filtered[:, 1] + below[:, None] * filtered[:, 2]
    bright = value > 0
    return owners, 1 + bright, responses * np.where(bright, 1, -1)[:, None].astype(np.float32)


def _extreme(bands: np.ndarray, larger: np.ufunc) -> np.ndarray:
    """The extreme of 3 x 3 neighbours. (N, h, w) -> (N, h - 2, w - 2)."""
    rows = larger(larger(bands[:, :-2], bands[:, 1:-1]), bands[:, 2:])
    return np.asarray(larger(larger(rows[:, :, :-2], rows[:, :, 1:-1]), rows[:, :, 2:]))


def _vertex(before: np.ndarray, value: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Locate the extreme of the parabola through three neighbours, between -1/2 and 1/2."""
    bend = 2 * value - before - after
    return np.asarray(((after - before) / np.where(bend == 0, 1, 2 * bend)).clip(-0.5, 0.5))


def _canonical(responses: np.ndarray) -> np.ndarray:
    """Normalise; mirror and turn so that they grow to the right and less so downwards. (P, 27) -> (P, 27)."""
    responses = responses / (np.linalg.norm(responses, axis=1, keepdims=True) + np.float32(1e-6))
    responses = np.where(responses[:, :1] < 0, responses * _MIRROR_X, responses)
    responses = np.where(responses[:, 1:2] < 0, responses * _MIRROR_Y, responses)
    return np.where(responses[:, 1:2] > responses[:, :1], responses[:, _TRANSPOSE], responses)


def _words(responses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(P, 27) -> (P,) the signs of all responses but the first two, (P, 25) how certain each is."""
    differences = responses[:, 2:] - _MEDIANS
    return (differences > 0) @ _SIGNS, np.abs(differences)
