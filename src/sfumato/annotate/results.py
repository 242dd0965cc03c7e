"""The results of a campaign: recognised reconstructions, by attacked model, and the agreement of annotators.

Source: the SemSim paper (docs/papers.md, "SemSim"), Sec. 4.1: "binary labels, i.e., whether a reconstructed
image is recognizable, are obtained via majority voting". The paper does not define ties. Here a
reconstruction is recognised if MORE THAN HALF of the answers are right: a tie, mostly "cannot tell", or votes
scattered over classes do not count as recognised.
"""

import io
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from sfumato.annotate.campaign import DIFFERENT, THE_SAME
from sfumato.annotate.store import Store
from sfumato.assess.agreement import krippendorff_alpha, majority
from sfumato.base.files import whole, write_rows
from sfumato.base.proportions import wilson
from sfumato.errors import ConfigError, needs_extra

NO_MAJORITY = "no majority"
_COIN = 0.5

TABLES = ("results", "semsim", "answers")


@dataclass(frozen=True)
class Result:
    """The result of one item, by people or proxies. The fields are the columns of the table of results.

    Attributes:
        item: its number.
        original: image file.
        reconstruction: image file; for a decoy, that of another original.
        true_class: the content of the original.
        model: the attacked model.
        source: the data set.
        decoy: whether original and reconstruction do not belong together.
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
class Share:
    """The share of one model's reconstructions that was recognised, with its 95% interval (Wilson 1927)."""

    model: str
    recognised: int
    items: int
    low: float
    high: float

    def __str__(self) -> str:
        share, low, high = (100 * each for each in (self.recognised / self.items, self.low, self.high))
        return f"{share:.1f}% ({low:.1f} to {high:.1f}; {self.recognised:,} of {self.items:,})"


@dataclass(frozen=True)
class Reliability:
    """One annotator's answers to the decoys, which nobody can recognise.

    Attributes:
        annotator: their name.
        answered: items, decoys among them.
        items: of the campaign.
        right: decoys called "different".
        wrong: decoys called "same".
    """

    annotator: str
    answered: int
    items: int
    right: int
    wrong: int

    @property
    def share(self) -> float | None:
        """The share of right answers other than "cannot tell", which is honest; None without any."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else None

    @property
    def doubtful(self) -> bool:
        """Whether their decoys are no better than a coin toss: then their other answers mean little."""
        return self.share is not None and self.share <= _COIN


def results(store: Store) -> list[Result]:
    """Compute the result of each item, from the answers that it has."""
    kind = store.kind
    given: dict[int, list[str]] = defaultdict(list)
    for mine in store.answers().values():
        for number, answer in mine.items():
            given[number].append(answer)
    found = []
    for number, item in store.items().items():
        answers, pair = given[number], item.pair
        (most,) = majority([answers])
        found.append(
            Result(
                item=number,
                original=os.fspath(pair.original),
                reconstruction=os.fspath(pair.reconstruction),
                true_class=pair.true_class,
                model=pair.model,
                source=pair.source,
                decoy=item.decoy,
                answers=len(answers),
                right=answers.count(item.right),
                majority=(most or NO_MAJORITY) if answers else "",
                recognised=None if item.decoy or not answers else most == item.right,
                annotators=kind,
            )
        )
    return found


def shares(found: Sequence[Result]) -> list[Share]:
    """Compute each model's share of recognised reconstructions, sorted by name, without decoys."""
    recognised: dict[str, list[bool]] = defaultdict(list)
    for one in found:
        if one.recognised is not None:
            recognised[one.model].append(one.recognised)
    return [
        Share(model, sum(each), len(each), *wilson(sum(each), len(each)))
        for model, each in sorted(recognised.items())
    ]


def reliability(store: Store) -> list[Reliability]:
    """Count each annotator's answers to the decoys."""
    asked = store.items()
    found = []
    answers = store.answers()
    for one in store.annotators():
        mine = answers[one.id]
        said = Counter(answer for number, answer in mine.items() if asked[number].decoy)
        found.append(Reliability(one.name, len(mine), len(asked), said[DIFFERENT], said[THE_SAME]))
    return found


