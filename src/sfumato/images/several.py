"""Files of several pictures: pages, frames, and pictures beside the first, as thumbnails and depth maps."""

import os
import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.base.files import open_regular
from sfumato.errors import ImageError
from sfumato.images.convention import Pixels
from sfumato.images.decoding import (
    DECODING_ERRORS,
    MAX_PARTS,
    MAX_PIXELS,
    NO_IMAGE,
    check_size,
    jpeg_segments,
    kind_of,
    not_read,
    open_picture,
    refusal,
    too_many_parts,
)
from sfumato.images.reading import SUFFIXES, name_and_bytes, pixels_of

# All pictures of a file together: `read_pictures` ends behind them. A byte that is copied costs an eighth.
_MOST_PIXELS = 4 * MAX_PIXELS

_ANIMATED = frozenset({"PNG", "WEBP", "GIF", "AVIF"})
_HEAD = 512  # bytes
_BMP_HEADERS = frozenset({12, 16, 40, 52, 56, 64, 108, 124})  # bytes; "BM" alone begins words, too
_JPEG = re.compile(rb"\xff\xd8\xff[\xc0-\xc4\xdb-\xef\xfe]")
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
        return error.cause != NO_IMAGE  # as of a BigTIFF, which is one


def count_pictures(source: str | os.PathLike[str] | bytes) -> int:
    """The number of pictures in an image file: pages, frames, thumbnails of its container, depth maps.

    The thumbnail in EXIF, layers, and a colour picture's transparency do not count.

    Raises:
        ImageError: no image, a damaged one, or one of more than MAX_PARTS parts.
    """
    name, data = name_and_bytes(source)
    try:
        return 1 + len(_others(data))
    except DECODING_ERRORS as error:
        raise refusal(name, error) from error


def read_first(
    source: str | os.PathLike[str] | bytes, *, channels: int | None = 3, size: int | None = None
) -> tuple[Pixels, int]:
    """Reads a file as `read_array` does, once. -> its first picture, and the number of others in it."""
    name, data = name_and_bytes(source)
    try:
        return pixels_of(open_picture(data), channels, size), len(_others(data))
    except DECODING_ERRORS as error:
        raise refusal(name, error) from error


def read_pictures(
    source: str | os.PathLike[str] | bytes, *, channels: int = 3
) -> Iterator[Pixels | ImageError]:
    """Yields the pictures of a file, the first one first, each (channels, H, W) uint8 and upright.

    A frame of an animation is the whole canvas, as a viewer shows it. A further picture that cannot be read
    yields its error. Pictures behind 4 * MAX_PIXELS in all, and frames of sequences in HEIC, are not read:
    `count_pictures` says how many there are. One picture is held at a time, as `read` holds it; of an
    animation, its decoder holds a canvas besides.

    Raises:
        ImageError: the first picture cannot be read; see `read`.
    """
    name, data = name_and_bytes(source)
    left, openers = _MOST_PIXELS, [partial(open_picture, data)]
    copied = 0 if kind_of(data) in _ANIMATED else len(data) // 8
    for number, opened in enumerate(openers):  # it grows
        try:
            picture = opened()
            left -= picture.size[0] * picture.size[1] + (copied if number else 0)
            if left < 0:
                return
            yield pixels_of(picture, channels)
        except DECODING_ERRORS as error:
            if number == 0:
                raise refusal(name, error) from error
            yield refusal(name, error)
            if not copied:
                return
        if number == 0:
            try:
                openers += _others(data)
            except DECODING_ERRORS as error:
                yield refusal(name, error)


def _others(data: bytes) -> list[Callable[[], Any]]:
    """A function for each picture of a file behind the first one, which opens it."""
    kind = kind_of(data)
    if kind in _ANIMATED:
        picture = open_picture(data)
        if picture.n_frames > MAX_PARTS:
            raise too_many_parts()
        return [partial(_open_frame, picture, frame) for frame in range(1, picture.n_frames)]
    if kind == "JPEG":
        return [partial(_open_part, data, start) for start in _jpegs(data)[1:]]
    if kind == "TIFF":
        return [partial(_open_page, data, start) for start in directories(data)[1:]]
    return _heic_pictures(data) if kind == "HEIF" else []


def _open_frame(picture: Any, frame: int) -> Any:
    picture.seek(frame)
    return check_size(picture)


def _open_part(data: bytes, start: int) -> Any:
    return open_picture(data[start:])


def _open_page(data: bytes, start: int) -> Any:
    order = ">" if data.startswith(b"MM") else "<"
    return open_picture(data[:4] + struct.pack(order + "I", start) + data[8:])


def _jpegs(data: bytes) -> list[int]:
    """Where the JPEGs of a file begin, one behind the other, as in an MPO and in photographs with depth."""
    starts, start = list[int](), 0
    while len(starts) <= MAX_PARTS:
        starts.append(start)
        end = start
        for _, _, end in jpeg_segments(data, start):
            pass
        following = _JPEG.search(data, max(end, start + 2))
        if following is None:
            return starts
        start = following.start()
    raise too_many_parts()


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
        if tags > 16 * MAX_PARTS or len(queue) > MAX_PARTS:
            raise too_many_parts()
        end = place + 2 + 12 * number
        for entry in range(place + 2, min(end, len(data) - 11), 12):
            tag, count, start = struct.unpack_from(order + "H2xII", data, entry)
            if tag == _SUB_DIRECTORIES:
                start = start if count > 1 else entry + 8
                queue += struct.unpack_from(f"{order}{min(count, MAX_PARTS)}I", data, start)
        if end + 4 <= len(data):
            queue += struct.unpack_from(order + "I", data, end)
    return list(found)


def _heic_pictures(data: bytes) -> list[Callable[[], Any]]:
    import pillow_heif

    file, openers = pillow_heif.open_heif(data), list[Callable[[], Any]]()
    for number, image in enumerate(file):
        if number != file.primary_index:
            openers.append(partial(check_size, image))
        openers += [partial(check_size, depth) for depth in image.info["depth_images"]]
        openers += [partial(_open_item, image.get_thumbnail, i) for i in range(len(image.info["thumbnails"]))]
        openers += [
            partial(_open_item, image.get_aux_image, i)
            for items in image.info.get("aux", {}).values()
            for i in items
        ]
    track = data.find(b"stsz") + 12  # the frames of a sequence, of which libheif opens none
    if track > 12:
        (frames,) = struct.unpack_from(">I", data, track)
        openers += [_refuse_frame] * min(frames, MAX_PARTS)
    return openers


def _open_item(open_item: Callable[[int], Any], number: int) -> Any:
    return check_size(open_item(number))


def _refuse_frame() -> Any:
    raise not_read("a frame of a sequence in HEIC: save it as PNG or JPEG")
