"""Decoding files from strangers: only pixels may come out.

Every file is sifted first: the parts of its first picture are put together anew, and its orientation is read
here. Pillow's decoders then meet no EXIF, GPS, XMP, IPTC, ICC, comment, thumbnail or second picture: these
can neither travel on (Pillow carries some through convert, resize and save), nor fail, nor warn, nor fill the
memory. ICC profiles are not applied.

The size of the picture is read here too, and occurs once in the decoder's input: a file that states two sizes
is refused, and so is one whose decoder sees another size than the sifter, before it allocates
pixels. In all threads together, decoders hold a limited number of pixels at a time (UNDER_WAY).

The sifters are together: a TIFF has JPEGs inside, an EXIF block is a TIFF, and one limit holds for all.
"""

import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from threading import Condition, Lock
from typing import NamedTuple

import numpy as np
from PIL import Image, UnidentifiedImageError, features

from sfumato.errors import ImageError, needs_extra
from sfumato.images.heif import picture_of
from sfumato.images.orientation import (
    MOST_TEXT,
    PNG_BLOCKS,
    XMP_OF_JPEG,
    entries_of,
    from_hex,
    orientation_of,
    png_text,
    turn,
)
from sfumato.images.refusals import MAX_PARTS, not_read, too_many_parts, twice, two_sizes

# A 50-megapixel photograph passes; a decompression bomb does not. Nor does an image with many rows, each of
# which costs Pillow time and memory, however narrow. JPEG and GIF end at this side.
MAX_PIXELS = 64_000_000
MAX_SIDE = 65_535

# A JPEG's scan of 100 bytes covers the whole image, in some 30 ms at 8000x8000: 64 MB of them would
# take hours. An encoder's usual script has 10 scans.
_MAX_SCANS = 32

_SIGNATURES = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF87a": "GIF",
    b"GIF89a": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
}
_BIG_TIFF = (b"II+\0", b"MM\0+")
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})

