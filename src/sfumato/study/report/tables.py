"""Tables, written as HTML in the page and as CSV in a file; and the full tables of a report."""

import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import quote

from sfumato.assess.hits import Hits, hits_of
from sfumato.base.files import write_rows
from sfumato.study.choose.figures import Estimate, percent
from sfumato.study.choose.results import Results

Row = dict[str, Any]
_LONG = 40  # letters; longer text is broken into lines


@dataclass(frozen=True)
class Value:
    """A cell with more than a value."""

    text: str = "–"  # a dash for a value that was not measured
    small: tuple[str, ...] = ()  # further words, in small letters
    marked: bool = False  # by a triangle
    badges: tuple[tuple[str, str], ...] = ()  # emphasised words, and their class
    pictures: tuple[tuple[str, str], ...] = ()  # address and words; "#..." is an image in the page


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    of: Callable[[Any], Any] = str  # the key of a row -> its cell
    small: str = ""  # words under the heading
    number: bool = True  # whether it holds numbers
    group: str = ""
    wide: bool = False  # whether it holds long text


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names its setting."""

    name: str  # for readers who hear the page, or of its file without the suffix
    caption: str  # above the table, in HTML; "" if its section has it
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]  # values, which a file holds with all of their digits, or `Value`s
    mark: str = ""  # the words for a triangle, for readers who hear the page
    style: str = ""  # its class
    chosen: str = ""  # the setting whose row is emphasised

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
    last: dict[str, Table] = {}
    columns: dict[str, dict[str, Column]] = defaultdict(dict)
    rows: dict[str, list[Row]] = defaultdict(list)
    for varied, tables in made:
        for table in tables:
            last[table.name] = table
            headed = (*map(Column, varied), *table.columns)
            columns[table.name] |= {column.heading: column for column in headed}
            rows[table.name] += [{**varied, **dict(zip(table.names, row, strict=True))} for row in table.rows]
    return {
        name: replace(table, columns=[*of.values()], rows=[[*map(row.get, of)] for row in rows[name]])
        for name, table in last.items()
        for of in [columns[name]]
    }


@dataclass(frozen=True)
class Section:
    """One section of the page."""

    name: str  # its id in the page, and the name of its template
    title: str  # at its head
    values: Mapping[str, Any]  # for its template, besides the values for all templates, see page.render
    contents: str = ""  # in the list of contents; "" for the title
    originals: bool = False  # whether it shows original images


def settings_table(
    name: str, keys: Iterable[Any], columns: Sequence[Column], *, setting: Any = str, **more: Any
) -> Table:
    """A table with a row for each key, which begins with its setting; `more` of a Table."""
    rows = [[setting(key), *(column.of(key) for column in columns)] for key in keys]
    return Table(f"Table of {name}", "", [text_column("setting"), *columns], rows, **more)


text_column = partial(Column, number=False)


def show(value: Any) -> Value:
    """The cell of a value."""
    return value if isinstance(value, Value) else Value(format_value(value))


def show_estimate(
    estimate: Estimate | None, *more: str, prefix: str = "", marked: bool = False, bits: bool = False
) -> Value:
    """An estimate, in % or in bits, with its interval and further small words; a dash for None."""
    if estimate is None:
        return Value()
    if bits:
        return Value(f"{estimate.value:.2f}", (f"{estimate.low:.2f}–{estimate.high:.2f}",))
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


def tables(results: Results) -> list[Table]:
    """The frontier, and the records of every kind but pictures, if there are any."""
    records = (_of_records(results, name, *source) for name, source in _SOURCES.items())
    return [table for table in (_frontier(results), *records) if table.rows]


def _of_records(
    results: Results, name: str, caption: str, columns: str, parts: Callable[[Any], Iterable[Row]]
) -> Table:
    """Columns that no row fills are left out; those of further keys follow."""
    order = {spec: number for number, spec in enumerate(results.study["protections"])}
    records = sorted(results.of(_KINDS.get(name, name)), key=lambda record: order[record.cell.protection])
    rows = [
        {**record.cell.model_dump(include={*_CELL}, exclude_none=True), **part, "seconds": record.seconds}
        for record in records
        for part in parts(record.result)
    ]
    held = {key for row in rows for key in row} - {"seconds"}
    known = [key for key in (*_CELL, *columns.split()) if key in held]
    return _table(name, caption, [*known, *sorted(held.difference(known)), "seconds"], rows)


def _table(name: str, caption: str, names: Sequence[str], rows: Sequence[Row]) -> Table:
    columns = []
    for key in names:
        values = [row.get(key) for row in rows]
        number = any(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        wide = any(isinstance(value, str) and len(value) > _LONG for value in values)
        columns.append(Column(key, number=number, wide=wide))
    return Table(name, caption, columns, [[row.get(key) for key in names] for row in rows], style="records")


def _frontier(results: Results) -> Table:
    rows = []
    for each in results.settings:
        row = {key: getattr(each, key) for key in ("protection", "learner", "complete", "on_frontier")}
        row |= _ends("accuracy", each.accuracy)
        if risk := each.risk:
            row |= {key: getattr(risk, key) for key in ("attack", "classifier", "chance")}
            row |= _ends("reidentification", risk.top1) | _ends("bits", each.bits)
            row |= {} if risk.surest is None else {"surest_right": risk.surest.value}
        rows.append(row)
    names = (
        "protection learner accuracy accuracy_low accuracy_high attack classifier reidentification "
        "reidentification_low reidentification_high bits bits_low bits_high surest_right chance complete "
        "on_frontier"
    )
    adversary = " and its strongest adversary" if results.study["task"].get("sensitive") else ""
    return _table("frontier", f"Every setting with its best learner{adversary}", names.split(), rows)


def _ends(name: str, estimate: Estimate | None) -> Row:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _dump(result: Any, **more: Any) -> Row:
    return dict(result.model_dump(exclude_unset=True, **more))


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
    low, high = counted.interval
    row |= dict(zip(("lrp", "lrp_low", "lrp_high"), row.get("log_rank") or (), strict=False))
    kept = {key: part for key, part in row.items() if not isinstance(part, tuple)}
    return {**kept, "low": low, "high": high}


def _many(result: Any) -> list[Row]:
    return [
        {
            "releases": point.releases,
            "adversary": name,
            "named": share,
            "guessing": 1 / (point.panel or result.panel),
            "people": len(point.named),
            "known": result.known,
            "others": result.others,
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


_KINDS = {"privacy": "accuracy", "reidentification": "attack"}  # of the records, unless it is the name
_CELL = ("protection", "learner", "attack", "view", "seed")
_GUARANTEE = " guarantee definition value whole_image source"

# Name of a table -> caption, columns in their order, and the function that makes rows of a result.
_SOURCES: dict[str, tuple[str, str, Callable[[Any], Iterable[Row]]]] = {
    "accuracy": (
        "Accuracy of every learner; half_width is half of its 95% interval, or low and high bound that",
        "accuracy half_width episodes low high images chance trained_episodes trained_epochs train_seconds "
        "operations precision",
        lambda result: [_dump(result, exclude={"privacy"})],
    ),
    "privacy": (
        "Promises of meta-learned models to the images that they were trained on, each model alone",
        "promise clipping epsilon delta accountant rdp gdp_approximation image_epsilon unit not_covered",
        _promise,
    ),
    "reidentification": (
        "Re-identification by every adversary and classifier; low and high bound its 95% interval, "
        "over people",
        "classifier reading top1 low high top5 top10 chance identities gallery others probes faces_found "
        "verification_auc lrp lrp_low lrp_high tar_at_far_1e-2 tar_at_far_1e-3",
        _scores,
    ),
    "many": (
        "How often people are named from many releases of them, by every adversary; chosen by how many "
        "halves of the people",
        "releases adversary named guessing people known others chosen",
        _many,
    ),
    "log-rank": (
        "Log-rank privacy against the strongest of three adversaries; low and high bound its 95% interval",
        "lrp low high guessing strongest features identities accuracy images chance",
        lambda result: [_dump(result)],
    ),
    "similarity": (
        "Similarity to the original, bytes that leave the device, and the proof",
        "ssim psnr mse face-similarity face-similarity_of_two images bytes_per_image" + _GUARANTEE,
        _flatten_guarantee,
    ),
    "reconstruction": (
        "Similarity of adversaries’ images to the original",
        "images",
        lambda result: [{"images": result.images, **result.measures}],
    ),
    "tells": (
        "Every label of the data set, as a release tells it; low and high bound its 95% interval, "
        "over people",
        "label accuracy low high guessing classes images adversary",
        lambda result: [
            _over_people({"label": name, **_dump(label)}, label.counted)
            for name, label in result.labels.items()
        ],
    ),
    "proved": (
        "Releases and proofs: the chance to name one among that many people is at most",
        "release bytes_per_image outputs" + _GUARANTEE,
        _flatten_guarantee,
    ),
}
FILES = ("frontier", *_SOURCES)
