"""The notebooks of the site: text without outputs, whose every cell runs."""

import re
from pathlib import Path

import matplotlib.pyplot
import pytest

NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("docs/notebooks").glob("*.md"))
_CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_are_five():
    assert [path.stem for path in NOTEBOOKS] == ["attack", "code", "obfuscations", "recommend", "service"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_in_its_order(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matplotlib.pyplot, "show", lambda: None)
    matplotlib.use("Agg")
    names: dict[str, object] = {"__name__": "notebook"}
    cells = _CELL.findall(path.read_text(encoding="utf-8"))
    assert cells
    for number, cell in enumerate(cells):
        exec(compile(cell, f"{path.name}[{number}]", "exec"), names)
    matplotlib.pyplot.close("all")
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())  # what they write they clear away