# The end of coded data: not a stuffed zero, nor a restart marker.
_JPEG_MARKER = re.compile(rb"\xff+([\xc0-\xcf\xd9-\xfe])")
_JPEG_FRAMES = frozenset({0xC0, 0xC1, 0xC2})  # baseline, extended, progressive
_JPEG_ODD_FRAMES = frozenset(range(0xC3, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Tables and scans, JFIF and Adobe; not the height that DNL (0xDC) states after the first scan.
_JPEG_KEPT = frozenset(range(0xC0, 0xE1)) - {0xDC} | {0xEE} | frozenset(range(0xF0, 0xFE))

# The chunks that a PNG has at most once: decoders differ on a second.
_PNG_SINGLE = {b"IHDR": "headers", b"PLTE": "palettes", b"tRNS": "kinds of transparency"}

_WEBP_KEPT = frozenset({b"VP8X", b"ANIM", b"ANMF", b"ALPH", b"VP8 ", b"VP8L"})

_WIDTH, _HEIGHT = 256, 257
_COMPRESSION, _PHOTOMETRIC, _SUBSAMPLING = 259, 262, 530
_NEW_SUBFILE, _XMP = 254, 700
_STRIP_OFFSETS, _SAMPLES, _ROWS, _STRIP_LENGTHS = 273, 277, 278, 279
_TILE_WIDTH, _TILE_HEIGHT, _TILE_OFFSETS, _TILE_LENGTHS = 322, 323, 324, 325
# Also size, fill order, samples, rows, planes, fax options and predictor ...
_TIFF_NUMBERS = frozenset({256, 257, 259, 262, 266, 277, 278, 284, 292, 293, 317, 322, 323})
# ... and bits, palette, extra samples, sample format, JPEG tables.
_TIFF_LISTS = frozenset({258, 273, 279, 320, 324, 325, 338, 339, 347, 530})
_TIFF_TYPES = {3: "H", 4: "I", 7: "B"}
_TIFF_JPEG = 7
# None, fax, LZW, JPEG, Deflate (under two numbers) and PackBits: as cameras, scanners and editors write.
_TIFF_COMPRESSIONS = frozenset({1, 2, 3, 4, 5, _TIFF_JPEG, 8, 32773, 32946})

# The errors of Pillow's decoders on damaged files, of pillow-heif (RuntimeError) and of the sifters below.
DECODING_ERRORS = (
    ArithmeticError,
    EOFError,
    KeyError,
    IndexError,
    OSError,
    RuntimeError,
    SyntaxError,
    ValueError,
    struct.error,
)
NO_IMAGE = "not an image that can be read"
_DAMAGED = "a damaged image"

# `decode` refuses such files itself, with an error of our own.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)


class Sifted(NamedTuple):
    """The first picture of a file, put together anew: it states its size once.

    Attributes:
        kind: its decoder.
        data: its bytes.
        size: (width, height) in pixels, as they are stored: an orientation may turn them.
        orientation: 1 to 8, as in EXIF.
        pixels: the most that its decoder holds at once, if that is more than width x height.
    """

    kind: str
    data: bytes
    size: tuple[int, int]
    orientation: int = 1
    pixels: int = 0


class PixelBudget:
    """Limits the pixels that this process decodes at once: further decodes wait for their turn.

    One image with more pixels than the limit is decoded alone. Waiting images go in turn, so small ones
    do not keep a large one waiting for ever. State: the pixels of the decodes under way.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Begins anew, in a process that a fork made: the threads that decoded are not in it."""
        self._under_way = 0
        self._turn = Lock()  # of the thread that waits for room, or is about to look for it
        self._lock = Lock()  # plain, which takes a tenth of the time of a condition
        self._change = Condition(self._lock)
        self._waited_for = False

    def enter(self, pixels: int) -> None:
        """Waits until there is room for the pixels; `leave` gives it back."""
        with self._turn, self._lock:
            while self._under_way and self._under_way + pixels > self._limit:
                self._waited_for = True
                self._change.wait()
            self._waited_for = False
            self._under_way += pixels

    def leave(self, pixels: int) -> None:
        """Gives back the room of `enter`."""
        with self._lock:
            self._under_way -= pixels
            if self._waited_for:
                self._change.notify()


# For the images that are read at the same time, in all threads of a process.
UNDER_WAY = PixelBudget(2 * MAX_PIXELS)
os.register_at_fork(after_in_child=UNDER_WAY.forget)


def sift(data: bytes) -> Sifted:
    """Sifts the first picture of a file, whose size only its bytes state.

    Raises:
        ImageError: no image, a damaged one, one that states two sizes, or one of more than MAX_PIXELS.
    """
    try:
        return check(_SIFTERS[kind_of(data)](data))
    except ImageError:
        raise
    except DECODING_ERRORS as error:
        raise refusal(error) from error


def check(sifted: Sifted) -> Sifted:
    """Returns the picture. Raises ImageError if it is larger than allowed."""
    _check_size(*sifted.size)
    if sifted.pixels > 2 * MAX_PIXELS:  # a picture and its transparency
        raise ImageError(
            f"{sifted.pixels} pixels in its parts, more than the {2 * MAX_PIXELS} allowed: resize the file",
            cause="more pixels than allowed",
        )
    return sifted


def decode(sifted: Sifted, channels: int | None) -> Image.Image:
    """Decodes the picture, upright, "L" or "RGB", as sfumato.images.read promises.

    Its decoder has to keep to the size that the bytes state, before it allocates pixels.
    """
    try:
        return _decode(sifted, channels)
    except ImageError:
        raise
    except DECODING_ERRORS as error:
        raise refusal(error) from error


def refusal(error: Exception) -> ImageError:
    """The ImageError for an error of a decoder or a sifter."""
    bombs = (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning)
    cause = NO_IMAGE if isinstance(error, bombs) else _DAMAGED
    return ImageError(f"{cause} ({_reason(error)})", cause=cause)


def _decode(sifted: Sifted, channels: int | None) -> Image.Image:
    if sifted.kind == "HEIF":
        import pillow_heif

        # Not registered with Pillow: it changes nothing for other code. libheif turns the picture itself.
        heif = pillow_heif.open_heif(sifted.data)
        _check_decoder(heif.size, sifted)
        picture = heif.to_pillow()
        _check_decoder(picture.size, sifted)
        return eight_bits(picture, channels)
    if channels is None and sifted.kind == "PNG" and sifted.data[25] == 4:
        channels = 1  # grey with alpha, which Pillow reads as RGBA if it has 16 bits
    with Image.open(io.BytesIO(sifted.data), formats=(sifted.kind,)) as opened:
        _check_decoder(opened.size, sifted)
        opened.load()
        _check_decoder(opened.size, sifted)
        pixels = eight_bits(opened, channels)
        if sifted.kind == "AVIF":  # Pillow gives the turn of its own boxes in EXIF
            sifted = sifted._replace(orientation=orientation_of(opened.info.get("exif", b"")))
    return turn(pixels, sifted.orientation)


def _check_decoder(size: tuple[int, int], sifted: Sifted) -> None:
    """Raises ImageError unless a decoder sees the sifter's size: otherwise neither is to be believed."""
    if size != sifted.size:
        raise two_sizes(sifted.kind, sifted.size, size)


def _reason(error: Exception) -> str:
    return str(error).split("<")[0].strip(" :'\n") or type(error).__name__


def kind_of(data: bytes) -> str:
    """The decoder for a file's first bytes; no other one ever sees the file."""
    for signature, kind in _SIGNATURES.items():
        if data.startswith(signature):
            return kind
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        # "mif1" and "msf1" say only that there are images; the brands after them give the coding.
        brands = [data[i : i + 4] for i in (8, *range(16, min(int.from_bytes(data[:4]), 256), 4))]
        if brands[0] in (b"mif1", b"msf1"):
            brands = [*(brand for brand in brands if brand in _AVIF_BRANDS), b"heic"]
        if brands[0] in _AVIF_BRANDS:
            return "AVIF"
        if brands[0] in _HEIC_BRANDS:
            return "HEIF"
    if data.startswith(_BIG_TIFF):
        raise not_read("a BigTIFF: save it as an ordinary TIFF")
    raise ImageError(
        f"{NO_IMAGE} (JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC and AVIF are): save it as PNG or JPEG",
        cause=NO_IMAGE,
    )


def _check_size(width: int, height: int) -> None:
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{width}x{height} pixels, more than the {MAX_PIXELS} allowed: resize the file",
            cause="more pixels than allowed",
        )
    if max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{width}x{height} pixels, a side of more than the {MAX_SIDE} allowed: cut it into parts",
            cause="a side of more pixels than allowed",
        )


