"""A CSV that lists images: its rows, each with its line for errors."""

import os
from collections.abc import Sequence

from sfumato.base.files import Line, read_table
from sfumato.errors import DataError, did_you_mean


def read_rows(
    path: str | os.PathLike[str], *, columns: Sequence[str], of: str
) -> tuple[list[str], list[Line]]:
    """Reads a CSV with a header; see parse_table for its forms and errors.

    `columns` are required, with a value in every row; `of` is the word for a row in the error of a CSV
    without rows. -> the header, and for each row its position ("list.csv, line 3") and its values by column.
    """
    try:
        header, rows = read_table(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    for column in columns:
        if column not in header:
            raise DataError(f"{path}: no column {column!r}: {did_you_mean(column, header)}")
    if not rows:
        raise DataError(f"{path}: no rows: list at least one {of}")
    for line, row in rows:
        for column in columns:
            if not row[column]:
                raise DataError(f"{line}: no value for {column!r}: fill it in or remove the row")
    return header, rows


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def truth_of(line: str, row: dict[str, str]) -> bool:
    """Returns whether people recognised a reconstruction. Raises DataError for a word that says neither."""
    if (said := row["recognised"].lower()) not in _TRUTHS:
        raise DataError(f"{line}: recognised={row['recognised']!r}: write one of {', '.join(_TRUTHS)}")
    return _TRUTHS[said]


def source_of(row: dict[str, str]) -> str:
    """Returns the data set of a judgement; with its annotators if these are not people."""
    annotators = row.get("annotators") or "people"
    return row["source"] if annotators == "people" else f"{row['source']} ({annotators} annotators)"
