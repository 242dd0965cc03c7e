"""Make docs/results.md, the pages under docs/results and parts of pages that people write from records.

    python studies/results.py             # from the records that are committed, under studies/results
    python studies/results.py --collect   # first take the records of finished runs from runs/
    python studies/results.py --restore   # put committed records back under runs/, where a study goes on from them

A page is a Markdown file under docs/templates whose figures are filled in: `value` and `pivot` over rows of records,
`study("lfw-hats")` of a study of the engine. Words that state an order may stand in a block, {% call claim(...) %}, and
nothing is written if the figures do not show them. A chapter about records whose script has left is plain Markdown.
"""

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import claims
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rows import RESULTS, with_commits
from tables import Row, at, column, grouped, half_width, in_words, rows, same_order

from sfumato.dp.guarantee import SYMBOLS, round_up
from sfumato.study import records
from sfumato.study.choose.results import Results, load_all

ROOT = RESULTS.parents[1]
DOCS = ROOT / "docs"
PAGES = ("protections", "few-shot", "rebuilt", "proved")
PARTS = {  # of pages that people write: the template of the lines between MADE and the next END
    "../README.md": "readme.md.jinja",
    "threat-model.md": "adversaries.md.jinja",
    "pitfalls.md": "pitfalls.md.jinja",
    "guides/codes.md": "codes.md.jinja",
}
MADE, END, CONTENTS = "<!-- made by `make results` -->", "<!-- end -->", "<!-- contents -->"
LONG = 13  # lines of a table, above which it folds
# What `sfumato study run` runs: a study that is added has its records collected, too.
STUDIES = (*sorted(path.stem for path in (ROOT / "studies").glob("*.yaml") if path.stem != "example"), "demo")
DRAWN = ("pictures", "embeddings", "examples")  # large, and for the report alone: their rows may be left out


@cache
def study(name: str, variant: int = 0) -> Results:
    """A study under studies/results; of one that varies a setting, with the value of this number."""
    return load_all(RESULTS / f"{name}.jsonl")[variant]


def title(studied: Results) -> str:
    """Of its chapter, with the seeds that are measured if there are fewer than the study says."""
    listed, measured = studied.study["seeds"], {record.cell.seed for record in studied.records}
    words = str(studied.study.get("title") or studied.study["name"])
    return words if len(measured) >= len(listed) else f"{words} ({len(measured)} of {len(listed)} seeds)"


class ClaimError(ValueError):
    """The figures do not show what a template says of them."""


def claim(shown: bool, caller: Callable[[], str]) -> str:
    """The words of a `call` block; a ClaimError if the figures do not show them."""
    words = " ".join(caller().split())
    if not shown:
        raise ClaimError(f"the figures do not show this: {words!r}: change the words in docs/templates")
    return words


def percent(share: float, digits: int = 1, unit: float = 100) -> str:
    """0.0614 -> "6.1"."""
    return f"{unit * share:.{digits}f}"


