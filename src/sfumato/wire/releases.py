"""Releases as bytes: a short header that describes them, and the packets of all images end to end.

    "SFMT", version 1 (one byte), length of the header (uint32, little-endian), header (JSON), packets

The packets contain only the results of `pack`. The header names the file of an artefact, without its folder
on the device; `made_of` identifies its content.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal

import numpy as np
import pydantic
from pydantic import ConfigDict, Field

from sfumato.errors import DataError
from sfumato.protect import release
from sfumato.protect.release import Release
from sfumato.protect.spec import portable
from sfumato.protect.vectors import MOST_BITS, BitsRelease, FeatureRelease, unpack_bits, unpack_numbers
from sfumato.wire.frames import Frame, parse

MEDIA_TYPE = "application/vnd.sfumato.release"

AnyRelease = Release | FeatureRelease | BitsRelease

_FRAME = Frame(magic=b"SFMT", most=4096, name="a release")
_MOST = 1 << 31  # of any number in a header: products of a few of them still fit

_Positive = Annotated[int, Field(ge=1, lt=_MOST)]


class _Header(pydantic.BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    spec: Annotated[str, Field(min_length=1, max_length=1000)]  # it names an artefact only by its file
    made_of: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None  # the artefact's SHA-256
    count: _Positive  # N, the number of images


class ImageHeader(_Header):
    """The header of images."""

    kind: Literal["pixels", "masked"]
    channels: Literal[1, 3]
    size: tuple[_Positive, _Positive]  # H and W of the originals
    cell: _Positive  # see Release


class FeatureHeader(_Header):
    """The header of numbers: of private features, or of a code."""

    kind: Literal["feature"]
    dimension: _Positive  # d, the numbers of each
    dtype: Literal["float32"]


class BitsHeader(_Header):
    """The header of codes of bits."""

    kind: Literal["bits"]
    bits: Annotated[int, Field(ge=1, le=MOST_BITS)]  # b, the bits of each


Header = ImageHeader | FeatureHeader | BitsHeader

_HEADER = Annotated[Header, Field(discriminator="kind")]


def encode(sent: AnyRelease, *, made_of: str | None = None) -> bytes:
    """The bytes of a release of at least one image; for `made_of` see `release.artefact_of`."""
    if not len(sent.array):
        raise DataError("a release of no image: release at least one")
    text = _header(sent, made_of).model_dump_json().encode()
    return _FRAME.join(text, *sent.pack())


def header(data: bytes) -> Header:
    """The header of encoded bytes. Raises DataError: see decode."""
    return _split(data)[0]


def decode(data: bytes, *, most_images: int, most_pixels: int) -> AnyRelease:
    """Reads the result of `encode`; the spec is the one that travelled, see portable.

    Guarantees: any bytes give a release or a DataError, and use no more memory than most_pixels need,
    whatever the header says.

    Args:
        data: from anybody.
        most_images: N at most.
        most_pixels: pixels of all originals together at most; numbers or bits of features and codes.

    Raises DataError: damaged, of another program or version, too large, or with numbers that are not finite.
    """
    head, packets = _split(data)
    if head.count > most_images:
        raise DataError(f"a release of {head.count} images, of at most {most_images} at once: send fewer")
    values = head.count * _values_of_one(head)
    if values > most_pixels:
        raise DataError(
            f"a release of {values} pixels or numbers, of at most {most_pixels} at once: send fewer "
            "images, or smaller ones"
        )
    if isinstance(head, BitsHeader):
        cut = _cut(packets, [-(-head.bits // 8)] * head.count)
        return unpack_bits(cut, spec=head.spec, bits=head.bits)
    if isinstance(head, FeatureHeader):
        cut = _cut(packets, [4 * head.dimension] * head.count)
        found = unpack_numbers(cut, spec=head.spec, dimension=head.dimension)
        if not np.isfinite(found.array).all():
            raise DataError("a feature has numbers that are not finite: release it again")
        return found
    height, width = head.size
    if head.cell > min(height, width) or (head.kind == "masked" and head.cell > 1):
        raise DataError(
            f"a cell of {head.cell} in {head.kind} of {height}x{width}: no protection makes such releases"
        )
    if head.kind == "masked":
        lengths = list(_lengths_by_mask(packets, head))
        shape = (head.channels, height, width)
        return release.unpack(_cut(packets, lengths), spec=head.spec, shape=shape)
    rows, columns = -(-height // head.cell), -(-width // head.cell)
    _check_length(packets, head.count * head.channels * rows * columns)
    cells = np.frombuffer(packets, np.uint8).reshape(head.count, head.channels, rows, columns)
    return Release(cells.copy(), head.spec, head.size, head.cell)


def _header(sent: AnyRelease, made_of: str | None) -> Header:
    spec, count = portable(sent.spec), len(sent.array)
    if isinstance(sent, BitsRelease):
        return BitsHeader(kind="bits", spec=spec, made_of=made_of, count=count, bits=sent.array.shape[1])
    if isinstance(sent, FeatureRelease):
        dimension = sent.array.shape[1]
        return FeatureHeader(
            kind="feature", spec=spec, made_of=made_of, count=count, dimension=dimension, dtype="float32"
        )
    return ImageHeader(
        kind="pixels" if sent.shown is None else "masked",
        spec=spec,
        made_of=made_of,
        count=count,
        channels=sent.array.shape[1],
        size=sent.size,
        cell=sent.cell,
    )


def _values_of_one(head: Header) -> int:
    """The number of pixels, numbers or bits of an image."""
    match head:
        case BitsHeader():
            return head.bits
        case FeatureHeader():
            return head.dimension
        case ImageHeader():
            return head.size[0] * head.size[1]


def _split(data: bytes) -> tuple[Header, memoryview]:
    text, end = _FRAME.split(data)
    return _parse(text), memoryview(data)[end:]


@lru_cache(maxsize=256)
def _parse(text: bytes) -> Header:
    """Reads a header; devices send the same few again and again."""
    read: Header = parse(_HEADER, text, "the header of a release")
    return read


def _cut(packets: memoryview, lengths: list[int]) -> list[bytes]:
    """Cuts bytes into packets of these lengths, which must use all of them."""
    _check_length(packets, sum(lengths))
    ends = np.cumsum([0, *lengths]).tolist()
    return [bytes(packets[start:end]) for start, end in pairwise(ends)]


def _check_length(packets: memoryview, expected: int) -> None:
    if len(packets) != expected:
        raise DataError(
            f"{len(packets)} bytes of images, and the header needs {expected}: send whole releases"
        )


def _lengths_by_mask(packets: memoryview, head: ImageHeader) -> Iterator[int]:
    """The length of each masked image's packet, by its mask."""
    height, width = head.size
    flags, start = -(-height * width // 8), 0
    unused = -height * width % 8
    for _ in range(head.count):
        mask = np.frombuffer(packets[start : start + flags], np.uint8)
        if len(mask) < flags:
            raise DataError(
                f"{len(packets)} bytes are fewer than {head.count} masks have: send whole releases"
            )
        if mask[-1] & ((1 << unused) - 1):
            raise DataError("a mask shows pixels that the image does not have: damaged")
        length = flags + head.channels * int(np.bitwise_count(mask).sum())
        yield length
        start += length
