"""All answers of a classifier of short codes, as bytes that the key of a service has signed.

    "SFMA", version 1 (one byte), length of the header (uint32, little-endian), header (JSON), answers,
    signature

The signature is of all bytes before it, by Ed25519 (RFC 8032), 64 bytes. The answers are packed by zlib. For
each code of at most 16 bits, whose first bit is the highest of its number, they have a uint16, little-endian:
the row of the nearest class in `labels`, plus 0x8000 if the image belongs to none of them.

A device that has a table looks its answers up, and sends nothing.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pydantic
from pydantic import ConfigDict, Field

from sfumato.errors import DataError, needs_extra
from sfumato.wire.frames import Frame, parse

MEDIA_TYPE = "application/vnd.sfumato.answer-table"
MOST_BITS = 16
MOST_CLASSES = 1 << 15

_FRAME = Frame(magic=b"SFMA", most=8 << 20, name="an answer table")
_NONE = np.uint16(1 << 15)
_SIGNATURE = 64  # bytes


class Header(pydantic.BaseModel):
    """The header of an answer table."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    classifier: Annotated[str, Field(min_length=1, max_length=64)]  # its id
    name: Annotated[str, Field(min_length=1, max_length=200)]
    version: Annotated[int, Field(ge=0, lt=2**63)]  # grows with every enrolment and forgetting
    model: Annotated[str, Field(min_length=1, max_length=64)]
    made_of: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # the SHA-256 of the encoder's artefact
    labels: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(min_length=1, strict=False)]
    signer: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]  # the public key of the service
    bits: Annotated[int, Field(ge=1, le=MOST_BITS)]  # b, of a code without noise
    refuses: bool  # an answer may be "none of these"; False if that was never measured for such codes


@dataclass(frozen=True)
class AnswerTable:
    """A table: its header, (2^b,) uint16 answers as above, and all of its bytes."""

    header: Header
    answers: np.ndarray
    content: bytes

    def look_up(self, bits: np.ndarray) -> list[tuple[str, bool]]:
        """(N, b) bool codes -> for each the nearest class, and whether it belongs to none of these."""
        answers = self.answers[bits @ (1 << np.arange(bits.shape[1] - 1, -1, -1))]
        return [(self.header.labels[answer & ~_NONE], bool(answer & _NONE)) for answer in answers]


def codes_of(bits: int) -> np.ndarray:
    """All codes in the order of a table: (2^b, b) bool."""
    shifts = np.arange(bits - 1, -1, -1)
    codes: np.ndarray = (np.arange(1 << bits)[:, None] >> shifts & 1).astype(bool)
    return codes


def sign_table(
    header: Header, rows: np.ndarray, none: np.ndarray, sign: Callable[[bytes], bytes]
) -> AnswerTable:
    """Makes a table with its bytes.

    Args:
        rows: (2^b,) int, of the nearest class for each code.
        none: (2^b,) bool, whether the code belongs to none of the classes.
        sign: bytes -> their signature by the key of `header.signer`.
    """
    answers = rows.astype("<u2") | np.where(none, _NONE, np.uint16(0)).astype("<u2")
    content = _FRAME.join(header.model_dump_json().encode(), zlib.compress(answers.tobytes(), 9))
    return AnswerTable(header, answers, content + sign(content))


def decode(content: bytes) -> AnswerTable:
    """Reads the table in these bytes, and checks the signature by the key that its header names.

    The caller has to check whether that is the key of the service. Raises DataError.
    """
    signed, signature = content[:-_SIGNATURE], content[-_SIGNATURE:]
    text, end = _FRAME.split(content)
    header: Header = parse(Header, text, "the header of an answer table")
    _check_signature(header.signer, signature, signed)
    answers = np.frombuffer(_unpack(signed[end:], 2 << header.bits), "<u2")
    if (answers & ~_NONE).max() >= len(header.labels):
        raise DataError(f"an answer table names a class that is not among its {len(header.labels)}: damaged")
    return AnswerTable(header, answers, content)


def _unpack(packed: bytes, size: int) -> bytes:
    """Unpacks exactly that many bytes. Raises DataError."""
    reader = zlib.decompressobj()
    try:
        numbers = reader.decompress(packed, size + 1)
    except zlib.error as error:
        raise DataError(f"the answers of a table cannot be unpacked ({error}): damaged") from error
    if len(numbers) != size or not reader.eof or reader.unused_data:
        raise DataError(f"the answers of a table are not {size:,} bytes: damaged")
    return numbers


def _check_signature(signer: str, signature: bytes, signed: bytes) -> None:
    with needs_extra("answer tables", "serve"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer)).verify(signature, signed)
    except (InvalidSignature, ValueError) as error:
        raise DataError("a table with another signature than its own: damaged or changed") from error
