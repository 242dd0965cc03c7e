"""HEIC and AVIF, put together anew: their first picture and its transparency, and nothing else.

Both are HEIF files (ISO/IEC 23008-12): boxes that say of items how they are coded, and where. The size of a
picture is stated up to three times, by its box `ispe`, by its grid, and inside the coded data, which is what
its decoder obeys. Files are refused in which these differ.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from sfumato.refusals import MAX_PARTS, not_read, too_many_parts, twice, two_sizes

_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0", b"urn:mpeg:hevc:2015:auxid:1\0")

# What is kept of an item: size, channels, set-up of its decoder, colours, how it is turned and cut, what for.
_KEPT = frozenset({b"ispe", b"pixi", b"av1C", b"hvcC", b"colr", b"irot", b"imir", b"clap", b"auxC"})

# An encoder codes whole blocks, of which HEVC's largest have this side.
_BLOCK = 64

# Of what is coded, less is cut off: hardware codes pictures of 64 pixels as some of 160.
_CUT = 256

# Bytes of lists: each of their entries, of two bytes at least, costs a step in Python.
_MAX_LISTS = 1 << 20

# Bytes that set a decoder of HEVC up, of which each tile gets a copy: usually some 100.
_MAX_SETUP = 4096

_HEVC_PARAMETERS = frozenset({32, 33, 34})  # of video, sequence and picture
_HEVC_SEQUENCE = 33
_AV1_SEQUENCE, _AV1_FRAME_HEADER, _AV1_TILES, _AV1_FRAME = 1, 3, 4, 6


class Picture(NamedTuple):
    """The first picture of a file.

    Attributes:
        data: a file of it alone.
        size: (width, height) in pixels: of a HEIC as it is turned and cut by its boxes, of an AVIF as stored.
        pixels: how many are coded, in all tiles, of all layers, with transparency.
    """

    data: bytes
    size: tuple[int, int]
    pixels: int


@dataclass
class _Item:
    """What the boxes say of an item.

    Attributes:
        kind: "av01", "hvc1", "grid" ...
        extents: where its data begin and end, in the file.
        properties: names, bodies, and whether a reader must know them, in order.
        references: names, and the items that it refers to.
    """

    kind: bytes = b""
    extents: list[tuple[int, int]] = field(default_factory=list)
    properties: list[tuple[bytes, bytes, bool]] = field(default_factory=list)
    references: list[tuple[bytes, list[int]]] = field(default_factory=list)


def first_picture(data: bytes, coding: str) -> Picture:
    """The primary picture of a file, as a file.

    Args:
        data: the bytes of a HEIC or AVIF.
        coding: "HEIC" (HEVC, items "hvc1") or "AVIF" (AV1, items "av01").

    Raises:
        ImageError: two of a box of which there is one, two sizes of a picture, or one of another coding.
        ValueError, IndexError, KeyError, struct.error: the file is damaged.
    """
    primary, items = _items(data)
    kept = _needed(primary, items)
    if sum(end - start for number in kept for start, end in items[number].extents) > len(data):
        raise ValueError("items that overlap")
    pixels, written, units = 0, [], _Units()
    for number in kept:
        item = items[number]
        coded = b"".join(data[start:end] for start, end in item.extents)
        if item.kind == b"grid":
            _check_grid(coded, item, items, coding)
        elif item.kind == (b"hvc1" if coding == "HEIC" else b"av01"):
            coded, area = (_sift_hevc if coding == "HEIC" else _sift_av1)(coded, item, units)
            pixels += area
        else:
            raise not_read(
                f"a picture coded as {item.kind.decode('ascii', 'replace')!r} in a file named {coding}: save "
                "it as PNG or JPEG"
            )
        written.append(coded)
    size = _size(items[primary])
    if coding == "HEIC":
        for name, body, _ in items[primary].properties:
            if name == b"clap":
                width, over_width, height, over_height = struct.unpack_from(">4I", body)
                size = (round(width / over_width), round(height / over_height))
            elif name == b"irot" and body[0] & 1:
                size = (size[1], size[0])
    return Picture(_file(coding, kept, items, written), size, pixels)


# Reading boxes


def _boxes(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each box between two positions, and where its body begins and ends."""
    for _ in range(MAX_PARTS):
        if start == end:
            return
        length, name = struct.unpack_from(">I4s", data, start)
        body = start + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, body)
            body += 8
        stop = end if length == 0 else start + length
        if not body <= stop <= end:
            raise ValueError(f"a box {name!r} that ends outside of its own")
        yield name, body, stop
        start = stop
    raise too_many_parts()


