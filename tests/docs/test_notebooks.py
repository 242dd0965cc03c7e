"""The notebooks of the site: text without outputs, whose every cell runs."""

import re
from pathlib import Path

import matplotlib.pyplot
import pytest
from generators.notebooks import pages

pytestmark = pytest.mark.usefixtures("quick_adversaries")

NOTEBOOKS = sorted(Path(__file__).parents[2].joinpath("docs/notebooks").glob("*.md"))
# Counts that are smaller here: the settings of a notebook are those of a reader who wants an answer.
_OFTEN = re.compile(r"(?P<name>\w*(?:epochs|episodes|episodes_per_epoch|steps)\"?[:=] ?)\d+")
_CELL = re.compile(r"^```\{code-cell\} python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_there_are_five():
    assert [path.stem for path in NOTEBOOKS] == ["attack", "code", "obfuscations", "recommend", "service"]


def test_each_is_a_file_of_jupyter_to_download_with_the_same_cells():
    nbformat = pytest.importorskip("nbformat")  # of the extra docs
    for path, text in zip(NOTEBOOKS, pages(NOTEBOOKS[0].parent).values(), strict=True):
        made = nbformat.reads(text, as_version=4)
        nbformat.validate(made)
        code = [cell.source for cell in made.cells if cell.cell_type == "code"]
        assert code == [cell.strip() for cell in _CELL.findall(path.read_text(encoding="utf-8"))]
        assert made.cells[0].source.startswith("# ")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_cell_runs_in_its_order(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(matplotlib.pyplot, "show", lambda: None)
    matplotlib.use("Agg")
    names: dict[str, object] = {"__name__": "notebook"}
    cells = _CELL.findall(path.read_text(encoding="utf-8"))
    assert cells
    for number, cell in enumerate(cells):
        exec(compile(_OFTEN.sub(r"\g<name>2", cell), f"{path.name}[{number}]", "exec"), names)
    matplotlib.pyplot.close("all")
    assert capsys.readouterr().out
    assert not list(tmp_path.iterdir())  # what they write they clear away
