"""Agreement of metrics with people, and of people with each other.

Source: SemSim (docs/papers.md, "SemSim"), Sec. 4.2 and 5, Table 1 and Fig. 3. One number stands for a model
under attack: the mean of a metric over its reconstructions, or the share of these that people recognise.
Models are ranked by both, and the ranks compared.

The paper gives no intervals. Here they are given: with its 14 models, each is about 0.3 to either side. A
correlation with annotators should be compared with their self-agreement: `split_half_reliability`.
"""

import math
import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch
from torch import Tensor

from sfumato.assess.pairs import Measure, Pair, Pairs, measure
from sfumato.data.readers.listing import read_rows, source_of, truth_of
from sfumato.errors import DataError

RESAMPLES = 10_000
_SPLITS = 100
_RESAMPLES_OF_A_SPLIT = 1000
_EQUAL = 100.0  # dB, of images that are equal
_LEAST_MODELS = 3  # two are always ranked equally or in reverse


@dataclass(frozen=True)
class Correlation:
    """A rank correlation, and its 95% interval over models: percentiles of the bootstrap (Efron 1979)."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class RankCorrelations:
    """The agreement of two rankings of the same models.

    Attributes:
        spearman: rho, the correlation of the ranks (Spearman 1904); equal scores share their mean rank.
        kendall: tau-b, concordant minus discordant pairs, over those not tied (Kendall 1945).
        models: the number ranked.
        left_out: the share of the resamples without a ranking, since all their models are tied; the intervals
            are over the others.
    """

    spearman: Correlation
    kendall: Correlation
    models: int
    left_out: float

    def __str__(self) -> str:
        return f"Spearman {self.spearman}, Kendall {self.kendall}; {self.models} models"


def rank_correlations(
    scores: Sequence[float] | Tensor, people: Sequence[float] | Tensor, *, generator: torch.Generator
) -> RankCorrelations:
    """Correlate the ranking of n models by a metric with that by people. The sign is kept, as in Table 1.

    Args:
        scores: (n,) one score a model; infinite ones are ranked like others.
        people: (n,) the share of its reconstructions that people recognise.
        generator: draws the models of the 10,000 resamples.
    """
    ours, theirs = order_pairs("scores", scores), order_pairs("people", people)
    if len(ours) != len(theirs):
        raise DataError(f"{len(ours)} scores and {len(theirs)} of people: give one of each for every model")
    count = len(ours)
    times = draw_resamples(count, RESAMPLES, generator)
    values = correlate(ours, theirs, torch.ones(1, count, dtype=torch.float64))  # (2, 1)
    resampled = correlate(ours, theirs, times)  # (2, resamples)
    ranked = resampled[:, resampled.isfinite().all(0)]
    ends = find_ends(ranked)  # (2 ends, 2)
    spearman, kendall = (
        Correlation(value.item(), low.item(), high.item())
        for value, low, high in zip(values[:, 0], *ends, strict=True)
    )
    return RankCorrelations(spearman, kendall, count, 1 - ranked.shape[1] / RESAMPLES)


def split_half_reliability(judged: Tensor, *, generator: torch.Generator) -> RankCorrelations:
    """Estimate how well the ranking of n models by annotators agrees with that by as many other annotators.

    The judgements of a model are split into two random halves, and the two rankings are correlated. Half of
    the judgements rank worse than all: Spearman (1910) and Brown (1910) say by how much, r of all = 2 r / (1
    + r), for product-moment correlations, so also for rho; tau is converted to the r of a normal pair with
    it, r = sin(pi tau / 2) (Greiner 1909; Kruskal 1958), and back. The result is the mean over 100 splits.

    No metric can be expected to agree with annotators more than they do with themselves: the correlation with
    a perfect metric is the square root of this reliability (Spearman 1904).

    Args:
        judged: (n, J) float, each judgement of each model, such as 1 for recognised: by J judges, or on J
            images that all models were shown. Halves are of columns, so that they represent the columns'
            kind.
        generator: draws the splits, and the models of the 1,000 resamples of each.

    Returns:
        both coefficients for all J, with intervals over models and splits.
    """
    if judged.ndim != 2 or len(judged) < _LEAST_MODELS or judged.shape[1] < 2:
        raise DataError(
            f"judgements of shape {tuple(judged.shape)}: give (models, judgements) of {_LEAST_MODELS} models "
            "or more, and 2 judgements or more of each"
        )
    if not bool(judged.isfinite().all()):
        raise DataError("judgements are not finite: leave out incomplete columns")
    judgements = judged.double()
    models, columns = judgements.shape
    whole = torch.ones(1, models, dtype=torch.float64)
    values, resampled = [], []
    for _ in range(_SPLITS):
        order = torch.randperm(columns, generator=generator)
        halves = [judgements[:, half].mean(1) for half in (order[: columns // 2], order[columns // 2 :])]
        ours, theirs = ((each[:, None] > each).double() - (each[:, None] < each).double() for each in halves)
        values.append(_lengthen(correlate(ours, theirs, whole)[:, 0]))  # (2,)
        times = draw_resamples(models, _RESAMPLES_OF_A_SPLIT, generator)
        resampled.append(_lengthen(correlate(ours, theirs, times)))  # (2, R)
    rho, tau = torch.stack(values).nanmean(0).tolist()
    if math.isnan(rho):
        raise DataError(f"every half of the judgements is the same for all {models} models: none is ranked")
    drawn = torch.cat(resampled, dim=1)
    ranked = drawn[:, drawn.isfinite().all(0)]
    (low, lower), (high, higher) = find_ends(ranked).tolist()
    left_out = 1 - ranked.shape[1] / drawn.shape[1]
    return RankCorrelations(Correlation(rho, low, high), Correlation(tau, lower, higher), models, left_out)


def _lengthen(correlations: Tensor) -> Tensor:
    """Extrapolate to twice as many judgements by Spearman-Brown. (2, ...) rho and tau -> the same."""
    halves = torch.stack([correlations[0], torch.sin(correlations[1] * math.pi / 2)])
    rho, normal = (2 * halves / (1 + halves)).clamp(-1, 1)
    return torch.stack([rho, torch.asin(normal) * 2 / math.pi])


def krippendorff_alpha(answers: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Measure the agreement of annotators beyond chance: alpha for nominal data.

    Source: Krippendorff 2011, "Computing Krippendorff's Alpha-Reliability", Sec. C: any number of annotators,
    answers may be missing.

    Args:
        answers: items, each with the answer of every annotator, or None.

    Returns:
        1 if all agree, 0 if they agree as often as by chance, below 0 if less. None if undefined: no item has
        two answers, or all answers are the same, so that chance would agree as well.
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


def majority(answers: Sequence[str]) -> str | None:
    """Return the answer of more than half to an item; None for a tie, or without answers."""
    most = Counter(answers).most_common(1)
    return most[0][0] if most and 2 * most[0][1] > len(answers) else None


def _unequal_pairs(counts: Counter[Hashable]) -> int:
    return counts.total() ** 2 - sum(count**2 for count in counts.values())


def order_pairs(name: str, values: Sequence[float] | Tensor) -> Tensor:
    """Compare scores: (n, n) float64, 1 if the row's model is above the column's, -1 if below, else 0."""
    scores = torch.as_tensor(values, dtype=torch.float64)
    if scores.ndim != 1 or len(scores) < _LEAST_MODELS:
        raise DataError(
            f"{name}: {tuple(scores.shape)} scores: a ranking needs those of {_LEAST_MODELS} models or more"
        )
    if scores.isnan().any():
        at = int(scores.isnan().nonzero()[0])
        raise DataError(f"{name}: the score of model {at} is not a number: leave the model out everywhere")
    # Not the sign of a difference: that of two infinite scores is not a number.
    orders = (scores[:, None] > scores).double() - (scores[:, None] < scores).double()
    if not orders.any():
        raise DataError(f"{name}: all {len(scores)} models score {scores[0]:g}, which ranks none of them")
    return orders


def draw_resamples(models: int, resamples: int, generator: torch.Generator) -> Tensor:
    """Draw resamples: (R, n) float64 counts of each model in each."""
    drawn = torch.randint(models, (resamples, models), generator=generator)
    times = torch.zeros(resamples, models, dtype=torch.float64)
    return times.scatter_add_(1, drawn, torch.ones_like(times))


def find_ends(resampled: Tensor) -> Tensor:
    """Return the 95% interval over the last axis. (..., R) -> (2, ...)."""
    return resampled.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=-1)


def correlate(ours: Tensor, theirs: Tensor, times: Tensor) -> Tensor:
    """Compute Spearman's rho and Kendall's tau-b of resamples. -> (2, R), NaN if one side is all tied.

    A mean rank is (1 + n + those below - those above) / 2: row sums of `order_pairs` are doubled ranks.

    Args:
        ours, theirs: (n, n), see order_pairs.
        times: (R, n) counts of each model in each resample.
    """

    def product(one: Tensor, other: Tensor) -> Tensor:
        """Sum over the models of a resample. (R, n), (R, n) -> (R,)."""
        return (times * one * other).sum(1)

    def pairs(orders: Tensor) -> Tensor:
        """Sum over the pairs of models of a resample. (n, n) -> (R,)."""
        return ((times @ orders) * times).sum(1)

    our_ranks, their_ranks = times @ ours.T, times @ theirs.T  # (R, n)
    rho = (
        product(our_ranks, their_ranks)
        / (product(our_ranks, our_ranks) * product(their_ranks, their_ranks)).sqrt()
    )
    tau = pairs(ours * theirs) / (pairs(ours.square()) * pairs(theirs.square())).sqrt()
    return torch.stack([rho, tau])


@dataclass(frozen=True)
class Judged(Pair):
    """A pair that people judged: its data set, the attacked model, and whether most recognised it."""

    source: str
    model: str
    recognised: bool


@dataclass(frozen=True)
class Ranking:
    """The models of one data set, ranked by people and by measures.

    Attributes:
        recognised: model -> the share of its pairs that people recognise.
        pairs: of all models.
        measures: measure -> its correlations with people, 1 for the same order; None if either has no order.
        reliability: of the order by people, see split_half_reliability; None if there is none.
    """

    recognised: dict[str, float]
    pairs: int
    measures: dict[str, RankCorrelations | None]
    reliability: RankCorrelations | None


def read(path: str | os.PathLike[str], columns: Sequence[str] = ()) -> tuple[list[Judged], list[list[float]]]:
    """Read the judged pairs of a CSV of `sfumato annotate export`, and the numbers of more columns."""
    needed = ("original", "reconstruction", "model", "source", *columns)
    _, rows = read_rows(path, columns=needed, of="judged pair")
    rows = [(line, row) for line, row in rows if row.get("recognised")]
    if not rows:
        raise DataError(f"{path}: no row has a value of 'recognised': let people answer, and export it again")
    judged, numbers = [], []
    for line, row in rows:
        original, other = (str(Path(path).parent / row[each]) for each in ("original", "reconstruction"))
        said = truth_of(line, row)
        judged.append(Judged("", original, other, source_of(row), row["model"], said))
        for column in columns:
            try:
                numbers.append(float(row[column]))
            except ValueError:
                raise DataError(f"{line}: {column}={row[column]!r}: write a number") from None
    return judged, [numbers[at :: len(columns)] for at in range(len(columns))]


def scores(
    judged: Sequence[Judged], measures: Sequence[Measure], *, resize: bool = False
) -> dict[str, list[float]]:
    """Measure all pairs: measure -> values, turned so that they rise as images are more alike."""
    found = measure(Pairs(judged), measures, resize=resize)
    if found.failures:
        raise DataError(found.failures[0])
    values = {each.name: each.alike * found.values[each.name] for each in measures}
    return {name: of.clamp(max=_EQUAL).tolist() for name, of in values.items()}


def rank(
    judged: Sequence[Judged], scores: Mapping[str, Sequence[float]], *, seed: int = 0
) -> dict[str, Ranking]:
    """Compare measures with people: data set -> rankings of its models.

    For the reliability as many pairs of each model count as that with fewest has, in the order of originals.

    Args:
        judged: at least 3 models of each data set.
        scores: measure -> a number for each pair, higher for what people should recognise; a measure with a
            NaN is left out of the data set.
        seed: draws the intervals, and the halves of the judgements.
    """
    return {
        source: _rank(source, judged, scores, seed) for source in sorted({each.source for each in judged})
    }


def _rank(source: str, judged: Sequence[Judged], scores: Mapping[str, Sequence[float]], seed: int) -> Ranking:
    of: dict[str, list[int]] = {}
    for row in sorted(range(len(judged)), key=lambda row: judged[row].original):
        if judged[row].source == source:
            of.setdefault(judged[row].model, []).append(row)
    if len(of) < 3:
        raise DataError(f"{source}: its models are {', '.join(of)}: a ranking needs 3 or more")

    def means(values: Sequence[float]) -> list[float]:
        return [mean(values[row] for row in rows) for rows in of.values()]

    def draws() -> torch.Generator:
        return torch.Generator().manual_seed(seed)

    def correlate(ours: list[float]) -> RankCorrelations | None:
        alike = len(set(ours)) == 1 or len(set(people)) == 1
        return None if alike else rank_correlations(ours, people, generator=draws())

    said = [float(each.recognised) for each in judged]
    people = means(said)
    ranked = {name: means(values) for name, values in scores.items()}
    least = min(map(len, of.values()))
    try:
        halved = torch.tensor([[said[row] for row in rows[:least]] for rows in of.values()])
        reliability = split_half_reliability(halved, generator=draws())
    except DataError:  # one pair of a model, or halves without an order
        reliability = None
    return Ranking(
        dict(zip(of, people, strict=True)),
        sum(map(len, of.values())),
        {name: correlate(ours) for name, ours in ranked.items() if not any(map(math.isnan, ours))},
        reliability,
    )
