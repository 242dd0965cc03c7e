"""The beginning of all formats of bytes: four letters, a version, and a header in JSON.

letters, version (one byte), length of the header (uint32, little-endian), header (JSON), the rest
"""

import struct
from dataclasses import dataclass
from typing import Any

import pydantic

from sfumato.base.schemas import validate_json
from sfumato.errors import DataError, first_problem

_PREFIX = struct.Struct("<4sBI")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """The beginning of one format, and its name in errors."""

    magic: bytes
    version: int = 1
    most: int  # bytes of a header
    name: str

    def join(self, header: bytes, *rest: bytes) -> bytes:
        """The bytes of a header and its data."""
        return b"".join([_PREFIX.pack(self.magic, self.version, len(header)), header, *rest])

    def split(self, data: bytes) -> tuple[bytes, int]:
        """The header, and where the rest begins. Raises DataError: damaged, or of another kind or version."""
        if len(data) < _PREFIX.size:
            raise DataError(f"{len(data)} bytes are not {self.name}: take another copy")
        magic, version, length = _PREFIX.unpack_from(data)
        if magic != self.magic:
            raise DataError(f"these bytes are not {self.name}: they begin with other letters")
        if version != self.version:
            raise DataError(
                f"{self.name} of version {version}, and {self.version} is read here: update the older side"
            )
        end = _PREFIX.size + length
        if length > min(self.most, len(data) - _PREFIX.size):
            raise DataError(
                f"{self.name} of {len(data)} bytes, with a header of {length}: damaged, or too long"
            )
        return data[_PREFIX.size : end], end


_MOST_VALUES = 40_000  # of a header: the labels of a table, and its keys


def parse(kind: Any, header: bytes, what: str) -> Any:
    """Reads a header as a type. Raises DataError with the first wrong key; `what` begins its message."""
    try:
        return validate_json(kind, header, most_values=_MOST_VALUES)
    except pydantic.ValidationError as error:
        raise DataError(f"{what}: {first_problem(error, 'JSON')}") from error
