"""Every page that is made, from its template and the records."""

from pathlib import Path
from typing import Any

from jinja2 import Environment

from results_page import (
    features,
    federated,
    few_shot,
    galleries,
    gradients,
    guarantees,
    house,
    masks,
    measures,
    meta,
    meta_clip,
    recognition,
    starts,
    strangers,
)
from results_page.reading import ROOT
from results_page.wording import environment, with_contents

CHAPTERS = (
    few_shot,
    masks,
    features,
    gradients,
    measures,
    federated,
    galleries,
    recognition,
    guarantees,
    meta,
    meta_clip,
    house,
    starts,
    strangers,
)
DOCS = ROOT / "docs"
PARTS = {  # of pages that people write: page -> template -> the mark between which and the next end its lines are
    "threat-model.md": {
        "threat-model/adversaries.md.jinja": "<!-- made by `make results` -->",
        "threat-model/stored.md.jinja": "<!-- stored embeddings, made by `make results` -->",
    },
    "pitfalls.md": {"pitfalls/releases.md.jinja": "<!-- made by `make results` -->"},
    "guides/codes.md": {"guides/bits.md.jinja": "<!-- made by `make results` -->"},
}
END = "<!-- end -->"


def values() -> dict[str, Any]:
    """All that templates may use, by name."""
    return {name: value for chapter in CHAPTERS for name, value in chapter.values().items()}


def pages(templates: Environment) -> dict[Path, str]:
    """Path under docs -> text: docs/results.md, claims.md, a page for each template under docs/templates/results,
    and those with parts that are made."""
    names = [
        "results.md.jinja",
        "claims.md.jinja",
        *templates.list_templates(filter_func=lambda name: name.startswith("results/")),
    ]
    made = {
        DOCS / name.removesuffix(".jinja"): with_contents(templates.get_template(name).render())
        for name in names
    }
    for page, parts in PARTS.items():
        text = (DOCS / page).read_text(encoding="utf-8")
        for name, mark in parts.items():
            text = remade(text, mark, templates.get_template(name).render())
        made[DOCS / page] = text
    return made


def remade(page: str, begin: str, lines: str) -> str:
    """A page with other lines between a mark and the next end."""
    before, rest = page.split(begin)
    return f"{before}{begin}\n{lines}{END}{rest.partition(END)[2]}"


def write() -> dict[str, int]:
    """Write all pages and the pictures that are drawn of records: path -> lines."""
    given = values()
    made = pages(environment(given))  # whole, before anything is written
    for world in given["feature_worlds"]:
        world.draw()
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return {str(path.relative_to(ROOT)): text.count("\n") for path, text in made.items()}
