"""The notebooks as files of Jupyter, to download: made from the pages, which are text."""

import json
import re
from pathlib import Path

_CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"\A---\n.*?^---\n", re.MULTILINE | re.DOTALL)
_DOWNLOAD = '<a href="../_static/notebooks/{}.ipynb" download>Download this notebook</a>'


def pages(folder: Path) -> dict[str, str]:
    """Path below the reference -> a notebook without outputs, in JSON (nbformat 4.5)."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    return {f"../static/notebooks/{name}.ipynb": as_notebook(text) for name, text in texts.items()}


def as_notebook(text: str) -> str:
    """A page of the site as a notebook: its cells of code, and the text between them."""
    cells = []
    for number, part in enumerate(_CELL.split(_HEAD.sub("", text))):
        if source := part.strip():
            cell = {"id": f"cell-{number}", "metadata": {}, "source": source.splitlines(keepends=True)}
            code = {"cell_type": "code", "execution_count": None, "outputs": []}
            cells.append(cell | (code if number % 2 else {"cell_type": "markdown"}))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(made, indent=1, ensure_ascii=False) + "\n"


# A page that only the site has, as others name it: a clone, which lacks it, has no link to it.
_MADE = re.compile(r"`docs/((?:results|reference)/[a-z/-]+\.(?:md|rst))(#[\w-]+)?`")


def link(app: object, page: str, source: list[str]) -> None:
    """Puts links to pages that are made, and to the file of a notebook, when Sphinx reads a page."""
    source[0] = _MADE.sub(r"[\1](/\1\2)", source[0])
    if page.startswith("notebooks/"):
        address = _DOWNLOAD.format(page.removeprefix("notebooks/"))
        source[0] = re.sub(r"^(# .+)$", rf"\1\n\n{address}", source[0], count=1, flags=re.MULTILINE)