def interval(estimate: Any, digits: int = 1, unit: float = 100) -> str:
    """A value and its interval, in % unless another unit is named; – if there is none."""
    if estimate is None:
        return "–"
    value, low, high = (percent(getattr(estimate, each), digits, unit) for each in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def in_short(guarantee: Any) -> str:
    """What is proved of one pixel, and of the whole image."""
    return f"{SYMBOLS[guarantee.definition]} = {round_up(guarantee.value)}; {round_up(guarantee.whole_image)}"


def value(known: Iterable[Row], path: str, digits: int = 1, unit: float = 100) -> str:
    """The mean of a column over rows, in % unless another unit is named."""
    return f"{unit * statistics.mean(column(known, path)):.{digits}f}"


def spread(values: Sequence[float], digits: int = 1, unit: float = 100) -> str:
    """A mean, with half its 95% interval by Student's t where there are three values or more; "" of none."""
    if not values:
        return ""
    text = f"{unit * statistics.mean(values):.{digits}f}"
    return text if len(values) < 3 else f"{text} ± {unit * half_width(values):.{digits}f}"


def pivot(known: Iterable[Row], by: Mapping[str, str], show: Mapping[str, str], across: str = "") -> str:
    """A table of rows: a line for each value of the columns of `by`, a cell the mean over its rows with its interval.

    A long one folds.

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
        names = ["" if (name := at(group[0], column)) is None else in_words(name) for column in by.values()]
        if across:
            cells = grouped(group, [across])
            for heading, form in show.items():
                label = [heading] if len(show) > 1 else []
                lines.append([*names, *label, *(_cell(cells.get(value, []), form) for value in values)])
        else:
            lines.append([*names, *(_cell(group, form) for form in show.values())])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    if len(lines) <= LONG:
        return table
    return f"<details><summary>{len(lines) - 2} rows</summary>\n\n{table}\n\n</details>"


def _cell(known: Iterable[Row], form: str) -> str:
    path, _, digits = form.partition("|")
    values = [one for each in column(known, path) for one in (each if isinstance(each, list) else [each])]
    if not values or isinstance(values[0], str):
        return ", ".join(dict.fromkeys(values))
    if isinstance(values[0], bool):
        return f"{sum(values)} of {len(values)}" if len(values) > 1 else ("yes" if values[0] else "no")
    values = values if len(set(values)) > 1 else values[:1]
    return spread(values, int(digits), 1) if digits else spread(values)


def environment(values: Mapping[str, Any]) -> Environment:
    """The templates under docs/templates, which may use these values and raise where one is not there."""
    made = Environment(
        loader=FileSystemLoader(DOCS / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the pages are Markdown
    )
    made.filters |= {"percent": percent, "interval": interval, "spread": spread, "mean": statistics.mean}
    functions = (anchor, claim, column, in_short, pivot, rows, same_order, study, title, value)
    made.globals |= {each.__name__: each for each in functions} | dict(values)
    return made


def with_contents(page: str) -> str:
    """A page whose mark of contents is a list of its headings of the second and third level."""
    headings = re.findall(r"^(##|###) (.+)$", page, flags=re.MULTILINE)
    listed = [f"{'  ' * (len(level) - 2)}- [{words}](#{anchor(words)})" for level, words in headings]
    return page.replace(CONTENTS, "\n".join(listed))


def anchor(heading: str) -> str:
    """The anchor that a heading gets where Markdown is shown."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def overview(page: str) -> dict[str, Any]:
    """A page in short: its title, and of each chapter the heading, its anchor, the first sentence and its command."""
    chapters = re.findall(r"^## (.+)\n\n\*\*(.+?)\*\*[ \n](`[^`\n]+`)", page, flags=re.MULTILINE)
    findings = [(heading, anchor(heading), said, command) for heading, said, command in chapters]
    return {"title": page.partition("\n")[0].removeprefix("# "), "findings": findings}


def pages(templates: Environment) -> dict[Path, str]:
    """Path -> text: the pages of results, docs/results.md, which sums them up, both pages of claims, and those with made parts."""
    made = {}
    for name in PAGES:
        page = templates.get_template(f"results/{name}.md.jinja").render()
        made[DOCS / "results" / f"{name}.md"] = with_contents(page)
    summed = {f"results/{name}.md": overview(made[DOCS / "results" / f"{name}.md"]) for name in PAGES}
    made[DOCS / "results.md"] = templates.get_template("results.md.jinja").render(overview=summed)
    for name in ("claims.md", "claims-evidence.md"):
        made[DOCS / name] = templates.get_template(f"{name}.jinja").render()
    for page, part in PARTS.items():
        before, rest = (DOCS / page).read_text(encoding="utf-8").split(MADE)
        lines = templates.get_template(part).render()
        made[DOCS / page] = f"{before}{MADE}\n{lines}{END}{rest.partition(END)[2]}"
    return {path: with_commits(text) for path, text in made.items()}


def write() -> dict[str, int]:
    """Write all pages, but those whose text is the same: path -> lines."""
    made = pages(environment(claims.values()))  # whole, before anything is written
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return {str(path.relative_to(ROOT)): text.count("\n") for path, text in made.items()}


def collect(name: str) -> None:
    """Pack a run without its pictures, unless cells of it are missing.

    No photograph of anybody comes into the repository: examples are kept of the demo, whose faces are drawn.
    """
    run = ROOT / "runs" / name
    if not (run / "study.json").exists():
        return
    if missing := [name for of in load_all(run) for name in of.missing if not name.startswith(DRAWN)]:
        print(f"{name}: {len(missing)} cells are missing: run the study first")
        return
    left_out = set(DRAWN) - ({"examples"} if name == "demo" else set())
    records.pack(run, RESULTS / f"{name}.jsonl", leave_out=left_out)


def restore(name: str) -> None:
    """Put the records of a study under runs/, unless there is a run already."""
    run = ROOT / "runs" / name
    if (RESULTS / f"{name}.jsonl").exists() and not run.exists():
        records.unpack(RESULTS / f"{name}.jsonl", run)


def main() -> None:
    """Write the pages, or put records to their places."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--collect", action="store_true", help="take the records of runs/ first")
    parser.add_argument("--restore", action="store_true", help="put committed records under runs/, no more")
    options = parser.parse_args()
    if options.restore or options.collect:
        for name in STUDIES:
            (restore if options.restore else collect)(name)
    if not options.restore:
        print(json.dumps({"written": write()}))


if __name__ == "__main__":
    main()
