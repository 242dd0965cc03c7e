"""Near copies of a picture: mirrored, turned, cropped, recompressed, resized, or with some pixels changed.

An index proposes images that may be copies, see fingerprints. Thumbnails then decide: every turn, shift and
scale is tried, and the best are refined and compared in detail. A picture that was stretched or
framed is compared as a whole, too. Another exposure of the same scene counts as another image unless little
in it moved: in a copy, even the hundredth of the picture that differs most agrees. If a subject moves by a
tenth of the side, a third of the frames count as copies.

This guards people who forget, and stops servers that ask for variants of an image. It does not stop people
who intend to evade it: a picture turned by 10 degrees, bent, cut to half its sides, in a patterned frame, or
with a large logo is not recognised.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product, starmap
from typing import NamedTuple

import numpy as np

THUMBNAIL = 16  # cells of a side
DETAIL = 32  # cells of a side, to decide
_VIEW = (THUMBNAIL**2 + DETAIL**2) // 2 + 1  # bytes


@dataclass(frozen=True)
class Fingerprint:
    """The values by which near copies of an image are recognised.

    It is personal data, as the picture is: `bits` holds a thumbnail of 16 x 16 values in 16 steps, one of
    32 x 32, and the side of the picture in pixels, at most 255. Colour, brightness, slow changes and details
    finer than a cell are removed; pose, outline and layout remain, so people who have the picture can
    recognise it. It must not leave the device.
    """

    bits: bytes  # 641 bytes for each of one or two views, by which two images are compared
    keys: tuple[int, ...]  # at most 21 a view, numbers below 2^63, under which an image is stored in an index
    probes: tuple[int, ...]  # at most 200 a view: the images stored under one of them are compared


@lru_cache(64)
def smoothing(cells: int, sigma: float) -> np.ndarray:
    """(cells, cells) weights of a Gaussian along a line that is mirrored at both ends."""
    at = np.arange(cells, dtype=float)
    mirrored = np.stack([at, -1 - at, 2 * cells - 1 - at])
    weights = np.exp(-((at[:, None, None] - mirrored) ** 2) / (2 * sigma**2)).sum(1)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)


# Weights that extract the slow variation of a thumbnail, by its number of cells.
LEVELS = {THUMBNAIL: smoothing(THUMBNAIL, 2.5), DETAIL: smoothing(DETAIL, 5.0)}


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
    shown, turns = _details(first)[0], _details(second)
    blurred, found = _BLURRED @ shown @ _BLURRED.T, []
    for start in np.argpartition(-correlations, _STARTS)[:_STARTS]:
        shift, turn = divmod(int(start), len(_TURNS))
        rough = _refine(blurred, _BLURRED @ turns[turn] @ _BLURRED.T, _POSES[shift], _ROUGH_STEPS)
        found.append((*rough[:2], turn))
    _, pose, turn = max(found, key=lambda each: each[0])
    correlation, _, shared = _refine(shown, turns[turn], pose, _STEPS)
    rule = _OF_SMALL if max(first[-1], second[-1]) < _SMALL else _RULE
    return correlation >= _LEAST and _worst(*shared, rule) <= rule.most


class _Rule(NamedTuple):
    """How the difference in detail is measured, and how much of it a copy may have."""

    most: float
    margin: int  # cells next to the edge that both share, which resampling changes most: they do not count
    around: float  # sigma in cells: how near one place is
    ignored: float  # the share of the places that differ most


_STARTS = 2  # the number of shifts to refine
# Chosen on every second image of LFW, Caltech-101, CIFAR-10 and CMU; the others are reported
# (studies/near_copies.py).
_LEAST_COARSE = 0.72  # correlation of blurred thumbnails, before refinement
_LEAST = 0.75  # and after it
# In a copy all places agree, and in two photographs of one sitting not those of the eyes and the mouth.
_RULE = _Rule(0.18, 3, 1.0, 0.01)
# In pictures with fewer pixels a side, two exposures differ as little as a copy of low quality.
_SMALL, _OF_SMALL = 40, _Rule(0.003, 0, 1.7, 0.05)

_CELLS = np.arange(THUMBNAIL, dtype=np.float32) - np.float32(THUMBNAIL / 2 - 0.5)


def _turns(cells: int) -> np.ndarray:
    """(8, cells, cells) numbers of the cells of a square, under each mirroring and quarter turn."""
    square = np.arange(cells**2).reshape(cells, cells)
    return np.stack([np.rot90(side, k) for side in (square, square[:, ::-1]) for k in range(4)])


_TURNS = _turns(THUMBNAIL).reshape(8, -1)


def _shifts() -> np.ndarray:
    """(S, 3) scales of one thumbnail in another, 3/4 to 4/3, and shifts down and right in cells."""
    shifts = []
    for scale in 0.75 ** (np.arange(-4, 5) / 4):
        room = abs(1 - scale) * THUMBNAIL
        steps = 2 * int(np.ceil(room / max(scale, 1) / 2.2))
        line = np.linspace(-room / 2, room / 2, steps + 1)
        shifts += [(scale, down, right) for down in line for right in line]
    return np.array(shifts, np.float32)


_SHIFTS = _shifts()
# The same as poses of images of 32 x 32 cells: logarithm of the scale, radians, cells down and right.
_POSES = np.column_stack([np.log(_SHIFTS[:, 0]), np.zeros(len(_SHIFTS)), 2 * _SHIFTS[:, 1:]])


def _cells_under(shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(S, 256) cells of one thumbnail in another of 32 x 32, 32 * 32 if outside; and 1 inside, else 0."""
    fine = 2 * THUMBNAIL
    lines = shifts[:, :1, None] * _CELLS + shifts[:, 1:, None]  # (S, 2, 16)
    lines = np.rint((lines + THUMBNAIL / 2) * 2 - 0.5).astype(int)
    within = (lines >= 0) & (lines < fine)
    inside = within[:, 0, :, None] & within[:, 1, None, :]
    cells = np.where(inside, lines[:, 0, :, None] * fine + lines[:, 1, None, :], fine * fine)
    return cells.reshape(len(shifts), -1), inside.reshape(len(shifts), -1).astype(np.float32)


