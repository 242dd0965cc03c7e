"""Records of studies as typed values: each file is checked as it is read."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from sfumato.errors import DataError
from sfumato.study.records import read_json

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "studies" / "results"
CURE = "take it back from the repository, or run its study again"


class Record(BaseModel):
    """What the pages use of a record; other keys are left alone."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


R = TypeVar("R", bound=Record)


def read(path: Path | str, of: type[R]) -> R:
    """A record; a relative path is one under studies/results.

    Raises:
        DataError: the file cannot be read, was edited, or lacks what the pages use; it is named.
    """
    return checked(RESULTS / path, read_json(RESULTS / path, CURE), of)


def checked(path: Path, content: object, of: type[R]) -> R:
    """Content of a file as a record."""
    try:
        return of.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: {where}: {first['msg'].lower()}: {CURE}") from error


def read_all(pattern: str, of: type[R]) -> list[R]:
    """All records whose path under studies/results has a pattern, by name."""
    return [read(path, of) for path in sorted(RESULTS.glob(pattern))]
