"""Every code block of every page: run here, or marked with why it is not."""

import re

import pytest
from blocks import NOT_CODE, REPOSITORY, blocks, of

pytestmark = pytest.mark.usefixtures("quick_adversaries")

README = "README.md"  # is run against the wheel, away from the checkout: tests/test_package.py
CONTRIBUTING = "CONTRIBUTING.md"
# Notebooks are run by tests/docs/test_notebooks.py; the build makes results and most of the reference.
ELSEWHERE = ("docs/notebooks/", "docs/reference/", "docs/results/", "docs/_build/")
PAGES = [README, CONTRIBUTING, "docs/reference/index.md"]
PAGES += sorted(
    page
    for page in (path.relative_to(REPOSITORY).as_posix() for path in REPOSITORY.glob("docs/**/*.md"))
    if not page.startswith(ELSEWHERE)
)


@pytest.mark.parametrize("page", PAGES)
def test_what_is_not_run_says_why(page):
    for block in of(page):
        if block.reason is not None:
            assert len(block.reason.split()) >= 4, f"{page}:{block.line}: say why it cannot be run"
            assert block.language not in NOT_CODE, f"{page}:{block.line}: nobody would run this"
        assert block.language in ("sh", "python", "yaml", *NOT_CODE), f"{page}:{block.line}: {block.language}"


def test_a_block_is_found_with_its_mark():
    text = "words\n\n    first\n    line\n\n<!-- not run: it takes a week -->\n\n"
    text += "```python\nx = 1\n```\n\n    last\n"
    assert [(each.line, each.language, each.text, each.reason) for each in blocks("page", text)] == [
        (3, "sh", "first\nline", None),
        (8, "python", "x = 1", "it takes a week"),
        (12, "sh", "last", None),
    ]


def test_code_runs_unless_a_reason_stands_before_it_and_text_does_not():
    text = "    first\n\n<!-- not run: it takes a week -->\n\n    second\n\n```text\nthird\n```\n"
    assert [each.runs for each in blocks("page", text)] == [True, False, False]


def test_every_page_of_the_site_is_held_here_or_is_a_notebook():
    trees = [block.text for block in of("docs/index.md") if block.language == "{toctree}"]
    entries = re.findall(r"^[a-z][\w/-]*$", "\n".join(trees), re.MULTILINE)
    pages = {f"docs/{entry}.md" for entry in entries if not entry.startswith(("notebooks/", "results/"))}
    assert len(pages) > 20
    assert pages <= set(PAGES)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != README and any(block.runs for block in of(page))]
)
def test_a_page_runs_from_its_first_block_to_its_last(page, run_page):
    run_page(page)