def eight_bits(image: Image.Image, channels: int | None) -> Image.Image:
    """Converts to "L" or "RGB" at 8 bits a channel; transparency is laid on white."""
    if image.mode == "P" and image.palette is None:
        raise ValueError("a palette image without a palette")
    mode = "L" if channels == 1 or (channels is None and _is_grey(image)) else "RGB"
    if image.mode.startswith("I;16"):
        # convert("L") would clip 16-bit greys at 255; the high byte is the picture.
        levels = np.asarray(image)
        high = (levels.astype(np.uint16) >> 8).astype(np.uint8)
        if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0:
            high = 255 - high  # white is zero, which Pillow respects only up to 8 bits
        if "transparency" in image.info:
            high[levels == image.info["transparency"]] = 255
        return Image.fromarray(high).convert(mode)
    if image.mode in ("I", "F"):
        # convert("L") would clip these too, and the file does not state the picture's range.
        raise not_read(
            f"values of mode {image.mode} have no stated range: save it with 8 or 16 bits a channel"
        )
    if image.has_transparency_data:
        layer = image.convert("LA") if image.mode == "La" else image
        layer = layer if layer.mode == "RGBA" else layer.convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer)
    elif image.mode == "LAB":
        image = image.convert("RGB")  # the only conversion from it
    return image if image.mode == mode else image.convert(mode)


def _is_grey(image: Image.Image) -> bool:
    if image.mode in ("P", "PA"):
        palette = image.getpalette("RGB") or []
        return palette[0::3] == palette[1::3] == palette[2::3]
    return image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16")


# Sifters: the first picture of a file, its stated size, and its EXIF block. The decoder may refuse whatever
# is merely odd. A second header is refused here, since decoders differ in which one they believe.


def _sift_jpeg(data: bytes) -> Sifted:
    """Sifts out comments and APP segments, except JFIF and Adobe, which say how colours are stored."""
    view, kept, exif, xmp = memoryview(data), [memoryview(b"\xff\xd8")], b"", b""
    scans, size = 0, None
    for marker, start, position in jpeg_segments(data, 0):
        if marker == 0xD9:
            kept.append(view[start:position])
        elif marker == 0xDA:
            scans += 1
        elif marker == 0xE1 and data.startswith(b"Exif\0\0", start + 4):
            exif = exif or data[start + 10 : position]
        elif marker == 0xE1 and data.startswith(XMP_OF_JPEG, start + 4):
            xmp = xmp or data[start + 4 : position]
        if marker in _JPEG_ODD_FRAMES:
            # Arithmetic, lossless, hierarchical: no browser shows these, so their decoders are little tested.
            raise not_read("a JPEG that is not Huffman-coded: save it as PNG or ordinary JPEG")
        if marker in _JPEG_FRAMES:
            if size is not None:
                raise twice("JPEG", "frame headers")
            height, width = struct.unpack_from(">HH", data, start + 5)
            size = (width, height)
        if scans > _MAX_SCANS:
            raise not_read(f"a JPEG of more than {_MAX_SCANS} scans: save it anew")
        if marker in _JPEG_KEPT:
            kept.append(view[start:position])
    if size is None:
        raise ValueError("no frame in it")
    return Sifted("JPEG", b"".join(kept), size, orientation_of(exif, xmp))


