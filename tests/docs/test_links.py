"""A clone without the site: every link of a page leads to a file and a heading that are there."""

import posixpath
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
import yaml

import sfumato.cli
from sfumato.study.grid import ATTACKS
from sfumato.study.vocabulary import LEARNERS

REPOSITORY = Path(__file__).parents[2]
LINK = re.compile(
    r"\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)|(?:href|src)=\"([^\"]+)\"|^\[[^\]]+\]: (\S+)", re.MULTILINE
)
NAMED = re.compile(r"`([\w./*-]+(?:/|\.(?:py|yaml|jsonl)))(?:`: ((?:`\w+`(?:, )?)+))?")
MADE = re.compile(r"`docs/reference/([a-z/-]+)\.(?:md|rst)(?:#[\w-]+)?`")


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("needs a clone: an unpacked archive does not list its files")
    return [name for name in listed.stdout.split("\0") if name]


KEPT = tracked()
PAGES = [name for name in KEPT if name.endswith(".md")]
PLACES = {*KEPT, *(str(folder) for name in KEPT for folder in PurePosixPath(name).parents)}


def text_of(page: str) -> str:
    """Without blocks and spans of code."""
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"`[^`\n]+`", lambda span: "" if "](" in span[0] else span[0], text)


def anchors(page: str) -> set[str]:
    """Of headings, as a code host makes them."""
    found: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return set(found)


def links(page: str) -> Iterator[tuple[str, str]]:
    """The path below the repository and the anchor of each link to a file of it."""
    for groups in LINK.findall(text_of(page)):
        address = next(filter(None, groups))
        if "://" not in address and not address.startswith(("mailto:", "data:", "{")):
            path, _, anchor = address.partition("#")
            yield posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page, anchor


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_what_a_clone_has(page: str):
    for path, anchor in links(page):
        assert path in PLACES, f"{page} links {path}"
        if anchor and path.endswith(".md"):
            assert anchor in anchors(path), f"{page} links {path}#{anchor}"


def test_each_row_of_the_papers_names_modules_names_studies_and_tests_that_are_there_or_their_commit():
    text, checked = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8"), 0
    for cell in (cell for row in re.findall(r"^\|.+\|$", text, re.MULTILINE) for cell in row.split(" | ")):
        for path, named in re.findall(
            r"`([\w./*-]+(?:/|\.(?:py|yaml|jsonl)))(?:`: ((?:`\w+`(?:, )?)+))?", cell
        ):
            made = [kept for base in (path, f"src/sfumato/{path}") for kept in REPOSITORY.glob(base)]
            assert made or "at commit" in cell, f"docs/papers.md: name the commit of {path}: {cell}"
            lacking = [name for name in re.findall(r"\w+", named) if made and name not in made[0].read_text()]
            assert not lacking, f"docs/papers.md: {path} has no {lacking}"
            checked += bool(made)
    assert checked > 150


def test_pages_that_the_site_makes_are_named_by_a_path_that_it_makes():
    named = {name for page in PAGES for name in MADE.findall((REPOSITORY / page).read_text(encoding="utf-8"))}
    assert named == {"cli", "study", "http", "api/index"}


def test_the_guide_to_studies_names_every_learner_and_adversary_and_whom_a_recommendation_needs():
    guide = (REPOSITORY / "docs" / "guides" / "study.md").read_text(encoding="utf-8")
    rows = [line for line in guide.splitlines() if line.startswith("| `")]
    for name in (*LEARNERS, *(name for name, words in ATTACKS.items() if words.method)):
        row, *more = [row for row in rows if f"`{name}`" in row.partition(" | ")[0]] or [None]
        assert row is not None, f"docs/guides/study.md: no row of its tables begins with `{name}`: add one"
        assert not more, f"docs/guides/study.md: {1 + len(more)} rows begin with `{name}`: keep one"
        if name in ATTACKS:
            assert ("**" in row) == any(f"`{each}`" in row and ATTACKS[each].needed for each in ATTACKS)


def test_the_pages_count_the_protections_of_the_demo():
    settings = yaml.safe_load((Path(sfumato.cli.__file__).parent / "demo.yaml").read_text())
    count = sum(
        1 + spec.count(",", spec.find("bits=")) if "bits=" in spec else 1 for spec in settings["protections"]
    )
    assert count == 10
    for page in ("README.md", "docs/start.md"):
        assert re.search(r"compares ten (ways|protections)", (REPOSITORY / page).read_text(encoding="utf-8"))
