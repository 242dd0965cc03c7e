"""Records of studies, whose digests are checked as they are read."""

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from rows import CURE, RESULTS

from sfumato.study.records import read_rows

ROOT = RESULTS.parents[1]


class Row(dict[str, Any]):
    """A record or a part of one; its fields are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def record(name: str, folder: Path = RESULTS) -> Row:
    """The only record of a file, such as "guard"; or one by its name, such as "people/learned".

    Raises:
        DataError: it cannot be read, or was edited; it is named.
    """
    (found,) = records(name, folder)
    return found


def records(name: str, folder: Path = RESULTS) -> list[Row]:
    """The records of a file, such as "lake", in its order; or those whose names have a pattern: "features/lfw-*"."""
    file, _, pattern = name.partition("/")
    return [
        each
        for each in _of_file(folder / f"{file}.jsonl")
        if fnmatchcase(each.get("row", ""), pattern or "*")
    ]


@cache
def _of_file(path: Path) -> list[Row]:
    return [_as_row(content) for _, content in read_rows(path, CURE)]


def _as_row(value: Any) -> Any:
    if isinstance(value, dict):
        return Row({key: _as_row(part) for key, part in value.items()})
    return [_as_row(part) for part in value] if isinstance(value, list) else value
