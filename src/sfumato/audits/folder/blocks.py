"""The blocks of an image file that its picture does not need, by an allow-list for each format.

Every block that is not on a list here is yielded, and so are bytes behind the end. Sizes and turns of a
picture are visible anyway.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator

from PIL import Image

from sfumato.images.decoding import directories, jpeg_segments

Block = tuple[str, bytes]
"""A name, which `metadata` knows or which says where the block lies, and the content."""

BEHIND = "bytes behind the picture"
_MOST_TEXT = 1 << 20  # bytes of a packed text
_SLACK = 256  # bytes that nothing points to, as editors and alignment leave them

_SHOWS = {*range(0xC0, 0xD0), *range(0xD9, 0xDE)}  # frames, tables, scans, heights
_FIXED = {(0xE0, b"JFIF\0", 14), (0xEE, b"Adobe", 12)}  # without a thumbnail, with the kind of colours
_INDEX = (0xE2, b"MPF\0")  # of further pictures
_SEGMENTS = {  # the beginnings of JPEG's segments, and the length of each
    (0xE1, b"Exif\0\0"): "exif",
    (0xE1, b"http://ns.adobe.com/xap/1.0/\0"): "xmp",
    (0xE1, b"http://ns.adobe.com/xmp/extension/\0"): "xmp",
    (0xED, b"Photoshop 3.0\0"): "photoshop",
    (0xEB, b"JP"): "credentials",
    (0xFE, b""): "text",
}


def blocks_of(kind: str, content: bytes) -> Iterator[Block]:
    """Yield the blocks of a file that its pictures do not need.

    Args:
        kind: its format: "JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF", "HEIF" or "AVIF".
        content: all of its bytes.

    Raises:
        ValueError, IndexError, KeyError, struct.error, zlib.error: it is damaged.
    """
    for name, body in _WALKS[kind](content):
        if body.strip(b"\0\r\n ") or name not in (BEHIND, "text"):
            yield name, body


def _jpeg(data: bytes) -> Iterator[Block]:
    end, profile = 2, b""
    for marker, start, stop in jpeg_segments(data, 0):
        if start > end:
            yield "bytes between segments", data[end:start]
        body, end = data[start + 4 : stop], stop
        if marker == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
            profile += body[14:]
        elif (
            marker not in _SHOWS
            and (marker, body[:5], len(body)) not in _FIXED
            and (marker, body[:4]) != _INDEX
        ):
            key = next((key for key in _SEGMENTS if key[0] == marker and body.startswith(key[1])), None)
            yield (_SEGMENTS[key], body[len(key[1]) :]) if key else (_segment(marker, body), body)
    if profile:
        yield "profile", profile
    rest = data[end:].lstrip(b"\0")
    # A further picture, of an MPO, is looked at as the first is.
    yield from _jpeg(rest) if rest.startswith(b"\xff\xd8\xff") else [(BEHIND, rest)]


def _segment(marker: int, body: bytes) -> str:
    word = re.match(rb"[\w.:/ -]{3,30}", body)
    return f"segment 0x{marker:X}" + (f" {word[0].decode('ascii', 'replace')}" if word else "")


_CHUNKS = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB sBIT bKGD pHYs hIST cICP mDCV cLLI acTL fcTL fdAT iDOT".split()
)
_NAMES = {b"eXIf": "exif", b"tIME": "time", b"caBX": "credentials"}


def _png(data: bytes) -> Iterator[Block]:
    stop, name = 8, b""
    while stop + 8 <= len(data) and name != b"IEND":
        length, name = struct.unpack_from(">I4s", data, stop)
        body, stop = data[stop + 8 : stop + 8 + length], stop + 12 + length
        if name in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            yield from _text(name, body)
        elif name not in _CHUNKS:
            yield _NAMES.get(name, f"chunk {name.decode('ascii', 'replace')}"), body
    yield BEHIND, data[stop:]


def _text(name: bytes, body: bytes) -> Iterator[Block]:
    """Unpack a text of PNG; programs write EXIF, IPTC and XMP in hexadecimal, too."""
    key, _, text = body.partition(b"\0")
    packed = name != b"tEXt"
    if name == b"iTXt":  # flag, method, language, keyword in that language
        packed, text = text[:1] == b"\1", text[1:2] + text[2:].split(b"\0", 2)[-1]
        text = text if packed else text[1:]
    text = zlib.decompressobj().decompress(text[1:], _MOST_TEXT) if packed else text
    names = {b"exif": "exif", b"APP1": "exif", b"iptc": "iptc", b"xmp": "xmp", b"icc": "profile"}
    if name == b"iCCP":
        yield "profile", text
    elif key == b"XML:com.adobe.xmp":
        yield "xmp", text
    elif key.startswith(b"Raw profile type "):
        digits = b"".join(text.split()[2:])  # behind a name and a length
        yield names.get(key[17:], "text"), bytes.fromhex(digits.decode("ascii"))
    else:
        yield "text", text


def _gif(data: bytes) -> Iterator[Block]:
    def table(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 128 else 0

    def parts(position: int) -> tuple[bytes, int]:
        body = b""
        while length := data[position]:
            body, position = body + data[position + 1 : position + 1 + length], position + 1 + length
        return body, position + 1

    position = 13 + table(data[10])
    while (kind := data[position]) != 0x3B:
        if kind == 0x2C:
            _, position = parts(position + 11 + table(data[position + 9]))
            continue
        label = data[position + 1]
        body, position = parts(position + 2)
        if label == 0xFE:
            yield "text", body
        elif label == 0xFF and body[:11] == b"XMP DataXMP":
            yield "xmp", body[11:]
        elif label == 0xFF and body[:11] == b"ICCRGBG1012":
            yield "profile", body[11:]
        elif label != 0xF9 and not (body[:11] in (b"NETSCAPE2.0", b"ANIMEXTS1.0") and len(body) <= 17):
            yield f"extension 0x{label:X}", body
    yield BEHIND, data[position + 1 :]


def _webp(data: bytes, start: int = 12, stop: int = 0) -> Iterator[Block]:
    names = {b"EXIF": "exif", b"XMP ": "xmp", b"ICCP": "profile"}
    end = stop or 8 + int.from_bytes(data[4:8], "little")
    while start + 8 <= min(end, len(data)):
        name, length = struct.unpack_from("<4sI", data, start)
        begin, close = start + 8, min(start + 8 + length, end)
        start += 8 + length + length % 2
        if name == b"ANMF":
            yield from _webp(data, begin + 16, close)
        elif name not in (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM"):
            yield names.get(name, f"chunk {name.decode('ascii', 'replace')}"), data[begin:close]
    if not stop:
        yield BEHIND, data[end:]


def _bmp(data: bytes) -> Iterator[Block]:
    start, header = struct.unpack_from("<II", data, 10)
    width, height, _, bits = struct.unpack_from("<iiHH" if header >= 40 else "<hhHH", data, 18)
    packed, colours = struct.unpack_from("<I12xI", data, 30) if header >= 40 else (0, 0)
    tables = 14 + header + (0 if header > 40 else 4 * 3 * (packed in (3, 6)))
    tables += (4 if header >= 40 else 3) * (colours or (1 << bits if bits <= 8 else 0))
    end = start + (width * bits + 31) // 32 * 4 * abs(height)
    if header >= 124 and (length := int.from_bytes(data[14 + 116 : 14 + 120], "little")):
        begin = 14 + int.from_bytes(data[14 + 112 : 14 + 116], "little")
        yield "profile", data[begin : begin + length]
        end = max(end, begin + length)
    yield BEHIND, data[tables:start]
    yield BEHIND, data[end:]


# TIFF: sizes, coding, colours, resolution, turn, pages, strips and tiles; of EXIF versions and sizes.
SHOWN_TAGS = frozenset(
    {*range(254, 260), 262, 263, *range(264, 267), *range(273, 285), *range(288, 294), 296, 297, 301, 317}
    | {318, 319, 320, *range(321, 326), 330, 332, 334, 336, *range(338, 342), 347, *range(512, 522), 529, 530}
    | {531, 532, 34665, 34853, 40965, 36864, 37121, 40960, 40961, 40962, 40963}
)
_IN_TAGS = {700: "xmp", 33723: "iptc", 34377: "photoshop", 34675: "profile"}


def _tiff(data: bytes) -> Iterator[Block]:
    """Yield the directory of each page as EXIF, and the blocks that its tags hold."""
    order, used, places = ">" if data[:2] == b"MM" else "<", 8, directories(data)
    for start in places:
        page = data[:4] + struct.pack(order + "I", start) + data[8:]
        exif = Image.Exif()
        exif.load(page)
        yield "tags", page
        for tag in _IN_TAGS.keys() & exif.keys():
            value = exif[tag]
            yield _IN_TAGS[tag], value if isinstance(value, bytes) else struct.pack(f"{len(value)}I", *value)
        (count,) = struct.unpack_from(order + "H", data, start)
        for place in range(start + 2, start + 2 + 12 * count, 12):
            kind, length = struct.unpack_from(order + "HI", data, place + 2)
            size = length * {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}.get(kind, 1)
            used += 12 + (size if size > 4 else 0)
        lengths = (exif.get(tag, 0) for tag in (279, 325, 514))
        used += 6 + sum(sum(each) if isinstance(each, tuple) else each for each in lengths)
    if len(data) - used > _SLACK * len(places):
        yield "bytes that no tag names", data[used:]


_PROPERTIES = frozenset(  # of pictures in HEIF: sizes, coding, colours, turns, cuts, layers, purposes
    b"ispe pixi colr hvcC av1C irot imir clap pasp auxC a1op a1lx lsel clli mdcv cclv amve free skip".split()
)


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name of each box between two positions, and the start and end of its body."""
    while start < end:
        length, name = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if length == 1:
            (length,), body = struct.unpack_from(">Q", data, body), body + 8
        stop = end if length == 0 else start + length
        if not body <= stop <= end:
            raise ValueError(f"a box {name!r} that ends outside of its own")
        yield name, body, stop
        start = stop