def _end_of_boxes(data: bytes) -> int:
    """Where the last whole box of a file ends: what somebody has hung on it is none, and no decoder looks."""
    last = 0
    with suppress(ValueError, struct.error):
        for _, _, stop in _boxes(data, 0, len(data)):
            last = stop
    return last


def _single(data: bytes, start: int, end: int, names: frozenset[bytes]) -> dict[bytes, tuple[int, int]]:
    """Where the boxes of some names are, of which there may be one each."""
    places: dict[bytes, tuple[int, int]] = {}
    for name, body, stop in _boxes(data, start, end):
        if name in names:
            if name in places:
                raise twice("HEIF", f"boxes {name.decode()!r}")
            places[name] = (body, stop)
    return places


class _Cursor:
    """Reads numbers of so many bytes, one after another. State: the position."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data, self.position, self._end = data, start, end

    def number(self, width: int) -> int:
        start, self.position = self.position, self.position + width
        if self.position > self._end:
            raise ValueError("a box that is too short")
        return int.from_bytes(self._data[start : self.position])


def _items(data: bytes) -> tuple[int, dict[int, _Item]]:
    """The number of the primary item, and all items by their numbers."""
    top = _single(data, 0, _end_of_boxes(data), frozenset({b"ftyp", b"meta"}))
    if b"meta" not in top:
        raise not_read("a sequence of pictures without a still one: save a picture of it as PNG or JPEG")
    start, end = top[b"meta"]
    names = frozenset({b"pitm", b"iloc", b"iinf", b"iref", b"iprp", b"idat"})
    places = _single(data, start + 4, end, names)
    # What lists items, but for the properties and data that lie between: of a photograph some 10 kB.
    lists = end - start - sum(stop - body for body, stop in _inner(data, places))
    if lists > _MAX_LISTS:
        raise too_many_parts()
    items: dict[int, _Item] = {}
    _read_kinds(data, *places[b"iinf"], items)
    _read_extents(data, *places[b"iloc"], places.get(b"idat", (0, 0)), items)
    _read_properties(data, *places[b"iprp"], items)
    if b"iref" in places:
        _read_references(data, *places[b"iref"], items)
    cursor = _Cursor(data, *places[b"pitm"])
    version = cursor.number(4) >> 24
    return cursor.number(4 if version else 2), items


def _inner(data: bytes, places: dict[bytes, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Where the properties and the data are that lie among the boxes of `meta`."""
    yield from _single(data, *places[b"iprp"], frozenset({b"ipco"})).values()
    if b"idat" in places:
        yield places[b"idat"]


def _read_kinds(data: bytes, start: int, end: int, items: dict[int, _Item]) -> None:
    start += 8 if data[start] else 6
    for name, body, stop in _boxes(data, start, end):
        if name != b"infe" or data[body] not in (2, 3):
            continue
        cursor = _Cursor(data, body + 4, stop)
        number = cursor.number(2 if data[body] == 2 else 4)
        if number in items:
            raise twice("HEIF", "items of one number")
        cursor.number(2)
        items[number] = _Item(cursor.number(4).to_bytes(4))


def _read_extents(
    data: bytes, start: int, end: int, inside: tuple[int, int], items: dict[int, _Item]
) -> None:
    cursor = _Cursor(data, start, end)
    version = cursor.number(4) >> 24
    widths = cursor.number(2)
    offset_width, length_width, base_width, index_width = (widths >> shift & 15 for shift in (12, 8, 4, 0))
    parts = 0
    for _ in range(cursor.number(4 if version > 1 else 2)):
        number = cursor.number(4 if version > 1 else 2)
        method = cursor.number(2) & 15 if version else 0
        elsewhere = cursor.number(2)
        base = cursor.number(base_width)
        extents = []
        for _ in range(cursor.number(2)):
            parts += 1
            if parts > MAX_PARTS:
                raise too_many_parts()
            if version:
                cursor.number(index_width)
            begin = base + cursor.number(offset_width)
            length = cursor.number(length_width)
            extents.append((begin, begin + length))
        item = items.get(number)
        if item is None:
            continue
        if item.extents:
            raise twice("HEIF", "locations of one item")
        if method > 1 or elsewhere:
            continue  # as if it had no data
        shift, limit = inside if method else (0, len(data))
        item.extents = [(begin + shift, stop + shift) for begin, stop in extents if begin < stop]
        if any(stop > limit for _, stop in item.extents):
            item.extents = []


