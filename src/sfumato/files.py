"""Files that appear whole or not at all, who may make them, and what JSON, tables and names may hold."""

import csv
import fcntl
import json
import math
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import platformdirs

from sfumato.errors import BusyError, DataError

# A short name of its own: the name of the file itself may be as long as the system allows.
PART = ".sfumato-*.part"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a temporary path, for a file or a folder, that takes the place of `path` when the block ends well.

    When it does not, what was at `path` is untouched and the temporary is gone; only a process that is killed
    leaves it, under a name that matches PART. The folder of `path` is made where it is missing.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(PART.replace("*", secrets.token_hex(8)))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary)
        temporary.unlink(missing_ok=True)


def cache_folder(kind: str) -> Path:
    """Where files of one kind lie that can be made anew: below SFUMATO_CACHE, or the user's cache folder."""
    named = os.environ.get("SFUMATO_CACHE")
    return (Path(named) if named else platformdirs.user_cache_path("sfumato")) / kind


@contextmanager
def claimed(path: Path) -> Iterator[None]:
    """Keep the making of `path` to one process at a time, by a lock that the system lets go of when it ends.

    Look within the block whether the file is there by now: the one before may have made it.

    Raises:
        BusyError: another process is making it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_suffix(".lock")
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BusyError(f"{path}: another process is writing it: wait for it") from error
        yield
        # Only now that the file is there: whoever takes the name of the lock anew will find it.
        lock.unlink(missing_ok=True)
    finally:
        os.close(handle)


# What spreadsheets run as a formula, and what is written of it.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_QUOTED = re.compile(r"'+[=+\-@\t\r]")


def write_rows(file: TextIO, rows: Iterable[Iterable[object]], *, end: str = "\r\n") -> None:
    """Write rows as CSV, with no cell that a spreadsheet runs; `read_cell` gives back every text.

    A text that begins with =, +, -, @, a tab or a carriage return is written behind an apostrophe, which
    spreadsheets take for "this is text"; one that begins with apostrophes before these, behind one more.
    Numbers stay as they are. None is empty.

    Args:
        file: open for text, with newline="".
        rows: the header among them.
        end: of a line.
    """
    csv.writer(file, lineterminator=end).writerows([_written(value) for value in row] for row in rows)


def read_cell(text: str) -> str:
    """The text of a cell that `write_rows` wrote."""
    return text[1:] if _QUOTED.match(text) else text


def read_cells(row: Mapping[str, str]) -> dict[str, str]:
    """A row of csv.DictReader with the texts that `write_rows` was given, of its columns, too."""
    # A row of more or fewer cells than the header has a list, or None.
    return {
        read_cell(name) if name else name: read_cell(text) if isinstance(text, str) else text
        for name, text in row.items()
    }


def _written(value: object) -> object:
    if not isinstance(value, str) or not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value  # -0.5 is a number to a spreadsheet, too


def parse_json(text: str | bytes) -> Any:
    """What a JSON text says, by the letter: no NaN or infinity, and no key that is there twice.

    Raises:
        ValueError: it is not JSON, or too deep.
    """
    try:
        return json.loads(
            text, parse_constant=_no_number, parse_float=_number, object_pairs_hook=_each_key_once
        )
    except RecursionError as error:
        raise ValueError("lists or objects nested too deep: maximum recursion depth exceeded") from error


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _number(word: str) -> float:
    value = float(word)
    if math.isinf(value):
        raise ValueError(f"{word[:20]} is too large a number")
    return value


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


# The folders of an artefact that a protection's spec names.
_FOLDERS = re.compile(r"(?:(?<=[:,]artefact=)|(?<=[:,]file=))[^,]*[/\\]")


def portable(spec: str) -> str:
    """A spec as it travels: an artefact by the name of its file, without the folders of this machine."""
    return _FOLDERS.sub("", spec)


def printable(name: str) -> str:
    """A file name without what would move a cursor, break the line, or be no text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def check_new(path: Path, *, force: bool) -> None:
    """Raise DataError where a file is there that would be replaced, unless that was asked for."""
    if path.exists() and not force:
        raise DataError(f"{path}: already exists: name another file, or replace it with --force")
