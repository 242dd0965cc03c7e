"""studies/rows.py: what a script finds is on disk, a row each; and what of it lies in the repository."""

import pytest
from rows import RESULTS, Rows, with_commits

from sfumato.errors import DataError


@pytest.fixture
def records(tmp_path) -> Rows:
    return Rows(tmp_path / "new" / "records.jsonl")


def test_what_is_set_is_read_by_whoever_opens_the_file_and_what_is_removed_is_gone(records):
    assert dict(records) == {}
    records["b"] = {"counts": [0] * 20, "name": "é"}
    records["a"] = {"share": 0.5}
    records["b"] = {"counts": [1] * 20}
    assert dict(Rows(records.path)) == {"b": {"counts": [1] * 20}, "a": {"share": 0.5}}
    assert records.path.read_text().count("\n") == 2
    del records["a"]
    assert [*Rows(records.path)] == ["b"]


def test_a_row_that_was_edited_is_refused_by_its_line(records):
    records["a"] = {"share": 0.5}
    records["b"] = {"share": 0.25}
    records.path.write_text(records.path.read_text().replace("0.25", "0.2"))
    with pytest.raises(DataError, match=r"records\.jsonl:2: edited or damaged .*: take it back"):
        records["a"]


def test_no_file_of_the_repository_holds_an_image_but_drawn_faces():
    held = {path.name for path in RESULTS.glob("*.jsonl") if "data:image/" in path.read_text("utf-8")}
    assert held == {"demo.jsonl", "five-papers.jsonl"}
    assert max(path.stat().st_size for path in RESULTS.iterdir()) <= 1_000_000


def test_a_command_of_a_script_that_left_says_at_which_commit_it_is():
    assert (
        with_commits("`python studies/year.py OUT`.") == "`python studies/year.py OUT` at commit `2f64c651`."
    )
    for known in ("`python studies/year.py` at commit `5a5f5a86`", "`studies/rows.py`", "studies/year.py"):
        assert with_commits(known) == known
