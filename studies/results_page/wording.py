"""The templates' environment: how figures are written, and the check of words that state an order."""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from results_page.engine import apart, in_short, rises
from results_page.figures import half_width
from results_page.flat import Row, at, column, grouped, highest, in_words, rows
from results_page.reading import ROOT, record, records

CONTENTS = "<!-- contents -->"


class ClaimError(ValueError):
    """The figures do not show what a template says of them."""


def claim(shown: bool, caller: Callable[[], str]) -> str:
    """The words of a `call` block, which the figures must show.

    Raises:
        ClaimError: they do not.
    """
    words = " ".join(caller().split())
    if not shown:
        raise ClaimError(f"the figures do not show this: {words!r}: change the words in docs/templates")
    return words


def number(value: float, form: str) -> str:
    """A number in Python's format."""
    return format(value, form)


def percent(share: float, digits: int = 1) -> str:
    """0.0614 -> "6.1"."""
    return f"{100 * share:.{digits}f}"


def accuracy(measured: Any, digits: int = 2) -> str:
    """Mean and half the 95% interval, in %."""
    return f"{percent(measured.accuracy, digits)} ± {percent(measured.half_width, digits)}"


def interval(estimate: Any, digits: int = 1, unit: float = 100, of: str = "value") -> str:
    """What has a value, or `of` what it is, a low and a high end, in % unless another unit is named; – if there is none."""
    if estimate is None:
        return "–"
    value, low, high = (unit * getattr(estimate, each) for each in (of, "low", "high"))
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def half(estimate: Any, of: str = "mean", digits: int = 1) -> str:
    """What has half the 95% interval of `of` beside it, in %."""
    return f"{100 * getattr(estimate, of):.{digits}f} ± {100 * estimate.half_width:.{digits}f}"


def spread(values: Sequence[float], digits: int = 1, unit: float = 100) -> str:
    """A mean, with half its 95% interval by Student's t where there are three values or more; "" of none."""
    if not values:
        return ""
    text = f"{unit * statistics.mean(values):.{digits}f}"
    return text if len(values) < 3 else f"{text} ± {unit * half_width(values):.{digits}f}"


def pivot(known: Iterable[Row], by: Mapping[str, str], show: Mapping[str, str], across: str = "") -> str:
    """A table of rows: a line for each value of the columns of `by`, a cell the mean over its rows with its interval.

    Args:
        by: heading -> column.
        show: heading -> column, a share; "column|3" is a number of three decimals.
        across: a column each of whose values gets a column in place of those of `show`, which get lines.
    """
    known = [
        row for row in known if any(at(row, each.partition("|")[0]) is not None for each in show.values())
    ]
    values = list(grouped(known, [across])) if across else []
    lines = [[*by, *([""] if across and len(show) > 1 else []), *(values or show)]]
    lines.append(["---"] * len(lines[0]))
    for group in grouped(known, list(by.values())).values():
        names = [in_words(at(group[0], column)) for column in by.values()]
        if across:
            cells = grouped(group, [across])
            for heading, form in show.items():
                label = [heading] if len(show) > 1 else []
                lines.append([*names, *label, *(_cell(cells.get(value, []), form) for value in values)])
        else:
            lines.append([*names, *(_cell(group, form) for form in show.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(known: Iterable[Row], form: str) -> str:
    column, _, digits = form.partition("|")
    values = [value for row in known if (value := at(row, column)) is not None]
    if not values or isinstance(values[0], str):
        return ", ".join(dict.fromkeys(values))
    if isinstance(values[0], bool):
        return f"{sum(values)} of {len(values)}" if len(values) > 1 else ("yes" if values[0] else "no")
    values = values if len(set(values)) > 1 else values[:1]
    return spread(values, int(digits), 1) if digits else spread(values)


def minutes(seconds: float, digits: int = 0) -> str:
    """In minutes."""
    return f"{seconds / 60:.{digits}f}"


def environment(values: dict[str, Any]) -> Environment:
    """The templates under docs/templates, which may use these values and raise where one is not there."""
    made = Environment(
        loader=FileSystemLoader(ROOT / "docs" / "templates"),
        undefined=StrictUndefined,
        extensions=["jinja2.ext.do"],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the pages are Markdown
    )
    filters = (number, percent, accuracy, interval, half, spread, minutes)
    made.filters |= {filtering.__name__: filtering for filtering in filters}
    made.filters["mean"] = statistics.mean
    made.filters["median"] = statistics.median
    made.tests |= {"startingwith": str.startswith, "endingwith": str.endswith}
    made.globals |= values | {
        "claim": claim,
        "record": record,
        "records": records,
        "flat": rows,
        "column": column,
        "highest": highest,
        "pivot": pivot,
        "rises": rises,
        "apart": apart,
        "in_short": in_short,
    }
    return made


def with_contents(page: str) -> str:
    """A page whose mark of contents is a list of its headings of the second and third level."""
    headings = re.findall(r"^(##|###) (.+)$", page, flags=re.MULTILINE)
    listed = [f"{'  ' * (len(level) - 2)}- [{words}](#{anchor(words)})" for level, words in headings]
    return page.replace(CONTENTS, "\n".join(listed))


def anchor(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
