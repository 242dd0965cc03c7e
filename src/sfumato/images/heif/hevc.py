"""Units of HEVC (ITU-T H.265): those of one picture, and the size inside."""

import struct

from sfumato.images.heif.boxes import Cursor, Item, property_of, size_of
from sfumato.images.heif.coded import BLOCK, CUT, Bits, Units, check_sizes

# Bytes of the set-up of an HEVC decoder; each tile gets a copy: usually some 100.
_MAX_SETUP = 4096
_HEVC_PARAMETERS = frozenset({32, 33, 34})  # of video, sequence and picture
_HEVC_SEQUENCE = 33


def sift_hevc(coded: bytes, item: Item, count: Units) -> tuple[bytes, int]:
    """Keeps the slices of a picture, with their parameters, and counts the pixels that they decode to.

    Source: ISO/IEC 14496-15, 8.3.3 (hvcC, and units behind their lengths), and H.265, 7.3.1.2 (their heads).
    """
    setup = property_of(item, b"hvcC")
    if len(setup) > _MAX_SETUP:
        raise ValueError(f"{len(setup)} bytes of decoder set-up")
    width = (setup[21] & 3) + 1
    parameters: list[bytes] = []
    cursor = Cursor(setup, 22, len(setup))
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
        check_sizes(size_of(item), shown, BLOCK, "HEIC")
        check_sizes(shown, coded_size, CUT, "HEIC")
    arrays = b"".join(struct.pack(">BHH", 0x80 | unit[0] >> 1, 1, len(unit)) + unit for unit in parameters)
    setup = setup[:22] + bytes([len(parameters)]) + arrays
    item.properties = [
        (name, setup if name == b"hvcC" else body, must) for name, body, must in item.properties
    ]
    return b"".join(len(unit).to_bytes(width) + unit for unit in units), max(
        width * height for (width, height), _ in sizes
    )


def _hevc_kind(unit: bytes) -> int:
    """The type of a unit of the base layer; 63 for all others."""
    (head,) = struct.unpack_from(">H", unit)
    return head >> 9 & 63 if head >> 3 & 63 == 0 else 63


def _hevc_size(unit: bytes) -> tuple[tuple[int, int], tuple[int, int]]:
    """The coded size, and the shown one.

    Source: H.265, 7.3.2.2 and 7.3.3, a sequence parameter set.
    """
    bits = Bits(unit[2:1024].replace(b"\0\0\3", b"\0\0"))
    bits.number(4)
    layers = bits.number(3)  # minus 1
    bits.number(1 + 96)
    flags = [(bits.number(1), bits.number(1)) for _ in range(layers)]
    bits.number(2 * (8 - layers) if layers else 0)
    bits.number(sum(88 * profile + 8 * level for profile, level in flags))
    bits.golomb()
    chroma = bits.golomb()
    if chroma == 3:  # for all pixels
        bits.number(1)
    width, height = bits.golomb(), bits.golomb()
    left, right, top, bottom = (bits.golomb() for _ in range(4)) if bits.number(1) else (0, 0, 0, 0)
    across, down = (2 if chroma in (1, 2) else 1), (2 if chroma == 1 else 1)
    return (width, height), (width - across * (left + right), height - down * (top + bottom))
