"""Files that tell their size twice: a decoder takes no more memory than the checked size, whichever it is."""

import io
import struct
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from PIL import Image, features

from sfumato import images
from sfumato.errors import ImageError
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
    images.read_array(data)
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


LARGE = (8000, 8000)  # in colour, 192 MB
HUGE = 60_000


def test_a_png_of_two_headers_has_the_size_of_the_last_and_that_is_checked():
    assert images.read(png_of_two_headers((64, 64), (32, 24))).shape == (3, 24, 32)
    data = png_of_two_headers((16, 16), (8, 8))
    refused(data.replace(header(8, 8), header(HUGE, HUGE)), "more pixels than allowed")


def test_a_header_behind_the_pixels_changes_nothing():
    data = png_of_two_headers((32, 24), (32, 24))
    end = data.index(b"IEND") - 4
    larger = data[:end] + header(*LARGE) + data[end:]
    assert images.read(larger).shape == (3, 24, 32)
    assert kilobytes(larger) < 20_000


def frame_of(data: bytes) -> int:
    return data.index(b"\xff\xc0")


def test_a_jpeg_of_two_frames_is_refused():
    data = encoded("JPEG")
    start = frame_of(data)
    length = 2 + int.from_bytes(data[start + 2 : start + 4])
    for side in (8000, HUGE):
        larger = bytearray(data[start : start + length])
        struct.pack_into(">HH", larger, 5, side, side)
        for two in (
            bytes(larger) + data[start : start + length],
            data[start : start + length] + bytes(larger),
        ):
            refused(data[:start] + two + data[start + length :], "damaged|more pixels than allowed")


def test_the_height_that_a_jpeg_states_after_its_scan_is_not_believed():
    data = bytearray(encoded("JPEG"))
    later = b"\xff\xdc" + struct.pack(">HH", 4, HUGE)
    assert images.read(bytes(data[:-2]) + later + bytes(data[-2:])).shape == (3, 24, 32)
    struct.pack_into(">H", data, frame_of(bytes(data)) + 5, 0)
    refused(bytes(data[:-2]) + later + bytes(data[-2:]), "not an image that can be read|damaged")


