"""Decoding files from strangers: only pixels come out.

The first bytes of a file name its decoder, and no other one sees it. Pillow and pillow-heif read the header
first, so the size is checked before any pixel is decoded. ICC profiles are not applied. In all threads
together, decoders hold a limited number of pixels at a time (UNDER_WAY).
"""

import io
import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Condition, Lock
from typing import Any

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError, features

from sfumato.errors import ImageError, needs_extra

# A 50-megapixel photograph passes; a decompression bomb does not, nor many narrow rows, each of which costs
# Pillow time and memory. JPEG and GIF end at this side.
MAX_PIXELS, MAX_SIDE = 64_000_000, 65_535

# The most segments, frames or pages of a file: each costs a step in Python, and 64 MB hold 16 million.
MAX_PARTS = 65_536
TOO_MANY_PARTS = f"an image in more than {MAX_PARTS} parts: save it anew"

# A progressive JPEG's scan of 100 bytes takes some 30 ms at 8000x8000: 64 MB of them would take hours. An
# encoder's usual script has 10 scans. Pillow copies all EXIF before for each block.
_MAX_SCANS = 32

NO_IMAGE = "not an image that can be read"
_TOO_LARGE = "more pixels than allowed"
_KINDS = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "TIFF": rb"II\*\0|MM\0\*",
    "WEBP": rb"RIFF.{4}WEBP",
    "BMP": rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0",  # with its header's length; "BM" begins words
    # "mif1" and "msf1" say only that there are images; the brands after them give the coding.
    "AVIF": rb".{4}ftyp(avi[fs]|m[is]f1.{4}(.{4}){0,60}?avi[fs])",
    "HEIF": rb".{4}ftyp(he[iv][cxms]|m[is]f1)",
}

_JPEG_MARKER = re.compile(rb"\xff+([\xc0-\xcf\xd9-\xfe])")
_JPEG = re.compile(rb"\xff\xd8\xff[\xc0-\xc4\xdb-\xef\xfe]")

# None, fax, LZW, JPEG, Deflate and PackBits, as cameras, scanners and editors write.
_TIFF_CODECS = re.compile(r"raw|tiff_ccitt|group[34]|tiff_lzw|jpeg|packbits|tiff(_adobe)?_deflate")
_SUBFILE, _PHOTOMETRIC, _ORIENTATION, _STRIP_LENGTHS, _SUBSAMPLING = 254, 262, 274, 279, 530
_TILE_WIDTH, _TILE_HEIGHT, _TILE_LENGTHS, _SUB_DIRECTORIES = 322, 323, 325, 330
_T = Image.Transpose
_TURNS = {2: _T.FLIP_LEFT_RIGHT, 3: _T.ROTATE_180, 4: _T.FLIP_TOP_BOTTOM, 5: _T.TRANSPOSE}
_TURNS |= {6: _T.ROTATE_270, 7: _T.TRANSVERSE, 8: _T.ROTATE_90}  # by EXIF's orientations

# The errors on damaged files. Pillow raises TypeError at tags of other types than it expects.
DECODING_ERRORS: tuple[type[Exception], ...] = (ArithmeticError, EOFError, LookupError, OSError, RuntimeError)
DECODING_ERRORS += (SyntaxError, TypeError, ValueError, struct.error, Image.DecompressionBombError)

# About damaged metadata, and about sizes, which are checked here.
warnings.filterwarnings("ignore", module=r"PIL\.")


class PixelBudget:
    """Limits the pixels that this process decodes at once; further decodes wait, in turn. State: those."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Begins anew, in a process that a fork made: the threads that decoded are not in it."""
        self._under_way, self._turn, self._change = 0, Lock(), Condition()

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        """Waits for room, and gives it back at the end. More pixels than the limit are decoded alone."""
        with self._turn, self._change:
            self._change.wait_for(lambda: not self._under_way or self._under_way + pixels <= self._limit)
            self._under_way += pixels
        try:
            yield
        finally:
            with self._change:
                self._under_way -= pixels
                self._change.notify()


UNDER_WAY = PixelBudget(2 * MAX_PIXELS)  # of all threads
os.register_at_fork(after_in_child=UNDER_WAY.forget)


def not_read(message: str) -> ImageError:
    """The error of an unread kind of image, whose message says what to do."""
    return ImageError(message, cause="a kind of image that is not read")


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turns errors of decoders into an ImageError that names the file."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}", cause=error.cause) from error
    except DECODING_ERRORS as error:
        cause = NO_IMAGE if isinstance(error, UnidentifiedImageError) else "a damaged image"
        cause = _TOO_LARGE if isinstance(error, Image.DecompressionBombError) else cause
        reason = str(error).split("<")[0].strip(" :'\n") or type(error).__name__
        raise ImageError(f"{name}: {cause} ({reason})", cause=cause) from error


