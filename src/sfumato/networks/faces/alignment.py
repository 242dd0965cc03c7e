"""Aligned faces: five landmarks moved onto five reference points."""

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import DataError
from sfumato.images import check_batch, to_float, to_uint8

# (x, y) of left eye, right eye, nose, left and right corner of the mouth, in 112 rows by 96 columns.
_EYES = (30.2946, 51.6963), (65.5318, 51.5014)
_REFERENCE = (*_EYES, (48.0252, 71.7366), (33.5493, 92.3655), (62.7299, 92.2041))


def reference_points(size: tuple[int, int] = (112, 96)) -> Tensor:
    """The positions of the five landmarks in a face of (height, width) pixels. -> (5, 2) x, y.

    The points of 112x96 are those that SphereFace (Liu et al. 2017) and MobileFaceNet are trained with. Other
    sizes keep their height, and centre them: 112x112 gives the points of ArcFace (Deng et al. 2019).
    """
    height, width = size
    scale = height / 112
    return torch.tensor(_REFERENCE) * scale + torch.tensor([(width - 96 * scale) / 2, 0.0])


def similarity(points: Tensor, targets: Tensor) -> Tensor:
    """The rotation, scale and shift that bring points nearest to targets, in squared distance.

    Source: Umeyama 1991. In the plane no singular values are needed: with points p and targets q about their
    means as complex numbers, a rotation with scale is one factor, a = Σ conj(p)·q / Σ |p|², which no choice
    of p and q can turn into a reflection.

    (N, K, 2) points x, y and (N, K, 2) or (K, 2) targets -> (N, 2, 3): the matrix of rotation and scale, and
    the shift. Raises DataError for points that are not finite, or all equal, which no scale can spread.
    """
    # The products are about squares of pixels, and their differences are small: float64.
    points, targets = points.double(), targets.double().expand(points.shape)
    origin, goal = points.mean(1), targets.mean(1)  # (N, 2)
    (px, py), (qx, qy) = (points - origin[:, None]).unbind(2), (targets - goal[:, None]).unbind(2)
    spread = (px * px + py * py).sum(1)
    if not bool(((spread > 0) & spread.isfinite()).all()):
        raise DataError("landmarks of a face are not finite, or all equal: leave that face out")
    real, imaginary = (px * qx + py * qy).sum(1) / spread, (px * qy - py * qx).sum(1) / spread
    turn = torch.stack([real, -imaginary, imaginary, real], 1).reshape(-1, 2, 2)
    shift = goal - (turn @ origin[:, :, None]).squeeze(2)
    return torch.cat([turn, shift[:, :, None]], 2)


def align(
    images: Tensor, landmarks: Tensor, size: tuple[int, int] = (112, 96), *, points: Tensor | None = None
) -> Tensor:
    """Turns, scales and shifts each image to bring its landmarks to the reference points, and crops it.

    Sampled bilinearly, black outside the image. For a face that is k times too large, k x k samples
    are averaged for each pixel, so that fine texture does not turn into noise.

    (N, C, H, W) uint8, one face each, and (N, 5, 2) landmarks x, y, with the centre of the first pixel at
    (0, 0). `size`: of the result; `points`: (5, 2) where its landmarks lie, None for reference_points.
    """
    check_batch(images)
    if landmarks.shape != (len(images), 5, 2):
        raise DataError(f"landmarks of {len(images)} faces are (N, 5, 2), got {tuple(landmarks.shape)}")
    aligned = images.new_empty(len(images), images.shape[1], *size)
    matrices = similarity(landmarks, reference_points(size) if points is None else points)  # image -> face
    scales = torch.linalg.det(matrices[:, :, :2]).sqrt()
    samples = (1 / scales).round().clamp(min=1).long()  # along each side of a pixel
    for count in samples.unique().tolist():
        rows = (samples == count).nonzero().flatten()
        aligned[rows] = _warp(images[rows], matrices[rows], size, count)
    return aligned


def _warp(images: Tensor, matrices: Tensor, size: tuple[int, int], samples: int) -> Tensor:
    ys, xs = ((torch.arange(n * samples, dtype=torch.float64) + 0.5) / samples - 0.5 for n in size)
    places = torch.stack([xs.expand(len(ys), -1), ys[:, None].expand(-1, len(xs))], 2)  # (h, w, 2)
    turn, shift = matrices[:, :, :2], matrices[:, None, None, :, 2]
    origins = (places - shift) @ torch.linalg.inv(turn).transpose(1, 2)[:, None]  # (N, h, w, 2), in pixels
    extent = torch.tensor([images.shape[3], images.shape[2]], dtype=torch.float64)
    # grid_sample has the edges of the image at -1 and 1, half a pixel outside the outermost centres.
    grid = ((2 * origins + 1) / extent - 1).float()
    sampled = functional.grid_sample(
        to_float(images), grid, mode="bilinear", padding_mode="zeros", align_corners=False
    )
    return to_uint8(functional.avg_pool2d(sampled, samples))
