"""Reading an official layout: its parts, and the lines of its lists."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sfumato.data.labelled import label_of, split_by_class
from sfumato.data.readers.catalogue import SOURCES
from sfumato.data.readers.folder import Root, files_by_class
from sfumato.data.splitting import SHARES
from sfumato.errors import ConfigError, DataError, did_you_mean


def part(source: str, root: Root, *names: str, what: str = "") -> Path:
    """The first ROOT/name that exists, or ROOT itself if it has such a name.

    An archive unpacked into a folder of its own name lies one deeper, and is found there too.

    Raises:
        DataError: none exists; it names the existing files, and the source of `what`, or of the archive.
    """
    root = Path(root)
    places = [root / name for name in names] + [root] * (root.resolve().name in names)
    for place in places:
        if place.exists():
            deeper = place / place.name
            return deeper if deeper.is_dir() else place
    found = "no such folder"
    if root.is_dir():
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:6]) or "nothing"
    raise DataError(f"{root}: no {' or '.join(names)} (found: {found}): {_cure(source, what)}")


def optional(root: Root, *names: str) -> Path | None:
    """The first ROOT/name that exists, if any."""
    return next((path for name in names if (path := Path(root) / name).exists()), None)


def classes_in(source: str, directory: Path, left_out: Counter[str]) -> list[tuple[Path, str]]:
    """See `files_by_class`. Raises DataError for a folder without images."""
    found = files_by_class(directory, left_out) if directory.is_dir() else []
    if not found:
        raise DataError(f"{directory}: no images in sub-folders: {_cure(source)}")
    return found


def check_files(source: str, files: Iterable[Path]) -> None:
    """Raises DataError unless every file that a list names exists."""
    missing = [path for path in files if not path.is_file()]
    if missing:
        others = f", like {len(missing) - 1} others that the list names" if missing[1:] else ""
        raise DataError(f"{missing[0]}: no such file{others}: {_cure(source)}")


def _cure(source: str, what: str = "") -> str:
    return f"put {what or SOURCES[source].archive} there, from {SOURCES[source].url}"


def check_positive(source: str, **settings: int | None) -> None:
    """Raises ConfigError for a setting below 1; None is the default."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ConfigError(f"{source}: {name}={value}: at least 1")


def lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line that is not blank: by commas in a .csv, by white space elsewhere."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            if path.suffix == ".csv":
                reader = csv.reader(opened)
                for fields in reader:
                    if fields:
                        yield reader.line_num, fields
            else:
                for number, line in enumerate(opened, 1):
                    if fields := line.split():
                        yield number, fields
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as text in UTF-8 ({error}): download it again") from error


def columns(path: Path, *names: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and the values of some columns, for each row of a CSV under its header.

    Raises:
        DataError: a column is missing, or a row has more or fewer values than the header.
    """
    rows = lines(path)
    header = next(rows, (0, []))[1]
    for name in names:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}: {did_you_mean(name, header)}")
    places = [header.index(name) for name in names]
    for number, fields in rows:
        if len(fields) != len(header):
            raise bad_line(path, number, f"{len(fields)} values", f"{len(header)}, as in the header")
        yield number, [fields[place] for place in places]


def bad_line(path: Path, number: int, found: str, expected: str) -> DataError:
    """The error for a line that the official list does not have."""
    return DataError(f"{path}, line {number}: {found} instead of {expected}: download the file again")


def class_splits(values: Sequence[str], *, shares: tuple[float, float, float] = SHARES) -> list[str]:
    """The split of each row, with whole values given to splits by seed 0; see `split_by_class`."""
    split_of = [""] * len(values)
    for split, rows in split_by_class(label_of(values).codes, shares=shares, seed=0).items():
        for row in rows.tolist():
            split_of[row] = split
    return split_of
