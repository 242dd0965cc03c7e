"""Every code block of the README and of the pages that teach: run here, or marked with why it is not."""

import pytest
from blocks import NOT_CODE, REPOSITORY, blocks, of

README = "README.md"  # is run against the wheel, away from the checkout: tests/test_package.py
PAGES = [README, "docs/start.md"]
PAGES += sorted(
    str(path.relative_to(REPOSITORY))
    for room in ("guides", "concepts")
    for path in REPOSITORY.glob(f"docs/{room}/*.md")
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


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page != README and any(block.reason is None for block in of(page))]
)
def test_a_page_runs_from_its_first_block_to_its_last(page, run_page):
    run_page(page)
