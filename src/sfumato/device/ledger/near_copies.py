"""Near copies of a picture: mirrored, turned, cropped, recompressed, resized, or with some pixels changed.

An index proposes images that may be copies: 25 signs describe the surroundings of each blob, the same for
every mirroring and quarter turn (after Lowe 2004, with polynomials under a Gaussian window instead of
histograms of gradients). An image is stored under these, and looked up also under those that differ in the
least certain signs. Thumbnails then decide: every turn, shift and scale is tried, the best are refined and
compared in detail, and a picture that was stretched or framed is compared as a whole, too. Another exposure
of the same scene counts as another image unless little in it moved: in a copy, even the hundredth of the
picture that differs most agrees. If a subject moves by a tenth of the side, a third of the frames are copies.

This guards people who forget, and stops servers that ask for variants of an image. It does not stop people
who intend to evade it: a picture turned by 10 degrees, bent, cut to half its sides, in a patterned frame, or
with a large logo is not recognised.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product, starmap

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from sfumato.images import Images, Pixels, as_array, check_batch
from sfumato.protect.pixels import cell_sums

_THUMBNAIL, _DETAIL = 16, 32  # cells of a side: to find where a copy may lie, and to decide
_COARSE = _THUMBNAIL**2 // 2  # bytes of the first thumbnail
_VIEW = _COARSE + _DETAIL**2 // 2 + 1  # bytes

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R 601
_BASE = 48  # the side to which a picture is reduced at first
_SLOW = 5 / 32  # variation over more than this share of the side is slow: it is subtracted from thumbnails
_LEAST_CONTRAST = 1.0  # grey levels, of a thumbnail: flatter ones have no fingerprint
# A frame: lines with this share within so many grey levels of one; nested frames; lines looked at.
_OF_A_LINE, _PLAIN, _FRAMES, _LINES = 0.9, 12.0, 4, 256


@dataclass(frozen=True)
class Fingerprint:
    """The values by which near copies of an image are recognised.

    It is personal data and must not leave the device: `bits` holds thumbnails of 16 x 16 and 32 x 32 values
    in 16 steps, and the side of the picture in pixels, at most 255. Colour, brightness, slow changes and fine
    details are removed; pose, outline and layout remain, so people who have the picture can recognise it.
    """

    bits: bytes  # 641 bytes for each of one or two views, by which two images are compared
    keys: tuple[int, ...]  # at most 21 a view, numbers below 2^63, under which an image is stored in an index
    probes: tuple[int, ...]  # at most 200 a view: the images stored under one of them are compared


def fingerprints(images: Images) -> list[Fingerprint | None]:
    """Compute the fingerprint of each image, independently of the batch; None if it is too flat.

    It describes one or two views: the centre square; and the whole picture without its frame, stretched to a
    square, if that is another. Raises ImageError unless images are (N, C, H, W) uint8 with C of 1 or 3.
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
    thumbnails, contrasts = _thumbnails(squares, _THUMBNAIL)
    details, _ = _thumbnails(squares, _DETAIL)
    found: list[Fingerprint | None] = [None] * len(pixels)
    for number, ((row, _, side), (keys, probes)) in enumerate(zip(views, _index(squares), strict=True)):
        if contrasts[number] >= _LEAST_CONTRAST:
            bits = thumbnails[number].tobytes() + details[number].tobytes() + bytes([min(255, side)])
            before = found[row] or Fingerprint(b"", (), ())
            found[row] = Fingerprint(
                before.bits + bits,
                tuple(dict.fromkeys([*before.keys, *keys])),
                tuple(dict.fromkeys([*before.probes, *probes])),
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
            plain = (np.abs(lines - np.median(lines[0])) <= _PLAIN).mean(1) >= _OF_A_LINE
            if plain.all():
                return image
            ends[edge] += int(plain.argmin()) * (-1 if edge % 2 else 1)
        if ends == before:
            break
    if ends[1] - ends[0] < grey.shape[0] / 4 or ends[3] - ends[2] < grey.shape[1] / 4:
        return image
    return image[:, ends[0] * step : ends[1] * step, ends[2] * step : ends[3] * step]


def _squares(pixels: Pixels) -> np.ndarray:
    """(N, C, H, W) uint8 -> (N, 48, 48) float32, in grey, stretched to squares."""
    height, width = pixels.shape[2:]
    cell = max(1, min(height, width) // (2 * _BASE))
    if cell > 1:  # sums of whole cells first: the cost of a large image is then that of reading its bytes
        pixels = cell_sums(pixels, cell=cell)
    planes = pixels.astype(np.float32).swapaxes(0, 1)
    grey = planes[0]
    if len(planes) == 3:
        grey = planes[0] * _LUMA[0] + planes[1] * _LUMA[1] + planes[2] * _LUMA[2]
    return np.asarray(_averages(height, cell, _BASE) @ grey @ _averages(width, cell, _BASE).T)


@lru_cache(64)
def _averages(side: int, cell: int, parts: int) -> np.ndarray:
    """(parts, cells) weights that turn a line of sums over cells of pixels into averages over equal parts."""
    edges = np.append(np.arange(0, side, cell), side).astype(float)
    ends = np.arange(parts + 1) * side / parts
    overlap = np.minimum(ends[1:, None], edges[1:]) - np.maximum(ends[:-1, None], edges[:-1])
    return np.asarray(overlap.clip(0) / (edges[1:] - edges[:-1]) * parts / side, np.float32)


@lru_cache(64)
def _smoothing(cells: int, sigma: float) -> np.ndarray:
    """(cells, cells) weights of a Gaussian along a line that is mirrored at both ends."""
    at = np.arange(cells, dtype=float)
    mirrored = np.stack([at, -1 - at, 2 * cells - 1 - at])
    weights = np.exp(-((at[:, None, None] - mirrored) ** 2) / (2 * sigma**2)).sum(1)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)


def _thumbnails(squares: np.ndarray, cells: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, 48, 48) -> (N, cells^2 / 2) uint8, values of 4 bits each, and (N,) the contrast of each square.

    Slow variation is subtracted, and the rest is divided by the local contrast: otherwise any two portraits
    before a dark wall would be alike, and a pasted logo would decide everything.
    """
    shares, level = _averages(_BASE, 1, cells), _smoothing(cells, _SLOW * cells)
    values = shares @ squares @ shares.T
    values -= level @ values @ level.T
    contrasts = values.std((1, 2))
    usual = np.sqrt(level @ (values * values) @ level.T)
    values /= usual + 0.3 * contrasts[:, None, None] + np.float32(1e-6)
    values /= values.std((1, 2), keepdims=True) + np.float32(1e-6)
    steps = np.rint(4 * values.reshape(len(squares), -1) + 7.5).clip(0, 15).astype(np.uint8)
    return steps[:, ::2] << 4 | steps[:, 1::2], contrasts


# The index.

# Lookup: sides, and the largest number of blobs at each: crops of 3/4, and to 3/4.
_PROBED = {27: 10, 29: 11, 32: 14, 36: 20, 40: 15, 45: 18, 48: 18}
_STORED, _WHOLE = 36, 13  # the sides at which an image is stored: by its blobs, and described whole
_RADIUS, _WINDOW, _ORDER = 6, 3.0, 6  # cells around a blob; sigma of the window; highest order of polynomials
_PROBES = 200
_FAINT = 0.5  # grey levels: weaker extremes are not blobs


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
_MIRROR_X, _MIRROR_Y = ((-1) ** np.array(_ORDERS)).astype(np.float32).T
_TRANSPOSE = np.array([_ORDERS.index((y, x)) for x, y in _ORDERS])
# The median around blobs of photographs (of LFW, Caltech-101 and CIFAR-10), in the order of _ORDERS[2:].
_MEDIANS = np.array(
    [-20, -3, 16, -2, -6, -2, -6, 1, -1, 0, -32, -3, 16, 0, -9, -11, 2, -1, -1, 26, 0, -11, -5, -1, -10]
).astype(np.float32) / np.float32(100)
_SIGNS = 1 << np.arange(len(_ORDERS) - 2)
# Responses, then their change when a blob lies one cell to the right, or below.
_CHANGES = [(np.roll(_POLYNOMIALS, 1, axis) - np.roll(_POLYNOMIALS, -1, axis)) / 2 for axis in (2, 1)]
_FILTERS = np.concatenate([_POLYNOMIALS, *_CHANGES])
_FILTERS = _FILTERS.reshape(len(_FILTERS), -1).T.astype(np.float32)  # (225, 81)


def _index(squares: np.ndarray) -> list[tuple[list[int], list[int]]]:
    """The keys and the probes of each of (N, 48, 48) squares."""
    # The square itself is described as if it were a blob, of kind 0.
    bands = _bands(squares, _WHOLE, (0.8, 3.0)).reshape(len(squares), 1, -1)
    inner = _POLYNOMIALS[:, 1:-1, 1:-1].reshape(len(_ORDERS), -1).T.astype(np.float32)
    numbers = np.arange(len(squares))
    whole = numbers, np.zeros_like(numbers), (bands @ inner)[:, 0]
    parts = [whole, *(_blobs(squares, side, limit) for side, limit in _PROBED.items())]
    sides = np.repeat([_WHOLE, *_PROBED], [len(owners) for owners, _, _ in parts])
    owners, kinds, responses = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.argsort(owners, kind="stable")
    words, costs = _variants(responses[order])
    words += kinds[order, None] << len(_SIGNS)
    stored = np.isin(sides[order], (_WHOLE, _STORED))
    indexed = []
    for start, end in pairwise(np.searchsorted(owners[order], np.arange(len(squares) + 1))):
        cost = costs[start:end].ravel()
        cheapest = cost.argpartition(min(_PROBES, cost.size) - 1)[:_PROBES]
        keys = words[start:end, 0][stored[start:end]]
        indexed.append((keys.tolist(), words[start:end].ravel()[cheapest].tolist()))
    return indexed


def _blobs(squares: np.ndarray, side: int, limit: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The strongest blobs: (P,) their squares, (P,) 1 if dark and 2 if bright, (P, 27) their responses."""
    bands = _bands(squares, side, (1.2, 2.4))
    edge = _RADIUS + 1
    spans = [slice(edge + shift, side - edge + shift) for shift in (0, -1, 1)]
    around = np.stack([bands[:, down, right] for down, right in product(spans, repeat=2)])  # (9, N, h, w)
    centre = around[0]
    peaks = (centre == around.max(0)) | (centre == around.min(0))
    owners, rows, columns = (peaks & (np.abs(centre) > _FAINT)).nonzero()
    order = np.lexsort((-np.abs(centre[owners, rows, columns]), owners))
    rank = np.arange(len(order)) - np.searchsorted(owners, owners)
    order = order[rank < limit]
    owners, rows, columns = owners[order], rows[order], columns[order]
    patches = sliding_window_view(bands, (2 * edge + 1, 2 * edge + 1), (1, 2))[owners, rows, columns]
    # The extremes of the parabolas through three neighbours, to the right and below.
    before = patches[:, (edge, edge - 1), (edge - 1, edge)]
    after = patches[:, (edge, edge + 1), (edge + 1, edge)]
    value = patches[:, edge, edge, None]
    bend = 2 * value - before - after
    right, below = ((after - before) / np.where(bend == 0, 1, 2 * bend)).clip(-0.5, 0.5).T[:, :, None]
    filtered = (patches.reshape(-1, len(_FILTERS)) @ _FILTERS).reshape(len(patches), 3, len(_ORDERS))
    responses = filtered[:, 0] + right * filtered[:, 1] + below * filtered[:, 2]
    bright = value > 0
    return owners, 1 + bright[:, 0], responses * np.where(bright, 1, -1).astype(np.float32)


def _bands(squares: np.ndarray, side: int, sigmas: tuple[float, float]) -> np.ndarray:
    """Squares resized to `side`, the difference of two Gaussians. (N, 48, 48) -> (N, side, side)."""
    fine, coarse = (_smoothing(side, sigma) @ _averages(_BASE, 1, side) for sigma in sigmas)
    return np.asarray(fine @ squares @ fine.T - coarse @ squares @ coarse.T)


def _variants(responses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The words that a blob may have in a copy, (P, 28), and (P, 28) the distance of its responses from each.

    A word has the signs of all responses but the first two, mirrored and turned to grow to the right and less
    so downwards: a blob's own; those of the nearly chosen mirroring and turn; those with one sign flipped.
    """
    responses = responses / (np.linalg.norm(responses, axis=1, keepdims=True) + np.float32(1e-6))
    responses = np.where(responses[:, :1] < 0, responses * _MIRROR_X, responses)
    responses = np.where(responses[:, 1:2] < 0, responses * _MIRROR_Y, responses)
    responses = np.where(responses[:, 1:2] > responses[:, :1], responses[:, _TRANSPOSE], responses)
    seen = np.stack([responses, responses * _MIRROR_Y, responses[:, _TRANSPOSE]], axis=1)  # (P, 3, 27)
    differences = seen[:, :, 2:] - _MEDIANS
    words = (differences > 0) @ _SIGNS  # (P, 3)
    to_mirror, to_turn = responses[:, 1], (responses[:, 0] - responses[:, 1]) * np.float32(0.7)
    costs = np.column_stack([np.zeros_like(to_turn), to_mirror, to_turn, np.abs(differences[:, 0])])
    return np.column_stack([words, words[:, :1] ^ _SIGNS]), costs


# The decision: where one thumbnail may lie in the other.

_STARTS = 2  # the number of shifts to refine
# Chosen on every second image of LFW, Caltech-101, CIFAR-10 and CMU; the others are reported
# (studies/near_copies.py at 2f64c651).
_LEAST_COARSE = 0.72  # correlation of blurred thumbnails, before refinement
_LEAST = 0.75  # and after it
# How much the detail of a copy may differ; cells next to the edge, which resampling changes most: they do not
# count; sigma in cells of a place; the share of the places that differ most, which do not count. In a copy
# all places agree, and in two photographs of one sitting not those of the eyes and the mouth. Two exposures
# with fewer than 40 pixels a side differ as little as a copy of low quality.
_RULE, _SMALL, _RULE_OF_SMALL = (0.18, 3, 1.0, 0.01), 40, (0.003, 0, 1.7, 0.05)


def near_copies(first: bytes, second: bytes) -> bool:
    """Whether two images are near copies of each other, by the `bits` of their fingerprints. Symmetric."""
    views = [[bits[at : at + _VIEW] for at in range(0, len(bits), _VIEW)] for bits in (first, second)]
    return any(starmap(_alike, product(*views)))


def _alike(first: bytes, second: bytes) -> bool:
    """Whether two views are near copies. Symmetric."""
    if first == second:
        return True
    first, second = sorted((first, second))
    (views, energies), (turned, energies_of_turned) = _shift(first), _turn(second)
    energies = energies[:, None] * energies_of_turned
    correlations = (views @ turned.T / np.sqrt(energies + np.float32(1e-6))).ravel()  # (8 S,)
    if correlations.max() < _LEAST_COARSE:
        return False
    shown, other = (_unpack(bits[_COARSE:-1], _DETAIL) for bits in (first, second))
    blurred, found = _BLURRED @ shown @ _BLURRED.T, []
    for start in np.argpartition(-correlations, _STARTS)[:_STARTS]:
        shift, turn = divmod(int(start), len(_TURNS))
        turned = other.ravel()[_DETAIL_TURNS[turn]]
        rough = _refine(blurred, _BLURRED @ turned @ _BLURRED.T, _POSES[shift], _ROUGH_STEPS)
        found.append((*rough[:2], turned))
    _, pose, turned = max(found, key=lambda each: each[0])
    correlation, _, shared = _refine(shown, turned, pose, _STEPS)
    most, *rule = _RULE_OF_SMALL if max(first[-1], second[-1]) < _SMALL else _RULE
    return correlation >= _LEAST and _worst(shared, *rule) <= most


def _turns(cells: int) -> np.ndarray:
    """(8, cells, cells) numbers of the cells of a square, under each mirroring and quarter turn."""
    square = np.arange(cells**2).reshape(cells, cells)
    return np.stack([np.rot90(side, k) for side in (square, square[:, ::-1]) for k in range(4)])


def _shifts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scales of one thumbnail in another, 3/4 to 4/3, and shifts down and right.

    Returns (S, 4) their poses, see _view; (S, 256) the cells under them in 32 x 32, 32 * 32 if outside; and
    (S, 256) 1 inside, else 0.
    """
    shifts = []
    for scale in 0.75 ** (np.arange(-4, 5) / 4):
        room = abs(1 - scale) * _THUMBNAIL
        steps = 2 * int(np.ceil(room / max(scale, 1) / 2.2))
        line = np.linspace(-room / 2, room / 2, steps + 1)
        shifts += [(scale, down, right) for down in line for right in line]
    scales, moves = np.split(np.array(shifts, np.float32), [1], axis=1)
    poses = np.column_stack([np.log(scales), np.zeros(len(scales)), 2 * moves])
    cells = np.arange(_THUMBNAIL, dtype=np.float32) - np.float32(_THUMBNAIL / 2 - 0.5)
    lines = scales[:, :, None] * cells + moves[:, :, None]  # (S, 2, 16)
    lines = np.rint((lines + _THUMBNAIL / 2) * 2 - 0.5).astype(int)
    within = (lines >= 0) & (lines < _DETAIL)
    inside = within[:, 0, :, None] & within[:, 1, None, :]
    under = np.where(inside, lines[:, 0, :, None] * _DETAIL + lines[:, 1, None, :], _DETAIL**2)
    return poses, under.reshape(len(shifts), -1), inside.reshape(len(shifts), -1).astype(np.float32)


_TURNS, _DETAIL_TURNS = _turns(_THUMBNAIL).reshape(8, -1), _turns(_DETAIL)
_POSES, _CELLS, _INSIDE = _shifts()
_BLUR = _smoothing(_THUMBNAIL, 0.8)
_ENLARGE = (_smoothing(_DETAIL, 1.6) @ np.repeat(np.eye(_THUMBNAIL), 2, axis=0)).astype(np.float32)


def _unpack(content: bytes, cells: int) -> np.ndarray:
    """Read (cells, cells) float32 values in 16 steps, two of each byte."""
    both = np.frombuffer(content, np.uint8)
    return np.stack([both >> 4, both & 15], axis=1).reshape(cells, cells).astype(np.float32) - np.float32(7.5)


# An image is compared with several: the views of the last ones are cached.
@lru_cache(32)
def _shift(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Blur a thumbnail and apply each shift: (S, 256), 0 for cells outside, and (S,) the energy of each."""
    enlarged = _ENLARGE @ _unpack(bits[:_COARSE], _THUMBNAIL) @ _ENLARGE.T
    views = np.append(enlarged, np.float32(0)).take(_CELLS, mode="clip")
    return views, np.einsum("sc,sc->s", views, views)


@lru_cache(32)
def _turn(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Blur a thumbnail and apply each turn: (8, 256); and (S, 8) its energy in the cells of each shift."""
    turned = (_BLUR @ _unpack(bits[:_COARSE], _THUMBNAIL) @ _BLUR.T).ravel()[_TURNS]
    return turned, _INSIDE @ (turned * turned).T


# The comparison in detail.

_ROUGH_STEPS, _STEPS = 3, 5
_FARTHEST = np.array([0.08, 0.05, 1.0, 1.0])  # of one step: logarithm of the scale, radians, cells
_BLURRED = _smoothing(_DETAIL, 1.6)  # of this, larger steps succeed
_FINE = _smoothing(_DETAIL, 0.7)  # a resized picture has lost finer details
_MIDDLE = np.float32((_DETAIL - 1) / 2)
_DOWN, _RIGHT = np.mgrid[:_DETAIL, :_DETAIL].astype(np.float32) - _MIDDLE


def _refine(
    first: np.ndarray, second: np.ndarray, pose: np.ndarray, steps: int
) -> tuple[float, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Refine the pose of one (32, 32) image in another by Gauss-Newton steps (Lucas & Kanade 1981).

    Returns the correlation, the pose, and the parts of both that overlap: see _worst.
    """
    highest, tried = -1.0, pose
    for _ in range(steps):
        view, inside, slopes = _view(first, tried)
        view, part = _level(view, inside), _level(second * inside, inside)
        length = np.linalg.norm(view) + 1e-6
        part *= length / (np.linalg.norm(part) + 1e-6)
        correlation = float((view * part).sum() / length**2)
        if correlation <= highest:
            break
        highest, shared, pose = correlation, (view, part, inside), tried
        curvature = slopes @ slopes.T
        curvature += np.diag(1e-3 * np.diag(curvature) + 1e-6)
        step = np.linalg.solve(curvature, slopes @ (part - view).ravel())
        tried = pose + step.clip(-_FARTHEST, _FARTHEST)
    return highest, pose, shared


def _view(values: np.ndarray, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, turn and shift a (32, 32) image by a pose, interpolated between its cells.

    A pose is the logarithm of the scale, radians, cells down and right. Returns (32, 32) values, 0 for cells
    outside; (32, 32) 1 for cells inside, else 0; and (4, 1024) the derivatives of the values by the pose.
    """
    scale = np.exp(pose[0])
    cosine, sine = np.float32(scale * np.cos(pose[1])), np.float32(scale * np.sin(pose[1]))
    below, beside = cosine * _DOWN + sine * _RIGHT, cosine * _RIGHT - sine * _DOWN
    at = np.stack([below + np.float32(pose[2]), beside + np.float32(pose[3])]) + _MIDDLE
    within = (at > -0.6) & (at < _DETAIL - 0.4)
    inside = (within[0] & within[1]).astype(np.float32)
    at.clip(0, _DETAIL - 1 - 1e-3, out=at)
    corners = np.floor(at)
    down, right = at - corners
    cell = (corners[0] * _DETAIL + corners[1]).astype(np.intp)
    flat = values.ravel()
    upper, lower = flat.take(cell), flat.take(cell + _DETAIL)
    along_upper, along_lower = flat.take(cell + 1) - upper, flat.take(cell + _DETAIL + 1) - lower
    upper, lower = upper + along_upper * right, lower + along_lower * right
    downwards = (lower - upper) * inside
    sideways = (along_upper * (1 - down) + along_lower * down) * inside
    turned = downwards * beside - sideways * below
    slopes = np.stack([downwards * below + sideways * beside, turned, downwards, sideways])
    return (upper + (lower - upper) * down) * inside, inside, slopes.reshape(4, -1)


def _level(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Remove the slow variation from (32, 32) values inside; set those outside to 0.

    A thumbnail is levelled with its surroundings, which a crop lacks. Levelled again, both lack them.
    """
    level = _smoothing(_DETAIL, _SLOW * _DETAIL)
    slow = (level @ (values * inside) @ level.T) / (level @ inside @ level.T + np.float32(1e-6))
    return np.asarray((values - slow) * inside)


def _worst(shared: tuple[np.ndarray, ...], margin: float, sigma: float, ignored: float) -> float:
    """Return the largest difference of the cells that count, as a share of that between strangers."""
    view, part, inside = shared
    view, part = _FINE @ view @ _FINE.T, _FINE @ part @ _FINE.T
    for _ in range(int(margin)):
        wide = np.pad(inside, 1)
        inside = inside * wide[:-2, 1:-1] * wide[2:, 1:-1] * wide[1:-1, :-2] * wide[1:-1, 2:]
    if not inside.any():
        return np.inf
    view, part, around = view * inside, part * inside, _smoothing(_DETAIL, sigma)
    usual = ((view * view).sum() + (part * part).sum()) / inside.sum() + np.float32(1e-6)
    differences = (around @ ((view - part) ** 2) @ around.T) / (around @ inside @ around.T + np.float32(1e-6))
    apart = np.sort(differences[inside > 0])
    return float(apart[len(apart) - 1 - int(ignored * len(apart))] / usual)
