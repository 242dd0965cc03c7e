"""Boxes of a HEIF file: reading its items, and writing a file."""

import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from sfumato.images.refusals import MAX_PARTS, not_read, too_many_parts, twice

# Bytes of lists: each of their entries, of at least two bytes, costs a step in Python.
_MAX_LISTS = 1 << 20


@dataclass
class Item:
    """The boxes of an item.

    Attributes:
        kind: "av01", "hvc1", "grid" ...
        extents: the begin and end of its data, in the file.
        properties: names, bodies, and whether a reader must know them, in order.
        references: names, and the items that it refers to.
    """

    kind: bytes = b""
    extents: list[tuple[int, int]] = field(default_factory=list)
    properties: list[tuple[bytes, bytes, bool]] = field(default_factory=list)
    references: list[tuple[bytes, list[int]]] = field(default_factory=list)


def boxes_of(data: bytes, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """The name of each box between two positions, and the start and end of its body."""
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
    """The end of the last whole box of a file: the rest is not a box, and no decoder reads it."""
    last = 0
    with suppress(ValueError, struct.error):
        for _, _, stop in boxes_of(data, 0, len(data)):
            last = stop
    return last


def _single(data: bytes, start: int, end: int, names: frozenset[bytes]) -> dict[bytes, tuple[int, int]]:
    """The positions of boxes that may occur once."""
    places: dict[bytes, tuple[int, int]] = {}
    for name, body, stop in boxes_of(data, start, end):
        if name in names:
            if name in places:
                raise twice("HEIF", f"boxes {name.decode()!r}")
            places[name] = (body, stop)
    return places


class Cursor:
    """Reads numbers of some bytes, one after another. State: the position."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data, self.position, self._end = data, start, end

    def number(self, width: int) -> int:
        """A number of that many bytes. Raises ValueError if they are missing."""
        start, self.position = self.position, self.position + width
        if self.position > self._end:
            raise ValueError("a box that is too short")
        return int.from_bytes(self._data[start : self.position])


def items_of(data: bytes) -> tuple[int, dict[int, Item]]:
    """The number of the primary item, and all items by their numbers."""
    top = _single(data, 0, _end_of_boxes(data), frozenset({b"ftyp", b"meta"}))
    if b"meta" not in top:
        raise not_read("a sequence of pictures without a still one: save a picture of it as PNG or JPEG")
    start, end = top[b"meta"]
    names = frozenset({b"pitm", b"iloc", b"iinf", b"iref", b"iprp", b"idat"})
    places = _single(data, start + 4, end, names)
    # The lists of items, without the properties and data between them: some 10 kB in a photograph.
    lists = end - start - sum(stop - body for body, stop in _inner(data, places))
    if lists > _MAX_LISTS:
        raise too_many_parts()
    items: dict[int, Item] = {}
    _read_kinds(data, *places[b"iinf"], items)
    _read_extents(data, *places[b"iloc"], places.get(b"idat", (0, 0)), items)
    _read_properties(data, *places[b"iprp"], items)
    if b"iref" in places:
        _read_references(data, *places[b"iref"], items)
    cursor = Cursor(data, *places[b"pitm"])
    version = cursor.number(4) >> 24
    return cursor.number(4 if version else 2), items


def count_samples(data: bytes) -> int:
    """The number of pictures in the tracks of a sequence, as far as the file has room for them."""
    return _count_samples(data, 0, _end_of_boxes(data))


def _count_samples(data: bytes, start: int, end: int) -> int:
    number, pictures = 0, True
    for name, body, stop in boxes_of(data, start, end):
        if name in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
            number += _count_samples(data, body, stop)
        elif name == b"hdlr":
            pictures = data[body + 8 : body + 12] in (b"pict", b"vide")
        elif name == b"stsz":
            size, count = struct.unpack_from(">4x2I", data, body)
            number += min(count, (stop - body - 12) // 4 if size == 0 else len(data) // size)
    return number if pictures else 0


def _inner(data: bytes, places: dict[bytes, tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The positions of the properties and the data among the boxes of `meta`."""
    yield from _single(data, *places[b"iprp"], frozenset({b"ipco"})).values()
    if b"idat" in places:
        yield places[b"idat"]


def _read_kinds(data: bytes, start: int, end: int, items: dict[int, Item]) -> None:
    start += 8 if data[start] else 6
    for name, body, stop in boxes_of(data, start, end):
        if name != b"infe" or data[body] not in (2, 3):
            continue
        cursor = Cursor(data, body + 4, stop)
        number = cursor.number(2 if data[body] == 2 else 4)
        if number in items:
            raise twice("HEIF", "items of one number")
        cursor.number(2)
        items[number] = Item(cursor.number(4).to_bytes(4))


def _read_extents(data: bytes, start: int, end: int, inside: tuple[int, int], items: dict[int, Item]) -> None:
    cursor = Cursor(data, start, end)
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


def _read_properties(data: bytes, start: int, end: int, items: dict[int, Item]) -> None:
    places = _single(data, start, end, frozenset({b"ipco"}))
    properties = [(name, data[body:stop]) for name, body, stop in boxes_of(data, *places[b"ipco"])]
    for name, body, stop in boxes_of(data, start, end):
        if name != b"ipma":
            continue
        cursor = Cursor(data, body, stop)
        head = cursor.number(4)
        width = 2 if head & 1 else 1
        for _ in range(cursor.number(4)):
            item = items.get(cursor.number(4 if head >> 24 else 2), Item())
            if item.properties:
                raise twice("HEIF", "lists of an item's properties")
            for _ in range(cursor.number(1)):
                bits = cursor.number(width)
                top = 1 << (8 * width - 1)
                if bits & (top - 1):
                    item.properties.append((*properties[(bits & (top - 1)) - 1], bits >= top))


def _read_references(data: bytes, start: int, end: int, items: dict[int, Item]) -> None:
    width = 4 if data[start] else 2
    for name, body, stop in boxes_of(data, start + 4, end):
        cursor = Cursor(data, body, stop)
        item = items.get(cursor.number(width), Item())
        item.references.append((name, [cursor.number(width) for _ in range(cursor.number(2))]))


def property_of(item: Item, name: bytes) -> bytes:
    """The body of a property. Raises ValueError if it is missing."""
    for other, body, _ in item.properties:
        if name == other:
            return body
    raise ValueError(f"a picture without {name.decode()!r}")


def size_of(item: Item) -> tuple[int, int]:
    """(width, height), from its box `ispe`."""
    width, height = struct.unpack_from(">4x2I", property_of(item, b"ispe"))
    return width, height


def _box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), name) + body


def file_of(coding: str, kept: list[int], items: dict[int, Item], coded: list[bytes]) -> bytes:
    """Writes a file of some items, numbered from 1, with their coded data; the first is the primary one."""
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
        """The box `meta`, with data that begin at a position."""
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
