"""Tables, written as HTML in the page and as CSV in a file; and the full tables of a report."""

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any
from urllib.parse import quote

from sfumato.base.files import write_rows
from sfumato.study.choose.figures import Estimate, percent
from sfumato.study.choose.results import Results
from sfumato.study.hits import Hits, hits_of

Row = dict[str, Any]
MARK = '<span class="mark" aria-hidden="true">▲</span>'  # in a caption
_LONG = 40  # letters; longer text is broken into lines


@dataclass(frozen=True)
class Value:
    """A cell with more than a value.

    Attributes:
        text: its content; a dash for a value that was not measured.
        small: further words, in small letters.
        marked: whether a triangle marks it.
        badges: words that stand out, and their class.
        pictures: the address and the words of each; an address "#..." is of an image in the page.
    """

    text: str = "–"
    small: tuple[str, ...] = ()
    marked: bool = False
    badges: tuple[tuple[str, str], ...] = ()
    pictures: tuple[tuple[str, str], ...] = ()


DASH = Value()


@dataclass(frozen=True)
class Column:
    """A column: heading, small words under it, whether it holds numbers or long text, and its group."""

    heading: str
    small: str = ""
    number: bool = True
    group: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names its setting.

    Attributes:
        name: for readers who hear the page, or of its file without the suffix.
        caption: above the table, in HTML.
        columns: one for each cell of a row.
        rows: values, which a file holds with all of their digits, or `Value`s.
        mark: the words for a triangle, for readers who hear the page.
        style: its class.
        chosen: the setting whose row stands out.
        heads: whether the first cells are settings; otherwise they are words.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    mark: str = ""
    style: str = ""
    chosen: str = ""
    heads: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The headings."""
        return tuple(column.heading for column in self.columns)

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """The columns under each heading of a group, in their order; none if no column has a group."""
        if not any(column.group for column in self.columns):
            return []
        return [(name, list(group)) for name, group in groupby(self.columns[1:], lambda column: column.group)]

    @property
    def csv(self) -> str:
        """As RFC 4180 text; floats keep all of their digits, None is empty."""
        text = io.StringIO()
        write_rows(text, [self.names, *self.rows])
        return text.getvalue()

    @property
    def link(self) -> str:
        """The CSV as a data: URI."""
        return f"data:text/csv;charset=utf-8,{quote(self.csv)}"


def join_tables(made: Iterable[tuple[Mapping[str, Any], Iterable[Table]]]) -> dict[str, Table]:
    """Name -> one table of those of each combination of values, which are its first columns."""
    groups: dict[str, list[tuple[Mapping[str, Any], Table]]] = defaultdict(list)
    for varied, tables in made:
        for table in tables:
            groups[table.name].append((varied, table))
    return {name: _join(group) if group[0][0] else group[0][1] for name, group in groups.items()}


def _join(group: Sequence[tuple[Mapping[str, Any], Table]]) -> Table:
    columns = {column.heading: column for _, table in group for column in table.columns}
    rows = [
        (*varied.values(), *(cells.get(heading) for heading in columns))
        for varied, table in group
        for cells in (dict(zip(table.names, row, strict=True)) for row in table.rows)
    ]
    varied, table = group[0]
    return replace(table, columns=[*map(Column, varied), *columns.values()], rows=rows)


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        name: its id in the page, and the name of its template.
        title: at its head.
        values: for its template, besides the values for all templates, see page.render.
        contents: in the list of contents; "" for the title.
        originals: whether it shows original images.
    """

    name: str
    title: str
    values: Mapping[str, Any]
    contents: str = ""
    originals: bool = False


def settings_table(
    name: str, caption: str, columns: Iterable[Column], rows: Iterable[Sequence[Any]], **more: Any
) -> Table:
    """A table whose rows begin with a setting, which `columns` leave out; `more` of a Table."""
    return Table(f"Table of {name}", caption, [Column("setting", number=False), *columns], [*rows], **more)


