"""Files that appear whole or not at all, files that strangers name, and the rules of JSON, tables and names.

SFUMATO_OUTSIDE  folders, separated by colons, that tables and links may lead to besides their own
"""

import codecs
import csv
import errno
import fcntl
import io
import json
import math
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import platformdirs

from sfumato.base.alike import look
from sfumato.errors import BusyError, DataError

# Short: the name of the file itself may already have the longest length of the system.
PART = ".sfumato-*.part"

_NO_LOCKS = "its file system has no locks ({}), as NFS without its lock service: name a file on a disk of "
_NO_LOCKS += "this machine, or mount that file system with locks"


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a temporary path, for a file or a folder, that replaces `path` when the block ends well.

    Otherwise `path` is untouched; only a killed process leaves the temporary, whose name matches PART.
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
    """The folder of files of one kind that can be made again: below SFUMATO_CACHE, or the user's cache."""
    named = os.environ.get("SFUMATO_CACHE")
    return (Path(named) if named else platformdirs.user_cache_path("sfumato")) / kind


@contextmanager
def claim(path: Path) -> Iterator[None]:
    """Lets one process at a time make `path`, by a lock that ends with the process; others get a BusyError.

    Check inside the block whether the file exists by now: another process may have made it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_suffix(".lock")
    with os.fdopen(os.open(lock, os.O_CREAT | os.O_RDWR, 0o600), "rb+") as file:
        try:
            lock_file(file.fileno(), path)
        except BlockingIOError as error:
            raise BusyError(f"{path}: another process is writing it: wait for it") from error
        yield
        lock.unlink(missing_ok=True)  # after the file exists: the next process to lock will find it


def lock_file(handle: int, path: object) -> None:
    """Locks an open file until it is closed; BlockingIOError if another has, DataError without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise DataError(f"{path}: {_NO_LOCKS.format(error.strerror)}") from error


def why_no_locks(folder: Path) -> str | None:
    """Why nothing can be locked in a folder, and the cure; None if locks work, or nothing can be written."""
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:  # nobody else has this file
            return _NO_LOCKS.format(error.strerror)
    return None


def open_regular(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Opens a regular file to read it: no device, which may never end, and no pipe, which may never begin."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe that nobody writes to blocks
    if not stat.S_ISREG(mode := os.fstat(handle).st_mode):
        os.close(handle)
        words = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, words, os.fspath(path))
    return os.fdopen(handle, "rb")


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The content of a regular file of at most `most` bytes; a longer one is an OSError with EFBIG."""
    with open_regular(path) as file:
        content = file.read(most + 1)
        size = max(len(content), os.fstat(file.fileno()).st_size)
    if size > most:
        raise OSError(errno.EFBIG, f"{size:,} bytes, more than the {most:,} allowed", os.fspath(path))
    return content


def leads_out(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether a path leads out of a folder, links followed, and not into a folder of SFUMATO_OUTSIDE."""
    allowed = [part for part in os.environ.get("SFUMATO_OUTSIDE", "").split(os.pathsep) if part]
    real = Path(os.path.realpath(path))
    return not any(real.is_relative_to(os.path.realpath(root)) for root in (folder, *allowed))


def below(folder: Path, name: str, line: str) -> Path:
    """The path of a file that a line of a table in a folder names. Raises DataError for one outside of it."""
    path = folder / name
    if "\0" in name:
        raise DataError(f"{line}: {printable(name)} is not the name of a file: correct it or remove the row")
    if leads_out(path, folder):
        trusted = printable(str(Path(os.path.realpath(path)).parent))
        words = "lies outside of the folder of the table; a stranger's table could so read private files"
        cure = f"if you trust this one, set SFUMATO_OUTSIDE={trusted}"
        raise DataError(f"{line}: {printable(name)} {words}: {cure}")
    return path


MOST_TABLE = 256_000_000  # bytes
MOST_CELLS = 16_000_000  # each takes some 100 bytes, however short; missing ones too
Line = tuple[str, dict[str, str]]
_EXCEL = re.compile(r"\s*\"?sep=(.)\"?[^\S\r\n]*(?:\r\n?|\n)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?(?:\d+[.,]?\d*|[.,]\d+)(?:[eE][-+]?\d+)?")
_ERRORS = frozenset(["#N/A", "#NV", "#REF!", "#VALUE!", "#DIV/0!", "#NAME?", "#NULL!", "#NUM!", "#NAN"])


def read_table(path: str | os.PathLike[str]) -> tuple[list[str], list[Line]]:
    """Reads a CSV from a file of at most MOST_TABLE bytes, as parse_table does. Raises OSError, too."""
    return parse_table(os.fspath(path), read_regular(path, MOST_TABLE))


def parse_table(name: str, content: bytes) -> tuple[list[str], list[Line]]:
    """Reads the header of a CSV, and for each row its position ("list.csv, line 3") and texts by column.

    The content is UTF-8, or UTF-16 with a byte order mark, with commas, semicolons or tabs between the cells,
    as in the header, or as Excel's line `sep=;` before it says. Missing cells at the end of a row are empty.
    Raises DataError for anything else, and for over MOST_CELLS cells.
    """
    wide = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = content.decode("utf-16" if wide else "utf-8-sig")
        if "\0" in text:
            raise ValueError("it holds null characters")
    except ValueError as error:
        words = f"{name}: cannot be read as a CSV in UTF-8 ({error}): save it as CSV in UTF-8"
        raise DataError(words) from error
    separator = max(",;\t", key=text.lstrip("\r\n").partition("\n")[0].count)
    if stated := _EXCEL.match(text):
        separator, text = stated[1], text[stated.end() :]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    try:
        header = [read_cell(cell.strip()) for cell in next(filter(None, reader), [])]
        while header and not header[-1]:  # a spreadsheet's empty columns
            header.pop()
        if not header:
            raise DataError(f"{name}: is empty: write a header, and below it a row for each file")
        _check_header(name, header)
        check_alike(name, "columns are called", header)
        return header, [(f"{name}, line {reader.line_num}", row) for row in _rows(name, reader, header)]
    except csv.Error as error:
        raise DataError(f"{name}, line {reader.line_num}: cannot be read as a CSV ({error})") from error


