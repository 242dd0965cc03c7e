"""How alike two images are: MSE, PSNR, SSIM and embeddings, each for one pair; average them yourself.

The first three take (N, C, H, W) float pairs in [0, 1], and all give (N,). Averaging PSNR over images and
computing it from pooled errors give other numbers; so do SSIMs with other windows or ranges. What is meant
here is pinned in each function.
"""

import torch
from torch import Tensor
from torch.nn import functional

from sfumato.errors import ConfigError, needs_extra

_WINDOW = 11  # of SSIM, in pixels: what a Gaussian of sigma 1.5 cut at 3.5 sigma takes


def mse(originals: Tensor, others: Tensor) -> Tensor:
    """Mean squared error over the C * H * W values of a pair; 0 when equal."""
    _check(originals, others)
    return (originals - others).square().flatten(1).mean(1)


def psnr(originals: Tensor, others: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, peak 1: -10 log10(MSE) of each pair; infinite when equal."""
    return -10 * torch.log10(mse(originals, others))


def ssim(originals: Tensor, others: Tensor) -> Tensor:
    """Structural similarity. Wang et al. 2004, Sec. III: Gaussian window of sigma 1.5, 1 when equal.

    11 x 11 window, K1 = 0.01, K2 = 0.03, population covariance, mean over channels and over the places
    where the window fits. Images are at least 11 x 11.
    """
    with needs_extra("SSIM", "study"):
        from torchmetrics.functional.image import structural_similarity_index_measure

    _check(originals, others)
    if min(originals.shape[2:]) < _WINDOW:
        raise ConfigError(
            f"SSIM needs images of at least {_WINDOW}x{_WINDOW}, got {tuple(originals.shape[2:])}"
        )
    # data_range is pinned: guessed from the images, it would make scores of two runs incomparable.
    _, places = structural_similarity_index_measure(
        others,
        originals,
        sigma=1.5,
        k1=0.01,
        k2=0.03,
        data_range=1.0,
        reduction="none",
        return_full_image=True,
    )
    # torchmetrics' own mean counts places where the window hangs over a mirrored border; small images notice.
    fits = slice(_WINDOW // 2, -(_WINDOW // 2))
    scores: Tensor = places[:, :, fits, fits].flatten(1).mean(1)
    return scores


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
