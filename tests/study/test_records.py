"""Records of a study: what is read is what was written."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.study import synthetic

from sfumato.errors import DataError
from sfumato.study import records, report
from sfumato.study.records import (
    CONTENT,
    pack,
    pack_counts,
    read_json,
    read_rows,
    source_of,
    unpack,
    unpack_counts,
    write_json,
    write_rows,
)

RECORD = {"kind": "accuracy", "result": {"accuracy": 0.5, "names": ["é", "b"]}, "seconds": 1.25}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    write_json(tmp_path / "record.json", RECORD)
    return tmp_path / "record.json"


def test_a_record_comes_back_without_its_digest_and_is_written_again_with_it(record: Path):
    before = record.read_bytes()
    assert read_json(record, "run again") == RECORD
    assert CONTENT in json.loads(before)
    write_json(record, json.loads(before))
    assert record.read_bytes() == before
    for text in (json.dumps(json.loads(before)), json.dumps(RECORD)):  # without spaces, and without a digest
        record.write_text(text)
        assert read_json(record, "") == RECORD
    write_json(record, {"beyond": {1: 0.5, 5: 0.3, 10: 0.1}})  # numbers as keys
    assert read_json(record, "cure") == {"beyond": {"1": 0.5, "5": 0.3, "10": 0.1}}


def test_any_edited_number_word_or_key_is_refused_with_the_cure(record: Path):
    text = record.read_text()
    edits = {"0.5": "0.6", '"b"': '"c"', "seconds": "second", "accuracy": "loss", "1.25": "1"}
    for old, new in edits.items():
        record.write_text(text.replace(old, new))
        with pytest.raises(DataError, match=r"record\.json: edited or damaged since it was written: run"):
            read_json(record, "run again")


def test_a_record_cut_anywhere_is_refused(record: Path):
    text = record.read_text().rstrip("\n")
    for end in range(len(text)):
        record.write_text(text[:end])
        with pytest.raises(DataError, match=r"record\.json: damaged, not JSON .*: run again"):
            read_json(record, "run again")


@pytest.mark.parametrize(
    "text", ['{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 99_999, "\ud800", "[]"], ids=range(6)
)
def test_what_is_no_object_of_finite_numbers_is_refused(record: Path, text: str):
    record.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(
        DataError, match=r"record\.json: damaged(: not a JSON object|, not JSON .*): run again"
    ):
        read_json(record, "run again")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *(("faces", "faces"), ("folder:photos", "folder:photos"), ("folder:/home/anna/photos", "folder")),
        *(("table:~/t.csv", "table"), ("folder:C:\\photos", "folder"), ("folder:\\\\host\\photos", "folder")),
    ],
)
def test_the_folders_of_a_machine_are_no_part_of_a_source(name: str, source: str):
    assert source_of(name) == source


# Rows

NUMBERS = st.integers() | st.integers(0, 70) | st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, 61.0])
LISTS = st.lists(NUMBERS, max_size=20) | st.lists(st.integers(0, 61), min_size=8) | st.lists(st.booleans())
VALUES = st.recursive(
    NUMBERS | st.text() | st.none() | LISTS,
    lambda parts: st.lists(parts, max_size=9) | st.dictionaries(st.text(), parts, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_packed_comes_back_to_the_letter(value):
    text = json.dumps(pack_counts(value))
    assert json.dumps(unpack_counts(json.loads(text))) == json.dumps(value)


def test_a_list_of_counts_is_one_text_of_its_digits_and_runs():
    assert pack_counts([0] * 41 + [1, 0, 3]) == {"#int": "0(41)103"}
    assert pack_counts([10.0, 61.0, *[2.0] * 6]) == {"#float": "aZ2(6)"}
    assert pack_counts([0] * 7) == [0] * 7
    assert pack_counts([0] * 7 + [0.0]) == [0] * 7 + [0.0]


@pytest.mark.parametrize(
    "text", ['{"a": {"#int": "0(10000001)"}}', '{"a": {"#int": "0(' + "9" * 5000 + ')"}}']
)
def test_a_few_letters_are_no_millions_of_counts(record: Path, text: str):
    record.write_text(text)
    with pytest.raises(DataError, match=r"not JSON \((more than 10,000,000 counts|Exceeds the limit)"):
        read_json(record, "again")


def test_rows_come_back_in_order_with_the_lines_that_name_them_or_are_refused_by_them(tmp_path: Path):
    path, rows = tmp_path / "run.jsonl", [RECORD, {"hits": [2.0] * 300, "share": 0.1}]
    write_rows(path, rows)
    assert list(read_rows(path, "cure")) == [(f"{path}:{line}", row) for line, row in enumerate(rows, 1)]
    path.write_text(path.read_text().replace("2(300)", "2(301)"))
    with pytest.raises(DataError, match=r"run\.jsonl:2: edited or damaged since it was written: run again"):
        list(read_rows(path, "run again"))


def test_rows_that_are_too_many_for_a_file_go_to_others_which_a_kill_leaves_as_they_were(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(records, "_MOST", 300)
    before, path = [{"number": number} for number in range(10)], tmp_path / "run.jsonl"  # of a hundred bytes
    write_rows(path, before)
    assert len(list(tmp_path.iterdir())) == 4
    assert [row for _, row in read_rows(path, "")] == before
    written = records.whole

    def killed(each: Path):
        if each.name == "run.jsonl":
            raise KeyboardInterrupt
        return written(each)

    with monkeypatch.context() as patch:
        patch.setattr(records, "whole", killed)
        with pytest.raises(KeyboardInterrupt):
            write_rows(path, [{"number": -number} for number in range(12)])
    assert [row for _, row in read_rows(path, "")] == before
    write_rows(path, before[:4])
    assert [row for _, row in read_rows(path, "")] == before[:4]


def test_a_packed_run_reads_as_its_folder_and_unpacks_to_it_or_leaves_its_pictures_out(tmp_path: Path):
    study = synthetic.study_of_kinds()
    run, rows = (
        synthetic.write_run(tmp_path / "run", study, synthetic.records(study)),
        tmp_path / "rows.jsonl",
    )
    assert pack(run, rows) == len(study["cells"])
    unpack(rows, tmp_path / "again")
    read, *others = (report.load(path) for path in (run, rows, tmp_path / "again"))
    for other in others:
        assert (other.study, other.records) == (read.study, read.records)
    assert "data:image/" in "".join(path.read_text() for path in run.glob("records/*.json"))
    pack(run, rows, leave_out=("pictures", "examples", "reconstruction"))
    assert "data:image/" not in rows.read_text()
