"""Re-identification by probabilistic linear discriminant analysis of released values.

Source: the two-covariance model of Brümmer & de Villiers 2010, after Prince & Elder 2007; Sizov, Lee &
Kinnunen 2014 compare it with others. A person is a point y ~ N(μ, B), and each photograph of theirs has
values x ~ N(y, W): B is the variation between people, W that between photographs of one person. Both are
learned from people who are not attacked. A likelihood ratio then decides whether a probe shows a person of
the gallery. NumPy computes it, so that vectors are audited without PyTorch; tensors are read as arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

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
    """A trained model, in the coordinates in which W = 1 and B is diagonal."""

    mean: np.ndarray  # (D,) float64, μ
    axes: np.ndarray  # (D, d) to coordinates: principal components, then both covariances diagonalised
    between: np.ndarray  # (d,) float64, the diagonal of B
    held_out: float = 0.0  # the share of people whom a model of the other half of them names; 0 if not tried

    def coordinates(self, values: ArrayLike) -> np.ndarray:
        """Transform (..., D) values to (..., d) float64 coordinates."""
        coordinates: np.ndarray = (np.asarray(values, np.float64) - self.mean) @ self.axes
        return coordinates

    def log_ratios(
        self, gallery: ArrayLike, identities: ArrayLike, probes: ArrayLike
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ln p(x | a person's photographs in the gallery) - ln p(x), for every probe and person.

        n photographs with the mean x̄ give the person's point the posterior N(n·b·x̄, b), b = B/(1 + n·B),
        with μ = 0. A probe of theirs has the variance b + 1 around it; a probe of anybody has B + 1 around 0.
        For k probes of one person x is the mean, and 1/k replaces 1: their spread around their mean is
        equally likely for everybody, so that the ratio is that of all k together.

        (R, n, D) values of R releases of each known photograph, which are averaged; (n,) int64, any codes;
        and (m, D), or (m, k, D) of k photographs of one person each -> (I,) ascending codes, and (m, I).
        """
        people, counts, means, _ = group(self.coordinates(gallery).mean(0), np.asarray(identities))
        x, within = self.coordinates(probes), 1.0  # (m, d)
        if x.ndim == 3:
            x, within = x.mean(1), 1 / x.shape[1]
        posterior = self.between / (1 + counts[:, None] * self.between)  # (I, d)
        centre, variance = counts[:, None] * posterior * means, posterior + within
        # Σ (x - c)² / v, expanded: (m, I, d) numbers may be too many.
        theirs = x**2 @ (1 / variance).T - 2 * x @ (centre / variance).T
        theirs += (centre**2 / variance + np.log(variance)).sum(1)
        spread = self.between + within
        anybody = (x**2 / spread + np.log(spread)).sum(1, keepdims=True)
        return people, (anybody - theirs) / 2


def trainable(values: ArrayLike, identities: ArrayLike) -> bool:
    """Whether training is possible: two people, two photographs of one, and values that differ."""
    values, identities = np.asarray(values), np.asarray(identities)
    people = len(np.unique(identities))
    return 2 <= people < len(identities) and bool((values != values[0, 0]).any())


def train(values: ArrayLike, identities: ArrayLike, *, dimensions: int | None = None) -> PLDA:
    """Fit the model by maximum likelihood, on people who are not attacked.

    Expectation-maximisation, from the moments of both covariances: unequal numbers of photographs have no
    known closed form. (R, N, D) finite values of R releases of each photograph, and (N,) int64, any codes. In
    each release everybody counts as another person: releases of one photograph differ only by noise, and
    together they would make photographs of one person look too similar. `dimensions`: of principal
    components; None chooses the number by which a model of half of the people names most of the others.
    """
    values, identities = np.asarray(values), np.asarray(identities)
    if not np.isfinite(values).all():
        raise DataError("some values are not finite: leave these images out")
    if not trainable(values, identities):
        raise DataError(
            f"{len(identities)} photographs of {len(np.unique(identities))} people: at least 2 people are "
            "needed, 2 photographs of one, and values that are not all equal"
        )
    flat = values.reshape(-1, values.shape[2])
    components = principal_components(flat, dimensions or max(DIMENSIONS))  # (D, d)
    centre = flat.mean(0)
    coordinates = ((values - centre) @ components).astype(np.float64)
    held_out = 0.0
    if dimensions is None:
        dimensions, held_out = _choose(coordinates, identities)
    mean, axes, between = _fit(coordinates[..., :dimensions], identities)
    components = components[:, :dimensions].astype(np.float64)
    return PLDA(centre + components @ mean, components @ axes, between, held_out)


def choose_reading(
    released: Sequence[Any], identities: ArrayLike, ways: Mapping[str, Callable[[Any], Any]]
) -> tuple[str, Callable[[Any], Any], PLDA | None]:
    """Choose the way to read releases that names the most held-out people: its words, it, its model.

    The first, and no model, if nothing can be learned. Each way reads a release as (N, D) numbers.
    """
    models = {}
    for words, read in ways.items():
        values = np.stack([np.asarray(read(each)) for each in released])
        if not trainable(values, identities):
            return words, read, None
        models[words] = train(values, identities)
    best = max(models, key=lambda words: models[words].held_out)
    return best, ways[best], models[best]