_COARSE_CELLS, _COARSE_INSIDE = _cells_under(_SHIFTS)
_BLUR = smoothing(THUMBNAIL, 0.8)
_ENLARGE = (smoothing(2 * THUMBNAIL, 1.6) @ np.repeat(np.eye(THUMBNAIL), 2, axis=0)).astype(np.float32)


def _unpack(content: bytes) -> np.ndarray:
    """D / 2 bytes, each of two values in 16 steps -> (D,) float32."""
    both = np.frombuffer(content, np.uint8)
    values = np.empty(2 * len(both), np.float32)
    values[::2], values[1::2] = both >> 4, both & 15
    values -= np.float32(7.5)
    return values


def _thumbnail(bits: bytes) -> np.ndarray:
    return _unpack(bits[: THUMBNAIL**2 // 2]).reshape(THUMBNAIL, THUMBNAIL)


# An image is compared with several: the views of the last ones are cached.
@lru_cache(32)
def _shift(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Blur a thumbnail and apply each shift: (S, 256), 0 for cells outside, and (S,) the energy of each."""
    enlarged = np.zeros(4 * THUMBNAIL**2 + 1, np.float32)
    enlarged[:-1] = (_ENLARGE @ _thumbnail(bits) @ _ENLARGE.T).ravel()
    views = enlarged.take(_COARSE_CELLS, mode="clip")
    return views, np.einsum("sc,sc->s", views, views)


@lru_cache(32)
def _turn(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Blur a thumbnail and apply each turn: (8, 256); and (S, 8) its energy in the cells of each shift."""
    turned = (_BLUR @ _thumbnail(bits) @ _BLUR.T).ravel()[_TURNS]
    return turned, _COARSE_INSIDE @ (turned * turned).T


# The comparison in detail.

_ROUGH_STEPS, _STEPS = 3, 5
_FARTHEST = np.array([0.08, 0.05, 1.0, 1.0])  # of one step: logarithm of the scale, radians, cells
_SLOW = LEVELS[DETAIL]
_BLURRED = smoothing(DETAIL, 1.6)  # of this, larger steps succeed
_FINE = smoothing(DETAIL, 0.7)  # a resized picture has lost finer details
_DETAIL_TURNS = _turns(DETAIL)
_DOWN, _RIGHT = np.mgrid[:DETAIL, :DETAIL].astype(np.float32) - np.float32((DETAIL - 1) / 2)


@lru_cache(32)
def _details(bits: bytes) -> np.ndarray:
    """Read the detailed values from the `bits` of a fingerprint, under each turn: (8, 32, 32)."""
    return np.asarray(_unpack(bits[THUMBNAIL**2 // 2 : -1])[_DETAIL_TURNS])


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


def _level(values: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Remove the slow variation from (32, 32) values inside; set those outside to 0.

    A thumbnail is levelled with its surroundings, which a crop lacks. Levelled again, both lack them.
    """
    slow = (_SLOW @ (values * inside) @ _SLOW.T) / (_SLOW @ inside @ _SLOW.T + np.float32(1e-6))
    return np.asarray((values - slow) * inside)


def _worst(view: np.ndarray, part: np.ndarray, inside: np.ndarray, rule: _Rule) -> float:
    """Return the largest difference of the cells that a rule counts, as a share of that between strangers."""
    view, part = _FINE @ view @ _FINE.T, _FINE @ part @ _FINE.T
    for _ in range(rule.margin):
        wide = np.pad(inside, 1)
        inside = inside * wide[:-2, 1:-1] * wide[2:, 1:-1] * wide[1:-1, :-2] * wide[1:-1, 2:]
    if not inside.any():
        return np.inf
    view, part, around = view * inside, part * inside, smoothing(DETAIL, rule.around)
    usual = ((view * view).sum() + (part * part).sum()) / inside.sum() + np.float32(1e-6)
    differences = (around @ ((view - part) ** 2) @ around.T) / (around @ inside @ around.T + np.float32(1e-6))
    apart = np.sort(differences[inside > 0])
    return float(apart[len(apart) - 1 - int(rule.ignored * len(apart))] / usual)


def _view(values: np.ndarray, pose: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scale, turn and shift a (32, 32) image by a pose, see _POSES, interpolated between its cells.

    Returns (32, 32) values, 0 for cells outside; (32, 32) 1 for cells inside, else 0; and (4, 1024) the
    derivatives of the values by each number of the pose.
    """
    scale = np.exp(pose[0])
    cosine, sine = np.float32(scale * np.cos(pose[1])), np.float32(scale * np.sin(pose[1]))
    below, beside = cosine * _DOWN + sine * _RIGHT, cosine * _RIGHT - sine * _DOWN
    middle = np.float32((DETAIL - 1) / 2)
    at = np.stack([below + np.float32(pose[2]), beside + np.float32(pose[3])]) + middle
    within = (at > -0.6) & (at < DETAIL - 0.4)
    inside = (within[0] & within[1]).astype(np.float32)
    at.clip(0, DETAIL - 1 - 1e-3, out=at)
    corners = np.floor(at)
    down, right = at - corners
    cell = (corners[0] * DETAIL + corners[1]).astype(np.intp)
    flat = values.ravel()
    upper, lower = flat.take(cell), flat.take(cell + DETAIL)
    along_upper, along_lower = flat.take(cell + 1) - upper, flat.take(cell + DETAIL + 1) - lower
    upper, lower = upper + along_upper * right, lower + along_lower * right
    downwards = (lower - upper) * inside
    sideways = (along_upper * (1 - down) + along_lower * down) * inside
    turned = downwards * beside - sideways * below
    slopes = np.stack([downwards * below + sideways * beside, turned, downwards, sideways])
    return (upper + (lower - upper) * down) * inside, inside, slopes.reshape(4, -1)
