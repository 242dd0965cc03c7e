"""How far two pictures differ: in all values, or in what one shows of the other, by registration.

A pose scales, turns and shifts one image in the other; it is refined by the gradients of both. Slow variation
is removed from both before they are compared, since an image that was cut lacks its surroundings.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sfumato.images import Pixels

SIDE = 32  # cells of a side of both images
SLOW = 5 / 32  # variation over more than this share of the side is slow
_ROUGH_STEPS, _STEPS = 3, 5


@lru_cache(64)
def smoothing(cells: int, sigma: float) -> np.ndarray:
    """(cells, cells) weights of a Gaussian along a line that is mirrored at both ends."""
    at = np.arange(cells, dtype=float)
    mirrored = np.stack([at, -1 - at, 2 * cells - 1 - at])
    weights = np.exp(-((at[:, None, None] - mirrored) ** 2) / (2 * sigma**2)).sum(1)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float32)


_FARTHEST = np.array([0.08, 0.05, 1.0, 1.0])  # of one step: logarithm of the scale, radians, cells
_BLURRED = smoothing(SIDE, 1.6)  # of this, larger steps succeed
_FINE = smoothing(SIDE, 0.7)  # a resized picture has lost finer details
_MIDDLE = np.float32((SIDE - 1) / 2)
_DOWN, _RIGHT = np.mgrid[:SIDE, :SIDE].astype(np.float32) - _MIDDLE


def refine(
    first: np.ndarray, second: np.ndarray, pose: np.ndarray, *, rough: bool = False
) -> tuple[float, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Refine the pose of one (32, 32) image in another by Gauss-Newton steps (Lucas & Kanade 1981).

    `rough`: in both images blurred, which takes larger steps. Returns the correlation, the pose, and the
    parts of both that overlap: see largest_difference.
    """
    if rough:
        first, second = (_BLURRED @ image @ _BLURRED.T for image in (first, second))
    highest, tried = -1.0, pose
    for _ in range(_ROUGH_STEPS if rough else _STEPS):
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
    within = (at > -0.6) & (at < SIDE - 0.4)
    inside = (within[0] & within[1]).astype(np.float32)
    at.clip(0, SIDE - 1 - 1e-3, out=at)
    corners = np.floor(at)
    down, right = at - corners
    cell = (corners[0] * SIDE + corners[1]).astype(np.intp)
    flat = values.ravel()
    upper, lower = flat.take(cell), flat.take(cell + SIDE)
    along_upper, along_lower = flat.take(cell + 1) - upper, flat.take(cell + SIDE + 1) - lower
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
    level = smoothing(SIDE, SLOW * SIDE)
    slow = (level @ (values * inside) @ level.T) / (level @ inside @ level.T + np.float32(1e-6))
    return np.asarray((values - slow) * inside)


def largest_difference(shared: tuple[np.ndarray, ...], margin: float, sigma: float, ignored: float) -> float:
    """Return the largest difference of the cells that count, as a share of that between strangers."""
    view, part, inside = shared
    view, part = _FINE @ view @ _FINE.T, _FINE @ part @ _FINE.T
    for _ in range(int(margin)):
        wide = np.pad(inside, 1)
        inside = inside * wide[:-2, 1:-1] * wide[2:, 1:-1] * wide[1:-1, :-2] * wide[1:-1, 2:]
    if not inside.any():
        return np.inf
    view, part, around = view * inside, part * inside, smoothing(SIDE, sigma)
    usual = ((view * view).sum() + (part * part).sum()) / inside.sum() + np.float32(1e-6)
    differences = (around @ ((view - part) ** 2) @ around.T) / (around @ inside @ around.T + np.float32(1e-6))
    apart = np.sort(differences[inside > 0])
    return float(apart[len(apart) - 1 - int(ignored * len(apart))] / usual)


def square_difference(
    image: Pixels, seen: Pixels, covered: NDArray[np.bool_] | None = None
) -> tuple[int, int]:
    """Sum the squared differences of two (C, H, W) uint8 images, in pixels of `covered`; count the values."""
    apart = np.maximum(image, seen) - np.minimum(image, seen)  # fits uint8
    if covered is not None:
        apart = apart[:, covered[0]]
    if not apart.size:
        return 0, 0
    # A histogram of differences is exact, and several times as fast as squares in floating point.
    counts = Image.fromarray(apart.reshape(-1, apart.shape[-1])).histogram()
    return sum(count * level**2 for level, count in enumerate(counts)), apart.size