def _items(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, bytes, list[tuple[bytes, bytes]]]]:
    """Yield the kind, the coded data, and the properties of each item in the box `meta` of HEIF."""
    places = {name: (body, stop) for name, body, stop in _boxes(data, start + 4, end)}
    kinds, coded, lists = dict[int, bytes](), dict[int, bytes](), dict[int, list[int]]()
    place = 0

    def number(width: int) -> int:
        nonlocal place
        place += width
        if place > len(data):
            raise ValueError("a box that is too short")
        return int.from_bytes(data[place - width : place])

    start, end = places[b"iinf"]
    for name, body, _ in _boxes(data, start + (8 if data[start] else 6), end):
        if name == b"infe":
            place = body + 4
            item = number(2 if data[body] == 2 else 4)
            kinds[item] = data[place + 2 : place + 6]
    place, _ = places[b"iloc"]
    version, widths = number(4) >> 24, number(2)
    for _ in range(number(4 if version > 1 else 2)):
        item = number(4 if version > 1 else 2)
        inside = version and number(2) & 15 == 1
        place += 2
        base = number(widths >> 4 & 15) + (places[b"idat"][0] if inside else 0)
        coded[item] = b""
        for _ in range(number(2)):
            place += (widths & 15) * bool(version)
            begin = base + number(widths >> 12)
            coded[item] += data[begin : begin + number(widths >> 8 & 15)]
            if sum(map(len, coded.values())) > len(data):
                raise ValueError("items that overlap")
    parts = [(name, body, stop) for name, body, stop in _boxes(data, *places[b"iprp"])]
    properties = [
        (each, data[a:b])
        for name, body, stop in parts
        if name == b"ipco"
        for each, a, b in _boxes(data, body, stop)
    ]
    for name, body, _ in parts:
        if name == b"ipma":
            place = body
            head = number(4)
            for _ in range(number(4)):
                item = number(4 if head >> 24 else 2)
                wide = 1 + head % 2
                lists[item] = [number(wide) & (1 << 8 * wide - 1) - 1 for _ in range(number(1))]
    for item, kind in kinds.items():
        yield kind, coded.get(item, b""), [properties[i - 1] for i in lists.get(item, ()) if i]


