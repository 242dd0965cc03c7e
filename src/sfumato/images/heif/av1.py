"""Units of AV1: those of one picture, and the size inside."""

from typing import NamedTuple

from sfumato.images.heif.boxes import Item, size_of
from sfumato.images.heif.coded import BLOCK, Bits, Units, check_sizes
from sfumato.images.refusals import not_read, twice

_AV1_SEQUENCE, _AV1_FRAME_HEADER, _AV1_TILES, _AV1_FRAME = 1, 3, 4, 6


class _Sequence(NamedTuple):
    """The size in an AV1 sequence header, and the settings that show whether a frame states another."""

    size: tuple[int, int]
    reduced: bool
    time_bits: int
    id_bits: int
    screen_tools: int
    integer_motion: int


def sift_av1(coded: bytes, item: Item, count: Units) -> tuple[bytes, int]:
    """Keeps the frames of a picture after their header, and counts the pixels that they decode to.

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
                raise not_read("an AVIF whose frames have sizes of their own: save it as PNG or JPEG")
            frames += 1
        if kind in (_AV1_SEQUENCE, _AV1_FRAME_HEADER, _AV1_TILES, _AV1_FRAME):
            kept.append(coded[start:position])
    if sequence is None or frames == 0:
        raise ValueError("an item without a picture")
    check_sizes(size_of(item), sequence.size, BLOCK, "AVIF")
    # After these four bytes is a copy of the sequence header, and anything else that an encoder put there.
    item.properties = [
        (name, body[:4] if name == b"av1C" else body, must) for name, body, must in item.properties
    ]
    return b"".join(kept), sequence.size[0] * sequence.size[1] * frames


def _leb128(data: bytes, position: int) -> tuple[int, int]:
    """A number of seven bits a byte, and its end."""
    value = 0
    for shift in range(0, 56, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
    raise ValueError("a number of more than 8 bytes")


def _av1_sequence(body: bytes) -> _Sequence:
    bits = Bits(body[:1024])
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


def _skip_av1_points(bits: Bits) -> int:
    """Skips timing and operating points of a sequence header. -> The bits of a frame's time, if any."""
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
    """Whether a frame header has a size of its own, instead of the sequence's."""
    if sequence.reduced:
        return False
    bits = Bits(body[:64])
    if bits.number(1):  # repeats a frame
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
