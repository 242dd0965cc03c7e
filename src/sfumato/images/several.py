"""Files of several pictures: pages, frames, and pictures beside the first, as thumbnails and depth maps.

They are counted by the structure of the file, without decoding, and sifted as the first picture is before a
decoder meets them (sfumato.images.decoding). The frames of sequences in AVIF and HEIC are counted only.
"""

import io
import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from PIL import Image

from sfumato.base.files import open_regular
from sfumato.errors import ImageError
from sfumato.images.convention import Pixels
from sfumato.images.decoding import (
    DECODING_ERRORS,
    MAX_PIXELS,
    UNDER_WAY,
    Sifted,
    check,
    eight_bits,
    jpeg_segments,
    kind_of,
    png_chunks,
    refusal,
    riff_chunks,
    sift,
    sift_avif,
    sift_gif,
    sift_heic,
    sift_png,
    sift_tiff,
    sift_webp,
)
from sfumato.images.heif import count_samples, further_pictures
from sfumato.images.orientation import entries_of, turn
from sfumato.images.reading import SUFFIXES, name_and_bytes, pixels_of, planes_of
from sfumato.images.refusals import MAX_PARTS, too_many_parts

# All pictures of a file together: `read_pictures` ends behind them. A byte that is copied costs an eighth.
_MOST_PIXELS = 4 * MAX_PIXELS

# A GIF's data come in blocks of at most 255 bytes, a quarter of a million in 64 MB.
_MOST_BLOCKS = 16 * MAX_PARTS

_HEAD = 512  # bytes
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})  # bytes; "BM" alone begins words, too
_JPEG = b"\xff\xd8\xff"
_MPF_ENTRIES = 0xB002  # of an MPO's index (CIPA DC-007)
_SUB_DIRECTORIES = 330


def is_image(source: str | os.PathLike[str] | bytes) -> bool:
    """Whether a file is to be read as an image: by its first bytes, whatever its name is, or by its suffix.

    Args:
        source: a path, or the first 512 bytes or more. An unreadable path is judged by its suffix.
    """
    if isinstance(source, bytes):
        head = source[:_HEAD]
    elif Path(source).suffix.lower() in SUFFIXES:
        return True
    else:
        try:
            with open_regular(source) as file:
                head = file.read(_HEAD)
        except OSError:
            return False
    try:
        return kind_of(head) != "BMP" or int.from_bytes(head[14:18], "little") in _BMP_HEADERS
    except ImageError as error:
        return error.cause != "not an image that can be read"  # as of a BigTIFF, which is one


def count_pictures(source: str | os.PathLike[str] | bytes) -> int:
    """The number of pictures in an image file: pages, frames, thumbnails of its container, depth maps.

    The thumbnail in EXIF, layers, and a colour picture's transparency do not count.

    Raises:
        ImageError: no image, a damaged one, or one in more than MAX_PARTS parts.
    """
    name, data = name_and_bytes(source)
    try:
        return _count(data)
    except DECODING_ERRORS as error:
        raise _name_error(name, error) from error


def _count(data: bytes) -> int:
    kind = kind_of(data)
    if kind in _ANIMATED:
        return _ANIMATED[kind](data)
    frames = count_samples(data) if kind in ("AVIF", "HEIF") else 0
    return len(_others(data, kind)) + max(1, frames)


def read_first(
    source: str | os.PathLike[str] | bytes, *, channels: int | None = 3, size: int | None = None
) -> tuple[Pixels, int]:
    """Reads a file as `read_array` does, once. -> its first picture, and the number of others in it."""
    name, data = name_and_bytes(source)
    try:
        return pixels_of(sift(data), channels, size), _count(data) - 1
    except DECODING_ERRORS as error:
        raise _name_error(name, error) from error


def _name_error(name: str, error: Exception) -> ImageError:
    known = error if isinstance(error, ImageError) else refusal(error)
    return ImageError(f"{name}: {known}", cause=known.cause)


