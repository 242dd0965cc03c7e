"""Every page that is made, from its template and the records."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claims
from jinja2 import Environment
from rows import with_commits

from results_page import (
    accelerator,
    adversaries,
    board,
    engine,
    guarantees,
    measures,
    recognition,
    three_models,
)
from results_page.reading import ROOT
from results_page.wording import anchor, environment, with_contents

CHAPTERS: tuple[Any, ...] = (
    claims,
    engine,
    board,
    three_models,
    adversaries,
    measures,
    recognition,
    guarantees,
    accelerator,
)
DOCS = ROOT / "docs"
OVERVIEW = (
    "protections",
    "board",
    "few-shot",
    "rebuilt",
    "proved",
    "failures",
    "served",
)  # pages whose chapters docs/results.md sums up
KEPT = ("protections", "served")  # in the repository, which has no links to the others
PARTS = {  # of pages that people write: page -> template -> the mark between which and the next end its lines are
    "threat-model.md": {
        "threat-model/adversaries.md.jinja": "<!-- made by `make results` -->",
        "threat-model/stored.md.jinja": "<!-- stored embeddings, made by `make results` -->",
    },
    "pitfalls.md": {"pitfalls/releases.md.jinja": "<!-- made by `make results` -->"},
    "guides/codes.md": {"guides/bits.md.jinja": "<!-- made by `make results` -->"},
    "guides/vectors.md": {"guides/vectors.md.jinja": "<!-- made by `make results` -->"},
    "../README.md": {"readme/ways.md.jinja": "<!-- made by `make results` -->"},
}
END = "<!-- end -->"


def values() -> dict[str, Any]:
    """All that templates may use, by name."""
    return {name: value for chapter in CHAPTERS for name, value in chapter.values().items()}


@dataclass(frozen=True)
class Finding:
    """The sentence with which a chapter begins.

    Attributes:
        title, anchor: of the chapter.
        sentence: what was found, with its figure.
        command: that makes the figure.
    """

    title: str
    anchor: str
    sentence: str
    command: str


@dataclass(frozen=True)
class Overview:
    """A page of results in short: its title, its path below docs, whether a clone has it, and its findings."""

    title: str
    path: str
    kept: bool
    findings: tuple[Finding, ...]


def findings(page: str) -> Iterator[Finding]:
    """What each chapter of a page begins with; chapters have headings of the second level."""
    chapters = re.findall(r"^## (.+)\n\n(\*\*.+?\*\*)[ \n](`[^`\n]+`)", page, flags=re.MULTILINE)
    return (Finding(title, anchor(title), said.strip("*"), command) for title, said, command in chapters)


def pages(templates: Environment) -> dict[Path, str]:
    """Path under docs -> text: a page for each template under docs/templates/results, docs/results.md, which sums
    them up, claims.md, and those with parts that are made."""
    names = templates.list_templates(filter_func=lambda name: name.startswith("results/"))
    made = {
        DOCS / name.removesuffix(".jinja"): with_contents(templates.get_template(name).render())
        for name in names
    }
    made[DOCS / "results.md"] = templates.get_template("results.md.jinja").render(
        overview=[_overview(name, made[DOCS / "results" / f"{name}.md"]) for name in OVERVIEW]
    )
    made[DOCS / "claims.md"] = templates.get_template("claims.md.jinja").render()
    for page, parts in PARTS.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        for name, mark in parts.items():
            text = remade(text, mark, templates.get_template(name).render())
        made[DOCS / page] = text
    return {path: with_commits(text) for path, text in made.items()}


def _overview(name: str, page: str) -> Overview:
    title = page.partition("\n")[0].removeprefix("# ")
    return Overview(title, f"results/{name}.md", name in KEPT, tuple(findings(page)))


def remade(page: str, begin: str, lines: str) -> str:
    """A page with other lines between a mark and the next end."""
    before, rest = page.split(begin)
    return f"{before}{begin}\n{lines}{END}{rest.partition(END)[2]}"


def write() -> dict[str, int]:
    """Write all pages, but those whose text is the same: path -> lines."""
    made = pages(environment(values()))  # whole, before anything is written
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    return {str(path.relative_to(ROOT)): text.count("\n") for path, text in made.items()}
