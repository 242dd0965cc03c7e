"""Tables: a spreadsheet runs no cell of them, and each comes back as it was; and the files that they name."""

import csv
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.base.files import below, check_alike, parse_table, read_cell, read_regular, write_rows
from sfumato.errors import DataError

RUN = ("=", "+", "-", "@", "\t", "\r")


def written(*cells: object) -> list[str]:
    text = io.StringIO(newline="")
    write_rows(text, [cells])
    text.seek(0)
    (row,) = csv.reader(text)
    return row


def test_a_text_that_a_spreadsheet_would_run_is_written_behind_an_apostrophe_and_no_other():
    for start in RUN:
        assert written(f"{start}cmd|' /C calc'!A0") == [f"'{start}cmd|' /C calc'!A0"]
    cells = [-0.5, "-0.5", "+1e-3", "-inf", 7, None, "anna", "a=b", "'tis", "", True]
    assert written(*cells) == ["-0.5", "-0.5", "+1e-3", "-inf", "7", "", "anna", "a=b", "'tis", "", "True"]


APOSTROPHES = st.sampled_from(["", "'=", "''@"])
TEXT = st.builds(str.__add__, APOSTROPHES, st.text(st.characters(codec="utf-8")))


@given(st.lists(TEXT, min_size=1))
def test_every_text_comes_back_and_none_that_is_no_number_begins_a_formula(cells: list[str]):
    found = written(*cells)
    assert [read_cell(cell) for cell in found] == cells
    for cell in found:
        if cell.startswith(RUN):
            float(cell)


def test_a_table_comes_back_as_it_was_written():
    text = io.StringIO(newline="")
    rows = [("=a", "b\nc"), ("-d", "e,f"), ("", "g;h")]
    write_rows(text, [("file", "@class"), *rows])
    header, lines = parse_table("t.csv", text.getvalue().encode())
    assert header == ["file", "@class"]
    assert [tuple(row.values()) for _, row in lines] == rows
    assert [line for line, _ in lines] == ["t.csv, line 3", "t.csv, line 4", "t.csv, line 5"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_is_read_as_spreadsheets_save_it(encoding: str, separator: str):
    text = "\r\n".join(map(separator.join, ([], ["file", "class"], ["1.png", "Ärger"], ["2.png"])))
    header, lines = parse_table("t.csv", text.encode(encoding))
    rows = [{"file": "1.png", "class": "Ärger"}, {"file": "2.png", "class": ""}]
    assert (header, [row for _, row in lines]) == (["file", "class"], rows)


@pytest.mark.parametrize("line", ["sep=;\r\n", "SEP=;\n", '"sep=;"\n', "\ufeffsep=;\n"])
def test_the_line_in_which_excel_states_the_separator_is_no_header(line: str):
    header, lines = parse_table("t.csv", f"{line}file;a,b,c\n1.png;x\n".encode())
    assert (header, [row for _, row in lines]) == (["file", "a,b,c"], [{"file": "1.png", "a,b,c": "x"}])


@pytest.mark.parametrize(
    "first", ["0.1,-0.2,3e-5", "0.1,0.2,anna", "-0,5;0,1;0,2", "1.25e-01 2.5e+00 1e0", "3,0,1,1", "0.5\t.1"]
)
def test_a_first_line_of_numbers_is_no_header_but_for_numbers_that_count(first: str):
    for header in ("0,1,2", ",0,1,2", "person,0,1", "file,2023,2024", "1,2,3", "e0,e1"):
        assert parse_table("t.csv", f"{header}\n".encode())[0] == header.split(",")
    with pytest.raises(DataError, match=r"t\.csv: its first line holds numbers .* it has no header: write"):
        parse_table("t.csv", f"{first}\n1,2,3\n".encode())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"file,class\n1.png,#N/A\n", "t.csv, line 2: 'class' holds #N/A, an error of a spreadsheet"),
        (",".join(f"c{n}" for n in range(20_000)).encode() + b"\n1" * 1000, "more than 16,000,000 cells"),
        (b"", "t.csv: is empty: write a header"),
        (b"file,class,class\n", "t.csv: two columns are called 'class': rename or remove one"),
        ("file,zoe\u0308,zo\xeb\n".encode(), "called 'zoe.u0308' and 'zo.xeb', which look alike"),
        ("file,class\n".encode("utf-16-le"), "t.csv: cannot be read .*null characters.*: save it as CSV"),
        (b"file,class\n1.png,\xc4\n", "t.csv: cannot be read as a CSV in UTF-8 .*: save it as CSV in UTF-8"),
        (b"file,class\n1.png,Smith, John\n", "t.csv, line 2: 3 values below 2 columns: put a value"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused_in_a_sentence(content: bytes, message: str):
    with pytest.raises(DataError, match=message):
        parse_table("t.csv", content)


def test_texts_that_look_alike_are_one_to_a_reader_and_others_several():
    with pytest.raises(DataError, match=r"labels are 'anna' and .* look alike: write both alike"):
        check_alike("t.csv", "labels are", ["bela", "anna", "\u0430nna"])
    check_alike("t.csv", "labels are", ["anna", "Anna", "an na", "ana", "", "\u200d a", "zoe", "zo\xeb"])


# Files that strangers name


@pytest.mark.parametrize(
    "name", ["../diary.png", "a/../../diary.png", "/etc/hostname", "link.png", "door/diary.png"]
)
def test_a_table_names_no_file_outside_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    (tmp_path / "set" / "a").mkdir(parents=True)
    (tmp_path / "diary.png").touch()
    (tmp_path / "set" / "link.png").symlink_to(tmp_path / "diary.png")
    (tmp_path / "set" / "door").symlink_to("..")
    with pytest.raises(DataError, match=r"t\.csv, line 2: .*lies outside .*set SFUMATO_OUTSIDE=/") as refused:
        below(tmp_path / "set", name, "t.csv, line 2")
    trusted = str(refused.value).partition("SFUMATO_OUTSIDE=")[2]
    monkeypatch.setenv("SFUMATO_OUTSIDE", f"/nowhere:{trusted}")
    assert below(tmp_path / "set", name, "t.csv, line 2") == tmp_path / "set" / name


def test_a_table_names_files_below_its_folder_however_that_is_written(tmp_path: Path):
    (tmp_path / "link").symlink_to("set")
    for name in ("1.png", "a/1.png", "a/../1.png", str(tmp_path / "set" / "1.png"), "gone/1.png"):
        assert below(tmp_path / "link", name, "t.csv, line 2") == tmp_path / "link" / name
    with pytest.raises(DataError, match=r"t\.csv, line 2: a.x00b is not the name of a file"):
        below(tmp_path, "a\0b", "t.csv, line 2")


def test_a_regular_file_is_read_up_to_a_size_and_no_other_is_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(path, 10)
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "a", 10) == b"0123456789"
    with pytest.raises(OSError, match="10 bytes, more than the 9 allowed"):
        read_regular(tmp_path / "a", 9)
