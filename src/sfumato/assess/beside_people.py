"""Measures beside people: do both rank attacked models alike? (SemSim, Table 1)"""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import torch

from sfumato.assess.agreement import RankCorrelations, rank_correlations, split_half_reliability
from sfumato.assess.pairs import Measure, Pair, Pairs, measure
from sfumato.data.readers.listing import read_rows, source_of, truth_of
from sfumato.errors import DataError

_EQUAL = 100.0  # dB, of images that are equal


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
    """Read the judged pairs of a CSV of `sfumato annotate export`, and the numbers of more columns.

    Raises:
        DataError: no such file or column, a missing or wrong value, or nothing that anybody judged.
    """
    needed = ("original", "reconstruction", "model", "source", *columns)
    _, rows = read_rows(path, columns=needed, of="judged pair")
    rows = [(line, row) for line, row in rows if row.get("recognised")]
    if not rows:
        raise DataError(f"{path}: no row has a value of 'recognised': let people answer, and export it again")
    judged, numbers = [], []
    for line, row in rows:
        original, other = (Path(path).parent / row[each] for each in ("original", "reconstruction"))
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
    """Measure all pairs: measure -> values, turned so that they rise as images are more alike.

    Raises:
        DataError: an image cannot be read, or as `pairs.measure` does.
    """
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

    Raises:
        DataError: a data set with fewer than 3 models.
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
