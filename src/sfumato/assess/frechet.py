"""The Fréchet distance of two sets of features: the distance between two collections of images as a whole.

It is called FID for the features of one trained Inception v3. Distances by features of two networks do not
compare: name the network with each number. sfumato.assess.perceptual.Perceptual.compare gives those of
SqueezeNet 1.0. `Moments` takes more images than fit memory, in parts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError

OF_SQUEEZENET = "Fréchet distance of SqueezeNet 1.0 features"

ENOUGH = 2048  # images in each set


@dataclass(frozen=True)
class Frechet:
    """A Fréchet distance, squared as usually reported, and the number of images in the smaller set."""

    distance: float
    images: int

    @property
    def biased(self) -> bool:
        """Whether the images are too few: below 2,048 two samples of ONE distribution are clearly apart."""
        return self.images < ENOUGH

    def __str__(self) -> str:
        """ "12.3 (biased upwards: 600 images, fewer than 2,048)"."""
        note = f" (biased upwards: {self.images:,} images, fewer than {ENOUGH:,})" if self.biased else ""
        return f"{self.distance:.4g}{note}"


def frechet_distance(first: Tensor, second: Tensor) -> Frechet:
    """Compute the squared Fréchet distance of normal distributions with the moments of two sets.

    Source: Heusel et al. 2017, Sec. 3: |m1 - m2|² + tr(S1) + tr(S2) - 2 tr((S1 S2)^½), with unbiased
    covariances. They take the square root of a (D, D) matrix. Here S1 = AᵀA for the centred features A over
    √(N - 1), and S2 = BᵀB; so the last trace is the sum of the singular values of ABᵀ, which is (N, M), and
    needs no root of rounding errors. With more images than D, the triangle of the QR decomposition of A
    replaces A: it has the same AᵀA. Computed in float64.

    `first`, `second`: (N, D) and (M, D) float features, finite, of two images or more each.
    """
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ConfigError(
            "a Fréchet distance compares (N, D) and (M, D) features of one network, got "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    moments = Moments(), Moments()
    for each, features in zip(moments, (first, second), strict=True):
        each.add(features)
    return distance_between(*moments)


class Moments:
    """The mean and covariance of features that arrive in parts, in float64.

    State: their number, their mean, and A of at most 2 D rows with AᵀA the sum of squares around it. So
    memory does not grow with the number of images.
    """

    def __init__(self) -> None:
        self.images = 0
        self._mean = self._root = torch.empty(0)

    def add(self, features: Tensor) -> None:
        """Take (n, D) float features, one row an image.

        Source: Chan, Golub & LeVeque 1979, for one feature: the squares around the common mean of N and n
        numbers are those around their two means, plus N·n / (N + n) times the squared difference of the
        means. Here that is one more row of A.
        """
        if not bool(features.isfinite().all()):
            raise DataError("features that are not finite have no Fréchet distance: check their images")
        if not len(features):
            return
        features = features.double()
        mean, known, new = features.mean(0), self.images, len(features)
        rows = features - mean
        self.images += new
        if known:
            apart = mean - self._mean
            rows = torch.cat([self._root, rows, (known * new / self.images) ** 0.5 * apart[None]])
            mean = self._mean + new / self.images * apart
        # Not for every part: a decomposition costs as much for few new rows.
        self._mean, self._root = mean, rows if len(rows) <= 2 * rows.shape[1] else _triangle(rows)

    def sum_up(self) -> tuple[Tensor, Tensor]:
        """Return the (D,) mean, and A of at most D rows with AᵀA the unbiased covariance."""
        return self._mean, _triangle(self._root) / (self.images - 1) ** 0.5


def distance_between(first: Moments, second: Moments) -> Frechet:
    """Compute `frechet_distance` from the moments of each. Raises DataError for fewer than two images."""
    images = min(first.images, second.images)
    if images < 2:
        raise DataError(f"a Fréchet distance needs two images or more on each side, got {images}")
    (mean, root), (other_mean, other_root) = first.sum_up(), second.sum_up()
    traces = root.square().sum() + other_root.square().sum()
    common = torch.linalg.svdvals(root @ other_root.T).sum()
    distance = (mean - other_mean).square().sum() + traces - 2 * common
    return Frechet(max(0.0, distance.item()), images)  # rounding can give equal sets less than 0


def _triangle(rows: Tensor) -> Tensor:
    """Reduce (N, D) rows A to at most D rows with the same AᵀA."""
    return torch.linalg.qr(rows, mode="r").R if len(rows) > rows.shape[1] else rows