def read_pictures(
    source: str | os.PathLike[str] | bytes, *, channels: int = 3
) -> Iterator[Pixels | ImageError]:
    """Yields the pictures of a file, the first one first, each (channels, H, W) uint8 and upright.

    A frame of an animation is the whole canvas, as a viewer shows it. A further picture that cannot be read
    yields its error. Pictures behind 4 * MAX_PIXELS in all, and frames of sequences in AVIF and HEIC, are not
    read: `count_pictures` says how many there are. One picture is held at a time, as `read` holds it; of an
    animation, its decoder holds a canvas besides.

    Raises:
        ImageError: the first picture cannot be read; see `read`.
    """
    name, data = name_and_bytes(source)
    try:
        first = sift(data)
        left = _MOST_PIXELS - first.size[0] * first.size[1]
        yield pixels_of(first, channels)
    except ImageError as error:
        raise _name_error(name, error) from error.__cause__
    try:
        if first.kind in _ANIMATED:
            yield from _frames(data, first.kind, channels, left)
            return
        others = _others(data, first.kind)
    except DECODING_ERRORS as error:
        yield _name_error(name, error)
        return
    for sifted in others:
        left -= len(data) // 8
        try:
            picture = check(sifted())
            left -= picture.size[0] * picture.size[1]
            if left < 0:
                return
            yield pixels_of(picture, channels)
        except DECODING_ERRORS as error:
            yield _name_error(name, error)


