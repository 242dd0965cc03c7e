"""A section of the page, and the table of records that most sections show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sfumato.study.choose.estimates import Estimate, percent
from sfumato.study.report import charts
from sfumato.study.vocabulary import Look


@dataclass(frozen=True)
class Section:
    """One section of the page.

    Attributes:
        name: its id in the page.
        title: at its head.
        contents: in the list of contents.
        values: for its template, besides the values for all templates, see page.render.
        template: its template; "" for the one of its name.
        originals: whether it shows original images.
    """

    name: str
    title: str
    contents: str
    values: Mapping[str, Any] = field(default_factory=dict)
    template: str = ""
    originals: bool = False


@dataclass(frozen=True)
class Value:
    """One cell of a table of records.

    Attributes:
        text: its content; a dash for a value that was not measured.
        small: further words, in small letters.
        marked: whether a triangle marks it.
    """

    text: str = "–"
    small: tuple[str, ...] = ()
    marked: bool = False


DASH = Value()
MARK = '<span class="mark" aria-hidden="true">▲</span>'  # in a caption


@dataclass(frozen=True)
class Column:
    """One column: heading, small words under it, whether it holds numbers, and the heading of its group."""

    heading: str
    small: str = ""
    number: bool = True
    group: str = ""


@dataclass(frozen=True)
class RecordTable:
    """A row for each setting, a column for each label, learner, adversary or figure.

    Attributes:
        label: for readers who hear the page, "Table of ...".
        caption: above the table, in HTML.
        columns: after the column of settings.
        bodies: groups of rows; each row has a setting and a value for each column.
        mark: the words for a triangle, for readers who hear the page.
        style: its class.
        name: its id; "" for none.
    """

    label: str
    caption: str
    columns: Sequence[Column]
    bodies: Sequence[Sequence[tuple[str, Sequence[Value]]]]
    mark: str = ""
    style: str = ""
    name: str = ""

    @property
    def groups(self) -> list[tuple[str, list[Column]]]:
        """The columns under each heading of a group, in their order; none if no column has a group."""
        if not any(column.group for column in self.columns):
            return []
        return [(name, list(group)) for name, group in groupby(self.columns, lambda column: column.group)]


def show_estimate(estimate: Estimate | None, *more: str, prefix: str = "", marked: bool = False) -> Value:
    """Shows an estimate with its interval and further small words; a dash for None."""
    if estimate is None:
        return DASH
    interval = f"{100 * estimate.low:.1f}–{100 * estimate.high:.1f}"
    return Value(f"{prefix}{percent(estimate.value)}", (interval, *more), marked)


def of_records(
    name: str, title: str, contents: str, paragraphs: Sequence[str], *tables: RecordTable
) -> Section:
    """A section of paragraphs and tables, without charts or pictures."""
    return Section(name, title, contents, {"paragraphs": paragraphs, "tables": tables}, template="records")


def legend(group: str, looks: Sequence[tuple[str, Look]]) -> list[tuple[str, str]]:
    """(sample, name) of each look; `group` is unique in the page."""
    return [(charts.key(f"{group} {name}", look), name) for name, look in looks]