@pytest.mark.parametrize("side", [4000, 8000, HUGE])
def test_a_webp_whose_canvas_and_picture_differ_is_refused(side: int):
    data = bytearray(encoded("WEBP", lossless=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0"))
    place = data.index(b"VP8X")
    data[place + 12 : place + 18] = struct.pack("<I", side)[:3] * 2
    refused(bytes(data), "damaged|more pixels than allowed")
    assert kilobytes(bytes(data)) < 20_000


@pytest.mark.parametrize("side", [9000, HUGE])
@pytest.mark.parametrize("place", [6, None])
def test_a_gif_has_the_size_of_what_reaches_further_and_that_is_checked(side: int, place: int | None):
    data = bytearray(encoded("GIF"))
    struct.pack_into("<HH", data, data.index(b"\x2c\0\0\0\0") + 5 if place is None else place, side, side)
    refused(bytes(data), "more than the 64000000 allowed|more pixels than allowed")


def test_a_bmp_from_the_top_down_has_its_height_checked():
    data = bytearray(encoded("BMP"))
    struct.pack_into("<ii", data, 18, 40_000, -40_000)
    refused(bytes(data), "more pixels than allowed")


def tag(data: bytes, number: int) -> int:
    """Where the value of a tag lies, in a little-endian TIFF."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    places = range(start + 2, start + 2 + 12 * count, 12)
    return next(place + 8 for place in places if struct.unpack_from("<H", data, place)[0] == number)


def test_a_tiff_whose_strips_hold_other_jpegs_than_it_says_is_refused():
    data = bytearray(encoded("TIFF", (64, 48), compression="jpeg"))
    for side in (4000, HUGE):
        struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, side, side)
        refused(bytes(data), "a damaged image")
        assert kilobytes(bytes(data)) < 20_000


def test_a_tiff_of_one_strip_that_is_larger_than_images_may_be_is_refused():
    data = bytearray(encoded("TIFF", (64, 48)))
    for number in (256, 257):
        struct.pack_into("<I", data, tag(data, number), HUGE)
    refused(bytes(data), "more pixels than allowed")


# HEIC and AVIF


def stated(data: bytes, width: int, height: int) -> bytes:
    """The same pixels under another stated size."""
    place = data.index(b"ispe")
    return data[: place + 8] + struct.pack(">II", width, height) + data[place + 16 :]


@pytest.mark.skipif(not features.check("avif"), reason="this build of Pillow reads no AVIF")
def test_an_avif_has_the_size_that_it_states_and_that_is_checked():
    data = encoded("AVIF", (200, 150))
    assert images.read(data).shape == (3, 150, 200)
    assert images.read(stated(data, 16, 12)).shape == (3, 12, 16)
    refused(stated(data, 9000, 9000), "9000x9000 pixels, more than the")
    large = stated(encoded("AVIF", (6000, 4000), quality=1, speed=10), 16, 16)
    assert kilobytes(large) < 8 * 24_000_000 / 1024 + 20_000  # as images.read promises


def heic(size: tuple[int, int], **settings: object) -> bytes:
    pillow_heif = pytest.importorskip("pillow_heif")
    buffer = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", size, "red")).save(buffer, **settings)
    return buffer.getvalue()


@pytest.mark.parametrize("side", [16, 4000, 9000, HUGE])
def test_a_heic_that_states_another_size_than_it_codes_is_refused(side: int):
    data = heic((128, 64))
    assert images.read(data).shape == (3, 64, 128)
    refused(stated(data, side, side), "a damaged image|more than the 64000000 allowed")


def test_a_heic_that_codes_much_more_than_it_states_takes_no_memory():
    assert kilobytes(stated(heic((6000, 4000), quality=1), 16, 16)) < 20_000


# Decodes under way


def test_decodes_wait_for_room_and_go_in_turn():
    budget, entered = PixelBudget(100), list[int]()

    def enter(pixels: int) -> None:
        with budget.room(pixels):
            entered.append(pixels)

    large = threading.Thread(target=enter, args=(80,))
    small = threading.Thread(target=enter, args=(10,))  # there is room, but another was first
    with budget.room(60):
        for thread in (large, small):
            thread.start()
            thread.join(0.2)
        assert entered == []
    large.join(10)
    small.join(10)
    assert sorted(entered) == [10, 80]


def test_an_image_larger_than_the_budget_is_decoded_alone():
    budget, entered = PixelBudget(100), threading.Event()

    def enter() -> None:
        with budget.room(1):
            entered.set()

    with budget.room(1000):
        threading.Thread(target=enter).start()
        assert not entered.wait(0.2)
    assert entered.wait(10)


def test_images_wait_for_room_and_are_all_read(monkeypatch: pytest.MonkeyPatch):
    data = images.encode(torch.zeros(3, 64, 64, dtype=torch.uint8))
    budget, most, under_way, lock = PixelBudget(2 * 64 * 64), 0, 0, threading.Lock()
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

    monkeypatch.setattr(images.reading, "UNDER_WAY", budget)
    monkeypatch.setattr(images.reading, "decode", counted)
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(images.read, [data] * 200))) == 200
    assert 1 <= most <= 2


def test_a_process_that_is_forked_during_a_decode_has_all_the_room():
    script = (
        "import os; from sfumato.images.decoding import UNDER_WAY, MAX_PIXELS as most\n"
        "with UNDER_WAY.room(2 * most):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with UNDER_WAY.room(2 * most): os._exit(7)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 7


def test_a_file_that_is_refused_gives_its_room_back():
    data = bytearray(images.encode(torch.zeros(3, 64, 64, dtype=torch.uint8)))
    data[data.index(b"IDAT") + 8] ^= 255  # of the pixels
    with pytest.raises(ImageError):
        images.read(bytes(data))
    with UNDER_WAY.room(2 * MAX_PIXELS):
        pass
