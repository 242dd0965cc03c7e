"""Near copies of a picture: mirrored, turned, cropped, recompressed, resized, or with some pixels changed.

Which of many images may be copies is asked of an index, see fingerprints. Whether two images are copies is
decided here, by thumbnails: every turn, shift and scale is tried, the best ones are refined, and the
correlation where they overlap must be high.

This is a guard for people who forget, and against servers that ask for variants of an image. People who mean
to get around it can: a picture turned by 10 degrees, bent, or cut to half its sides is not recognised.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

THUMBNAIL = 16  # cells of a side


@dataclass(frozen=True)
class Fingerprint:
    """By what near copies of an image are recognised.

    It is personal data, as the picture is: `bits` is a thumbnail of 16 x 16 values in 16 steps. Colour,
    brightness and slow changes are taken out, and so is what is finer than a cell; left are pose, outline
    and layout, and people who have the picture can tell that it is this one. It must not leave the device.
    """

    bits: bytes  # 128 bytes, by which two images are compared
    keys: tuple[int, ...]  # at most 21 numbers below 2^63, under which an image is stored in an index
    probes: tuple[int, ...]  # at most 200: the images stored under one of them are compared


def packed(thumbnails: np.ndarray) -> np.ndarray:
    """(N, 256) values of about unit variance -> (N, 128) uint8, in 16 steps of 4 bits each."""
    steps = np.rint(4 * thumbnails + 7.5).clip(0, 15).astype(np.uint8)
    both: np.ndarray = steps[:, ::2] << 4 | steps[:, 1::2]
    return both


@lru_cache(64)
def smoothing(cells: int, sigma: float) -> np.ndarray:
    """(cells, cells) weights of a Gaussian along a line that is mirrored at both ends."""
    at = np.arange(cells, dtype=float)
    mirrored = np.stack([at, -1 - at, 2 * cells - 1 - at])
    weights = np.exp(-((at[:, None, None] - mirrored) ** 2) / (2 * sigma**2)).sum(1)
    smoothing: np.ndarray = weights / weights.sum(1, keepdims=True)
    return smoothing.astype(np.float32)


LEVEL = smoothing(THUMBNAIL, 2.5)  # what varies slowly in a thumbnail


def near_copies(first: bytes, second: bytes) -> bool:
    """Whether two images are near copies of each other, by the `bits` of their fingerprints. Symmetric."""
    first, second = sorted((first, second))
    correlations = _coarse(first, second)
    if correlations.max() < _LEAST_COARSE:
        return False
    starts = np.argpartition(-correlations, _STARTS)[:_STARTS]
    view, part, shared = _aligned(_values(first), _values(second), starts)
    view, part = _levelled(view, shared), _levelled(part, shared)
    correlation = float(view @ part)
    # A few strokes on plain paper are like many others: such drawings must agree more closely.
    if min(_filled(view), _filled(part)) < _SIMPLE * shared.sum():
        return correlation >= _LEAST_OF_SIMPLE
    if correlation >= _LEAST:
        return True
    # What a pasted logo covers differs, and the rest is the same; of a crop, too little would be left.
    rest = np.abs(view - part).argpartition(-_SPARED)[:-_SPARED]
    return bool(shared.mean() >= _LEAST_SHARED and _cosine(view[rest], part[rest]) >= _LEAST_OF_REST)


_STARTS = 2  # how many shifts are refined
# Chosen on every second image of LFW and Caltech-101; the others are reported (studies/near_copies.py).
_LEAST_COARSE = 0.72  # correlation of blurred thumbnails, before refinement
_LEAST = 0.85  # and after it
_SIMPLE, _LEAST_OF_SIMPLE = 0.25, 0.93  # where less than a quarter of the shared cells is filled
_LEAST_SHARED, _SPARED, _LEAST_OF_REST = 0.8, 25, 0.945  # the share of cells; without the 25 most different

_CELLS = np.arange(THUMBNAIL, dtype=np.float32) - np.float32(THUMBNAIL / 2 - 0.5)
_SQUARE = np.arange(THUMBNAIL**2).reshape(THUMBNAIL, THUMBNAIL)
_TURNS = np.stack([np.rot90(side, k).ravel() for side in (_SQUARE, _SQUARE[:, ::-1]) for k in range(4)])


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


def _cells_under(shifts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the cells of one thumbnail lie in another, enlarged to 32 x 32, under each of (S, 3) shifts.

    Returns:
        (S, 256) numbers of cells, 32 * 32 for those outside, and (S, 256) 1 for those inside, else 0.
    """
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


def _values(bits: bytes) -> np.ndarray:
    """128 bytes -> (256,) float32, the values of a thumbnail."""
    both = np.frombuffer(bits, np.uint8)
    values = np.empty(THUMBNAIL**2, np.float32)
    values[::2], values[1::2] = both >> 4, both & 15
    values -= np.float32(7.5)
    return values


def _coarse(first: bytes, second: bytes) -> np.ndarray:
    """(8 S,) correlations of two blurred thumbnails, one under each shift, the other under each turn."""
    (views, energies), (turned, energies_of_turned) = _shifted(first), _turned(second)
    energies = energies[:, None] * energies_of_turned
    correlations: np.ndarray = (views @ turned.T / np.sqrt(energies + np.float32(1e-6))).ravel()
    return correlations


