"""The results of a campaign: recognised reconstructions, by attacked model, and the agreement of annotators.

Source: the SemSim paper (docs/papers.md, "SemSim"), Sec. 4.1: "binary labels, i.e., whether a reconstructed
image is recognizable, are obtained via majority voting". The paper does not define ties. Here a
reconstruction is recognised if MORE THAN HALF of the answers are right: a tie, mostly "cannot tell", or votes
scattered over classes do not count as recognised.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sfumato.annotate.campaign import DIFFERENT, THE_SAME
from sfumato.annotate.folder import Campaign
from sfumato.assess.agreement import krippendorff_alpha, majority
from sfumato.base.files import whole, write_rows
from sfumato.errors import ConfigError, needs_extra

TABLES = ("results", "semsim", "answers")


@dataclass(frozen=True)
class Result:
    """The result of one item, by people or proxies. The fields are the columns of the table of results.

    Attributes:
        answers: the number of answers that count.
        right: the number of right ones; for a decoy, "different".
        majority: the answer of more than half, or "no majority"; empty without answers.
        recognised: whether the majority is the right answer; None without answers, and for a decoy, which is
            never a leak.
        annotators: "people" or "proxy".
    """

    item: int
    original: str
    reconstruction: str
    true_class: str
    model: str
    source: str
    decoy: bool
    answers: int
    right: int
    majority: str
    recognised: bool | None
    annotators: str


@dataclass(frozen=True)
class Reliability:
    """How many items an annotator answered, and how many decoys they called "different" (right) or "same"."""

    annotator: str
    answered: int
    items: int
    right: int
    wrong: int


def results(campaign: Campaign, *, folder: str | os.PathLike[str] = ".") -> list[Result]:
    """Compute the result of each item, from the answers that it has; its files are named from `folder`."""
    kind = campaign.kind
    given: dict[int, list[str]] = defaultdict(list)
    for mine in campaign.answers().values():
        for number, one in mine.items():
            given[number].append(one.answer)
    made = []
    for number, item in campaign.items.items():
        answers, pair = given[number], item.pair
        most = majority(answers)
        made.append(
            Result(
                item=number,
                original=os.path.relpath(pair.original, folder),
                reconstruction=os.path.relpath(pair.reconstruction, folder),
                true_class=pair.true_class,
                model=pair.model,
                source=pair.source,
                decoy=item.decoy,
                answers=len(answers),
                right=answers.count(item.right),
                majority=(most or "no majority") if answers else "",
                recognised=None if item.decoy or not answers else most == item.right,
                annotators=kind,
            )
        )
    return made


def shares(made: Sequence[Result]) -> dict[str, tuple[int, int]]:
    """Count each model's recognised reconstructions, and those with an answer, without decoys."""
    judged = [one for one in made if one.recognised is not None]
    recognised = Counter(one.model for one in judged if one.recognised)
    counts = Counter(one.model for one in judged)
    return {model: (recognised[model], counts[model]) for model in sorted(counts)}


def reliability(campaign: Campaign) -> list[Reliability]:
    """Count each annotator's answers to the decoys."""
    made = []
    for name, mine in campaign.answers().items():
        said = Counter(one.answer for number, one in mine.items() if campaign.items[number].decoy)
        made.append(Reliability(name, len(mine), len(campaign.items), said[DIFFERENT], said[THE_SAME]))
    return made


def doubts(campaign: Campaign) -> list[str]:
    """Write a sentence for each annotator who fails the decoys, and whose answers still count."""
    return [
        f"{one.annotator} calls {one.wrong} of {one.right + one.wrong} decoys the same, which show something "
        "else: their answers still count in every table. The table of answers lists them by name"
        for one in reliability(campaign)
        if one.right <= one.wrong > 0
    ]


def agreement(campaign: Campaign) -> float | None:
    """Compute Krippendorff's alpha of the answers, see `krippendorff_alpha`; None if undefined.

    "Cannot tell" is an answer like others; decoys do not count.
    """
    columns = list(campaign.answers().values())
    asked = [number for number, item in campaign.items.items() if not item.decoy]
    return krippendorff_alpha(
        [[column[number].answer if number in column else None for column in columns] for number in asked]
    )


def export(campaign: Campaign, table: str, path: str | os.PathLike[str]) -> int:
    """Write a table as CSV, or as Parquet for the suffix .parquet. Returns the number of rows.

    File names are relative to the table's folder, so that they contain none of the folders above the images.

    Tables: "results", a row for each item; "semsim", the input of `sfumato.learn.semsim`: items with an
    answer, but decoys; "answers", every answer that counts. The file appears whole or not at all.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"{path}: a table is written as .csv or .parquet: choose one of these suffixes")
    rows: list[list[object]]
    match table:
        case "results" | "semsim":
            header = [name if name != "true_class" else "class" for name in Result.__dataclass_fields__]
            made = results(campaign, folder=path.absolute().parent)
            if table == "semsim":
                header = ["original", "reconstruction", "recognised", "model", "source", "annotators"]
                made = [one for one in made if one.recognised is not None]
            rows = [
                [getattr(one, {"class": "true_class"}.get(name, name)) for name in header] for one in made
            ]
        case "answers":
            header = ["time", "annotator", "item", "decoy", "answer", "right", "annotators"]
            rows = [
                [
                    _word(one.time),
                    name,
                    number,
                    item.decoy,
                    one.answer,
                    one.answer == item.right,
                    campaign.kind,
                ]
                for name, mine in campaign.answers().items()
                for number, one in mine.items()
                for item in [campaign.items[number]]
            ]
        case _:
            raise ConfigError(f"no table is called {table!r}: {', '.join(TABLES)}")
    if path.suffix == ".parquet":
        with needs_extra("a Parquet file", "parquet"):
            import pyarrow
            from pyarrow import parquet
        columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
        with whole(path) as temporary:
            parquet.write_table(pyarrow.table(columns), temporary)
    else:
        plain = [[str(value).lower() if isinstance(value, bool) else value for value in row] for row in rows]
        with whole(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            write_rows(file, [header, *plain], end="\n")
    return len(rows)


def _word(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")