def show(value: Any) -> Value:
    """The cell of a value."""
    return value if isinstance(value, Value) else Value(format_value(value))


def show_estimate(estimate: Estimate | None, *more: str, prefix: str = "", marked: bool = False) -> Value:
    """Shows an estimate with its interval and further small words; a dash for None."""
    if estimate is None:
        return DASH
    interval = f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f}"
    return Value(f"{prefix}{percent(estimate.value)}", (interval, *more), marked)


def format_value(value: Any) -> str:
    """A value of a record or a setting, with all of its digits."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_value(part)}" for name, part in value.items())
    return str(value)


# The full tables: number for number


def tables(results: Results) -> list[Table]:
    """The frontier, and the records of every kind but pictures, if there are any."""
    return [table for table in (_frontier(results), *(_of(results, each) for each in _SOURCES)) if table.rows]


@dataclass(frozen=True)
class _Source:
    """How the records of one kind become a table.

    Attributes:
        name, caption: of the table.
        kind: of the records.
        which: the key that distinguishes their cells, besides protection and seed; "" for none.
        columns: in this order, as far as a row has them; columns for other keys follow.
        parts: makes the rows of one result.
    """

    name: str
    caption: str
    kind: str
    which: str
    columns: str
    parts: Callable[[Any], list[Row]]


def _of(results: Results, source: _Source) -> Table:
    order = {spec: number for number, spec in enumerate(results.study["protections"])}
    records = sorted(results.of(source.kind), key=lambda record: order[record.cell.protection])
    rows = [(record, part) for record in records for part in source.parts(record.result)]
    held = {key for _, part in rows for key in part}
    columns = [key for key in source.columns.split() if key in held]
    columns += sorted(held.difference(columns))
    which = ("protection", *filter(None, [source.which]), "seed")
    return _table(
        source.name,
        source.caption,
        (*which, *columns, "seconds"),
        [
            (
                *(getattr(record.cell, key) for key in which),
                *(part.get(key) for key in columns),
                record.seconds,
            )
            for record, part in rows
        ],
    )


def _table(name: str, caption: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """A table whose columns are of numbers or long text by their values."""
    columns = [
        Column(
            heading,
            number=any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in rows),
            wide=any(isinstance(row[at], str) and len(row[at]) > _LONG for row in rows),
        )
        for at, heading in enumerate(names)
    ]
    return Table(name, caption, columns, rows, style="records")


def _frontier(results: Results) -> Table:
    rows = [
        (
            each.protection,
            each.learner,
            *((each.accuracy.value, each.accuracy.low, each.accuracy.high) if each.accuracy else [None] * 3),
            *((each.risk.attack, each.risk.classifier) if each.risk else [None] * 2),
            *((risk.top1.value, risk.top1.low, risk.top1.high) if (risk := each.risk) else [None] * 3),
            each.risk.chance if each.risk else None,
            each.complete,
            each.on_frontier,
        )
        for each in results.settings
    ]
    names = (
        "protection learner accuracy accuracy_low accuracy_high attack classifier reidentification "
        "reidentification_low reidentification_high chance complete on_frontier"
    )
    adversary = " and its strongest adversary" if results.study["task"].get("sensitive") else ""
    return _table("frontier", f"Every setting with its best learner{adversary}", names.split(), rows)


def _dump(result: Any) -> Row:
    """The content of a record, without defaults of this version."""
    said: Row = result.model_dump(exclude_unset=True)
    return said


def _accuracy(result: Any) -> list[Row]:
    return [{key: value for key, value in _dump(result).items() if key != "privacy"}]


def _promise(result: Any) -> list[Row]:
    promise = _dump(result.privacy) if result.privacy else {}
    if "not_covered" in promise:
        promise["not_covered"] = "; ".join(promise["not_covered"])
    return [promise] if promise else []


def _scores(result: Any) -> list[Row]:
    shared, counted = _dump(result), hits_of([result])
    rows = [{**score, **shared} for score in shared.pop("scores")]
    return [_over_people(row, counted[row["classifier"]]) for row in rows]


def _over_people(row: Row, counted: Hits) -> Row:
    """The row with its interval over people, who are not listed."""
    low, high = counted.interval
    kept = {key: part for key, part in row.items() if not isinstance(part, tuple)}
    return {**kept, "low": low, "high": high}


def _many(result: Any) -> list[Row]:
    return [
        {
            "releases": point.releases,
            "adversary": name,
            "named": share,
            "guessing": 1 / result.panel,
            "people": len(point.named),
            "chosen": point.chosen.count(name),
        }
        for point in result.points
        for name, share in point.by_adversary.items()
    ]


def _flatten_guarantee(result: Any) -> list[Row]:
    """The guarantee among the others, its text under its name; and each bound on naming in its own column."""
    row = _dump(result)
    guarantee, namings = row.pop("guarantee", None) or {}, row.pop("naming", ())
    row |= {("guarantee" if key == "text" else key): value for key, value in guarantee.items()}
    return [{**row, **{f"naming_of_{naming['candidates']}": naming["at_most"] for naming in namings}}]


_GUARANTEE = " guarantee definition value whole_image source"
_SOURCES = (
    _Source(
        "accuracy",
        "Accuracy of every learner; half_width is half of its 95% interval, or low and high bound that",
        "accuracy",
        "learner",
        "accuracy half_width episodes low high images chance trained_episodes trained_epochs train_seconds "
        "operations precision",
        _accuracy,
    ),
    _Source(
        "privacy",
        "What meta-learned models promise to the images that they were trained on, each model alone",
        "accuracy",
        "learner",
        "promise clipping epsilon delta accountant rdp gdp_approximation image_epsilon unit not_covered",
        _promise,
    ),
    _Source(
        "reidentification",
        "Re-identification by every adversary and classifier; low and high bound its 95% interval, "
        "over people",
        "attack",
        "attack",
        "classifier top1 low high top5 top10 chance identities gallery probes faces_found verification_auc "
        "tar_at_far_1e-2 tar_at_far_1e-3",
        _scores,
    ),
    _Source(
        "many",
        "How often people are named from many releases of them, by every adversary; chosen by how many "
        "halves of the people",
        "many",
        "",
        "releases adversary named guessing people chosen",
        _many,
    ),
    _Source(
        "log-rank",
        "Log-rank privacy against the strongest of three adversaries; low and high bound its 95% interval",
        "log-rank",
        "",
        "lrp low high guessing strongest features identities accuracy images chance",
        lambda result: [_dump(result)],
    ),
    _Source(
        "similarity",
        "Similarity to the original, bytes that leave the device, and what is proved",
        "similarity",
        "view",
        "ssim psnr mse face-similarity face-similarity_of_two images bytes_per_image" + _GUARANTEE,
        _flatten_guarantee,
    ),
    _Source(
        "reconstruction",
        "Similarity of what adversaries rebuild to the original",
        "reconstruction",
        "attack",
        "images",
        lambda result: [{"images": result.images, **result.measures}],
    ),
    _Source(
        "tells",
        "Every label of the data set, as a release tells it; low and high bound its 95% interval, "
        "over people",
        "tells",
        "",
        "label accuracy low high guessing classes images adversary",
        lambda result: [
            _over_people({"label": name, **_dump(label)}, label.counted)
            for name, label in result.labels.items()
        ],
    ),
    _Source(
        "proved",
        "What leaves the device, and what is proved: the chance to name one among that many people is "
        "at most",
        "proved",
        "",
        "release bytes_per_image outputs" + _GUARANTEE,
        _flatten_guarantee,
    ),
)
FILES = ("frontier", *(source.name for source in _SOURCES))