# An image is compared with several: what each of them is made into is kept, of the last ones.
@lru_cache(32)
def _shifted(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A thumbnail, blurred, under each shift: (S, 256), 0 for cells outside, and (S,) the energy of each."""
    enlarged = np.zeros(4 * THUMBNAIL**2 + 1, np.float32)
    enlarged[:-1] = (_ENLARGE @ _values(bits).reshape(THUMBNAIL, THUMBNAIL) @ _ENLARGE.T).ravel()
    views = enlarged.take(_COARSE_CELLS, mode="clip")
    return views, np.einsum("sc,sc->s", views, views)


@lru_cache(32)
def _turned(bits: bytes) -> tuple[np.ndarray, np.ndarray]:
    """A thumbnail, blurred, under each turn: (8, 256); and (S, 8) its energy in the cells of each shift."""
    turned = (_BLUR @ _values(bits).reshape(THUMBNAIL, THUMBNAIL) @ _BLUR.T).ravel()[_TURNS]
    return turned, _COARSE_INSIDE @ (turned * turned).T


# How a view is refined: the logarithm of its scale, radians, cells down and right, each halved twice.
_STEPS = np.array([0.06, 0.025, 0.5, 0.5], np.float32)
_MOVES = np.concatenate([np.eye(4), -np.eye(4)]).astype(np.float32) * _STEPS  # (8, 4)
_HALVINGS, _ROUNDS = 3, 3


def _aligned(
    first: np.ndarray, second: np.ndarray, starts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two thumbnails under the best of some shifts and turns, after refinement.

    Returns:
        (256,) the view of the first, (256,) the other, turned, and (256,) 1 for cells they share, else 0.
    """
    shifts, turns = np.divmod(starts, len(_TURNS))
    scales, down, right = _SHIFTS[shifts].T
    poses = np.stack([np.log(scales), np.zeros_like(scales), down, right], 1)  # (K, 4)
    turned = second[_TURNS[turns]]  # (K, 256)
    views, inside, correlations = _seen(first, poses[:, None], turned)
    views, inside, correlations = views[:, 0], inside[:, 0], correlations[:, 0]
    for halving in range(_HALVINGS):
        moving = np.arange(len(poses))
        for _ in range(_ROUNDS):
            tried = poses[moving, None] + _MOVES / 2**halving  # (K, 8, 4)
            nearby, within, scores = _seen(first, tried, turned[moving])
            best = scores.argmax(1)
            highest = scores[np.arange(len(best)), best]
            rows = (highest > correlations[moving]).nonzero()[0]
            if not len(rows):
                break
            moving, best = moving[rows], best[rows]  # one that found nothing better would find it again
            poses[moving] = tried[rows, best]
            views[moving], inside[moving] = nearby[rows, best], within[rows, best]
            correlations[moving] = highest[rows]
    row = correlations.argmax()
    return views[row], turned[row], inside[row]


def _levelled(values: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """(256,) without what varies slowly in the cells that are shared; 0 in the others; of length one.

    A thumbnail is levelled with what lies around it; a crop lacks that. Levelled again, both lack it.
    """
    square = (THUMBNAIL, THUMBNAIL)
    slow = LEVEL @ (values * shared).reshape(square) @ LEVEL.T
    slow /= LEVEL @ shared.reshape(square) @ LEVEL.T + np.float32(1e-6)
    levelled: np.ndarray = (values - slow.ravel()) * shared
    levelled /= np.linalg.norm(levelled) + np.float32(1e-6)
    return levelled


def _filled(values: np.ndarray) -> float:
    """How many cells hold what there is: n for n equal values among zeros. (256,) of length one."""
    return float(1 / ((values**4).sum() + np.float32(1e-6)))


def _cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.sqrt((first @ first) * (second @ second) + np.float32(1e-6)))


def _seen(
    first: np.ndarray, poses: np.ndarray, turned: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """See _views; and (K, M) how the views correlate with the (K, 256) turns of the other thumbnail."""
    views, inside = _views(first, poses)
    energies = np.einsum("kmc,kmc->km", views, views) * np.einsum("kmc,kc->km", inside, turned * turned)
    correlations = np.einsum("kmc,kc->km", views, turned) / np.sqrt(energies + np.float32(1e-6))
    return views, inside, correlations


def _views(values: np.ndarray, poses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A thumbnail scaled, turned and shifted, interpolated between its cells.

    Args:
        values: (256,) of a thumbnail.
        poses: (K, M, 4) logarithm of the scale, angle in radians, shift down and right in cells.

    Returns:
        (K, M, 256) values, 0 for cells outside, and (K, M, 256) 1 for cells inside, else 0.
    """
    scale, angle = np.exp(poses[..., 0]), poses[..., 1]
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    # Where each cell lies, down and to the right: (2, K, M, 16, 16).
    middle = np.float32((THUMBNAIL - 1) / 2)
    lines = np.stack([cosine, -sine])[..., None] * _CELLS
    columns = np.stack([sine, cosine])[..., None] * _CELLS
    at = lines[..., None] + columns[..., None, :]
    at += (np.moveaxis(poses[..., 2:], -1, 0) + middle)[..., None, None]
    within = (at > -0.6) & (at < THUMBNAIL - 0.4)
    shared = (within[0] & within[1]).astype(np.float32)
    at.clip(0, THUMBNAIL - 1 - 1e-3, out=at)
    corners = np.floor(at)
    down, right = at - corners
    first = (corners[0] * THUMBNAIL + corners[1]).astype(np.intp)
    # Between the cell above to the left and the one to its right; the same a row below; between the two.
    steps = np.append(np.diff(values), np.float32(0))
    upper = values.take(first, mode="clip") + steps.take(first, mode="clip") * right
    first += THUMBNAIL
    lower = values.take(first, mode="clip") + steps.take(first, mode="clip") * right
    upper += (lower - upper) * down
    upper *= shared
    shape = (*poses.shape[:2], -1)
    return upper.reshape(shape), shared.reshape(shape)