def _read_properties(data: bytes, start: int, end: int, items: dict[int, _Item]) -> None:
    places = _single(data, start, end, frozenset({b"ipco"}))
    properties = [(name, data[body:stop]) for name, body, stop in _boxes(data, *places[b"ipco"])]
    for name, body, stop in _boxes(data, start, end):
        if name != b"ipma":
            continue
        cursor = _Cursor(data, body, stop)
        head = cursor.number(4)
        width = 2 if head & 1 else 1
        for _ in range(cursor.number(4)):
            item = items.get(cursor.number(4 if head >> 24 else 2), _Item())
            if item.properties:
                raise twice("HEIF", "lists of an item's properties")
            for _ in range(cursor.number(1)):
                bits = cursor.number(width)
                top = 1 << (8 * width - 1)
                if bits & (top - 1):
                    item.properties.append((*properties[(bits & (top - 1)) - 1], bits >= top))


def _read_references(data: bytes, start: int, end: int, items: dict[int, _Item]) -> None:
    width = 4 if data[start] else 2
    for name, body, stop in _boxes(data, start + 4, end):
        cursor = _Cursor(data, body, stop)
        item = items.get(cursor.number(width), _Item())
        item.references.append((name, [cursor.number(width) for _ in range(cursor.number(2))]))


# Choosing


def _needed(primary: int, items: dict[int, _Item]) -> list[int]:
    """The numbers of the items that make a picture: itself, its transparency, and the tiles of both."""
    auxiliary: dict[int, list[int]] = {}
    for number, item in items.items():
        for name, targets in item.references:
            if name == b"auxl" and any(
                body[4:] in _ALPHA for kind, body, _ in item.properties if kind == b"auxC"
            ):
                for target in targets:
                    auxiliary.setdefault(target, []).append(number)
    needed = {primary: None}  # in order
    queue = [primary]
    for number in queue:  # which grows
        parts = list(auxiliary.get(number, ()))
        for name, targets in items[number].references:
            parts += targets if name == b"dimg" else ()
        queue += (part for part in dict.fromkeys(parts) if part not in needed)
        needed |= dict.fromkeys(parts)
        if len(queue) > MAX_PARTS:
            raise too_many_parts()
    for number in queue:
        _choose_properties(items[number])
    return queue


def _choose_properties(item: _Item) -> None:
    """Those that are kept, without profiles of colours, which are not applied."""
    kept: list[tuple[bytes, bytes, bool]] = []
    for name, body, essential in item.properties:
        if name == b"colr" and body[:4] != b"nclx":
            continue
        if name in _KEPT:
            if any(name == other for other, _, _ in kept):
                raise twice("HEIF", f"properties {name.decode()!r} of a picture")
            kept.append((name, body, essential))
        elif essential and name not in (b"free", b"skip"):  # which are room for something
            raise not_read(f"a picture with the property {name!r}: save it as PNG or JPEG")
    item.properties = kept


def _property(item: _Item, name: bytes) -> bytes:
    for other, body, _ in item.properties:
        if name == other:
            return body
    raise ValueError(f"a picture without {name.decode()!r}")


def _size(item: _Item) -> tuple[int, int]:
    width, height = struct.unpack_from(">4x2I", _property(item, b"ispe"))
    return width, height