def _check_header(name: str, header: list[str]) -> None:
    """Raises DataError for a header of numbers, but for those that pandas counts columns without names by."""
    cells = [re.split(r"[\s;]+", cell) for cell in header]
    numbers = [word for words in cells if all(map(_NUMBER.fullmatch, words)) for word in words]
    start = int(numbers[0]) if numbers and numbers[0].isdecimal() else 0
    counting = [str(start + place) for place in range(len(numbers))]
    if 2 * len(numbers) > sum(map(len, cells)) and numbers != counting:
        words = "so that it has no header: write the names of the columns above it"
        raise DataError(f"{name}: its first line holds numbers ({', '.join(numbers[:3])}), {words}")


def _rows(name: str, reader: Any, header: list[str]) -> Iterator[dict[str, str]]:
    for number, cells in enumerate(filter(None, reader), 1):
        line = f"{name}, line {reader.line_num}"
        if number * len(header) > MOST_CELLS:
            words = "leave out columns or rows; write vectors as .npy or .parquet"
            raise DataError(f"{name}: more than {MOST_CELLS:,} cells in {len(header):,} columns: {words}")
        if any(cells[len(header) :]):
            words = "put a value that holds a separator in double quotes"
            raise DataError(f"{line}: {len(cells)} values below {len(header)} columns: {words}")
        row = dict(zip(header, cells, strict=False))
        for column, cell in row.items():
            if cell.upper() in _ERRORS:
                raise DataError(f"{line}: {column!r} holds {cell}, an error of a spreadsheet: correct it")
        yield {column: read_cell(row.get(column, "")) for column in header}


def check_alike(name: str, what: str, texts: Iterable[str]) -> None:
    """Raises DataError for two texts of a file that are equal or look alike. `what`: "columns are called"."""
    before: dict[str, str] = {}
    for text in texts:
        key = look(text)
        if key in before:
            words = f"{before[key]!a} and {text!a}, which look alike: write both alike"
            words = f"{text!r}: rename or remove one" if before[key] == text else words
            raise DataError(f"{name}: two {what} {words}")
        before[key] = text


_FORMULA = re.compile(r"'*[=+\-@\t\r]")  # the beginnings of texts that spreadsheets run


def write_rows(file: TextIO, rows: Iterable[Iterable[object]], *, end: str = "\r\n") -> None:
    """Writes rows as CSV, with no cell that a spreadsheet runs, to a file that is open with newline="".

    A text that begins with =, +, -, @, a tab or a carriage return, or apostrophes before these, gets an
    apostrophe in front, which spreadsheets read as "this is text". Numbers stay as they are. None is empty.
    """
    csv.writer(file, lineterminator=end).writerows([_escape(value) for value in row] for row in rows)


def read_cell(text: str) -> str:
    """Restores the text of a cell that `write_rows` wrote."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _escape(value: object) -> object:
    if isinstance(value, str) and _FORMULA.match(value):
        try:
            float(value)  # -0.5 is a number to a spreadsheet, too
        except ValueError:
            return f"'{value}"
    return value


MOST_VALUES = 5_000_000  # of a JSON text: some 500 MB
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)


def has_more_values(text: str | bytes, most: int) -> bool:
    """Whether a JSON text has more commas and colons than `most`, outside of strings."""
    content = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    values = content.count(b",") + content.count(b":")
    if values > most:
        values -= sum(match[0].count(b",") + match[0].count(b":") for match in _STRINGS.finditer(content))
    return values > most


def parse_json(text: str | bytes) -> Any:
    """Reads JSON without NaN, infinity, a key twice, or over MOST_VALUES values and keys; else ValueError."""
    if has_more_values(text, MOST_VALUES):
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number, object_pairs_hook=_each_key_once)
    except RecursionError as error:
        raise ValueError("lists or objects nested too deep: maximum recursion depth exceeded") from error


def _number(word: str) -> float:
    if not math.isfinite(float(word)):
        raise ValueError(f"{word[:20]} is {'too large' if word[-1].isdigit() else 'not'} a number")
    return float(word)


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return members


def printable(name: str) -> str:
    """A file name without characters that move a cursor, break the line, or are not text."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def check_new(path: Path, *, force: bool, suffix: str = "") -> None:
    """Raises DataError as check_writable does, and for a file that exists, without `force`."""
    check_writable(path, suffix=suffix)
    if path.exists() and not force:
        raise DataError(f"{path}: already exists: name another file, or replace it with --force")


def check_writable(path: Path, *, folder: bool = False, suffix: str = "") -> None:
    """Raises DataError now, not after the work, if a file, or one in a folder, cannot be written so named."""
    if suffix and path.suffix not in ("", suffix):
        raise DataError(f"{path}: a {suffix} file would be written: name it {path.with_suffix(suffix).name}")
    if path.is_dir() and not folder:
        raise DataError(f"{path}: is a folder: name a file to write")
    place = path.absolute() if folder else path.absolute().parent
    try:
        tempfile.TemporaryFile(dir=next(filter(os.path.lexists, (place, *place.parents)))).close()
    except OSError as error:
        words = f"{path}: cannot be written ({error.strerror}): name a place where you may write"
        raise DataError(words) from error
