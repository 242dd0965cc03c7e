"""How far metrics agree with people, metrics with each other, and people among themselves.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.2 and 5, Table 1 and Fig. 3. There one number stands for a
model under attack: the mean of a metric over its reconstructions, or the share of these that people
recognise. Models are ranked by both, and the ranks compared.

The paper gives no intervals. They are printed here: with its 14 models, each is about 0.3 to either side.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import torch
from torch import Tensor

from sfumato.errors import ConfigError, DataError, did_you_mean

LEAKAGE_SIGNS: Mapping[str, int] = {"psnr": 1, "ssim": 1, "mse": -1, "lpips": -1, "fid": -1, "semsim": -1}
"""Metric -> 1 where it rises as more leaks, -1 where it falls."""

NO_MAJORITY: Final = None

_RESAMPLES = 10_000
_LEAST_MODELS = 3  # two are always ranked alike or the other way round

_Answer = TypeVar("_Answer", bound=Hashable)


@dataclass(frozen=True)
class Correlation:
    """A rank correlation, from -1 to 1.

    Attributes:
        value: the correlation.
        low, high: its 95% interval over models: percentiles of the bootstrap (Efron 1979).
    """

    value: float
    low: float
    high: float

    def __neg__(self) -> "Correlation":
        return Correlation(-self.value, -self.high, -self.low)

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class RankCorrelations:
    """How far two rankings of the same models agree.

    Attributes:
        spearman: rho, the correlation of the ranks (Spearman 1904), equal scores sharing their mean rank.
        kendall: tau-b, pairs in the same order less pairs in the other, over those not tied (Kendall 1945).
        models: how many were ranked.
        left_out: the share of the resamples that rank nothing, since all models drawn are tied; the
            intervals are over the others.
    """

    spearman: Correlation
    kendall: Correlation
    models: int
    left_out: float

    def __str__(self) -> str:
        return f"Spearman {self.spearman}, Kendall {self.kendall}; {self.models} models"


@dataclass(frozen=True)
class MetricMatrix:
    """Kendall's tau-b of every metric with every other, over the same models (Fig. 3).

    Attributes:
        names: of the M metrics.
        kendall: (M, M) float64.
    """

    names: tuple[str, ...]
    kendall: Tensor


def rank_correlations(
    scores: Sequence[float] | Tensor, people: Sequence[float] | Tensor, *, generator: torch.Generator
) -> RankCorrelations:
    """Correlate the ranking of n models by a metric with that by people. The sign is kept, as in Table 1.

    Args:
        scores: (n,) one score a model; infinite ones have a rank as any other.
        people: (n,) the share of its reconstructions that people recognise.
        generator: draws the models of the 10,000 resamples.

    Raises:
        DataError: unequal lengths, fewer than 3 models, a score that is no number, or all scores equal.
    """
    ours, theirs = _orders("scores", scores), _orders("people", people)
    if len(ours) != len(theirs):
        raise DataError(f"{len(ours)} scores and {len(theirs)} of people: give one of each for every model")
    count = len(ours)
    drawn = torch.randint(count, (_RESAMPLES, count), generator=generator)
    times = torch.zeros(_RESAMPLES, count, dtype=torch.float64)
    times.scatter_add_(1, drawn, torch.ones_like(times))  # how often each model is in a resample
    values = _correlations(ours, theirs, torch.ones(1, count, dtype=torch.float64))  # (2, 1)
    resampled = _correlations(ours, theirs, times)  # (2, resamples)
    ranked = resampled[:, resampled.isfinite().all(0)]
    ends = ranked.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=1)  # (2 ends, 2)
    spearman, kendall = (
        Correlation(value.item(), low.item(), high.item())
        for value, low, high in zip(values[:, 0], *ends, strict=True)
    )
    return RankCorrelations(spearman, kendall, count, 1 - ranked.shape[1] / _RESAMPLES)


def agreement(metric: str, correlations: RankCorrelations) -> RankCorrelations:
    """The correlations turned so that 1 is full agreement with people: those of a distance change sign.

    Raises:
        ConfigError: no such metric in LEAKAGE_SIGNS.
    """
    if metric not in LEAKAGE_SIGNS:
        raise ConfigError(f"no metric is called {metric!r}: {did_you_mean(metric, LEAKAGE_SIGNS)}")
    if LEAKAGE_SIGNS[metric] > 0:
        return correlations
    return replace(correlations, spearman=-correlations.spearman, kendall=-correlations.kendall)


def metric_matrix(scores: Mapping[str, Sequence[float] | Tensor]) -> MetricMatrix:
    """Compare the rankings of n models by several metrics; the sign is kept.

    Args:
        scores: metric -> (n,) its score of each model.

    Raises:
        DataError: as rank_correlations.
    """
    orders = {name: _orders(name, values) for name, values in scores.items()}
    lengths = {name: len(order) for name, order in orders.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"metrics of different models: {lengths}: give one score of each for every model")
    every = torch.stack(list(orders.values())).flatten(1)  # (M, n * n)
    norms = every.norm(dim=1)
    return MetricMatrix(tuple(orders), (every @ every.T) / (norms[:, None] * norms))


def krippendorff_alpha(answers: Sequence[Sequence[Hashable | None]]) -> float | None:
    """How far annotators agree beyond chance: alpha for nominal data.

    Source: Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", Sec. C: any number of annotators,
    answers may be missing.

    Args:
        answers: items, each with the answer of every annotator; None where there is none.

    Returns:
        1 where all agree, 0 where they agree as often as by chance, below where less. None where nothing can
        be said: no item has two answers, or all answers are the same, so that chance would agree as well.
    """
    every: Counter[Hashable] = Counter()
    disagreement = 0.0
    for item in answers:
        given = Counter(answer for answer in item if answer is not None)
        if given.total() > 1:
            every += given
            disagreement += _unequal_pairs(given) / (given.total() - 1)
    by_chance = _unequal_pairs(every)
    return 1 - disagreement * (every.total() - 1) / by_chance if by_chance else None


def majority(answers: Sequence[Sequence[_Answer | None]]) -> list[_Answer | None]:
    """What more than half of those who answered say of each item; NO_MAJORITY at a tie, or without answers.

    Args:
        answers: as for krippendorff_alpha.
    """
    found: list[_Answer | None] = []
    for item in answers:
        given = Counter(answer for answer in item if answer is not None)
        most = given.most_common(1)
        found.append(most[0][0] if most and 2 * most[0][1] > given.total() else NO_MAJORITY)
    return found


def _unequal_pairs(counts: Counter[Hashable]) -> int:
    """Ordered pairs of answers that differ."""
    return counts.total() ** 2 - sum(count**2 for count in counts.values())


def _orders(name: str, values: Sequence[float] | Tensor) -> Tensor:
    """(n, n) float64: 1 where a row's model scores above that of the column, -1 where below, else 0."""
    scores = torch.as_tensor(values, dtype=torch.float64)
    if scores.ndim != 1 or len(scores) < _LEAST_MODELS:
        raise DataError(
            f"{name}: {tuple(scores.shape)} scores: a ranking needs those of {_LEAST_MODELS} models or more"
        )
    if scores.isnan().any():
        at = int(scores.isnan().nonzero()[0])
        raise DataError(f"{name}: the score of model {at} is not a number: leave the model out everywhere")
    # Not the sign of a difference: that of two infinite scores is no number.
    orders = (scores[:, None] > scores).double() - (scores[:, None] < scores).double()
    if not orders.any():
        raise DataError(f"{name}: all {len(scores)} models score {scores[0]:g}, which ranks none of them")
    return orders


def _correlations(ours: Tensor, theirs: Tensor, times: Tensor) -> Tensor:
    """Spearman's rho and Kendall's tau-b of resamples. -> (2, R), NaN where one side is all tied.

    A mean rank is (1 + n + those below - those above) / 2: the sums of the rows of `_orders` are the ranks,
    doubled and about their mean.

    Args:
        ours, theirs: (n, n), see _orders.
        times: (R, n) how often each model is in each resample.
    """

    def product(one: Tensor, other: Tensor) -> Tensor:
        """The sum over models in a resample. (R, n), (R, n) -> (R,)."""
        return (times * one * other).sum(1)

    def pairs(orders: Tensor) -> Tensor:
        """The sum over pairs of models in a resample. (n, n) -> (R,)."""
        return ((times @ orders) * times).sum(1)

    our_ranks, their_ranks = times @ ours.T, times @ theirs.T  # (R, n)
    rho = (
        product(our_ranks, their_ranks)
        / (product(our_ranks, our_ranks) * product(their_ranks, their_ranks)).sqrt()
    )
    tau = pairs(ours * theirs) / (pairs(ours.square()) * pairs(theirs.square())).sqrt()
    return torch.stack([rho, tau])
