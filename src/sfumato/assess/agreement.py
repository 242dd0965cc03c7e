"""How far metrics agree with people, metrics with each other, and people among themselves.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.2 and 5, Table 1 and Fig. 3. There one number stands for a
model under attack: the mean of a metric over its reconstructions, or the share of these that people
recognise. Models are ranked by both, and the ranks compared.

The paper gives no intervals. They are printed here: with its 14 models, each is about 0.3 to either side.
Beside a correlation with annotators stands how far these agree with themselves: `split_half_reliability`.
"""

import math
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
_SPLITS = 100
_RESAMPLES_OF_A_SPLIT = 1000
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
        DataError: unequal lengths, fewer than 3 models, a score that is not a number, or all scores equal.
    """
    ours, theirs = _orders("scores", scores), _orders("people", people)
    if len(ours) != len(theirs):
        raise DataError(f"{len(ours)} scores and {len(theirs)} of people: give one of each for every model")
    count = len(ours)
    times = _drawn(count, _RESAMPLES, generator)
    values = _correlations(ours, theirs, torch.ones(1, count, dtype=torch.float64))  # (2, 1)
    resampled = _correlations(ours, theirs, times)  # (2, resamples)
    ranked = resampled[:, resampled.isfinite().all(0)]
    ends = _ends(ranked)  # (2 ends, 2)
    spearman, kendall = (
        Correlation(value.item(), low.item(), high.item())
        for value, low, high in zip(values[:, 0], *ends, strict=True)
    )
    return RankCorrelations(spearman, kendall, count, 1 - ranked.shape[1] / _RESAMPLES)


def paired_difference(
    scores: Sequence[float] | Tensor,
    others: Sequence[float] | Tensor,
    people: Sequence[float] | Tensor,
    *,
    generator: torch.Generator,
) -> Correlation:
    """By how much Kendall's tau-b of a metric with people exceeds that of another, over the same n models.

    The interval is of the difference: both are correlated in the same resamples of models, so that what makes
    models hard for both cancels. Two separate intervals that overlap do not say that metrics are alike.

    Args:
        scores, others: (n,) of two metrics, each turned so that it rises with what people recognise.
        people: see rank_correlations.
        generator: draws the models of the 10,000 resamples.

    Raises:
        DataError: as rank_correlations.
    """
    value, resampled = _differences(scores, others, people, generator)
    return _with_interval(value, resampled)


@dataclass(frozen=True)
class Ranked:
    """The models of one data set, ranked by people and by two metrics that rise with what is recognised.

    Attributes:
        scores, others: (n,) of the metrics.
        people: (n,) the share of its reconstructions that people recognise.
    """

    scores: Sequence[float] | Tensor
    others: Sequence[float] | Tensor
    people: Sequence[float] | Tensor


def mean_difference(sets: Sequence[Ranked], *, generator: torch.Generator) -> Correlation:
    """By how much Kendall's tau-b of a metric exceeds that of another, on average over data sets.

    The models of each data set are drawn anew by themselves (a stratified bootstrap), the same ones for both
    metrics; see paired_difference. The interval is over models: data sets are those that are given.

    Args:
        sets: one or more data sets.
        generator: draws the models of the 10,000 resamples of each.

    Raises:
        DataError: no data set, or one as paired_difference refuses it.
    """
    if not sets:
        raise DataError("no data set to average over: give the models of one or more")
    values, resampled = zip(
        *(_differences(each.scores, each.others, each.people, generator) for each in sets), strict=True
    )
    return _with_interval(sum(values) / len(values), torch.stack(resampled).mean(0))


def _with_interval(value: float, resampled: Tensor) -> Correlation:
    low, high = _ends(resampled[resampled.isfinite()])
    return Correlation(value, low.item(), high.item())


def _differences(
    scores: Sequence[float] | Tensor,
    others: Sequence[float] | Tensor,
    people: Sequence[float] | Tensor,
    generator: torch.Generator,
) -> tuple[float, Tensor]:
    """The difference of two taus with people, and that of (R,) resamples, NaN where one ranks nothing."""
    orders = [_orders(*each) for each in (("scores", scores), ("others", others), ("people", people))]
    if len({len(order) for order in orders}) > 1:
        raise DataError(
            f"{', '.join(str(len(order)) for order in orders)} scores, others and people: give one of "
            "each for every model"
        )
    ours, theirs, judged = orders
    whole = torch.ones(1, len(ours), dtype=torch.float64)

    def taus(times: Tensor) -> Tensor:
        return _correlations(ours, judged, times)[1] - _correlations(theirs, judged, times)[1]

    return taus(whole).item(), taus(_drawn(len(ours), _RESAMPLES, generator))


def split_half_reliability(judged: Tensor, *, generator: torch.Generator) -> RankCorrelations:
    """How far the ranking of n models by annotators agrees with that by as many others like them.

    What a model is judged by is cut into two halves at random, and the two rankings are correlated. Half of
    the judgements rank worse than all of them: Spearman (1910) and Brown (1910) say by how much, r of all =
    2 r / (1 + r). Theirs is of product-moment correlations, so also of rho; tau is taken for the r of a
    normal pair that has it, r = sin(pi tau / 2) (Greiner 1909; Kruskal 1958), and back. The mean over 100
    cuts.

    No metric can be expected to agree with annotators more than they do with themselves: the correlation with
    a metric without fault is the square root of this reliability (Spearman 1904).

    Args:
        judged: (n, J) float, what each judgement says of each model, such as 1 for recognised: J judges, or
            J images that all models were shown. Halves are of columns, so they answer for what columns are.
        generator: draws the cuts, and the models of the 1,000 resamples of each.

    Returns:
        Both coefficients for all J, with intervals over models and cuts.

    Raises:
        DataError: fewer than 3 models or 2 columns, no numbers, or halves that rank nothing.
    """
    if judged.ndim != 2 or len(judged) < _LEAST_MODELS or judged.shape[1] < 2:
        raise DataError(
            f"judgements of shape {tuple(judged.shape)}: give (models, judgements) of {_LEAST_MODELS} models "
            "or more, and 2 judgements or more of each"
        )
    if not bool(judged.isfinite().all()):
        raise DataError("judgements that are not finite: leave out columns that are not complete")
    judgements = judged.double()
    models, columns = judgements.shape
    whole = torch.ones(1, models, dtype=torch.float64)
    values, resampled = [], []
    for _ in range(_SPLITS):
        order = torch.randperm(columns, generator=generator)
        halves = [judgements[:, half].mean(1) for half in (order[: columns // 2], order[columns // 2 :])]
        ours, theirs = ((each[:, None] > each).double() - (each[:, None] < each).double() for each in halves)
        values.append(_lengthened(_correlations(ours, theirs, whole)[:, 0]))  # (2,)
        times = _drawn(models, _RESAMPLES_OF_A_SPLIT, generator)
        resampled.append(_lengthened(_correlations(ours, theirs, times)))  # (2, R)
    rho, tau = torch.stack(values).nanmean(0).tolist()
    if math.isnan(rho):
        raise DataError(f"every half of the judgements says the same of all {models} models: none is ranked")
    drawn = torch.cat(resampled, dim=1)
    ranked = drawn[:, drawn.isfinite().all(0)]
    (low, lower), (high, higher) = _ends(ranked).tolist()
    left_out = 1 - ranked.shape[1] / drawn.shape[1]
    return RankCorrelations(Correlation(rho, low, high), Correlation(tau, lower, higher), models, left_out)


def _lengthened(correlations: Tensor) -> Tensor:
    """Spearman-Brown for twice as many judgements. (2, ...) rho and tau -> the same."""
    halves = torch.stack([correlations[0], torch.sin(correlations[1] * math.pi / 2)])
    rho, normal = (2 * halves / (1 + halves)).clamp(-1, 1)
    return torch.stack([rho, torch.asin(normal) * 2 / math.pi])


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


def _drawn(models: int, resamples: int, generator: torch.Generator) -> Tensor:
    """(R, n) float64: how often each model is in each resample."""
    drawn = torch.randint(models, (resamples, models), generator=generator)
    times = torch.zeros(resamples, models, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times))


def _ends(resampled: Tensor) -> Tensor:
    """The 95% interval over the last axis. (..., R) -> (2, ...)."""
    return resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=-1)


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
