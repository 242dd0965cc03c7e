"""Files of several pictures: pages, frames, thumbnails, depth maps."""

import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from sfumato.base.files import open_regular
from sfumato.errors import ImageError
from sfumato.images import decoding
from sfumato.images.convention import Pixels
from sfumato.images.decoding import MAX_PARTS, MAX_PIXELS, TOO_MANY_PARTS, kind_of, not_read, open_picture
from sfumato.images.reading import SUFFIXES, name_and_bytes, naming, pixels_of

# All pictures of a file together: `read_pictures` ends behind them. A byte that is copied costs an eighth.
_MOST_PIXELS = 4 * MAX_PIXELS

_ANIMATED = ("PNG", "WEBP", "GIF", "AVIF")
_HEAD = 512  # bytes
_JPEG = re.compile(rb"\xff\xd8\xff[\xc0-\xc4\xdb-\xef\xfe]")
_SUB_DIRECTORIES = 330


def is_image(source: str | os.PathLike[str] | bytes) -> bool:
    """Whether a file is to be read as an image: by its first bytes (512 are enough), or by its suffix."""
    head = source if isinstance(source, bytes) else b""
    if not isinstance(source, bytes):
        if Path(source).suffix.lower() in SUFFIXES:
            return True
        with suppress(OSError), open_regular(source) as file:
            head = file.read(_HEAD)
    try:
        return bool(kind_of(head))
    except ImageError as error:
        return error.cause != decoding.NO_IMAGE  # as of a BigTIFF, which is one


def count_pictures(source: str | os.PathLike[str] | bytes) -> int:
    """The number of pictures in an image file: pages, frames, thumbnails of its container, depth maps.

    The thumbnail in EXIF, layers, and a colour picture's transparency do not count. Raises ImageError, also
    for a file of more than MAX_PARTS parts.
    """
    name, data = name_and_bytes(source)
    with naming(name):
        return 1 + len(_others(data))


def read_first(
    source: str | os.PathLike[str] | bytes, *, channels: int | None = 3, size: int | None = None
) -> tuple[Pixels, int]:
    """Reads a file as `read_array` does, once. -> its first picture, and the number of others in it."""
    name, data = name_and_bytes(source)
    with naming(name):
        return pixels_of(open_picture(data), channels, size), len(_others(data))


def read_pictures(
    source: str | os.PathLike[str] | bytes, *, channels: int = 3
) -> Iterator[Pixels | ImageError]:
    """Yields the pictures of a file, the first one first, each (channels, H, W) uint8 and upright.

    A frame of an animation is the whole canvas, as a viewer shows it. A further picture that cannot be read
    yields its error; a frame ends the animation then. Pictures behind 4 * MAX_PIXELS in all are not read:
    `count_pictures` says how many there are. One picture is held at a time, as `read` holds it; of an
    animation, its decoder holds a canvas besides. Raises ImageError if the first one cannot be read.
    """
    name, data = name_and_bytes(source)
    with naming(name):
        first = pixels_of(open_picture(data), channels)
    yield first
    left, animated = _MOST_PIXELS - first[0].size, kind_of(data) in _ANIMATED
    try:
        others = _others(data)
    except decoding.DECODING_ERRORS as error:
        others = [partial(_refuse, error)]
    for opened in others:
        try:
            picture = decoding.check_size(opened())
            left -= picture.size[0] * picture.size[1] + (0 if animated else len(data) // 8)
            if left < 0:
                return
            yield pixels_of(picture, channels)
        except decoding.DECODING_ERRORS as error:
            yield decoding.refusal(name, error)
            if animated:
                return


def _others(data: bytes) -> list[Callable[[], Any]]:
    """A function for each picture of a file behind the first one, which opens it."""
    kind = kind_of(data)
    if kind in _ANIMATED:
        picture = open_picture(data)
        if picture.n_frames > MAX_PARTS:
            raise not_read(TOO_MANY_PARTS)
        return [partial(_open_frame, picture, frame) for frame in range(1, picture.n_frames)]
    if kind == "JPEG":
        return [partial(_open_part, b"", data, start) for start in _jpegs(data)[1:]]
    if kind == "TIFF":
        order = ">" if data.startswith(b"MM") else "<"
        heads = (data[:4] + struct.pack(order + "I", start) for start in directories(data)[1:])
        return [partial(_open_part, head, data, 8) for head in heads]
    return _heic_pictures(data) if kind == "HEIF" else []


def _open_frame(picture: Any, frame: int) -> Any:
    picture.seek(frame)
    return picture


def _open_part(head: bytes, data: bytes, start: int) -> Any:
    return open_picture(head + data[start:])


def _jpegs(data: bytes) -> list[int]:
    """Where the JPEGs of a file begin, one behind the other, as in an MPO and in photographs with depth."""
    starts = [0]
    while len(starts) <= MAX_PARTS:
        ends = [end for _, _, end in decoding.jpeg_segments(data, starts[-1])]
        following = _JPEG.search(data, max(starts[-1] + 2, *ends[-1:]))
        if following is None:
            return starts
        starts.append(following.start())
    raise not_read(TOO_MANY_PARTS)


def directories(data: bytes) -> list[int]:
    """The positions of a TIFF's directories: its pages, and those below them."""
    order = ">" if data.startswith(b"MM") else "<"
    found: dict[int, None] = {}
    queue, tags = [*struct.unpack_from(order + "I", data, 4)], 0
    for place in queue:  # it grows
        if place in found or not 8 <= place <= len(data) - 6:
            continue
        found[place] = None
        (number,) = struct.unpack_from(order + "H", data, place)
        tags += number
        if tags > 16 * MAX_PARTS or len(queue) > MAX_PARTS:
            raise not_read(TOO_MANY_PARTS)
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
    file, openers = decoding.open_heic(data), list[Callable[[], Any]]()
    for number, image in enumerate(file):
        beside = [*([] if number == file.primary_index else [image]), *image.info["depth_images"]]
        openers += [partial(lambda each: each, each) for each in beside]
        openers += [partial(image.get_thumbnail, each) for each in range(len(image.info["thumbnails"]))]
        openers += [partial(image.get_aux_image, each) for ids in image.info["aux"].values() for each in ids]
    track = data.find(b"stsz") + 12  # the frames of a sequence, of which libheif opens none
    if track > 12:
        error = not_read("a frame of a sequence in HEIC: save it as PNG or JPEG")
        openers += [partial(_refuse, error)] * min(*struct.unpack_from(">I", data, track), MAX_PARTS)
    return openers


def _refuse(error: Exception) -> Any:
    raise error
