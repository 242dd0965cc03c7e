"""Re-identification by probabilistic linear discriminant analysis of released values.

Source: the two-covariance model of Brümmer & de Villiers 2010, after Prince & Elder 2007; Sizov, Lee &
Kinnunen 2014 compare it with others. A person is a point y ~ N(μ, B), and each photograph of theirs has
values x ~ N(y, W): B is the variation between people, W that between photographs of one person. Both are
learned from people who are not attacked. A likelihood ratio then decides whether a probe shows a person of
the gallery.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.errors import DataError

DIMENSIONS = (10, 20, 40, 80, 160, 320)  # principal components, chosen on the data
_STEPS = 100  # of expectation-maximisation
# Convergence, by the rise of a photograph's log-likelihood: for the final model, and for choosing.
_RISE, _ROUGH_RISE = 1e-4, 1e-2
# Floors: of the variance between photographs of one person in any direction, as a share of the mean variance;
# and of that between people, as a share of that between photographs: a variance of 0 would stay 0.
_FLOOR, _LEAST = 1e-6, 1e-4
_OVERSAMPLED, _ITERATIONS = 20, 4  # of the search for principal components


@dataclass(frozen=True)
class PLDA:
    """A trained model, in the coordinates in which W = 1 and B is diagonal.

    Attributes:
        mean: (D,) float64, μ.
        axes: (D, d) float64, from values to coordinates: principal components, then both covariances
            diagonalised at once.
        between: (d,) float64, the diagonal of B.
        held_out: the share of photographs that a model of half of the people named correctly among the other
            half; 0 if not tried.
    """

    mean: Tensor
    axes: Tensor
    between: Tensor
    held_out: float = 0.0

    def coordinates(self, values: Tensor) -> Tensor:
        """Transform (..., D) values to (..., d) float64 coordinates, in which W = 1 and B is diagonal."""
        return (values.double() - self.mean) @ self.axes

    def log_ratios(self, gallery: Tensor, identities: Tensor, probes: Tensor) -> tuple[Tensor, Tensor]:
        """Return ln p(x | a person's photographs in the gallery) - ln p(x), for every probe and person.

        n photographs with the mean x̄ give the person's point the posterior N(n·b·x̄, b), b = B/(1 + n·B),
        with μ = 0. A probe of theirs has the variance b + 1 around it; a probe of anybody has B + 1 around 0.
        For k probes of one person x is the mean, and 1/k replaces 1: their spread around their mean is
        equally likely for everybody, so that the ratio is that of all k together.

        Args:
            gallery: (R, n, D) values of R releases of each known photograph, which are averaged to one
                photograph each.
            identities: (n,) int64, any codes.
            probes: (m, D); or (m, k, D), of k photographs of one person each.

        Returns:
            the codes, (I,) ascending, and (m, I) float64.
        """
        people, counts, means, _ = _group(self.coordinates(gallery).mean(0), identities)
        x, within = self.coordinates(probes), 1.0  # (m, d)
        if probes.ndim == 3:
            x, within = x.mean(1), 1 / probes.shape[1]
        posterior = self.between / (1 + counts[:, None] * self.between)  # (I, d)
        centre, variance = counts[:, None] * posterior * means, posterior + within
        # Σ (x - c)² / v, expanded: (m, I, d) numbers may be too many.
        theirs = x.square() @ (1 / variance).T - 2 * x @ (centre / variance).T
        theirs = theirs + (centre.square() / variance + variance.log()).sum(1)
        spread = self.between + within
        anybody = (x.square() / spread + spread.log()).sum(1, keepdim=True)
        return people, (anybody - theirs) / 2


def trainable(values: Tensor, identities: Tensor) -> bool:
    """Whether training is possible: two people, two photographs of one, and values that differ."""
    people = len(identities.unique())
    return 2 <= people < len(identities) and bool((values != values[0, 0]).any())


def train(values: Tensor, identities: Tensor, *, dimensions: int | None = None) -> PLDA:
    """Fit the model by maximum likelihood, on people who are not attacked.

    Expectation-maximisation, from the moments of both covariances: unequal numbers of photographs have no
    known closed form; with equal numbers it starts at the closed form.

    Args:
        values: (R, N, D) finite values of R releases of each photograph. In each release everybody counts
            as another person: releases of one photograph differ only by noise, and together they would make
            photographs of one person look too similar.
        identities: (N,) int64, any codes.
        dimensions: the number of principal components; None chooses from DIMENSIONS the number by which a
            model of half of the people names most photographs of the other half.

    Raises:
        DataError: values are not finite, or do not suffice; see trainable.
    """
    if not values.isfinite().all():
        raise DataError("some values are not finite: leave these images out")
    if not trainable(values, identities):
        raise DataError(
            f"{len(identities)} photographs of {len(identities.unique())} people: at least 2 people are "
            "needed, 2 photographs of one, and values that are not all equal"
        )
    flat = values.flatten(0, 1)
    components = principal_components(flat, dimensions or max(DIMENSIONS))  # (D, d)
    centre = flat.mean(0)
    coordinates = ((values - centre) @ components).double()
    held_out = 0.0
    if dimensions is None:
        dimensions, held_out = _choose(coordinates, identities)
    mean, axes, between = _fit(coordinates[..., :dimensions], identities)
    components = components[:, :dimensions].double()
    return PLDA(centre.double() + components @ mean, components @ axes, between, held_out)


def principal_components(values: Tensor, count: int) -> Tensor:
    """Find the directions in which (N, D) values vary most, at most `count`. -> (D, d) orthonormal.

    By subspace iteration (Halko, Martinsson & Tropp 2011, Algorithm 4.4) from fixed directions: the same
    values give the same components. Directions without variance are dropped, except for the first.
    """
    centred = values - values.mean(0)
    width = min(count + _OVERSAMPLED, *values.shape)
    start = torch.randn(values.shape[1], width, generator=torch.Generator().manual_seed(0))
    basis = start.to(values.dtype)
    for _ in range(_ITERATIONS):
        basis = torch.linalg.qr(centred.T @ (centred @ basis)).Q
    _, lengths, turn = torch.linalg.svd(centred @ basis, full_matrices=False)
    kept = max(1, int((lengths[:count] > lengths[0] * 1e-5).sum()))  # descending
    components: Tensor = (basis @ turn.T)[:, :kept]
    return components


def _choose(coordinates: Tensor, identities: Tensor) -> tuple[int, float]:
    """Choose the number of principal components that names people best, and return its success.

    Every second person is named, from every second of their photographs; the others are their gallery.
    """
    most = coordinates.shape[2]
    candidates = sorted({min(dimensions, most) for dimensions in DIMENSIONS})
    looked_for = torch.isin(identities, identities.unique()[1::2])
    second = torch.zeros_like(looked_for)
    second[identities.argsort(stable=True)[1::2]] = True
    gallery = looked_for & ~second
    probes = looked_for & second & torch.isin(identities, identities[gallery])
    others = coordinates[:, ~looked_for], identities[~looked_for]
    if not trainable(*others) or not probes.any():
        return most, 0.0

    def right(dimensions: int) -> float:
        model = PLDA(*_fit(others[0][..., :dimensions], others[1], rise=_ROUGH_RISE))
        known, asked = coordinates[:, gallery, :dimensions], coordinates[0, probes, :dimensions]
        people, ratios = model.log_ratios(known, identities[gallery], asked)
        return (people[ratios.argmax(1)] == identities[probes]).double().mean().item()

    shares = {dimensions: right(dimensions) for dimensions in candidates}
    best = max(shares, key=lambda dimensions: shares[dimensions])  # the fewest of equal ones
    return best, shares[best]


def _group(values: Tensor, identities: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Group values by person: codes, ascending, counts, means, and the index of each row's mean."""
    people, rows, counts = identities.unique(return_inverse=True, return_counts=True)
    sums = values.new_zeros(len(people), values.shape[1]).index_add(0, rows, values)
    return people, counts, sums / counts[:, None], rows


def _fit(values: Tensor, identities: Tensor, *, rise: float = _RISE) -> tuple[Tensor, Tensor, Tensor]:
    """Fit the two-covariance model to (R, N, d) values by maximum likelihood. -> mean, axes, between.

    Each step works in the coordinates in which the covariances of the step before are diagonal.
    """
    releases = torch.arange(len(values))[:, None]
    _, counts, means, rows = _group(
        values.flatten(0, 1), (identities.unique(return_inverse=True)[1] * len(values) + releases).flatten()
    )
    photographs, people, dimensions = len(rows), len(counts), values.shape[2]
    n = counts[:, None].double()  # (I, 1)
    mean = means.mean(0)
    inner = values.flatten(0, 1) - means[rows]
    scatter = inner.T @ inner  # (d, d), between photographs of one person
    floor = _FLOOR * (means[rows] - mean + inner).square().mean() * torch.eye(dimensions).double()
    within = scatter / (photographs - people) + floor
    between = (means - mean).T @ (means - mean) / people - within * people / photographs
    axes, before = torch.eye(dimensions).double(), float("-inf")
    for _ in range(_STEPS):
        turn, variances = _diagonalise(within, between)
        axes = axes @ turn
        z, inside = (means - mean) @ axes, axes.T @ scatter @ axes  # (I, d), (d, d)
        spread = 1 + n * variances
        likelihood = photographs * axes.slogdet().logabsdet - inside.trace() / 2
        likelihood -= (n * z.square() / spread + spread.log()).sum() / 2
        if likelihood.item() / photographs - before < rise:
            break
        before = likelihood.item() / photographs
        points, left = n * variances / spread * z, variances / spread  # posterior means and variances, (I, d)
        shift = points.mean(0)
        mean = mean + torch.linalg.solve(axes.T, shift)
        between = ((points - shift).T @ (points - shift) + left.sum(0).diag()) / people
        rest = n.sqrt() * (z - points)
        within = (inside + rest.T @ rest + (n * left).sum(0).diag()) / photographs + axes.T @ floor @ axes
    return mean, axes, variances


def _diagonalise(within: Tensor, between: Tensor) -> tuple[Tensor, Tensor]:
    """Find T and b with Tᵀ·W·T = 1 and Tᵀ·B·T = diag(b), b at least _LEAST. Two (d, d) -> (d, d), (d,)."""
    factor = torch.linalg.cholesky(within)
    half = torch.linalg.solve_triangular(factor, between, upper=False)
    whitened = torch.linalg.solve_triangular(factor, half.T, upper=False)
    variances, vectors = torch.linalg.eigh((whitened + whitened.T) / 2)
    return torch.linalg.solve_triangular(factor.T, vectors, upper=True), variances.clamp(min=_LEAST)
