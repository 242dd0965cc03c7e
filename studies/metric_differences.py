"""Metrics beside each other, over the same models: SemSim (docs/papers.md, "SemSim"), Fig. 3, and differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.assess.agreement import RESAMPLES, Correlation, correlate, draw_resamples, find_ends, order_pairs
from sfumato.errors import DataError


@dataclass(frozen=True)
class MetricMatrix:
    """Kendall's tau-b of every metric with every other, over the same models (Fig. 3).

    Attributes:
        names: of the M metrics.
        kendall: (M, M) float64.
    """

    names: tuple[str, ...]
    kendall: Tensor


@dataclass(frozen=True)
class Ranked:
    """The models of one data set, with two metrics that rise with recognition, and people's judgement.

    Attributes:
        scores, others: (n,) of the metrics.
        people: (n,) the share of its reconstructions that people recognise.
    """

    scores: Sequence[float] | Tensor
    others: Sequence[float] | Tensor
    people: Sequence[float] | Tensor


def mean_difference(sets: Sequence[Ranked], *, generator: torch.Generator) -> Correlation:
    """Compare two metrics: the mean difference of their Kendall's tau-b, over one or more data sets.

    The models of each data set are resampled separately (a stratified bootstrap), the same for both metrics,
    so that models hard for both cancel. The interval is over models: the data sets are fixed. Two separate
    intervals that overlap do not show that metrics are equal.

    Args:
        sets: one or more data sets.
        generator: draws the models of the 10,000 resamples of each.

    Raises:
        DataError: no data set, or as in rank_correlations.
    """
    if not sets:
        raise DataError("no data set to average over: give the models of one or more")
    values, resampled = zip(
        *(_differences(each.scores, each.others, each.people, generator) for each in sets), strict=True
    )
    return _with_interval(sum(values) / len(values), torch.stack(resampled).mean(0))


def _with_interval(value: float, resampled: Tensor) -> Correlation:
    low, high = find_ends(resampled[resampled.isfinite()])
    return Correlation(value, low.item(), high.item())


def _differences(
    scores: Sequence[float] | Tensor,
    others: Sequence[float] | Tensor,
    people: Sequence[float] | Tensor,
    generator: torch.Generator,
) -> tuple[float, Tensor]:
    """Return the difference of two taus with people, and that of (R,) resamples, NaN without a ranking."""
    orders = [order_pairs(*each) for each in (("scores", scores), ("others", others), ("people", people))]
    if len({len(order) for order in orders}) > 1:
        raise DataError(
            f"{', '.join(str(len(order)) for order in orders)} scores, others and people: give one of "
            "each for every model"
        )
    ours, theirs, judged = orders
    whole = torch.ones(1, len(ours), dtype=torch.float64)

    def taus(times: Tensor) -> Tensor:
        return correlate(ours, judged, times)[1] - correlate(theirs, judged, times)[1]

    return taus(whole).item(), taus(draw_resamples(len(ours), RESAMPLES, generator))


def metric_matrix(scores: Mapping[str, Sequence[float] | Tensor]) -> MetricMatrix:
    """Compare the rankings of n models by several metrics; the sign is kept.

    Args:
        scores: maps a metric to its (n,) scores of the models.

    Raises:
        DataError: as in rank_correlations.
    """
    orders = {name: order_pairs(name, values) for name, values in scores.items()}
    lengths = {name: len(order) for name, order in orders.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"metrics of different models: {lengths}: give one score of each for every model")
    every = torch.stack(list(orders.values())).flatten(1)  # (M, n * n)
    norms = every.norm(dim=1)
    return MetricMatrix(tuple(orders), (every @ every.T) / (norms[:, None] * norms))