def principal_components(values: ArrayLike, count: int) -> np.ndarray:
    """Find the directions in which (N, D) values vary most, at most `count`. -> (D, d) orthonormal.

    By subspace iteration (Halko, Martinsson & Tropp 2011, Algorithm 4.4); those without variance are dropped.
    """
    values = np.asarray(values)
    centred = values - values.mean(0)
    width = min(count + _OVERSAMPLED, *values.shape)
    # Fixed directions, so that it repeats.
    basis = np.random.default_rng(0).standard_normal((values.shape[1], width)).astype(values.dtype)
    for _ in range(_ITERATIONS):
        basis = np.linalg.qr(centred.T @ (centred @ basis)).Q
    _, lengths, turn = np.linalg.svd(centred @ basis, full_matrices=False)
    kept = max(1, int((lengths[:count] > lengths[0] * 1e-5).sum()))  # descending
    components: np.ndarray = (basis @ turn.T)[:, :kept]
    return components


def _choose(coordinates: np.ndarray, identities: np.ndarray) -> tuple[int, float]:
    """Choose the number of principal components that names people best, and return its success."""
    most = coordinates.shape[2]
    # Every second person is named, from every second of their photographs; the others are their gallery.
    looked_for = np.isin(identities, np.unique(identities)[1::2])
    second = np.zeros_like(looked_for)
    second[identities.argsort(stable=True)[1::2]] = True
    gallery = looked_for & ~second
    probes = looked_for & second & np.isin(identities, identities[gallery])
    others = coordinates[:, ~looked_for], identities[~looked_for]
    if not trainable(*others) or not probes.any():
        return most, 0.0

    def right(dimensions: int) -> float:
        model = PLDA(*_fit(others[0][..., :dimensions], others[1], rise=_ROUGH_RISE))
        known, asked = coordinates[:, gallery, :dimensions], coordinates[0, probes, :dimensions]
        people, ratios = model.log_ratios(known, identities[gallery], asked)
        return float((people[ratios.argmax(1)] == identities[probes]).mean())

    candidates = sorted({min(dimensions, most) for dimensions in DIMENSIONS})
    shares = {dimensions: right(dimensions) for dimensions in candidates}
    best = max(shares, key=lambda dimensions: shares[dimensions])  # the fewest of equal ones
    return best, shares[best]


def group(
    values: np.ndarray, identities: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Group values by person: codes, ascending, counts, means, and the index of each row's mean."""
    people, rows, counts = np.unique(identities, return_inverse=True, return_counts=True)
    first = counts.cumsum() - counts  # in the order of people
    sums = np.add.reduceat(values[rows.argsort(kind="stable")], first)
    return people, counts, sums / counts[:, None], rows


def _fit(
    values: np.ndarray, identities: np.ndarray, *, rise: float = _RISE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fit the two-covariance model to (R, N, d) values by maximum likelihood. -> mean, axes, between."""
    releases = np.arange(len(values))[:, None]
    flat = values.reshape(-1, values.shape[2])
    codes = np.unique(identities, return_inverse=True)[1] * len(values) + releases
    _, counts, means, rows = group(flat, codes.ravel())
    photographs, people, dimensions = len(rows), len(counts), values.shape[2]
    n = counts[:, None].astype(np.float64)  # (I, 1)
    mean, inner = means.mean(0), flat - means[rows]
    scatter = inner.T @ inner  # (d, d), between photographs of one person
    floor = _FLOOR * ((means[rows] - mean + inner) ** 2).mean() * np.eye(dimensions)
    within = scatter / (photographs - people) + floor
    between = (means - mean).T @ (means - mean) / people - within * people / photographs
    axes, before = np.eye(dimensions), float("-inf")
    for _ in range(_STEPS):  # each in coordinates in which the covariances of the one before are diagonal
        turn, variances = _diagonalise(within, between)
        axes = axes @ turn
        z, inside = (means - mean) @ axes, axes.T @ scatter @ axes  # (I, d), (d, d)
        spread = 1 + n * variances
        likelihood = photographs * np.linalg.slogdet(axes).logabsdet - np.trace(inside) / 2
        likelihood -= (n * z**2 / spread + np.log(spread)).sum() / 2
        if likelihood / photographs - before < rise:
            break
        before = likelihood / photographs
        points, left = n * variances / spread * z, variances / spread  # posterior means and variances, (I, d)
        shift = points.mean(0)
        mean = mean + np.linalg.solve(axes.T, shift)
        between = ((points - shift).T @ (points - shift) + np.diag(left.sum(0))) / people
        rest = np.sqrt(n) * (z - points)
        within = (inside + rest.T @ rest + np.diag((n * left).sum(0))) / photographs + axes.T @ floor @ axes
    return mean, axes, variances


def _diagonalise(within: np.ndarray, between: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find T and b with Tᵀ·W·T = 1 and Tᵀ·B·T = diag(b), b at least _LEAST. Two (d, d) -> (d, d), (d,)."""
    factor = np.linalg.cholesky(within)
    half = np.linalg.solve(factor, between)
    whitened = np.linalg.solve(factor, half.T)
    variances, vectors = np.linalg.eigh((whitened + whitened.T) / 2)
    return np.linalg.solve(factor.T, vectors), variances.clip(min=_LEAST)
