"""Similarity of two images: MSE, PSNR, SSIM and embeddings, each for one pair; average them yourself.

The first three take (N, C, H, W) float pairs in [0, 1]; all return (N,). Averaging PSNR over images and
computing it from pooled errors give different numbers; so do SSIMs with other windows or ranges. Each
function pins its definition.
"""

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import ConfigError

_WINDOW = 11  # of SSIM, in pixels: a Gaussian of sigma 1.5 cut at 3.5 sigma
_COLUMNS = 32  # of a product: few, so that most of the band is weights; enough, so that products are few
_VALUES_AT_ONCE = 1 << 18  # values of images in one step: their five maps then fit the cache


def mse(originals: Tensor, others: Tensor) -> Tensor:
    """Compute the mean squared error over the C * H * W values of each pair; 0 when equal."""
    check_pairs(originals, others)
    return (originals - others).square().flatten(1).mean(1)


def psnr(originals: Tensor, others: Tensor) -> Tensor:
    """Compute the peak signal-to-noise ratio in dB, -10 log10(MSE) of each pair; infinite when equal."""
    return -10 * torch.log10(mse(originals, others))


def ssim(originals: Tensor, others: Tensor) -> Tensor:
    """Compute structural similarity. Wang et al. 2004, Sec. III: Gaussian window of sigma 1.5, 1 when equal.

    11 x 11 window, K1 = 0.01, K2 = 0.03, a range of 1, population covariance, mean over channels and over
    the positions that the window fits. Images are at least 11 x 11.
    """
    check_pairs(originals, others)
    if min(originals.shape[2:]) < _WINDOW:
        raise ConfigError(
            f"SSIM needs images of at least {_WINDOW}x{_WINDOW}, got {tuple(originals.shape[2:])}"
        )
    images = max(1, _VALUES_AT_ONCE // originals[0].numel())
    pairs = zip(originals.split(images), others.split(images), strict=True)
    return torch.cat([_ssim(*pair) for pair in pairs])


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    x_mean, y_mean, xx, yy, xy = _blur(torch.stack([x, y, x * x, y * y, x * y]))
    means, squares = x_mean * y_mean, x_mean.square() + y_mean.square()
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * means + c1) / (squares + c1)
    contrast = (2 * (xy - means) + c2) / (xx + yy - squares + c2)
    scores: Tensor = (luminance * contrast).flatten(1).mean(1)
    return scores


def _blur(images: Tensor) -> Tensor:
    """Average windows with weights, axis by axis. (..., H, W) -> (..., H - 10, W - 10)."""
    return _along_rows(_along_rows(images).mT).mT


def _along_rows(images: Tensor) -> Tensor:
    """Multiply with a band of weights, a few columns at a time: many times as fast as a convolution."""
    offsets = torch.arange(_WINDOW, dtype=torch.float64) - _WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * 1.5**2))
    weights = (weights / weights.sum()).to(images)
    columns = images.shape[-1] - _WINDOW + 1
    parts = []
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        band = images.new_zeros(count, count + _WINDOW)
        band[:, :_WINDOW] = weights
        # Reading the padded rows as one shorter shifts each row by one position.
        band = band.flatten()[: count * (count + _WINDOW - 1)].view(count, -1)
        parts.append(images[..., start : start + count + _WINDOW - 1] @ band.T)
    return torch.cat(parts, -1)


def embedding_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Compute the cosine between the embeddings of each pair, such as of faces: 1 for the same direction.

    Source: the face similarity of the mask paper (docs/papers.md, "Mask"), Sec. III-C.

    Args:
        first, second: (N, D) float embeddings, of any length; a zero vector has similarity 0.

    Returns:
        (N,), from -1 to 1.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ConfigError(f"embeddings are (N, D) pairs, got {tuple(first.shape)} and {tuple(second.shape)}")
    return functional.cosine_similarity(first, second)


def check_pairs(originals: Tensor, others: Tensor, *, channels: tuple[int, ...] = ()) -> None:
    """Raise ConfigError for what are no (N, C, H, W) pairs of floats in [0, 1], of these channels if any."""
    alike = originals.shape == others.shape and originals.ndim == 4
    if not alike or (channels and originals.shape[1] not in channels):
        of = f" of {' or '.join(map(str, channels))} channels" if channels else ""
        raise ConfigError(
            f"compared are (N, C, H, W) pairs{of}, got {tuple(originals.shape)} and {tuple(others.shape)}"
        )
    for images in (originals, others):
        if not images.is_floating_point():
            raise ConfigError(f"compared are floats in [0, 1], got {images.dtype}: use images.to_float")