def kind_of(data: bytes) -> str:
    """The decoder for a file's first bytes; no other one ever sees the file. Raises ImageError."""
    for kind, signature in _KINDS.items():
        if re.match(signature, data, re.DOTALL):
            return kind
    if data.startswith((b"II+\0", b"MM\0+")):
        raise not_read("a BigTIFF: save it as an ordinary TIFF")
    known = "JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC and AVIF are"
    raise ImageError(f"{NO_IMAGE} ({known}): save it as PNG or JPEG", cause=NO_IMAGE)


class _Counted(io.BytesIO):
    """Bytes that a decoder reads in a limited number of parts: each costs Pillow a step in Python."""

    _left = 32 * MAX_PARTS  # the blocks of a GIF of 64 MB, four times

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise not_read(TOO_MANY_PARTS)
        return super().read(size)


def open_picture(data: bytes) -> Any:
    """Opens the first picture of a file, by Pillow or pillow-heif, without decoding it.

    Raises ImageError for one that is too large, or takes its decoder long, DECODING_ERRORS for a damaged one.
    """
    kind = kind_of(data)
    if kind == "HEIF":
        heif = open_heic(data)
        return check_size(heif[heif.primary_index])
    if kind == "AVIF" and not features.check("avif"):
        raise not_read("an AVIF, which this build of Pillow does not read: save it as PNG or JPEG")
    if kind == "JPEG" and data.count(b"\xff\xda") + data.count(b"Exif") > _MAX_SCANS:
        parts = ((marker, data[start + 4 : start + 8]) for marker, start, _ in jpeg_segments(data, 0))
        if sum(marker == 0xDA or name == b"Exif" for marker, name in parts) > _MAX_SCANS:
            raise not_read(f"a JPEG of more than {_MAX_SCANS} scans and blocks of EXIF: save it anew")
    picture = check_size(Image.open(_Counted(data), formats=(kind,)))
    if kind == "TIFF":
        _check_tiff(picture.tag_v2, picture.info["compression"], len(data))
    elif kind == "BMP" and picture.tile[0][0] == "bmp_rle":  # Pillow decodes it in Python, in minutes
        raise not_read("a run-length coded BMP: save it as PNG")
    return picture


def open_heic(data: bytes) -> Any:
    """Opens a HEIC: pillow-heif is not registered with Pillow, and so changes nothing for other code."""
    with needs_extra("reading HEIC", "heic"):
        import pillow_heif
    return pillow_heif.open_heif(data)


def check_size(picture: Any) -> Any:
    """Returns an opened picture. Raises ImageError if it is larger than allowed."""
    width, height = picture.size
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        words = f"{width}x{height} pixels, more than the {MAX_PIXELS} allowed, or the {MAX_SIDE} of a side"
        raise ImageError(f"{words}: resize the file", cause=_TOO_LARGE)
    return picture


def _check_tiff(tags: Any, codec: str, length: int) -> None:
    if tags.get(_SUBFILE) == 1:
        raise not_read("a thumbnail before the picture, as in a camera's raw file: save it as PNG or JPEG")
    if not _TIFF_CODECS.fullmatch(codec):
        raise not_read(f"a TIFF of compression {codec}: save it with LZW or Deflate")
    if (codec, tags.get(_PHOTOMETRIC)) == ("raw", 6) and tags.get(_SUBSAMPLING) != (1, 1):
        raise not_read("a TIFF of uncompressed, subsampled YCbCr: save it as RGB")
    if tags.get(_TILE_WIDTH, 0) * tags.get(_TILE_HEIGHT, 0) > MAX_PIXELS:
        raise ValueError("tiles larger than images may be")
    if sum(tags.get(_STRIP_LENGTHS, ())) + sum(tags.get(_TILE_LENGTHS, ())) > length:
        raise ValueError("strips that overlap")