def jpeg_segments(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """The marker, start and end of each segment of the JPEG at a position."""
    position += 2
    for _ in range(MAX_PARTS):
        match = _JPEG_MARKER.search(data, position)
        if match is None:
            return
        marker, start = match[1][0], match.end() - 2
        if marker == 0xD9:
            yield marker, start, start + 2
            return
        (length,) = struct.unpack_from(">H", data, start + 2)
        position = start + 2 + length
        if marker == 0xDA:
            following = _JPEG_MARKER.search(data, position)
            position = len(data) if following is None else following.start()
        yield marker, start, position
    raise too_many_parts()


def sift_png(data: bytes, further: frozenset[bytes] = frozenset()) -> Sifted:
    """Keeps header, palette, transparency and picture; no other chunk, so no animation, but those named."""
    if data[8:16] != b"\0\0\0\x0dIHDR":
        raise ValueError("no header at its beginning")
    view, kept, exif = memoryview(data), [memoryview(data)[:8]], b""
    single, texts = set(), dict[bytes, bytes]()
    for chunk, start, position in png_chunks(data):
        if chunk in _PNG_SINGLE:
            if chunk in single:
                raise twice("PNG", _PNG_SINGLE[chunk])
            single.add(chunk)
        if chunk in (b"IHDR", b"PLTE", b"IDAT", b"IEND") or chunk in further:
            kept.append(view[start:position])
        elif chunk == b"tRNS":
            kept.append(_sift_transparency(data, view[start:position]))
        elif chunk == b"eXIf":
            exif = exif or data[start + 8 : position - 4]
        elif chunk in (b"tEXt", b"zTXt", b"iTXt"):
            word = data[start + 8 : start + 88].partition(b"\0")[0]
            if word in PNG_BLOCKS and word not in texts:
                texts[word] = png_text(chunk, data[start + 9 + len(word) : position - 4])
    blocks = [from_hex(text) if word.startswith(b"Raw") else text for word, text in texts.items()]
    size = struct.unpack_from(">II", data, 16)
    return Sifted("PNG", b"".join(kept), size, orientation_of(exif, *blocks))


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The name, start and end of each chunk of a PNG, up to IEND."""
    position = 8
    for _ in range(MAX_PARTS):
        if position + 8 > len(data):
            return
        length, chunk = struct.unpack_from(">I4s", data, position)
        yield chunk, position, position + 12 + length
        if chunk == b"IEND":
            return
        position += 12 + length
    raise too_many_parts()


def _sift_transparency(data: bytes, chunk: memoryview) -> memoryview:
    """The tRNS chunk in the levels that Pillow expects: those of 8 bits for grey of 2 and 4.

    16-bit colour loses the chunk: 8 bits cannot distinguish the transparent colour from its neighbours.
    """
    depth, colours = struct.unpack_from(">BB", data, 24)
    if colours == 0 and depth in (2, 4) and len(chunk) == 14:
        level = int.from_bytes(chunk[8:10]) * 255 // (2**depth - 1)
        body = b"tRNS" + struct.pack(">H", min(level, 65_535))
        return memoryview(struct.pack(">I", 2) + body + struct.pack(">I", zlib.crc32(body)))
    return memoryview(b"") if (colours, depth) == (2, 16) else chunk


def sift_webp(data: bytes, *, animated: bool = False) -> Sifted:
    """Keeps the first frame, or all of them, and its canvas, which the decoder makes on opening."""
    view, kept, exif, xmp = memoryview(data), [memoryview(b"WEBP")], b"", b""
    end = min(len(data), 8 + int.from_bytes(data[4:8], "little"))
    canvas = frame = None
    for chunk, body, stop in riff_chunks(data, 12, end):
        if chunk == b"EXIF":
            exif = exif or data[body:stop]
        elif chunk == b"XMP ":
            xmp = xmp or data[body:stop]
        elif chunk in _WEBP_KEPT and (frame is None or (animated and chunk == b"ANMF")):
            kept.append(view[body - 8 : stop + (stop - body) % 2])
            if chunk == b"VP8X":
                if canvas is not None:
                    raise twice("WEBP", "canvases")
                canvas = _size_of_24_bits(data, body + 4)
                _check_size(*canvas)
            elif chunk == b"ANMF":
                frame = _size_of_24_bits(data, body + 6)
                for inner, start, _ in riff_chunks(data, body + 16, stop):
                    size = _webp_picture_size(data, inner, start)
                    if size not in (None, frame):
                        raise two_sizes("WEBP", frame, size)
            else:
                frame = _webp_picture_size(data, chunk, body)
                if canvas is not None and frame not in (None, canvas):
                    raise two_sizes("WEBP", canvas, frame)
    size = canvas or frame
    if size is None or frame is None:
        raise ValueError("no picture in it")
    sifted = b"".join(kept)
    whole = b"RIFF" + struct.pack("<I", len(sifted)) + sifted
    return Sifted("WEBP", whole, size, orientation_of(exif, xmp))


def riff_chunks(data: bytes, position: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each chunk, and the start and end of its body."""
    for _ in range(MAX_PARTS):
        if position + 8 > end:
            return
        chunk, length = struct.unpack_from("<4sI", data, position)
        yield chunk, position + 8, min(position + 8 + length, end)
        position += 8 + length + length % 2
    raise too_many_parts()


def _size_of_24_bits(data: bytes, position: int) -> tuple[int, int]:
    bits = int.from_bytes(data[position : position + 6], "little")
    return 1 + (bits & 0xFFFFFF), 1 + (bits >> 24)


def _webp_picture_size(data: bytes, chunk: bytes, body: int) -> tuple[int, int] | None:
    """The size in a chunk of coded pixels; None for other chunks."""
    if chunk == b"VP8 ":
        bits = int.from_bytes(data[body + 6 : body + 10], "little")
        return bits & 0x3FFF, bits >> 16 & 0x3FFF
    if chunk == b"VP8L":
        bits = int.from_bytes(data[body + 1 : body + 5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


def sift_gif(data: bytes) -> Sifted:
    """Sifts out comments and other extensions before the first picture, except transparency.

    Its size is that of its screen or of its first picture, whichever reaches further, as in Pillow.
    """
    start = position = 13 + (6 << (data[10] & 7) if data[10] & 0x80 else 0)  # behind the screen's palette
    control, xmp, inside = b"", b"", False
    for _ in range(MAX_PARTS):
        lead = data[position]
        if inside or lead == 0:  # sub-blocks of an extension, the last of them empty
            position += 1 + lead
            inside = lead > 0
        elif lead == 0x21:
            if data[position + 1 : position + 3] == b"\xf9\x04":
                control = data[position : position + 7] + b"\0"
            elif data.startswith(b"\xff\x0bXMP DataXMP", position + 1):
                xmp = xmp or data[position + 14 : position + MOST_TEXT]
            position += 2
            inside = True
        elif lead == 0x2C:
            screen = struct.unpack_from("<HH", data, 6)
            left, top, width, height = struct.unpack_from("<HHHH", data, position + 1)
            size = (max(screen[0], left + width), max(screen[1], top + height))
            sifted = b"".join((data[:start], control, memoryview(data)[position:]))
            return Sifted("GIF", sifted, size, orientation_of(xmp))
        else:
            raise ValueError("no picture in it")
    raise too_many_parts()


def _sift_bmp(data: bytes) -> Sifted:
    """Keeps all: no metadata is read. Refuses run lengths, which Pillow decodes in Python, in minutes."""
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size < 40:
        return Sifted("BMP", data, struct.unpack_from("<HH", data, 18))
    width, height, compression = struct.unpack_from("<Ii4xI", data, 18)
    if compression in (1, 2):
        raise not_read("a run-length coded BMP: save it as PNG")
    return Sifted("BMP", data, (width, abs(height)))  # below 0: from the top down


def sift_tiff(data: bytes, directory: int | None = None) -> Sifted:
    """Writes the same bytes under a new directory, with only the tags of a picture's pixels.

    The picture is that of the directory at a position; without one, of the first, which is not a thumbnail.
    """
    order, entries = entries_of(data, directory)
    if (
        directory is None
        and _NEW_SUBFILE in entries
        and data[entries[_NEW_SUBFILE] + 8 :][:4].strip(b"\0") == b"\1"
    ):
        raise not_read("a thumbnail before the picture, as in a camera's raw file: save it as PNG or JPEG")
    kept: list[bytes] = []  # entries
    values: dict[int, tuple[int, ...]] = {}
    outside = 0  # bytes of values that do not fit into their entries
    for tag in sorted(entries.keys() & (_TIFF_NUMBERS | _TIFF_LISTS)):
        place = entries[tag]
        kind, count = struct.unpack_from(order + "HI", data, place + 2)
        if kind not in _TIFF_TYPES or count == 0 or (tag in _TIFF_NUMBERS and count > 1):
            raise ValueError(f"TIFF tag {tag} with {count} values of type {kind}")
        if count > MAX_PARTS:
            raise too_many_parts()
        values_form = f"{order}{count}{_TIFF_TYPES[kind]}"
        if struct.calcsize(values_form) <= 4:
            start = place + 8
        else:
            (start,) = struct.unpack_from(order + "I", data, place + 8)
            outside += struct.calcsize(values_form)
        values[tag] = struct.unpack_from(values_form, data, start)
        kept += struct.unpack_from("12s", data, place)
    compression = values.get(_COMPRESSION, (1,))[0]
    strips = values.get(_STRIP_OFFSETS, ()) + values.get(_TILE_OFFSETS, ())
    lengths = values.get(_STRIP_LENGTHS, ()) + values.get(_TILE_LENGTHS, ())
    if compression not in _TIFF_COMPRESSIONS:
        raise not_read(f"a TIFF of compression {compression}: save it with LZW or Deflate")
    if values.get(_PHOTOMETRIC) == (6,) and compression == 1 and values.get(_SUBSAMPLING) != (1, 1):
        raise not_read("a TIFF of uncompressed, subsampled YCbCr: save it as RGB")
    if len(strips) != len(lengths) or outside + sum(lengths) > len(data):
        raise ValueError("strips that overlap")
    if any(start + length > len(data) for start, length in zip(strips, lengths, strict=True)):
        raise ValueError("strips outside of the file")
    if values.get(_SAMPLES, (1,))[0] > 6:
        raise ValueError("more than 6 samples a pixel")
    width, height = values[_WIDTH][0], values[_HEIGHT][0]
    # A strip has the stated rows, but no more than the image.
    part = (width, min(height, values.get(_ROWS, (height,))[0]))
    if _TILE_OFFSETS in values:
        part = (values[_TILE_WIDTH][0], values[_TILE_HEIGHT][0])
    if part[0] * part[1] > MAX_PIXELS:
        raise ValueError("tiles larger than images may be")
    if compression == _TIFF_JPEG:
        for start, length in zip(strips, lengths, strict=True):
            coded = _sift_jpeg(data[start : start + length]).size
            if coded[0] > part[0] or coded[1] > -(-part[1] // 16) * 16:  # whole blocks are coded
                raise two_sizes("TIFF", part, coded)
    anew = struct.pack(order + "H", len(kept)) + b"".join(kept) + bytes(4)
    place = len(data) + len(data) % 2
    parts = (data[:4], struct.pack(order + "I", place), memoryview(data)[8:], bytes(len(data) % 2), anew)
    xmp = b""
    if _XMP in entries:
        count, start = struct.unpack_from(order + "II", data, entries[_XMP] + 4)
        xmp = data[start : start + count]
    turned = orientation_of(data, xmp, directory=directory)
    return Sifted("TIFF", b"".join(parts), (width, height), turned, pixels=part[0] * part[1])


def sift_avif(data: bytes, number: int | None = None) -> Sifted:
    """Keeps the first picture, or that of an item, and its transparency; its own boxes give its turn."""
    if not features.check("avif"):
        raise not_read("an AVIF, which this build of Pillow does not read: save it as PNG or JPEG")
    picture, size, pixels = picture_of(data, "AVIF", number)
    return Sifted("AVIF", picture, size, pixels=pixels)


def sift_heic(data: bytes, number: int | None = None) -> Sifted:
    """Does the same; its decoder turns the picture by itself."""
    with needs_extra("reading HEIC", "heic"):
        import pillow_heif  # noqa: F401 - if it is missing, say so first
    picture, size, pixels = picture_of(data, "HEIC", number)
    return Sifted("HEIF", picture, size, pixels=pixels)


_SIFTERS: dict[str, Callable[[bytes], Sifted]] = {
    "JPEG": _sift_jpeg,
    "PNG": sift_png,
    "WEBP": sift_webp,
    "GIF": sift_gif,
    "BMP": _sift_bmp,
    "TIFF": sift_tiff,
    "AVIF": sift_avif,
    "HEIF": sift_heic,
}
