"""The blocks of an image file that its picture does not need, by an allow-list for each format.

A block that shows the picture is on a list here; each other one is yielded, whatever it holds, and so are
bytes behind the end. Sizes and turns of a picture are no news to those who see it.
"""

import re
import struct
import zlib
from collections.abc import Callable, Iterator

from PIL import Image

from sfumato.images.heif.boxes import Item, boxes_of, items_of

Block = tuple[str, bytes]
"""A name, which `metadata` knows or which says where the block lies, and the content."""

BEHIND = "bytes behind the picture"
_MOST_TEXT = 1 << 20  # bytes of an unpacked text
_SLACK = 256  # bytes that nothing points to, as editors and alignment leave them

_MARKER = re.compile(rb"\xff+([\x01-\xcf\xd8-\xfe])")  # of JPEG: no stuffed byte, no restart
_SHOWS = {*range(0xC0, 0xD0), 0xDA, 0xDB, 0xDC, 0xDD}  # frames, tables, scans, heights
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
    position, coded, profile = 2, False, b""
    while (match := _MARKER.search(data, position)) is not None:
        marker, start = match[1][0], match.end() + 2
        if match.start() > position and not coded:
            yield "bytes between segments", data[position : match.start()]
        if marker == 0xD9:
            yield BEHIND, data[match.end() :]
            break
        position = match.end() + int.from_bytes(data[match.end() : start])
        body, coded = data[start:position], marker == 0xDA
        jfif = marker == 0xE0 and body[:5] == b"JFIF\0" and len(body) == 14
        adobe = marker == 0xEE and body[:5] == b"Adobe" and len(body) == 12
        if marker == 0xE2 and body.startswith(b"ICC_PROFILE\0"):
            profile += body[14:]
        elif marker not in _SHOWS and not jfif and not adobe:
            known = (pair for pair in _SEGMENTS if pair[0] == marker and body.startswith(pair[1]))
            key = next(known, None)
            yield (_SEGMENTS[key], body[len(key[1]) :]) if key else (_segment(marker, body), body)
    if profile:
        yield "profile", profile


def _segment(marker: int, body: bytes) -> str:
    word = re.match(rb"[\w.:/ -]{3,30}", body)
    return f"segment 0x{marker:X}" + (f" {word[0].decode('ascii', 'replace')}" if word else "")


_CHUNKS = frozenset(
    b"IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB sBIT bKGD pHYs hIST cICP mDCV cLLI acTL fcTL fdAT".split()
)
_TEXTS = {b"tEXt": "text", b"zTXt": "text", b"iTXt": "text", b"tIME": "time", b"caBX": "credentials"}


def _png(data: bytes) -> Iterator[Block]:
    position = 8
    while position + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, position)
        body, position = data[position + 8 : position + 8 + length], position + 12 + length
        if name in (b"tEXt", b"zTXt", b"iTXt", b"iCCP"):
            yield from _text(name, body)
        elif name == b"eXIf":
            yield "exif", body
        elif name not in _CHUNKS:
            yield _TEXTS.get(name, f"chunk {name.decode('ascii', 'replace')}"), body
        if name == b"IEND":
            break
    yield BEHIND, data[position:]


def _text(name: bytes, body: bytes) -> Iterator[Block]:
    """Unpack a text of PNG; programs write EXIF, IPTC and XMP in hexadecimal, too."""
    key, _, text = body.partition(b"\0")
    if name == b"iTXt":
        packed, text = text[:1] == b"\1", text[2:].split(b"\0", 2)[-1]
    else:
        packed, text = name != b"tEXt", text[name != b"tEXt" :]
    text = zlib.decompressobj().decompress(text, _MOST_TEXT) if packed else text
    if name == b"iCCP":
        yield "profile", text
    elif key == b"XML:com.adobe.xmp":
        yield "xmp", text
    elif raw := re.fullmatch(rb"Raw profile type (\w+)", key):
        names = {b"exif": "exif", b"APP1": "exif", b"iptc": "iptc", b"xmp": "xmp", b"icc": "profile"}
        content = b"".join(text.split(b"\n")[3:])
        yield names.get(raw[1], "text"), bytes.fromhex(content.decode("ascii", "replace"))
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