def _heif(data: bytes) -> Iterator[Block]:
    end = spent = 0
    for name, body, stop in _boxes(data, 0, len(data)):
        end = stop
        if name == b"mdat":
            spent += stop - body
        elif name == b"meta":
            meta = body, stop
        elif name != b"ftyp" and data[body:stop].strip(b"\0"):
            yield f"box {name.decode('ascii', 'replace')}", data[body:stop]
    yield BEHIND, data[end:]
    for kind, coded, properties in _items(data, *meta):
        spent -= len(coded)
        if kind == b"Exif":
            yield "exif", coded[4 + int.from_bytes(coded[:4]) :]
        elif kind in (b"mime", b"uri "):
            yield "xmp" if b"xmpmeta" in coded else f"item {kind.decode()}", coded
        for name, content in properties:
            if name == b"colr" and content[:4] != b"nclx":
                yield "profile", content[4:]
            elif name not in _PROPERTIES:
                yield f"property {name.decode('ascii', 'replace')}", content
    if spent > _SLACK:
        yield "bytes that no item names", bytes(spent)


_WALKS: dict[str, Callable[[bytes], Iterator[Block]]] = {
    "JPEG": _jpeg,
    "PNG": _png,
    "GIF": _gif,
    "WEBP": _webp,
    "BMP": _bmp,
    "TIFF": _tiff,
    "HEIF": _heif,
    "AVIF": _heif,
}