def _check_grid(coded: bytes, grid: _Item, items: dict[int, _Item], coding: str) -> None:
    """Whether a grid has the size that its box states, and tiles of one size that cover it, none beside."""
    rows, columns = coded[2] + 1, coded[3] + 1
    size = struct.unpack_from(">2I" if coded[1] & 1 else ">2H", coded, 4)
    if size != _size(grid):
        raise two_sizes(coding, _size(grid), size)
    tiles = [number for name, targets in grid.references if name == b"dimg" for number in targets]
    sizes = {_size(items[number]) for number in tiles}
    if (
        not len(set(tiles)) == len(tiles) == rows * columns
        or len(sizes) != 1
        or any(items[n].kind == b"grid" for n in tiles)
    ):
        raise ValueError(f"a grid of {rows}x{columns} with {len(tiles)} tiles of {len(sizes)} sizes")
    ((width, height),) = sizes
    if (
        not (columns - 1) * width < size[0] <= columns * width
        or not (rows - 1) * height < size[1] <= rows * height
    ):
        raise two_sizes(coding, size, (columns * width, rows * height))


# Coded data


class _Bits:
    """Reads bits, one after another. State: the position."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0

    def number(self, width: int) -> int:
        start, self._position = self._position, self._position + width
        if self._position > 8 * len(self._data):
            raise ValueError("a header that is too short")
        last = (self._position + 7) // 8
        value = int.from_bytes(self._data[start // 8 : last])
        return value >> (8 * last - self._position) & ((1 << width) - 1)

    def golomb(self) -> int:
        """An unsigned Exp-Golomb number, ue(v) of H.265, 9.2."""
        zeros = 0
        while not self.number(1):
            zeros += 1
            if zeros > 32:
                raise ValueError("a number of more than 32 bits")
        return (1 << zeros) - 1 + self.number(zeros)


class _Units:
    """How many units of coded data a file has, in all its items. State: their number."""

    def __init__(self) -> None:
        self._count = 0

    def another(self) -> None:
        """Count one. Raises ImageError where there are more than MAX_PARTS."""
        self._count += 1
        if self._count > MAX_PARTS:
            raise too_many_parts()


def _check_sizes(stated: tuple[int, int], coded: tuple[int, int], most: int, coding: str) -> None:
    """Whether a coded size is the stated one, or by less than so many pixels larger."""
    if any(not side <= inside < side + most for side, inside in zip(stated, coded, strict=True)):
        raise two_sizes(coding, stated, coded)


def _sift_hevc(coded: bytes, item: _Item, count: _Units) -> tuple[bytes, int]:
    """The slices of a picture, with their parameters, and how many pixels they are decoded to.

    Source: ISO/IEC 14496-15, 8.3.3 (hvcC, and units behind their lengths), and H.265, 7.3.1.2 (their heads).
    """
    setup = _property(item, b"hvcC")
    if len(setup) > _MAX_SETUP:
        raise ValueError(f"{len(setup)} bytes to set a decoder up")
    width = (setup[21] & 3) + 1
    parameters: list[bytes] = []
    cursor = _Cursor(setup, 22, len(setup))
    for _ in range(cursor.number(1)):
        cursor.number(1)
        for _ in range(cursor.number(2)):
            count.another()
            length = cursor.number(2)
            parameters.append(setup[cursor.position : cursor.position + length])
            cursor.position += length
    parameters = [unit for unit in parameters if _hevc_kind(unit) in _HEVC_PARAMETERS]
    units, pictures, position = [], 0, 0
    while position < len(coded):
        count.another()
        length = int.from_bytes(coded[position : position + width])
        unit = coded[position + width : position + width + length]
        position += width + length
        kind = _hevc_kind(unit)
        if kind < 32:
            pictures += unit[2] >> 7  # its first slice
            units.append(unit)
        elif kind in _HEVC_PARAMETERS:
            units.append(unit)
    sizes = [_hevc_size(unit) for unit in (*parameters, *units) if _hevc_kind(unit) == _HEVC_SEQUENCE]
    if not sizes or pictures != 1:
        raise ValueError(f"an item of {pictures} pictures with {len(sizes)} sizes")
    for coded_size, shown in sizes:
        _check_sizes(_size(item), shown, _BLOCK, "HEIC")
        _check_sizes(shown, coded_size, _CUT, "HEIC")
    arrays = b"".join(struct.pack(">BHH", 0x80 | unit[0] >> 1, 1, len(unit)) + unit for unit in parameters)
    setup = setup[:22] + bytes([len(parameters)]) + arrays
    item.properties = [
        (name, setup if name == b"hvcC" else body, must) for name, body, must in item.properties
    ]
    return b"".join(len(unit).to_bytes(width) + unit for unit in units), max(
        width * height for (width, height), _ in sizes
    )


def _hevc_kind(unit: bytes) -> int:
    """The type of a unit of the base layer; 63 of all others."""
    (head,) = struct.unpack_from(">H", unit)
    return head >> 9 & 63 if head >> 3 & 63 == 0 else 63


def _hevc_size(unit: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    """The size that is coded, and the one that is shown of it.

    Source: H.265, 7.3.2.2 and 7.3.3, a sequence parameter set.
    """
    bits = _Bits(unit[2:1024].replace(b"\0\0\3", b"\0\0"))
    bits.number(4)
    layers = bits.number(3)  # less 1
    bits.number(1 + 96)
    flags = [(bits.number(1), bits.number(1)) for _ in range(layers)]
    bits.number(2 * (8 - layers) if layers else 0)
    bits.number(sum(88 * profile + 8 * level for profile, level in flags))
    bits.golomb()
    chroma = bits.golomb()
    if chroma == 3:  # of all pixels
        bits.number(1)
    width, height = bits.golomb(), bits.golomb()
    left, right, top, bottom = (bits.golomb() for _ in range(4)) if bits.number(1) else (0, 0, 0, 0)
    across, down = (2 if chroma in (1, 2) else 1), (2 if chroma == 1 else 1)
    return (width, height), (width - across * (left + right), height - down * (top + bottom))


class _Sequence(NamedTuple):
    """Of an AV1 sequence header, the size, and what it takes to read whether a frame states another."""

    size: tuple[int, int]
    reduced: bool
    time_bits: int
    id_bits: int
    screen_tools: int
    integer_motion: int


def _sift_av1(coded: bytes, item: _Item, count: _Units) -> tuple[bytes, int]:
    """The frames of a picture behind their header, and how many pixels they are decoded to.

    Source: AV1 Bitstream & Decoding Process Specification, 5.3 to 5.9.
    """
    kept, frames, position, sequence = [], 0, 0, None
    while position < len(coded):
        count.another()
        start, head = position, coded[position]
        position += 2 if head & 4 else 1
        length = len(coded) - position
        if head & 2:
            length, position = _leb128(coded, position)
        body = coded[position : position + length]
        position += length
        kind = head >> 3 & 15
        if kind == _AV1_SEQUENCE:
            if sequence is not None:
                raise twice("AVIF", "sequence headers of a picture")
            sequence = _av1_sequence(body)
        elif kind in (_AV1_FRAME, _AV1_FRAME_HEADER):
            if sequence is None:
                raise ValueError("a frame without a sequence header")
            if _states_size(body, sequence):
                raise not_read("an AVIF of whose frames each has a size of its own: save it as PNG or JPEG")
            frames += 1
        if kind in (_AV1_SEQUENCE, _AV1_FRAME_HEADER, _AV1_TILES, _AV1_FRAME):
            kept.append(coded[start:position])
    if sequence is None or frames == 0:
        raise ValueError("an item without a picture")
    _check_sizes(_size(item), sequence.size, _BLOCK, "AVIF")
    # Behind these four bytes is a copy of the sequence header, and whatever else an encoder put there.
    item.properties = [
        (name, body[:4] if name == b"av1C" else body, must) for name, body, must in item.properties
    ]
    return b"".join(kept), sequence.size[0] * sequence.size[1] * frames


def _leb128(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where it ends."""
    value = 0
    for shift in range(0, 56, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number of more than 8 bytes")


def _av1_sequence(body: bytes) -> _Sequence:
    bits = _Bits(body[:1024])
    bits.number(3 + 1)
    reduced = bool(bits.number(1))
    time_bits = 0
    if reduced:
        bits.number(5)
    else:
        time_bits = _skip_av1_points(bits)
    width_bits, height_bits = bits.number(4) + 1, bits.number(4) + 1
    size = (bits.number(width_bits) + 1, bits.number(height_bits) + 1)
    if reduced:
        return _Sequence(size, reduced, 0, 0, 0, 0)
    id_bits = 0
    if bits.number(1):
        delta = bits.number(4) + 2
        id_bits = bits.number(3) + delta + 1
    bits.number(3 + 4)
    ordered = bits.number(1)
    bits.number(2 * ordered)
    screen_tools = 2 if bits.number(1) else bits.number(1)  # 2: each frame says
    integer_motion = 2
    if screen_tools and not bits.number(1):
        integer_motion = bits.number(1)
    return _Sequence(size, reduced, time_bits, id_bits, screen_tools, integer_motion)


def _skip_av1_points(bits: _Bits) -> int:
    """Timing and operating points of a sequence header. -> The bits of a frame's time, where it has one."""
    time_bits = delay_bits = 0
    if bits.number(1):
        bits.number(64)
        equal = bits.number(1)
        if equal:
            bits.golomb()
        if bits.number(1):
            delay_bits = bits.number(5) + 1
            bits.number(32 + 5)
            time_bits = bits.number(5) + 1
            time_bits = 0 if equal else time_bits
    display = bits.number(1)
    for _ in range(bits.number(5) + 1):
        bits.number(12)
        if bits.number(5) > 7:
            bits.number(1)
        if delay_bits and bits.number(1):
            bits.number(2 * delay_bits + 1)
        if display and bits.number(1):
            bits.number(4)
    return time_bits


def _states_size(body: bytes, sequence: _Sequence) -> bool:
    """Whether a frame header has a size of its own, in place of the sequence's."""
    if sequence.reduced:
        return False
    bits = _Bits(body[:64])
    if bits.number(1):  # a frame once more
        return False
    kind, shown = bits.number(2), bits.number(1)
    if shown:
        bits.number(sequence.time_bits)
    else:
        bits.number(1)
    if kind == 3:  # a switch frame
        return True
    if not (kind == 0 and shown):
        bits.number(1)
    bits.number(1)
    screen = bits.number(1) if sequence.screen_tools == 2 else sequence.screen_tools
    if screen and sequence.integer_motion == 2:
        bits.number(1)
    bits.number(sequence.id_bits)
    return bool(bits.number(1))


# Writing


def _box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), name) + body


