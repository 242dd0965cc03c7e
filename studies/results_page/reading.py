"""Records of studies as typed values: each row is checked as it is read."""

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from rows import CURE, RESULTS

from sfumato.errors import DataError
from sfumato.study.records import read_rows

ROOT = RESULTS.parents[1]


class Record(BaseModel):
    """What the pages use of a record; other keys are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


R = TypeVar("R", bound=Record)


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


def read(name: str, of: type[R], folder: Path = RESULTS) -> R:
    """The only record of a file, such as "guard"; or one by its name, such as "people/learned".

    Raises:
        DataError: it cannot be read, was edited, or lacks what the pages use; it is named.
    """
    (found,) = read_all(name, of, folder)
    return found


def read_all(name: str, of: type[R], folder: Path = RESULTS) -> list[R]:
    """The records of a file, such as "lake", in its order; or those whose names have a pattern: "features/lfw-*"."""
    file, _, pattern = name.partition("/")
    return [
        checked(where, content, of)
        for where, content in _rows(folder / f"{file}.jsonl")
        if fnmatchcase(content.get("row", ""), pattern or "*")
    ]


@cache
def _rows(path: Path) -> list[tuple[str, dict[str, Any]]]:
    return list(read_rows(path, CURE))


def checked(path: Path | str, content: object, of: type[R]) -> R:
    """Content of a file as a record."""
    try:
        return of.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: {first['msg'].lower()}: {CURE}") from error
