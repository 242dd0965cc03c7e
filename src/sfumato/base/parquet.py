"""Parquet files, read within bounds on memory: 250 kB of equal values can hold 20 million rows."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sfumato.errors import DataError, needs_extra

# Most bytes in memory of a part of a column, and most for each of its bytes in the file.
MOST_EXPANDED, MOST_TIMES = 256_000_000, 32
BATCH = 65_536  # rows, and of encoded images fewer
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
# DELTA_BYTE_ARRAY repeats the beginning of a text for each row that shares it.
_ENCODINGS = frozenset(
    {"PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BINARY_PACKED"}
    | {"DELTA_LENGTH_BYTE_ARRAY", "BYTE_STREAM_SPLIT"}
)


def check_expanded(what: str, becomes: int, takes: int) -> None:
    """Raises DataError if something of a file is many times as large in memory, and large."""
    if becomes > max(MOST_EXPANDED, MOST_TIMES * takes):
        words = f"{takes:,} bytes that become {becomes:,}, more than {MOST_TIMES} times as many"
        raise DataError(f"{what}: {words}: leave out rows that repeat others, or write it in parts")


@contextmanager
def open_parquet(path: str | os.PathLike[str], columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Opens a file as pyarrow's ParquetFile, in which repeated texts stay single.

    Raises DataError for no Parquet file, and if one of its columns (None for all) has an encoding of unknown
    size or becomes many times as large as it is; also while it is read.
    """
    with needs_extra("reading Parquet files", "parquet"):
        import pyarrow
        from pyarrow import parquet

    path = Path(path)
    try:
        with parquet.ParquetFile(path) as file:
            repeated = _check(path, file, columns)
        with parquet.ParquetFile(path, read_dictionary=sorted(repeated)) as file:
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error


def _check(path: Path, file: Any, columns: Sequence[str] | None) -> set[str]:
    """Checks each part of the columns; returns the columns of bytes with repeated values."""
    metadata, repeated = file.metadata, set()
    for group in range(metadata.num_row_groups):
        parts = metadata.row_group(group)
        for number in range(parts.num_columns):
            part = parts.column(number)
            name = part.path_in_schema
            if columns is not None and name.partition(".")[0] not in columns:
                continue
            if unknown := set(part.encodings) - _ENCODINGS:
                words = f"{name} is coded as {', '.join(sorted(unknown))}, whose size is not known before"
                raise DataError(f"{path}: {words} it is read: write it with pyarrow's own settings")
            width = _WIDTHS.get(part.physical_type) or metadata.schema.column(number).length
            becomes = max(part.total_uncompressed_size, part.num_values * width)
            check_expanded(f"{path}, {name}", becomes, part.total_compressed_size)
            if part.physical_type == "BYTE_ARRAY" and part.has_dictionary_page:
                repeated.add(name)
    return repeated


def batches(file: Any, rows: int, columns: Sequence[str]) -> Iterator[Any]:
    """Batches of some columns, each of at most that many rows of one group of rows."""
    for group in range(file.metadata.num_row_groups):  # pyarrow joins no nested columns of several
        yield from file.iter_batches(rows, row_groups=[group], columns=list(columns))
