"""How alike two images are: MSE, PSNR, SSIM and embeddings, each for one pair; average them yourself.

The first three take (N, C, H, W) float pairs in [0, 1], and all give (N,). Averaging PSNR over images and
computing it from pooled errors give other numbers; so do SSIMs with other windows or ranges. What is meant
here is pinned in each function.
"""

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import ConfigError

_WINDOW = 11  # of SSIM, in pixels: what a Gaussian of sigma 1.5 cut at 3.5 sigma takes
_COLUMNS = 32  # of a product: few enough that most of the band is weights, enough that products are few
_VALUES_AT_ONCE = 1 << 18  # of an image each: its five maps then lie in the cache


def mse(originals: Tensor, others: Tensor) -> Tensor:
    """Mean squared error over the C * H * W values of a pair; 0 when equal."""
    _check(originals, others)
    return (originals - others).square().flatten(1).mean(1)


def psnr(originals: Tensor, others: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, peak 1: -10 log10(MSE) of each pair; infinite when equal."""
    return -10 * torch.log10(mse(originals, others))


def ssim(originals: Tensor, others: Tensor) -> Tensor:
    """Structural similarity. Wang et al. 2004, Sec. III: Gaussian window of sigma 1.5, 1 when equal.

    11 x 11 window, K1 = 0.01, K2 = 0.03, a range of 1, population covariance, mean over channels and over
    the places where the window fits. Images are at least 11 x 11.
    """
    _check(originals, others)
    if min(originals.shape[2:]) < _WINDOW:
        raise ConfigError(
            f"SSIM needs images of at least {_WINDOW}x{_WINDOW}, got {tuple(originals.shape[2:])}"
        )
    images = max(1, _VALUES_AT_ONCE // originals[0].numel())
    pairs = zip(originals.split(images), others.split(images), strict=True)
    return torch.cat([_ssim(*pair) for pair in pairs])


def _ssim(x: Tensor, y: Tensor) -> Tensor:
    x_mean, y_mean, xx, yy, xy = _blurred(torch.stack([x, y, x * x, y * y, x * y]))
    means, squares = x_mean * y_mean, x_mean.square() + y_mean.square()
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * means + c1) / (squares + c1)
    contrast = (2 * (xy - means) + c2) / (xx + yy - squares + c2)
    scores: Tensor = (luminance * contrast).flatten(1).mean(1)
    return scores


def _blurred(images: Tensor) -> Tensor:
    """(..., H, W) -> (..., H - 10, W - 10), weighted means of windows, along one axis and then the other."""
    return _along_rows(_along_rows(images).mT).mT


def _along_rows(images: Tensor) -> Tensor:
    """Products with a band of weights, a few columns at a time: many times as fast as a convolution."""
    offsets = torch.arange(_WINDOW, dtype=torch.float64) - _WINDOW // 2
    weights = torch.exp(-offsets.square() / (2 * 1.5**2))
    weights = (weights / weights.sum()).to(images)
    columns = images.shape[-1] - _WINDOW + 1
    parts = []
    for start in range(0, columns, _COLUMNS):
        count = min(_COLUMNS, columns - start)
        band = images.new_zeros(count, count + _WINDOW)
        band[:, :_WINDOW] = weights
        # Rows shift by one place each when what is filled in is read as one place shorter.
        band = band.flatten()[: count * (count + _WINDOW - 1)].view(count, -1)
        parts.append(images[..., start : start + count + _WINDOW - 1] @ band.T)
    return torch.cat(parts, -1)


def embedding_similarity(first: Tensor, second: Tensor) -> Tensor:
    """Cosine between the embeddings of a pair, such as of two faces: 1 where they point the same way.

    Source: the face similarity of the mask paper (docs/papers.md, "Mask"), Sec. III-C.

    Args:
        first, second: (N, D) float embeddings, of any length but 0, which is similar to nothing: 0.

    Returns:
        (N,), from -1 to 1.
    """
    if first.shape != second.shape or first.ndim != 2:
        raise ConfigError(f"embeddings are (N, D) pairs, got {tuple(first.shape)} and {tuple(second.shape)}")
    return functional.cosine_similarity(first, second)


def _check(originals: Tensor, others: Tensor) -> None:
    if originals.shape != others.shape or originals.ndim != 4:
        raise ConfigError(
            f"similarity compares (N, C, H, W) pairs, got {tuple(originals.shape)} and {tuple(others.shape)}"
        )
    for images in (originals, others):
        if not images.is_floating_point():
            raise ConfigError(
                f"similarity compares floats in [0, 1], got {images.dtype}: use images.to_float"
            )
