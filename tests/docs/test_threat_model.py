"""The threat model names tests that are there, and each of its promises names one."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """The rows of the tables whose last column says what checks them."""
    found: list[list[str]] = []
    within = False
    for line in TEXT.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")] if line.startswith("|") else []
        if not cells:
            within = False
        elif cells[-1] in ("checked by", "test"):
            within = True
        elif within and not set(line) <= set("|-"):
            found.append(cells)
    return found


def test_every_test_that_is_named_is_there():
    named = set(TEST.findall(TEXT))
    assert len(named) > 40
    for path, name in named:
        assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (path, name)


def test_every_promise_names_a_test():
    promises = rows()
    assert len(promises) > 40
    for row in promises:
        elsewhere = re.search('see "(.*)"', row[-1])
        assert TEST.search(row[-1]) or (elsewhere and f"## {elsewhere[1]}" in TEXT), row


def test_every_module_and_study_that_is_named_is_there():
    for path in re.findall(r"`([\w/]+\.(?:py|conf))`(?! at commit)", TEXT):
        assert any((ROOT / folder / path).exists() for folder in ("", "src/sfumato")), path