def doubts(store: Store) -> list[str]:
    """Write a sentence for each annotator who fails the decoys and whose answers still count."""
    return [
        f"{one.annotator} calls {one.wrong} of {one.right + one.wrong} decoys the same, which show something "
        "else: their answers still count in every table. The table of answers lists them by name"
        for one in reliability(store)
        if one.doubtful
    ]


def agreement(store: Store) -> float | None:
    """Compute Krippendorff's alpha of the answers, see `krippendorff_alpha`; None if undefined.

    "Cannot tell" is an answer like others; decoys do not count.
    """
    columns = list(store.answers().values())
    return krippendorff_alpha(
        [
            [column.get(number) for column in columns]
            for number, item in store.items().items()
            if not item.decoy
        ]
    )


def export(store: Store, table: str, path: str | os.PathLike[str]) -> int:
    """Write a table as CSV, or as Parquet for the suffix .parquet. Returns the number of rows.

    Args:
        store: the campaign.
        table: "results", one row for each item; "semsim", the input of `sfumato.learn.semsim`; "answers",
            every answer and undo ever given.
        path: the file; it appears whole or not at all.

    Raises:
        ConfigError: no such table, or no such format.
        MissingExtraError: pyarrow is not installed, for Parquet.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"{path}: a table is written as .csv or .parquet: choose one of these suffixes")
    header, rows = columns_of(store, table, folder=path.parent)
    if path.suffix == ".parquet":
        with needs_extra("a Parquet file", "parquet"):
            import pyarrow
            from pyarrow import parquet
        columns = {name: [row[place] for row in rows] for place, name in enumerate(header)}
        with whole(path) as temporary:
            parquet.write_table(pyarrow.table(columns), temporary)
    else:
        with whole(path) as temporary:
            temporary.write_text(to_csv(header, rows), encoding="utf-8", newline="")
    return len(rows)


def columns_of(
    store: Store, table: str, *, folder: str | os.PathLike[str] | None = None
) -> tuple[list[str], list[list[object]]]:
    """Return the header and the rows of a table, see `export`.

    File names are relative to `folder`, the table's own, so that they contain none of the folders above the
    images; None for the common folder of all images.
    """
    match table:
        case "results":
            return _results(store, folder)
        case "semsim":
            return _semsim(store, folder)
        case "answers":
            return _answers(store)
    raise ConfigError(f"no table is called {table!r}: {', '.join(TABLES)}")


def to_csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table as CSV text; bools are true and false, and None is empty."""
    text = io.StringIO()
    plain = [[str(value).lower() if isinstance(value, bool) else value for value in row] for row in rows]
    write_rows(text, [header, *plain], end="\n")
    return text.getvalue()


def _results(store: Store, folder: str | os.PathLike[str] | None) -> tuple[list[str], list[list[object]]]:
    header = [name if name != "true_class" else "class" for name in Result.__dataclass_fields__]
    return header, [list(vars(one).values()) for one in _from(results(store), folder)]


def _semsim(store: Store, folder: str | os.PathLike[str] | None) -> tuple[list[str], list[list[object]]]:
    """Select the items that are not decoys and have an answer."""
    header = ["original", "reconstruction", "recognised", "model", "source", "annotators"]
    return header, [
        [getattr(one, name) for name in header]
        for one in _from(results(store), folder)
        if one.recognised is not None
    ]


def _from(found: list[Result], folder: str | os.PathLike[str] | None) -> list[Result]:
    """Make the files of results relative to a folder; None for their common folder."""
    if not found:
        return []
    files = [file for result in found for file in (result.original, result.reconstruction)]
    start = os.path.commonpath([Path(file).parent for file in files]) if folder is None else folder
    return [
        replace(
            result,
            original=os.path.relpath(result.original, start),
            reconstruction=os.path.relpath(result.reconstruction, start),
        )
        for result in found
    ]


def _answers(store: Store) -> tuple[list[str], list[list[object]]]:
    kind = store.kind
    asked = store.items()
    rows: list[list[object]] = []
    for given in store.history():
        item = asked[given.item]
        when = datetime.fromtimestamp(given.time, UTC).isoformat(timespec="milliseconds")
        action = "undo" if given.answer is None else "answer"
        right = None if given.answer is None else given.answer == item.right
        rows.append([when, given.annotator, given.item, item.decoy, action, given.answer, right, kind])
    return ["time", "annotator", "item", "decoy", "action", "answer", "right", "annotators"], rows
