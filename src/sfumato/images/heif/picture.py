"""A picture of a file, from the items that it needs."""

import struct
from typing import NamedTuple

from sfumato.images.heif.av1 import sift_av1
from sfumato.images.heif.boxes import Item, file_of, items_of, size_of
from sfumato.images.heif.coded import Units
from sfumato.images.heif.hevc import sift_hevc
from sfumato.images.refusals import MAX_PARTS, not_read, too_many_parts, twice, two_sizes

_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0", b"urn:mpeg:hevc:2015:auxid:1\0")

# Put together from other items; and items that are not pictures ("tmap" says how two are mixed).
_DERIVED = frozenset({b"grid", b"iovl", b"iden"})
_NO_PICTURES = frozenset({b"Exif", b"mime", b"uri ", b"tmap"})

# The kept properties of an item: size, channels, decoder set-up, colours, turn and cut, purpose.
_KEPT = frozenset({b"ispe", b"pixi", b"av1C", b"hvcC", b"colr", b"irot", b"imir", b"clap", b"auxC"})


class Picture(NamedTuple):
    """One picture of a file.

    Attributes:
        data: a file with it alone.
        size: (width, height) in pixels: of a HEIC as its boxes turn and cut it, of an AVIF as stored.
        pixels: how many are coded, in all tiles, of all layers, with transparency.
    """

    data: bytes
    size: tuple[int, int]
    pixels: int


def picture_of(data: bytes, coding: str, number: int | None = None) -> Picture:
    """Writes one picture of a file as a file.

    Args:
        data: the bytes of a HEIC or AVIF.
        coding: "HEIC" (HEVC, items "hvc1") or "AVIF" (AV1, items "av01").
        number: of its item; None for the primary one.

    Raises:
        ImageError: a box that may occur once occurs twice, two sizes of a picture, or another coding.
        ValueError, IndexError, KeyError, struct.error: the file is damaged.
    """
    primary, items = items_of(data)
    primary = primary if number is None else number
    kept = _items_needed(primary, items)
    if sum(end - start for number in kept for start, end in items[number].extents) > len(data):
        raise ValueError("items that overlap")
    pixels, written, units = 0, [], Units()
    for each in kept:
        item = items[each]
        coded = b"".join(data[start:end] for start, end in item.extents)
        if item.kind == b"grid":
            _check_grid(coded, item, items, coding)
        elif item.kind == (b"hvc1" if coding == "HEIC" else b"av01"):
            coded, area = (sift_hevc if coding == "HEIC" else sift_av1)(coded, item, units)
            pixels += area
        else:
            raise not_read(
                f"a picture coded as {item.kind.decode('ascii', 'replace')!r} in a file named {coding}: save "
                "it as PNG or JPEG"
            )
        written.append(coded)
    size = size_of(items[primary])
    if coding == "HEIC":
        for name, body, _ in items[primary].properties:
            if name == b"clap":
                width, over_width, height, over_height = struct.unpack_from(">4I", body)
                size = (round(width / over_width), round(height / over_height))
            elif name == b"irot" and body[0] & 1:
                size = (size[1], size[0])
    return Picture(file_of(coding, kept, items, written), size, pixels)


def further_pictures(data: bytes) -> list[int]:
    """The numbers of the items that are pictures of their own: neither the primary one, nor tiles or alpha.

    Raises:
        ImageError, ValueError, IndexError, KeyError, struct.error: as picture_of.
    """
    primary, items = items_of(data)
    parts = {primary}
    for number, item in items.items():
        if _is_alpha(item):
            parts.add(number)
        if item.kind in _DERIVED:
            parts.update(part for name, targets in item.references if name == b"dimg" for part in targets)
    return [number for number, item in items.items() if number not in parts and item.kind not in _NO_PICTURES]


def _is_alpha(item: Item) -> bool:
    alone = any(name == b"auxl" for name, _ in item.references)
    return alone and any(body[4:] in _ALPHA for kind, body, _ in item.properties if kind == b"auxC")


def _items_needed(primary: int, items: dict[int, Item]) -> list[int]:
    """The numbers of the items of a picture: itself, its transparency, and the tiles of both."""
    auxiliary: dict[int, list[int]] = {}
    for number, item in items.items():
        for name, targets in item.references if _is_alpha(item) else ():
            if name == b"auxl":
                for target in targets:
                    auxiliary.setdefault(target, []).append(number)
    needed = {primary: None}  # in order
    queue = [primary]
    for number in queue:  # it grows
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


def _choose_properties(item: Item) -> None:
    """Keeps the needed properties, without colour profiles, which are not applied."""
    kept: list[tuple[bytes, bytes, bool]] = []
    for name, body, essential in item.properties:
        if name == b"colr" and body[:4] != b"nclx":
            continue
        if name in _KEPT:
            if any(name == other for other, _, _ in kept):
                raise twice("HEIF", f"properties {name.decode()!r} of a picture")
            kept.append((name, body, essential))
        elif essential and name not in (b"free", b"skip"):  # which reserve room
            raise not_read(f"a picture with the property {name!r}: save it as PNG or JPEG")
    item.properties = kept


def _check_grid(coded: bytes, grid: Item, items: dict[int, Item], coding: str) -> None:
    """Raises unless a grid has its stated size, and tiles of one size that cover it, and no others."""
    rows, columns = coded[2] + 1, coded[3] + 1
    size = struct.unpack_from(">2I" if coded[1] & 1 else ">2H", coded, 4)
    if size != size_of(grid):
        raise two_sizes(coding, size_of(grid), size)
    tiles = [number for name, targets in grid.references if name == b"dimg" for number in targets]
    sizes = {size_of(items[number]) for number in tiles}
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