def _webp(data: bytes, start: int = 12, stop: int | None = None) -> Iterator[Block]:
    end = 8 + int.from_bytes(data[4:8], "little") if stop is None else stop
    names = {b"EXIF": "exif", b"XMP ": "xmp", b"ICCP": "profile"}
    while start + 8 <= min(end, len(data)):
        name, length = struct.unpack_from("<4sI", data, start)
        if name == b"ANMF":
            yield from _webp(data, start + 24, start + 8 + length)
        elif name not in (b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ANIM"):
            words = names.get(name, f"chunk {name.decode('ascii', 'replace')}")
            yield words, data[start + 8 : start + 8 + length]
        start += 8 + length + length % 2
    if stop is None:
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
    | {318, 319, 320, *range(321, 326), 332, 334, 336, *range(338, 342), 347, *range(512, 522), 529, 530}
    | {531, 532, 34665, 34853, 40965, 36864, 37121, 40960, 40961, 40962, 40963}
)
_IN_TAGS = {700: "xmp", 33723: "iptc", 34377: "photoshop", 34675: "profile"}


def _tiff(data: bytes) -> Iterator[Block]:
    """Yield the directory of each page as EXIF, and the blocks that its tags hold."""
    order = ">" if data[:2] == b"MM" else "<"
    (start,), seen, used = struct.unpack_from(order + "I", data, 4), set(), 8
    while start and start not in seen:
        seen.add(start)
        exif = Image.Exif()
        exif.load(data[:4] + struct.pack(order + "I", start) + data[8:])
        for tag in exif:
            if tag in _IN_TAGS:
                value = exif[tag]
                yield (
                    _IN_TAGS[tag],
                    value if isinstance(value, bytes) else struct.pack(f"{len(value)}I", *value),
                )
        (count,) = struct.unpack_from(order + "H", data, start)
        for place in range(start + 2, start + 2 + 12 * count, 12):
            kind, length = struct.unpack_from(order + "HI", data, place + 2)
            size = length * {3: 2, 4: 4, 5: 8, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4}.get(kind, 1)
            used += 12 + (size if size > 4 else 0)
        for tag in (279, 325, 514):
            lengths = exif.get(tag, 0)
            used += sum(lengths) if isinstance(lengths, tuple) else lengths
        used += 6
        yield "tags", data[:4] + struct.pack(order + "I", start) + data[8:]
        (start,) = struct.unpack_from(order + "I", data, start + 2 + 12 * count)
    if len(data) - used > _SLACK * len(seen):
        yield "bytes that no tag names", data[used:]


_PROPERTIES = frozenset(  # of pictures in HEIF: sizes, coding, colours, turns, cuts, layers, purposes
    b"ispe pixi colr hvcC av1C irot imir clap pasp auxC a1op a1lx lsel clli mdcv cclv amve free skip".split()
)
_ALPHA = b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha", b"urn:mpeg:hevc:2015:auxid:1"


def _heif(data: bytes) -> Iterator[Block]:
    end = spent = 0
    for name, body, stop in boxes_of(data, 0, len(data)):
        end = stop
        if name == b"mdat":
            spent += stop - body
        elif name not in (b"ftyp", b"meta") and data[body:stop].strip(b"\0"):
            yield f"box {name.decode('ascii', 'replace')}", data[body:stop]
    yield BEHIND, data[end:]
    primary, items = items_of(data)
    needed, parts = {primary}, [primary]
    while parts:
        number = parts.pop()
        new = {part for name, of in items[number].references if name == b"dimg" for part in of}
        new |= {other for other, item in items.items() if _is_alpha(item, number)}
        parts += new - needed
        needed |= new
    for number, item in items.items():
        coded = b"".join(data[start:stop] for start, stop in item.extents)
        spent -= len(coded)
        if item.kind == b"Exif":
            yield "exif", coded[4 + int.from_bytes(coded[:4]) :]
        elif item.kind == b"mime" and b"xmpmeta" in coded:
            yield "xmp", coded
        elif number not in needed:
            yield f"a further item {item.kind.decode('ascii', 'replace')}", coded
        for name, body, _ in item.properties:
            if name == b"colr" and body[:4] != b"nclx":
                yield "profile", body[4:]
            elif name not in _PROPERTIES:
                yield f"property {name.decode('ascii', 'replace')}", body
    if spent > _SLACK:
        yield "bytes that no item names", bytes(spent)


def _is_alpha(item: Item, of: int) -> bool:
    """Whether an item is the transparency of another."""
    refers = any(name == b"auxl" and of in targets for name, targets in item.references)
    return refers and any(
        name == b"auxC" and body[4:].startswith(_ALPHA) for name, body, _ in item.properties
    )


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