def jpeg_segments(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """The marker, start and end of each segment of the JPEG at a position."""
    position += 2
    for _ in range(MAX_PARTS):
        if (match := _JPEG_MARKER.search(data, position)) is None:
            return
        marker, start, position = match[1][0], match.end() - 2, match.end()
        if marker == 0xD9:
            yield marker, start, position
            return
        position += struct.unpack_from(">H", data, position)[0]
        if marker == 0xDA:  # coded data, up to the next marker but restarts
            following = _JPEG_MARKER.search(data, position)
            position = len(data) if following is None else following.start()
        yield marker, start, position
    raise not_read(TOO_MANY_PARTS)


def jpegs(data: bytes) -> list[int]:
    """Where the JPEGs of a file begin, one behind the other, as in an MPO and in photographs with depth."""
    starts = [0]
    while len(starts) <= MAX_PARTS:
        ends = [end for _, _, end in jpeg_segments(data, starts[-1])]
        if (following := _JPEG.search(data, max(starts[-1] + 2, *ends[-1:]))) is None:
            return starts
        starts.append(following.start())
    raise not_read(TOO_MANY_PARTS)


def directories(data: bytes) -> list[int]:
    """The positions of a TIFF's directories: its pages, and those below them."""
    order, found, tags = ">" if data.startswith(b"MM") else "<", dict[int, None](), 0
    queue = [*struct.unpack_from(order + "I", data, 4)]
    for place in queue:  # it grows
        if place in found or not 8 <= place <= len(data) - 6:
            continue
        found[place] = None
        (number,) = struct.unpack_from(order + "H", data, place)
        tags, end = tags + number, place + 2 + 12 * number
        if tags > 16 * MAX_PARTS or len(queue) > MAX_PARTS:
            raise not_read(TOO_MANY_PARTS)
        for entry in range(place + 2, min(end, len(data) - 11), 12):
            tag, count, start = struct.unpack_from(order + "H2xII", data, entry)
            if tag == _SUB_DIRECTORIES:
                start = start if count > 1 else entry + 8
                queue += struct.unpack_from(f"{order}{min(count, MAX_PARTS)}I", data, start)
        if end + 4 <= len(data):
            queue += struct.unpack_from(order + "I", data, end)
    return list(found)


def decode(picture: Any, channels: int | None) -> Image.Image:
    """Decodes an opened picture, upright, "L" or "RGB", as sfumato.images.read promises."""
    if not isinstance(picture, ImageFile.ImageFile):  # of pillow-heif, which turns it
        return eight_bits(picture.to_pillow(), channels)
    if picture.format == "PNG":
        coding = picture.tile[0][3]
        if coding in ("L;2", "L;4") and "transparency" in picture.info:  # Pillow shows them as 8 bits
            picture.info["transparency"] *= 255 // (2 ** int(coding[2]) - 1)
        elif coding == "RGB;16B":  # 8 bits cannot distinguish the transparent colour from its neighbours
            picture.info.pop("transparency", None)
        elif coding == "LA;16B" and channels is None:  # which Pillow reads as RGBA
            channels = 1
    picture.load()
    pixels, orientation = eight_bits(picture, channels), 1
    if picture.format == "AVIF":
        picture.info.pop("xmp", None)  # its boxes turn it, which Pillow states as EXIF
    if picture.format != "TIFF":  # which Pillow has turned
        with suppress(*DECODING_ERRORS):
            orientation = picture.getexif().get(_ORIENTATION, 1)
    return pixels.transpose(_TURNS[orientation]) if orientation in _TURNS else pixels


def eight_bits(image: Image.Image, channels: int | None) -> Image.Image:
    """Converts to "L" or "RGB" at 8 bits a channel; transparency is laid on white."""
    if image.mode == "P" and image.palette is None:
        raise ValueError("a palette image without a palette")
    palette = (image.getpalette("RGB") or []) if image.mode in ("P", "PA") else None
    grey = image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16")
    grey = grey if palette is None else palette[0::3] == palette[1::3] == palette[2::3]
    mode = "L" if channels == 1 or (channels is None and grey) else "RGB"
    if image.mode.startswith("I;16"):
        levels = np.asarray(image)  # convert("L") would clip them at 255; the high byte is the picture
        high = (levels.astype(np.uint16) >> 8).astype(np.uint8)
        if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0:  # Pillow heeds it only up to 8 bits
            high = 255 - high
        if "transparency" in image.info:
            high[levels == image.info["transparency"]] = 255
        return Image.fromarray(high).convert(mode)
    if image.mode in ("I", "F"):  # convert("L") would clip these, too
        raise not_read(f"{image.mode} values have no stated range: save it with 8 or 16 bits a channel")
    if image.has_transparency_data:
        layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer)
    elif image.mode == "LAB":
        image = image.convert("RGB")  # the only conversion from it
    return image if image.mode == mode else image.convert(mode)