def _frames(data: bytes, kind: str, channels: int, left: int) -> Iterator[Pixels]:
    """The frames of an animation behind its first one."""
    number = _ANIMATED[kind](data)
    if number < 2:
        return
    sifted = check(_SIFTERS[kind](data))
    pixels = sifted.size[0] * sifted.size[1]
    with Image.open(io.BytesIO(sifted.data), formats=(kind,)) as opened:
        for frame in range(1, min(number, 1 + left // pixels)):
            UNDER_WAY.enter(pixels)
            try:
                opened.seek(frame)
                opened.load()
                if any(side > most for side, most in zip(opened.size, sifted.size, strict=True)):
                    raise ValueError("a frame outside of its canvas")
                found = planes_of(turn(eight_bits(opened, channels), sifted.orientation))
            finally:
                UNDER_WAY.leave(pixels)
            yield found


# How many frames an animation has.


def _count_png(data: bytes) -> int:
    """The picture, and every frame that begins behind its data."""
    begun, frames = False, 1
    for chunk, _, _ in png_chunks(data):
        begun = begun or chunk == b"IDAT"
        frames += begun and chunk == b"fcTL"
    return frames


def _count_webp(data: bytes) -> int:
    end = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    return max(1, sum(chunk == b"ANMF" for chunk, _, _ in riff_chunks(data, 12, end)))


def _count_gif(data: bytes) -> int:
    return len(_gif_frames(data))


def _gif_frames(data: bytes) -> list[tuple[int, int]]:
    """How far each frame reaches, to the right and down."""
    position = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)
    frames: list[tuple[int, int]] = []
    end, inside = len(data), False
    for _ in range(_MOST_BLOCKS):
        if position >= end:
            return frames
        lead = data[position]
        if inside or lead not in (0x21, 0x2C, 0x3B):  # Pillow skips other bytes between blocks
            position += 1 + lead * inside
            inside = inside and lead > 0
        elif lead == 0x21:
            position += 2
            inside = True
        elif lead == 0x3B or position + 10 > end:
            return frames
        else:
            left, top, width, height, flags = struct.unpack_from("<4HB", data, position + 1)
            frames.append((left + width, top + height))
            position += 11 + (6 << (flags & 7) if flags & 0x80 else 0)
            inside = True
    raise too_many_parts()


def _sift_gif(data: bytes) -> Sifted:
    """The size is that of the canvas at its largest, since frames behind the first may widen it."""
    sifted = sift_gif(data)
    sides = zip(sifted.size, *_gif_frames(data), strict=True)
    width, height = (max(side) for side in sides)
    return sifted._replace(size=(width, height))


_ANIMATED: dict[str, Callable[[bytes], int]] = {"PNG": _count_png, "WEBP": _count_webp, "GIF": _count_gif}
_SIFTERS: dict[str, Callable[[bytes], Sifted]] = {
    "PNG": partial(sift_png, further=frozenset({b"acTL", b"fcTL", b"fdAT"})),
    "WEBP": partial(sift_webp, animated=True),
    "GIF": _sift_gif,
}


# Further pictures in files that are no animations.


def _others(data: bytes, kind: str) -> list[Callable[[], Sifted]]:
    """A function for each further picture, which sifts it."""
    if kind == "JPEG":
        return [partial(_sift_part, data, part) for part in _jpegs(data)[1:]]
    if kind == "TIFF":
        return [partial(sift_tiff, data, directory) for directory in directories(data)[1:]]
    if kind in ("AVIF", "HEIF"):
        sift_item = sift_avif if kind == "AVIF" else sift_heic
        return [partial(sift_item, data, number) for number in further_pictures(data)]
    return []


def _sift_part(data: bytes, part: slice) -> Sifted:
    return sift(data[part])


def _jpegs(data: bytes) -> list[slice]:
    """The parts of a file that are JPEGs: one behind the other, or as the index of an MPO says."""
    begins, queue, walked = {0}, [0], 0
    for start in queue:  # it grows
        found, marker, end = set[int](), 0, start
        for marker, body, end in jpeg_segments(data, start):
            if marker == 0xE2 and data.startswith(b"MPF\0", body + 4):
                found.update(_read_index(data, body + 8, end))
        padding = data[end : end + MAX_PARTS]
        end += len(padding) - len(padding.lstrip(b"\0"))
        if data.startswith(_JPEG, end):
            found.add(end)
        queue += found - begins
        begins |= found
        walked += (end if marker == 0xD9 else len(data)) - start
        if len(begins) > MAX_PARTS or walked > 4 * len(data):
            raise too_many_parts()
    order = sorted(begins)
    return [slice(*part) for part in zip(order, [*order[1:], None], strict=True)]


def _read_index(data: bytes, base: int, end: int) -> Iterator[int]:
    """Where the JPEGs of an index in APP2 begin, as far as they do."""
    order, entries = entries_of(data[base:end])
    if _MPF_ENTRIES in entries:
        length, place = struct.unpack_from(order + "II", data, base + entries[_MPF_ENTRIES] + 4)
        for entry in range(base + place, min(base + place + length, end) - 15, 16):
            start = base + struct.unpack_from(order + "I", data, entry + 8)[0]
            if data.startswith(_JPEG, start):
                yield start


def directories(data: bytes) -> list[int]:
    """The positions of a TIFF's directories: its pages, and those below them."""
    order = ">" if data.startswith(b"MM") else "<"
    found: dict[int, None] = {}
    queue, tags = [struct.unpack_from(order + "I", data, 4)[0]], 0
    for place in queue:  # it grows
        if place in found or not 8 <= place <= len(data) - 6:
            continue
        found[place] = None
        (number,) = struct.unpack_from(order + "H", data, place)
        tags += number
        if tags > _MOST_BLOCKS or len(queue) > MAX_PARTS:
            raise too_many_parts()
        entries = entries_of(data, place)[1]
        if place + 6 + 12 * number <= len(data):
            queue += struct.unpack_from(order + "I", data, place + 2 + 12 * number)
        if _SUB_DIRECTORIES in entries:
            count = min(struct.unpack_from(order + "I", data, entries[_SUB_DIRECTORIES] + 4)[0], MAX_PARTS)
            start = entries[_SUB_DIRECTORIES] + 8
            if count > 1:
                (start,) = struct.unpack_from(order + "I", data, start)
            queue += struct.unpack_from(f"{order}{count}I", data, start)
    return list(found)
