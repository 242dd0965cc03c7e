"""Cells of tables: a spreadsheet runs none of them, and each comes back as it was."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sfumato.files import read_cell, read_cells, write_rows

RUN = ("=", "+", "-", "@", "\t", "\r")


def written(*cells: object) -> list[str]:
    text = io.StringIO(newline="")
    write_rows(text, [cells])
    text.seek(0)
    (row,) = csv.reader(text)
    return row


@pytest.mark.parametrize("start", RUN)
def test_a_text_that_a_spreadsheet_would_run_is_written_behind_an_apostrophe(start: str):
    assert written(f"{start}cmd|' /C calc'!A0") == [f"'{start}cmd|' /C calc'!A0"]


def test_numbers_and_other_texts_are_written_as_they_are():
    cells = [-0.5, "-0.5", "+1e-3", "-inf", 7, None, "anna", "a=b", "'tis", "", True]
    assert written(*cells) == ["-0.5", "-0.5", "+1e-3", "-inf", "7", "", "anna", "a=b", "'tis", "", "True"]


@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1))
def test_every_text_comes_back_and_none_that_is_no_number_begins_a_formula(cells: list[str]):
    found = written(*cells)
    assert [read_cell(cell) for cell in found] == cells
    for cell in found:
        if cell.startswith(RUN):
            float(cell)


@given(st.integers(0, 3), st.sampled_from(RUN), st.text(st.characters(codec="utf-8")))
def test_apostrophes_before_a_formula_come_back_as_many(count: int, start: str, rest: str):
    (cell,) = written("'" * count + start + rest)
    assert read_cell(cell) == "'" * count + start + rest


def test_the_columns_of_a_row_come_back_too_and_what_a_row_lacks_or_has_beyond_them():
    assert read_cells({"'=a": "'=b", "c": None, None: ["'=d"]}) == {"=a": "=b", "c": None, None: ["'=d"]}
