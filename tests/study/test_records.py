"""Records of a study: what is read is what was written."""

import json
from pathlib import Path

import pytest

from sfumato.errors import DataError
from sfumato.study.records import CONTENT, read_json, source_of, write_json

RECORD = {"kind": "accuracy", "result": {"accuracy": 0.5, "names": ["é", "b"]}, "seconds": 1.25}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    write_json(tmp_path / "record.json", RECORD)
    return tmp_path / "record.json"


def test_a_record_comes_back_without_its_digest(record: Path):
    assert read_json(record, "run again") == RECORD
    assert CONTENT in json.loads(record.read_text())


def test_a_record_that_is_written_again_has_a_digest_of_its_own(record: Path):
    before = record.read_bytes()
    write_json(record, json.loads(record.read_text()))
    assert record.read_bytes() == before


def test_any_edited_number_word_or_key_is_refused_with_the_cure(record: Path):
    text = record.read_text()
    for old, new in (
        ("0.5", "0.6"),
        ('"b"', '"c"'),
        ("seconds", "second"),
        ("accuracy", "loss"),
        ("1.25", "1"),
    ):
        record.write_text(text.replace(old, new))
        with pytest.raises(
            DataError, match=r"record\.json: edited or damaged since it was written: run again"
        ):
            read_json(record, "run again")


def test_a_record_cut_anywhere_is_refused(record: Path):
    text = record.read_text().rstrip("\n")
    for end in range(len(text)):
        record.write_text(text[:end])
        with pytest.raises(DataError, match=r"record\.json: damaged, not JSON .*: run again"):
            read_json(record, "run again")


def test_order_and_space_are_no_edits_and_a_record_of_an_earlier_version_has_no_digest(record: Path):
    record.write_text(json.dumps(json.loads(record.read_text())))
    assert read_json(record, "") == RECORD
    record.write_text(json.dumps(RECORD))
    assert read_json(record, "") == RECORD


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": 1e999}', '{"a": 1, "a": 2}', "[" * 99_999, "\ud800"])
def test_what_is_no_object_of_finite_numbers_is_refused(record: Path, text: str):
    record.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DataError, match=r"record\.json: damaged, not JSON .*: run again"):
        read_json(record, "run again")


def test_a_list_is_refused_as_no_object(record: Path):
    record.write_text("[]")
    with pytest.raises(DataError, match=r"record\.json: damaged: not a JSON object: run again"):
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


def test_what_was_written_with_numbers_as_keys_is_read(tmp_path):
    path = tmp_path / "record.json"
    write_json(path, {"beyond": {1: 0.5, 5: 0.3, 10: 0.1}})
    assert read_json(path, "cure") == {"beyond": {"1": 0.5, "5": 0.3, "10": 0.1}}
