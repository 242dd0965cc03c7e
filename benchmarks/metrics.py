"""The measures of pairs and of sets: their time, against the libraries that are mostly used for them.

    OMP_NUM_THREADS=1 python benchmarks/metrics.py

The Fréchet distance is of features as Inception v3 gives them, 600 and 2,048 numbers each, within a second,
and the other way takes the square root of the product of the covariances, 2,048 x 2,048. Then SSIM and PSNR
of 64 colour images beside torchmetrics and scikit-image, which take one image after the other where they take
no batch.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from scipy.linalg import sqrtm
from skimage.metrics import peak_signal_noise_ratio, structural_similarity
from timing import Line, in_turn, show
from torch import Tensor
from torchmetrics.functional.image import (
    peak_signal_noise_ratio as torchmetrics_psnr,
)
from torchmetrics.functional.image import (
    structural_similarity_index_measure as torchmetrics_ssim,
)

from sfumato.assess.frechet import frechet_distance
from sfumato.assess.similarity import psnr, ssim

IMAGES, FEATURES = 600, 2048
MOST_SECONDS = 1.0
PAIRS, SIDE = 64, 84


def by_square_root(first: Tensor, second: Tensor) -> float:
    (m1, s1), (m2, s2) = ((x.mean(0), np.cov(x, rowvar=False)) for x in (first.numpy(), second.numpy()))
    return float(np.square(m1 - m2).sum() + np.trace(s1 + s2 - 2 * sqrtm(s1 @ s2).real))


def frechet(images: int, features: int, seconds: float) -> Line:
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(features, features, generator=generator) / features**0.5
    first, second = (torch.randn(images, features, generator=generator) @ mix for _ in range(2))
    turns = in_turn(
        lambda: frechet_distance(first, second),
        lambda: by_square_root(first.double(), second.double()),
        seconds=seconds,
    )
    return turns.costs(
        f"Fréchet distance, {images:,} x {features:,}",
        against="a matrix square root",
        unit="s",
        scale=1,
        limit=MOST_SECONDS,
    )


def each_by_skimage(
    function: Callable[..., float], originals: Tensor, others: Tensor, **settings: object
) -> None:
    for original, other in zip(originals.numpy(), others.numpy(), strict=True):
        function(original, other, data_range=1.0, **settings)


def pairs(seconds: float) -> Iterator[Line]:
    generator = torch.Generator().manual_seed(0)
    originals = torch.rand(PAIRS, 3, SIDE, SIDE, generator=generator)
    others = (originals + 0.1 * torch.randn(originals.shape, generator=generator)).clamp(0, 1)
    gaussian = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "channel_axis": 0}
    each = {
        "SSIM": (
            lambda: ssim(originals, others),
            lambda: torchmetrics_ssim(others, originals, sigma=1.5, data_range=1.0, reduction="none"),
            lambda: each_by_skimage(structural_similarity, originals, others, **gaussian),
        ),
        "PSNR": (
            lambda: psnr(originals, others),
            lambda: torchmetrics_psnr(others, originals, data_range=1.0, reduction="none", dim=(1, 2, 3)),
            lambda: each_by_skimage(peak_signal_noise_ratio, originals, others),
        ),
    }
    for name, functions in each.items():
        turns = in_turn(*functions, seconds=seconds)
        for number, library in enumerate(("torchmetrics", "scikit-image"), 1):
            yield turns.rates(
                f"{name}, {library}", against=library, other=number, count=PAIRS, unit="pairs a second"
            )


def lines(short: bool) -> Iterator[Line]:
    yield frechet(*(IMAGES // 2, FEATURES // 4) if short else (IMAGES, FEATURES), seconds=4)
    yield from pairs(3 if short else 8)


def main() -> None:
    show(lines(short=False), f"pairs of {SIDE}x{SIDE} colour images")


if __name__ == "__main__":
    main()
