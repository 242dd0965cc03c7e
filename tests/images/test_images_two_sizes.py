"""Files that tell their size twice: what a check reads is what the decoder obeys, or the file is refused."""

import io
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from PIL import Image, features

from sfumato import images
from sfumato.errors import ImageError
from sfumato.images import heif
from sfumato.images.decoding import MAX_PIXELS, UNDER_WAY, PixelBudget


def encoded(kind: str, size: tuple[int, int] = (32, 24), **settings: object) -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(buffer, kind, **settings)
    return buffer.getvalue()


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def header(width: int, height: int) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))


def png_of_two_headers(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    pixels = zlib.compress(bytes(second[1] * (3 * second[0] + 1)), 9)
    return (
        b"\x89PNG\r\n\x1a\n" + header(*first) + header(*second) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def refused(data: bytes, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        images.read(data)


# Not ru_maxrss, which a process takes over from the one that starts it.
READS = r"""
import re, sys
from pathlib import Path
from sfumato import images
from sfumato.errors import ImageError

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

data = sys.stdin.buffer.read()
before = peak()
try:
    images.read(data)
except ImageError:
    pass
print(peak() - before)
"""


def kilobytes(data: bytes) -> int:
    """How much the peak of a process grows that reads the file."""
    done = subprocess.run([sys.executable, "-c", READS], input=data, capture_output=True, check=True)
    return int(done.stdout)


def test_the_memory_that_a_picture_takes_is_measured():
    assert kilobytes(images.encode(torch.zeros(3, 2000, 2000, dtype=torch.uint8))) > 3 * 2000 * 2000 / 1024


# PNG


@pytest.mark.parametrize("second", [(32, 24), (8, 8), (64, 64)])
def test_a_png_of_two_headers_is_refused_whatever_they_say(second: tuple[int, int]):
    refused(png_of_two_headers((32, 24), second), r"a PNG with 2 headers: decoders differ in which they")


def test_a_png_of_two_headers_takes_no_memory_for_the_second():
    small, large = (16, 16), (8000, 8000)
    assert len(png_of_two_headers(small, large)) < 250_000
    assert kilobytes(png_of_two_headers(small, large)) < 20_000  # 8000 x 8000 in colour are 192 MB


@pytest.mark.parametrize("name", [b"PLTE", b"tRNS"])
def test_a_png_with_a_part_twice_is_refused(name: bytes):
    data = encoded("PNG")
    more = chunk(name, bytes(6))
    refused(data[:33] + more + more + data[33:], "a PNG with 2 ")


def test_a_png_whose_pixels_come_before_its_header_is_refused():
    data = encoded("PNG")
    end = data.index(b"IDAT") - 4
    refused(data[:8] + data[end:-12] + data[8:end] + data[-12:], "no header at its beginning")


# JPEG


def frame_of(data: bytes) -> int:
    return data.index(b"\xff\xc0")


def test_a_jpeg_of_two_frames_is_refused():
    data = encoded("JPEG")
    start = frame_of(data)
    length = 2 + int.from_bytes(data[start + 2 : start + 4])
    larger = bytearray(data[start : start + length])
    struct.pack_into(">HH", larger, 5, 60_000, 60_000)
    refused(data[: start + length] + bytes(larger) + data[start + length :], "a JPEG with 2 frame headers")


def test_the_height_that_a_jpeg_states_after_its_scan_is_not_believed():
    data = bytearray(encoded("JPEG"))
    later = b"\xff\xdc" + struct.pack(">HH", 4, 60_000)
    assert images.read(bytes(data[:-2]) + later + bytes(data[-2:])).shape == (3, 24, 32)
    struct.pack_into(">H", data, frame_of(bytes(data)) + 5, 0)
    refused(bytes(data[:-2]) + later + bytes(data[-2:]), "not an image that can be read|damaged")


# WebP, GIF, BMP


def test_a_webp_whose_canvas_and_picture_differ_is_refused():
    data = bytearray(encoded("WEBP", lossless=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"))
    place = data.index(b"VP8X")
    data[place + 12 : place + 18] = struct.pack("<I", 4000)[:3] + struct.pack("<I", 4000)[:3]
    refused(bytes(data), r"a WEBP of two sizes, 4001x4001 and 32x24")


def test_a_gif_has_the_size_of_what_reaches_further_and_that_is_checked():
    data = bytearray(encoded("GIF"))
    struct.pack_into("<HH", data, 6, 60_000, 60_000)
    refused(bytes(data), "60000x60000 pixels, more than the")
    data = bytearray(encoded("GIF"))
    picture = data.index(b"\x2c\0\0\0\0")
    struct.pack_into("<HH", data, picture + 5, 60_000, 60_000)
    refused(bytes(data), "60000x60000 pixels, more than the")


def test_a_bmp_from_the_top_down_has_its_height_checked():
    data = bytearray(encoded("BMP"))
    struct.pack_into("<ii", data, 18, 40_000, -40_000)
    refused(bytes(data), "40000x40000 pixels, more than the")


# TIFF


def tag(data: bytes, number: int) -> int:
    """Where the value of a tag lies, in a little-endian TIFF."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    for place in range(start + 2, start + 2 + 12 * count, 12):
        if struct.unpack_from("<H", data, place)[0] == number:
            return place + 8
    raise KeyError(number)


def test_a_tiff_whose_strips_hold_other_jpegs_than_it_says_is_refused():
    data = bytearray(encoded("TIFF", (64, 48), compression="jpeg"))
    start = data.index(b"\xff\xc0")
    struct.pack_into(">HH", data, start + 5, 4000, 4000)
    refused(bytes(data), r"a TIFF of two sizes")


def test_a_tiff_of_one_strip_that_is_larger_than_images_may_be_is_refused():
    data = bytearray(encoded("TIFF", (64, 48)))
    struct.pack_into("<I", data, tag(data, 256), 60_000)
    struct.pack_into("<I", data, tag(data, 257), 60_000)
    refused(bytes(data), "pixels, more than the|larger than images may be")


# HEIC and AVIF


def stated(data: bytes, width: int, height: int) -> bytes:
    """The same pixels under another stated size."""
    place = data.index(b"ispe")
    return data[: place + 8] + struct.pack(">II", width, height) + data[place + 16 :]


@pytest.mark.skipif(not features.check("avif"), reason="this build of Pillow reads no AVIF")
@pytest.mark.parametrize(("width", "height"), [(16, 16), (4000, 4000)])
def test_an_avif_that_states_another_size_than_it_codes_is_refused(width: int, height: int):
    data = encoded("AVIF", (200, 150))
    assert images.read(data).shape == (3, 150, 200)
    refused(stated(data, width, height), "an? AVIF of two sizes|damaged")


@pytest.mark.skipif(not features.check("avif"), reason="this build of Pillow reads no AVIF")
def test_an_avif_that_codes_much_more_than_it_states_takes_no_memory():
    data = stated(encoded("AVIF", (6000, 4000), quality=1, speed=10), 16, 16)
    assert len(data) < 2_000_000
    assert kilobytes(data) < 60_000  # 24 million pixels are 72 MB, and decoders take several times that


@pytest.mark.parametrize(("width", "height"), [(16, 16), (4000, 4000)])
def test_a_heic_that_states_another_size_than_it_codes_is_refused(width: int, height: int):
    import pillow_heif

    buffer = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (128, 64), "red")).save(buffer)
    data = buffer.getvalue()
    assert images.read(data).shape == (3, 64, 128)
    refused(stated(data, width, height), "a HEIC of two sizes|a HEIF of two sizes|damaged")


@pytest.mark.parametrize("kind", ["AVIF", "HEIF"])
def test_a_file_with_a_list_of_items_twice_is_refused(kind: str):
    if kind == "AVIF":
        if not features.check("avif"):
            pytest.skip("this build of Pillow reads no AVIF")
        data = encoded("AVIF")
    else:
        import pillow_heif

        buffer = io.BytesIO()
        pillow_heif.from_pillow(Image.new("RGB", (128, 64), "red")).save(buffer)
        data = buffer.getvalue()
    place = data.index(b"meta") - 4
    (length,) = struct.unpack_from(">I", data, place)
    refused(data[: place + length] + data[place:], "with 2 boxes 'meta'")


# Lists and parts of a HEIC: each costs its reader a step, or a copy


def box(name: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">I4s", 8 + len(body), name) + body


def items_of(numbers: range) -> bytes:
    entries = [box(b"infe", struct.pack(">B3xHH4sx", 2, number, 0, b"hvc1")) for number in numbers]
    return box(b"iinf", struct.pack(">IH", 0, len(entries)), *entries)


def properties_of(numbers: range, *properties: bytes) -> bytes:
    """Every item has all of the properties."""
    indices = bytes(range(1, len(properties) + 1))
    lists = b"".join(struct.pack(">HB", number, len(indices)) + indices for number in numbers)
    return box(b"iprp", box(b"ipco", *properties), box(b"ipma", struct.pack(">II", 0, len(numbers)), lists))


def locations(places: list[tuple[int, int, int]]) -> bytes:
    entries = [struct.pack(">HHHII", number, 0, 1, start, length) for number, start, length in places]
    return box(b"iloc", struct.pack(">IBBH", 0, 0x44, 0, len(entries)), *entries)


def heic(*lists: bytes) -> bytes:
    """A file of some boxes that list items, of which the first is the primary one."""
    primary = box(b"pitm", bytes(4), struct.pack(">H", 1))
    return box(b"ftyp", b"heic", bytes(4), b"mif1heic") + box(b"meta", bytes(4), primary, *lists)


SIZE = box(b"ispe", struct.pack(">3I", 0, 64, 64))
ONE = range(1, 2)


def sequence_parameters(coded: tuple[int, int], cut: int) -> bytes:
    """Of 8 bits in 4:2:0, so many pixels wide and high, less twice `cut` on the right."""

    def golomb(number: int) -> str:
        binary = format(number + 1, "b")
        return "0" * (len(binary) - 1) + binary

    bits = "0" * 8 + "0" * 96 + golomb(0) + golomb(1) + golomb(coded[0]) + golomb(coded[1])
    bits += "1" + golomb(0) + golomb(cut) + golomb(0) + golomb(0)
    bits += "1" + "0" * (-(len(bits) + 1) % 8)
    body = bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    return (33 << 9 | 1).to_bytes(2) + body.replace(b"\0\0", b"\0\0\3")


@pytest.mark.parametrize(
    ("coded", "cut", "sizes"),
    [
        ((160, 64), 48, None),  # as Apple's hardware codes 64 pixels
        ((160, 64), 0, "64x64 and 160x64"),
        ((8192, 64), 4064, "64x64 and 8192x64"),
        ((64, 8000), 0, "64x64 and 64x8000"),
    ],
)
def test_a_heic_states_the_size_that_is_shown_of_what_is_coded(
    coded: tuple[int, int], cut: int, sizes: str | None
):
    unit = sequence_parameters(coded, cut)
    setup = box(b"hvcC", bytes(22) + b"\1\x21\0\1" + len(unit).to_bytes(2) + unit)
    lists = (items_of(ONE), properties_of(ONE, SIZE, setup))
    start = len(heic(*lists, locations([(1, 0, 0)]))) + 8
    data = heic(*lists, locations([(1, start, 4)])) + box(b"mdat", b"\3\2\1\x80")
    if sizes is None:
        assert heif.picture_of(data, "HEIC").size == (64, 64)
    else:
        refused(data, f"a HEIC of two sizes, {sizes}: save it anew")


def test_a_grid_that_shows_a_tile_many_times_is_refused():
    """It is decoded as often."""
    numbers = range(1, 3)
    kinds = box(b"infe", struct.pack(">B3xHH4sx", 2, 1, 0, b"grid")), items_of(range(2, 3))[14:]
    lists = box(b"iinf", struct.pack(">IH", 0, 2), *kinds), properties_of(numbers, SIZE)
    tiles = box(b"iref", bytes(4), box(b"dimg", struct.pack(">HH4H", 1, 4, 2, 2, 2, 2)))
    start = len(heic(*lists, tiles, locations([(1, 0, 0)]))) + 8
    grid = struct.pack(">4B2H", 0, 0, 1, 1, 64, 64)
    data = heic(*lists, tiles, locations([(1, start, len(grid))])) + box(b"mdat", grid)
    refused(data, "a grid of 2x2 with 4 tiles of 1 sizes")


def heic_of_tiles(setup: bytes, count: int, unit: bytes) -> bytes:
    """Items of one unit each, which share all properties; the first refers to the others."""
    numbers = range(1, count)
    tiles = box(b"dimg", struct.pack(">HH", 1, count - 2), *(struct.pack(">H", i) for i in numbers[1:]))
    lists = (items_of(numbers), properties_of(numbers, SIZE, setup), box(b"iref", bytes(4), tiles))
    start = len(heic(*lists, locations([(i, 0, 0) for i in numbers]))) + 8
    places = [(i, start + len(unit) * i, len(unit)) for i in numbers]
    return heic(*lists, locations(places)) + box(b"mdat", unit * count)


def heic_of_large_setups() -> bytes:
    unit = (32 << 9 | 1).to_bytes(2) + bytes(60_000)
    body = bytes(21) + b"\1\x20" + struct.pack(">H", 20) + (len(unit).to_bytes(2) + unit) * 20
    return heic_of_tiles(box(b"hvcC", body), 3000, b"\3" + (1 << 9 | 1).to_bytes(2) + b"\x80")


def heic_of_a_large_property() -> bytes:
    numbers = range(1, 100)
    profile = box(b"colr", b"prof", bytes(10**7))
    return heic(items_of(numbers), locations([]), properties_of(numbers, SIZE, profile))


@pytest.mark.parametrize("make", [heic_of_large_setups, heic_of_a_large_property])
def test_what_the_items_of_a_heic_share_is_not_copied_for_each(make: Callable[[], bytes]):
    assert kilobytes(make()) < 100_000


def many_locations() -> bytes:
    entries = struct.pack(">IHHH", 2, 0, 0, 0) * 200_000
    return heic(
        items_of(ONE),
        box(b"iloc", struct.pack(">IBBI", 2 << 24, 0x44, 0, 200_000), entries),
        properties_of(ONE, SIZE),
    )


def many_properties() -> bytes:
    entries = struct.pack(">HB", 2, 0) * 400_000
    lists = box(b"ipma", struct.pack(">II", 0, 400_000), entries)
    return heic(items_of(ONE), locations([]), box(b"iprp", box(b"ipco", SIZE), lists))


def many_references() -> bytes:
    tiles = box(b"dimg", struct.pack(">HH", 2, 65_535), bytes(2 * 65_535))
    lists = (items_of(ONE), locations([]), properties_of(ONE, SIZE))
    return heic(*lists, box(b"iref", bytes(4), tiles * 9))


@pytest.mark.parametrize("make", [many_locations, many_properties, many_references])
def test_a_heic_with_long_lists_is_refused_before_they_are_read(make: Callable[[], bytes]):
    refused(make(), "more than 65536 parts: save it anew")


def test_a_heic_of_many_units_is_refused():
    unit = b"\3" + (39 << 9 | 1).to_bytes(2) + b"\0"  # supplemental information
    setup = box(b"hvcC", bytes(23))
    lists = (items_of(ONE), properties_of(ONE, SIZE, setup))
    start = len(heic(*lists, locations([(1, 0, 0)]))) + 8
    data = heic(*lists, locations([(1, start, 400_000)])) + box(b"mdat", unit * 100_000)
    refused(data, "more than 65536 parts: save it anew")


# Decodes under way


def test_decodes_wait_for_room_and_go_in_turn():
    budget = PixelBudget(100)
    budget.enter(60)
    entered: list[int] = []

    def enter(pixels: int) -> None:
        budget.enter(pixels)
        entered.append(pixels)

    large = threading.Thread(target=enter, args=(80,))
    large.start()
    large.join(0.2)
    small = threading.Thread(target=enter, args=(10,))  # there is room, but another was first
    small.start()
    small.join(0.2)
    assert entered == []
    budget.leave(60)
    large.join(10)
    small.join(10)
    assert sorted(entered) == [10, 80]


def test_an_image_larger_than_the_budget_is_decoded_alone():
    budget = PixelBudget(100)
    budget.enter(1000)
    waiting = threading.Thread(target=budget.enter, args=(1,))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()
    budget.leave(1000)
    waiting.join(10)
    assert not waiting.is_alive()


def test_images_wait_for_room_and_are_all_read(monkeypatch: pytest.MonkeyPatch):
    data = images.encode(torch.zeros(3, 64, 64, dtype=torch.uint8))
    budget = PixelBudget(2 * 64 * 64)
    monkeypatch.setattr(images.reading, "UNDER_WAY", budget)
    most, under_way, lock = 0, 0, threading.Lock()
    decode = images.reading.decode

    def counted(*arguments: Any) -> Image.Image:
        nonlocal most, under_way
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return decode(*arguments)
        finally:
            with lock:
                under_way -= 1

    monkeypatch.setattr(images.reading, "decode", counted)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(images.read, [data] * 200))) == 200
    assert 1 <= most <= 2
    budget.enter(2 * 64 * 64)  # all of it is there again


def test_a_process_that_is_forked_during_a_decode_has_all_the_room():
    script = (
        "import os; from sfumato.images.decoding import UNDER_WAY, MAX_PIXELS as most\n"
        "UNDER_WAY.enter(2 * most)\n"
        "child = os.fork()\n"
        "if child == 0: UNDER_WAY.enter(2 * most); os._exit(7)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 7


def test_a_file_that_is_refused_gives_its_room_back():
    data = bytearray(images.encode(torch.zeros(3, 64, 64, dtype=torch.uint8)))
    data[data.index(b"IDAT") + 8] ^= 255  # of the pixels
    for _ in range(3):
        with pytest.raises(ImageError):
            images.read(bytes(data))
    UNDER_WAY.enter(2 * MAX_PIXELS)
    UNDER_WAY.leave(2 * MAX_PIXELS)
