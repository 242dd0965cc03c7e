"""Distinguishers of neighbours: scores of a release, fitted to trials."""

from dataclasses import dataclass

import torch
from torch import Tensor

# How many coordinates of a release to keep: under the changed pixels, elsewhere, correlated with those.
_UNDER, _ELSEWHERE, _CORRELATED, _LEADS = 32, 16, 16, 8
_BINS = 16  # of a coordinate's histogram, of about equal mass
_RIDGE = 1e-3  # added to the variances of standardised coordinates


@dataclass(frozen=True)
class Distinguisher:
    """A sum over coordinates of a function of the value there: higher under x', if it is right."""

    words: str
    coordinates: Tensor  # (K,) from 0 to 3 D - 1
    table: Tensor  # (K, 256) float64
    alone: bool  # whether it reads the release alone

    def scores(self, seen: Tensor) -> Tensor:
        """The values at the coordinates -> scores. (T, K) uint8 -> (T,)."""
        total = torch.zeros(len(seen), dtype=torch.float64)
        for values, column in zip(self.table, seen.T, strict=True):
            total += values[column.int()]
        return total


def choose_coordinates(labels: Tensor, seen: Tensor, changed: Tensor) -> Tensor:
    """Chooses the useful coordinates: (T,) labels, (T, 3 D) values, (D,) bool changed -> (K,) sorted.

    From the release: those that show the changed pixels, and others whose means or variances differ most.
    From the release and the grey releases: those whose noise is most correlated with the noise of the first
    ones; from the grey releases also the same coordinates.
    """
    z = seen.float()
    for side in (labels, ~labels):
        z[side] -= z[side].mean(0)
    values = seen[:, : len(changed)].float()
    values = (values - values.mean(0)) / values.std(0).clamp(min=1e-9)
    differences = torch.stack(
        [
            (m[labels].mean(0) - m[~labels].mean(0)).abs() / m.std(0).clamp(min=1e-9)
            for m in (values, values**2)
        ]
    ).amax(0)  # (D,)
    # The 1 puts a changed coordinate that shows no difference before the rest.
    under = torch.where(changed, differences + 1, 0).argsort(descending=True)[:_UNDER]
    under = under[changed[under]]
    differences[under] = -1
    chosen = torch.cat((under, differences.argsort(descending=True)[:_ELSEWHERE]))
    z /= z.norm(dim=0).clamp(min=1e-9)
    correlations = (z[:, chosen[:_LEADS]].T @ z).abs().amax(0)  # (3 D,)
    correlations[chosen] = -1
    correlated = [
        view * len(changed) + part.argsort(descending=True)[:_CORRELATED]
        for view, part in enumerate(correlations.split(len(changed)))
    ]
    same = [view * len(changed) + chosen[:_LEADS] for view in (1, 2)]
    coordinates: Tensor = torch.cat((chosen, *correlated, *same)).unique()
    return coordinates


def fit_distinguishers(
    labels: Tensor, seen: Tensor, coordinates: Tensor, length: int
) -> list[tuple[Tensor, Distinguisher]]:
    """Distinguishers fitted to (T,) labels and (T, K) values, each with the columns it uses, (K,) bool."""
    view = coordinates // length
    ratio, linear = "likelihood ratio", "linear distinguisher"
    fitted = []
    for words, used, table in (
        (ratio, view == 0, _likelihood_ratio),
        (linear, view == 0, _linear),
        (f"{linear} that sees the next image of the batch", view != 2, _linear),
        (f"{linear} that sees another call", view != 1, _linear),
    ):
        alone = bool((view[used] == 0).all())
        fitted.append((used, Distinguisher(words, coordinates[used], table(labels, seen[:, used]), alone)))
    return fitted


def _likelihood_ratio(labels: Tensor, seen: Tensor) -> Tensor:
    """ln of the ratio of the two histograms of each coordinate, as if they were independent. -> (K, 256).

    Values are merged to about _BINS of equal mass. A coordinate's ratios shrink by the share of their
    divergence that chance alone would give (James & Stein 1961), so many idle coordinates do no harm.
    """
    K = seen.shape[1]
    cells = seen.int() + 256 * torch.arange(K, dtype=torch.int32)
    counts = torch.stack(
        [cells[side].flatten().bincount(minlength=256 * K).view(K, 256) for side in (~labels, labels)]
    ).double()  # (2, K, 256)
    pooled = counts.sum(0)
    middle = pooled.cumsum(1) - pooled / 2
    bins = (middle * (_BINS / len(seen))).long().clamp(max=_BINS - 1)  # (K, 256)
    masses = torch.zeros(2, K, _BINS, dtype=torch.float64).scatter_add_(2, bins.expand(2, -1, -1), counts)
    used = masses.sum(0) > 0
    chances = (masses + 0.5 * used) / (masses + 0.5 * used).sum(2, keepdim=True)
    ratios = torch.where(used, chances[1].log() - chances[0].log(), 0.0)
    divergences = ((chances[1] - chances[0]) * ratios).sum(1)
    chance = (used.sum(1) - 1) * sum(1 / max(1, int(side.sum())) for side in (labels, ~labels))
    weights = (1 - chance / divergences.clamp(min=1e-12)).clamp(min=0)
    return weights[:, None] * ratios.gather(1, bins)


def _linear(labels: Tensor, seen: Tensor) -> Tensor:
    """Fisher's linear discriminant, in the scale of a likelihood ratio. -> (K, 256)."""
    values = seen.double()
    scale = values.std(0).clamp(min=1e-9)
    z = values / scale
    means = torch.stack([z[side].mean(0) for side in (~labels, labels)])  # (2, K)
    z -= means[labels.long()]
    covariance = z.T @ z / len(z) + _RIDGE * torch.eye(z.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(covariance, means[1] - means[0])
    levels = torch.arange(256, dtype=torch.float64) / scale[:, None]  # (K, 256)
    table: Tensor = weights[:, None] * (levels - means.mean(0)[:, None])
    return table


def separation(labels: Tensor, scores: Tensor) -> float:
    """The difference of the means in standard deviations: with few trials, it ranks better than any bound."""
    low, high = scores[~labels], scores[labels]
    return ((high.mean() - low.mean()) / ((low.var() + high.var()) / 2).sqrt().clamp(min=1e-9)).item()