def _file(coding: str, kept: list[int], items: dict[int, _Item], coded: list[bytes]) -> bytes:
    """A file of some items, numbered from 1, with their coded data; the first is the primary one."""
    numbers = {number: i for i, number in enumerate(kept, 1)}
    brand = b"heic" if coding == "HEIC" else b"avif"
    head = _box(b"ftyp", brand, bytes(4), b"mif1", b"miaf", brand)
    properties: dict[tuple[bytes, bytes], int] = {}
    lists, references = b"", b""
    for number in kept:
        item = items[number]
        lists += struct.pack(">HB", numbers[number], len(item.properties))
        for name, body, essential in item.properties:
            place = properties.setdefault((name, body), len(properties) + 1)
            lists += struct.pack(">H", essential << 15 | place)
        for name, targets in item.references:
            targets = [numbers[target] for target in targets if target in numbers]
            if name in (b"dimg", b"auxl", b"prem") and targets:
                form = f">HH{len(targets)}H"
                references += _box(name, struct.pack(form, numbers[number], len(targets), *targets))
    kinds = b"".join(
        _box(b"infe", struct.pack(">B3xHH4sx", 2, numbers[number], 0, items[number].kind)) for number in kept
    )

    def meta(start: int) -> bytes:
        """The box of all that is said, with data that begin at a position."""
        locations = b""
        for number, data in enumerate(coded, 1):
            locations += struct.pack(">HHHII", number, 0, 1, start, len(data))
            start += len(data)
        return _box(
            b"meta",
            bytes(4),
            _box(b"hdlr", bytes(8), b"pict", bytes(13)),
            _box(b"pitm", bytes(4), struct.pack(">H", 1)),
            _box(b"iloc", struct.pack(">IBBH", 0, 0x44, 0, len(coded)), locations),
            _box(b"iinf", struct.pack(">IH", 0, len(kept)), kinds),
            _box(b"iref", bytes(4), references) if references else b"",
            _box(
                b"iprp",
                _box(b"ipco", *(_box(*each) for each in properties)),
                _box(b"ipma", struct.pack(">II", 1, len(kept)), lists),
            ),
        )

    start = len(head) + len(meta(0)) + 8
    return head + meta(start) + _box(b"mdat", *coded)
