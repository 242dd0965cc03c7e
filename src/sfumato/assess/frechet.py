"""The Fréchet distance of two sets of features: how far apart two collections of images are as a whole.

Known as FID where the features are those of one trained Inception v3. Features of two networks give numbers
that do not compare: say with each number whose features they are. Those of SqueezeNet 1.0 are had from
sfumato.assess.perceptual.Perceptual.compare. Of more images than fit memory, `Moments` takes them in parts.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError

OF_SQUEEZENET = "Fréchet distance of SqueezeNet 1.0 features"

ENOUGH = 2048  # images in each set


@dataclass(frozen=True)
class Frechet:
    """A Fréchet distance, and of how many images it is.

    Attributes:
        distance: squared, as it is reported; 0 for sets of one mean and one covariance.
        images: how many are in the smaller set.
    """

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
    """The squared Fréchet distance of the normal distributions with the means and covariances of two sets.

    Source: Heusel et al. 2017, Sec. 3: |m1 - m2|² + tr(S1) + tr(S2) - 2 tr((S1 S2)^½), with unbiased
    covariances. They take the square root of a (D, D) matrix. Here S1 = AᵀA for the centred features A over
    √(N - 1), and S2 = BᵀB; so the last trace is the sum of the singular values of ABᵀ, which is (N, M), and
    no root is taken of rounding errors. Where there are more images than D, the triangle of the QR
    decomposition of A stands for A: it has the same AᵀA. Computed in float64.

    Args:
        first, second: (N, D) and (M, D) float features, two images or more each.

    Raises:
        ConfigError: other shapes.
        DataError: fewer than two images, or features that are not finite.
    """
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ConfigError(
            "a Fréchet distance compares (N, D) and (M, D) features of one network, got "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    moments = Moments(), Moments()
    for each, features in zip(moments, (first, second), strict=True):
        each.add(features)
    return between(*moments)


class Moments:
    """The mean and covariance of features that come in parts, in float64.

    State: how many there were, their mean, and A of at most 2 D rows with AᵀA the sum of the squares around
    it. So memory does not grow with the number of images.
    """

    def __init__(self) -> None:
        self.images = 0
        self._mean = self._root = torch.empty(0)

    def add(self, features: Tensor) -> None:
        """Take (n, D) float features, one row an image.

        Source: Chan, Golub & LeVeque 1979, for one feature: the squares around the common mean of N and n
        numbers are those around their two means, and N·n / (N + n) times the square of what lies between
        these. Here it is one more row of A.

        Raises:
            DataError: features that are not finite.
        """
        if not bool(features.isfinite().all()):
            raise DataError("features that are not finite have no Fréchet distance: look at their images")
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
        # Not at every part: a decomposition costs the same for few new rows.
        self._mean, self._root = mean, rows if len(rows) <= 2 * rows.shape[1] else _triangle(rows)

    def summed_up(self) -> tuple[Tensor, Tensor]:
        """(D,) mean, and A of at most D rows with AᵀA the unbiased covariance."""
        return self._mean, _triangle(self._root) / (self.images - 1) ** 0.5


def between(first: Moments, second: Moments) -> Frechet:
    """What `frechet_distance` gives for all features of each. Raises DataError for fewer than two images."""
    images = min(first.images, second.images)
    if images < 2:
        raise DataError(f"a Fréchet distance needs two images or more on each side, got {images}")
    (mean, root), (other_mean, other_root) = first.summed_up(), second.summed_up()
    traces = root.square().sum() + other_root.square().sum()
    common = torch.linalg.svdvals(root @ other_root.T).sum()
    distance = (mean - other_mean).square().sum() + traces - 2 * common
    return Frechet(max(0.0, distance.item()), images)  # rounding can put equal sets below 0


def of_gaussians(mean: Tensor, covariance: Tensor, other_mean: Tensor, other_covariance: Tensor) -> float:
    """The squared Fréchet distance of two normal distributions, as of published statistics of a collection.

    Source: Dowson & Landau 1982. tr((S1 S2)^½) is here the sum of the square roots of the eigenvalues of
    S1^½ S2 S1^½, which is symmetric. In float64.

    Args:
        mean, other_mean: (D,).
        covariance, other_covariance: (D, D), symmetric, no eigenvalue below 0 but for rounding.
    """
    values, vectors = torch.linalg.eigh(covariance.double())
    root = (vectors * values.clamp(min=0).sqrt()) @ vectors.T
    common = torch.linalg.eigvalsh(root @ other_covariance.double() @ root).clamp(min=0).sqrt().sum()
    apart = (mean.double() - other_mean.double()).square().sum()
    traces = covariance.double().trace() + other_covariance.double().trace()
    return max(0.0, float(apart + traces - 2 * common))


def _triangle(rows: Tensor) -> Tensor:
    """Of (N, D) rows A: at most D rows with the same AᵀA."""
    return torch.linalg.qr(rows, mode="r").R if len(rows) > rows.shape[1] else rows
