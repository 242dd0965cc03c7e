"""The orientation of a picture: 1 to 8 as in EXIF, whichever block of its file states it.

EXIF counts before XMP, as in Pillow and in viewers. In HEIC and AVIF only boxes of their own turn it.
"""

import re
import struct
import zlib

from PIL import Image

_ORIENTATION = 0x0112
# In XMP, as an attribute or an element.
_XMP_ORIENTATION = re.compile(rb":Orientation\s*(?:=\s*[\"']|>)\s*([1-8])\s*[\"'<]")
XMP_OF_JPEG = b"http://ns.adobe.com/xap/1.0/\0"
# The texts of a PNG that hold a block: EXIF as lines of hexadecimal digits (ImageMagick), and XMP.
PNG_BLOCKS = (
    b"Raw profile type exif",
    b"Raw profile type APP1",
    b"Raw profile type xmp",
    b"XML:com.adobe.xmp",
)
MOST_TEXT = 1 << 20  # bytes of such a text; of a longer one, its beginning counts
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def turn(picture: Image.Image, orientation: int) -> Image.Image:
    """The upright picture, of one that is stored in an EXIF orientation."""
    method = _TURNS.get(orientation)
    return picture if method is None else picture.transpose(method)


def orientation_of(*blocks: bytes, directory: int | None = None) -> int:
    """The orientation, 1 to 8, in the first block, EXIF or XMP, that states one; 1 if none does, or oddly."""
    for block in blocks:
        exif = block.removeprefix(b"Exif\0\0")
        if exif.startswith((b"II", b"MM")):
            try:
                order, entries = entries_of(exif, directory)
                kind, value = struct.unpack_from(order + "2xH4xH", exif, entries[_ORIENTATION])
            except (struct.error, KeyError):
                continue
            return int(value) if kind == 3 else 1
        found = _XMP_ORIENTATION.search(block[:MOST_TEXT].replace(b"\0", b""))
        if found:
            return int(found[1])
    return 1


def entries_of(block: bytes, directory: int | None = None) -> tuple[str, dict[int, int]]:
    """The byte order and the position of each tag in a directory, by default the first, of a TIFF or EXIF."""
    order = ">" if block.startswith(b"MM") else "<"
    start = struct.unpack_from(order + "I", block, 4)[0] if directory is None else directory
    (count,) = struct.unpack_from(order + "H", block, start)
    # If a tag occurs twice, the first counts.
    places = reversed(range(start + 2, start + 2 + 12 * count, 12))
    return order, {struct.unpack_from(order + "H", block, place)[0]: place for place in places}


def png_text(chunk: bytes, body: bytes) -> bytes:
    """The text behind the keyword of a chunk, up to MOST_TEXT; empty if it is damaged."""
    packed = chunk == b"zTXt"
    if chunk == b"iTXt":  # flag, method, language, keyword in that language
        packed, body = body[:1] == b"\1", body[1:]
        rest = body[1:].split(b"\0", 2)
        body = body[:1] + rest[2] if len(rest) == 3 else b""
        body = body if packed else body[1:]
    try:
        return zlib.decompressobj().decompress(body[1:], MOST_TEXT) if packed else body[:MOST_TEXT]
    except zlib.error:
        return b""


def from_hex(text: bytes) -> bytes:
    """The block of a text of ImageMagick: its name, its length, and lines of hexadecimal digits."""
    digits = b"".join(text.split()[2:])
    try:
        return bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        return b""
