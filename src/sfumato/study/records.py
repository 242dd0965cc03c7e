"""The records of a study: one JSON file a cell, under the digest of all that decides its result.

A record is of the kind of its cell, and typed: see `parse`. Those of earlier versions are read.
"""

import hashlib
import json
from collections.abc import Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field

from sfumato.errors import DataError
from sfumato.files import parse_json, whole
from sfumato.study.kinds import ALL
from sfumato.study.kinds.common import Model

CONTENT = "content_sha256"  # the key of the digest
# What tells cells of a kind apart, beside protection and seed.
_WHICH = {
    "accuracy": "learner",
    "attack": "attack",
    "similarity": "view",
    "embeddings": "learner",
    "transfer": "learner",
    "stored": "learner",
    "reconstruction": "attack",
    "inference": "secret",
}


class CellOfRecord(Model):
    """What a record is of, beside its kind; which of these it has depends on the kind."""

    protection: str
    seed: int
    learner: str | None = None
    attack: str | None = None
    view: str | None = None
    secret: str | None = None

    @property
    def which(self) -> tuple[str, ...]:
        """What tells it from others of its kind, protection and seed, by the names of the keys."""
        values = self.model_dump(exclude={"protection", "seed"}, exclude_none=True)
        return tuple(str(values[key]) for key in sorted(values))


class Record(Model):
    """What all records have; see kinds for the result of each kind.

    Attributes:
        kind: of its cell.
        cell: what it is of.
        result: of the type that its kind has.
        seconds: that it took.
        processor_seconds: the same of the processor, which other programs do not lengthen.
        digest: of all that decides the result.
        versions: of what made it.
    """

    kind: str
    cell: CellOfRecord
    result: Any
    seconds: float
    processor_seconds: float | None = None
    digest: str = ""
    versions: dict[str, str] = Field(default_factory=dict)

    @pydantic.model_validator(mode="after")
    def _says_which(self) -> "Record":
        key = _WHICH.get(self.kind)
        if key is not None and getattr(self.cell, key) is None:
            raise ValueError(f"cell has no {key!r}")
        return self

    @property
    def name(self) -> str:
        """Of the cell, such as "accuracy blur:radius=1 denoised 0"."""
        return " ".join([self.kind, self.cell.protection, *self.cell.which, str(self.cell.seed)])


def _of_kind(kind: str, result: type[Model]) -> type[Record]:
    """The type of the records of one kind."""
    return pydantic.create_model(
        f"{kind.title()}Record",
        __base__=Record,
        kind=(Literal[kind], ...),  # type: ignore[arg-type]
        result=(result, ...),
    )


_TYPES = {kind: _of_kind(kind, module.Result) for kind, module in ALL.items()}
_READER: pydantic.TypeAdapter[Record] = pydantic.TypeAdapter(
    Annotated[reduce(or_, _TYPES.values()), Field(discriminator="kind")]  # type: ignore[arg-type]
)


def parse(content: Mapping[str, Any]) -> Record:
    """The record of a loaded file.

    Raises:
        DataError: it is none of the kinds, or lacks something; the message says what.
    """
    try:
        return _READER.validate_python(content)
    except pydantic.ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        # The first part of a location is the kind.
        path = ".".join(str(part) for part in problem["loc"][1:])
        if problem["type"] == "missing":
            raise DataError(f"{path} is missing") from error
        message = problem["msg"].removeprefix("Value error, ")
        raise DataError(f"{path}: {message}" if path else message) from error


def source_of(name: str) -> str:
    """What a study and its report call their data: as the study file has it, but for an absolute path.

    That is left out, with the folders of this machine: "folder" of "folder:/home/anna/photos". A relative one
    is in the words of whoever wrote the study, and stays.
    """
    kind, colon, place = name.partition(":")
    outside = place.startswith(("/", "~", "\\")) or Path(place).is_absolute() or place[1:2] == ":"
    return kind if colon and outside else name


def write_json(path: Path, value: Any) -> None:
    """Write a value as one line of JSON, whole or not at all; an object with a digest, see read_json."""
    if isinstance(value, dict):
        content = {key: each for key, each in value.items() if key != CONTENT}
        # As it will be read: keys that are numbers become text, of which 10 comes before 5.
        content = json.loads(json.dumps(content, allow_nan=False))
        value = {**content, CONTENT: _content_digest(content)}
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False) + "\n"
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def read_json(path: Path, cure: str) -> dict[str, Any]:
    """Read an object that `write_json` wrote, without its digest.

    Promises: what is read was written so: an object that was edited, or damaged, is refused. It is not a
    signature: whoever can write the file can write the digest. Those of earlier versions have none, and are
        read.

    Args:
        path: of the file.
        cure: what to do where it is refused.

    Raises:
        DataError: it cannot be read, is not a JSON object of finite numbers, or is not as it was written.
    """
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}): {cure}") from error
    except ValueError as error:  # also what json and the decoder raise
        raise DataError(f"{path}: damaged, not JSON ({error}): {cure}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: damaged: not a JSON object: {cure}")
    digest = content.pop(CONTENT, None)
    if digest is not None and digest != _content_digest(content):
        raise DataError(f"{path}: edited or damaged since it was written: {cure}")
    return content


def _content_digest(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
