"""Files that tell their size twice: a decoder takes no more memory than the checked size, whichever it is."""

import io
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable

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


def test_the_last_header_of_a_png_before_its_pixels_counts():
    data = png_of_two_headers((64, 64), (32, 24))
    assert images.read(data).shape == (3, 24, 32)
    end = data.index(b"IEND") - 4
    larger = data[:end] + header(*LARGE) + data[end:]
    assert images.read(larger).shape == (3, 24, 32)
    assert kilobytes(larger) < 20_000


def patched(data: bytes, place: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, place, *values)
    return bytes(changed)


def jpeg_frames(side: int, *, first: bool) -> bytes:
    data = encoded("JPEG")
    start = data.index(b"\xff\xc0")
    frame = data[start : start + 2 + int.from_bytes(data[start + 2 : start + 4])]
    larger = patched(frame, 5, ">HH", side, side)
    return data[:start] + (larger + frame if first else frame + larger) + data[start + len(frame) :]


def later_height(data: bytes) -> bytes:
    return data[:-2] + b"\xff\xdc" + struct.pack(">HH", 4, HUGE) + data[-2:]


def webp_canvas(side: int) -> bytes:
    data = encoded("WEBP", lossless=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    place = data.index(b"VP8X") + 12
    return data[:place] + struct.pack("<I", side)[:3] * 2 + data[place + 6 :]


def tag(data: bytes, number: int) -> int:
    """Where the value of a tag lies, in a little-endian TIFF."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    places = range(start + 2, start + 2 + 12 * count, 12)
    return next(place + 8 for place in places if struct.unpack_from("<H", data, place)[0] == number)


def tiff_strips(side: int) -> bytes:
    data = encoded("TIFF", (64, 48), compression="jpeg")
    return patched(data, data.index(b"\xff\xc0") + 5, ">HH", side, side)


def tiff_strip() -> bytes:
    data = encoded("TIFF", (64, 48))
    return patched(patched(data, tag(data, 256), "<I", HUGE), tag(data, 257), "<I", HUGE)


def gif(place: int | None, side: int) -> bytes:
    data = encoded("GIF")
    return patched(data, place or data.index(b"\x2c\0\0\0\0") + 5, "<HH", side, side)


LARGER, EITHER = "more pixels than allowed|more than the 64000000 allowed", "damaged|more pixels than allowed"
TWO_SIZES: dict[str, tuple[Callable[[], bytes], str]] = {
    "PNG, two headers": (
        lambda: png_of_two_headers((16, 16), (8, 8)).replace(header(8, 8), header(HUGE, HUGE)),
        LARGER,
    ),
    "JPEG, a larger frame before": (lambda: jpeg_frames(8000, first=True), EITHER),
    "JPEG, a huge frame before": (lambda: jpeg_frames(HUGE, first=True), EITHER),
    "JPEG, a larger frame behind": (lambda: jpeg_frames(8000, first=False), EITHER),
    "JPEG, a huge frame behind": (lambda: jpeg_frames(HUGE, first=False), EITHER),
    "JPEG, only a later height": (
        lambda: later_height(patched(encoded("JPEG"), encoded("JPEG").index(b"\xff\xc0") + 5, ">H", 0)),
        "not an image that can be read|damaged",
    ),
    "WebP, a larger canvas": (lambda: webp_canvas(4000), EITHER),
    "WebP, a large canvas": (lambda: webp_canvas(8000), EITHER),
    "WebP, a huge canvas": (lambda: webp_canvas(HUGE), EITHER),
    "GIF, a larger screen": (lambda: gif(6, 9000), LARGER),
    "GIF, a larger frame": (lambda: gif(None, 9000), LARGER),
    "GIF, a huge frame": (lambda: gif(None, HUGE), LARGER),
    "BMP from the top down": (lambda: patched(encoded("BMP"), 18, "<ii", 40_000, -40_000), LARGER),
    "TIFF, larger JPEGs in strips": (lambda: tiff_strips(4000), "a damaged image"),
    "TIFF, huge JPEGs in strips": (lambda: tiff_strips(HUGE), "a damaged image"),
    "TIFF of one huge strip": (tiff_strip, LARGER),
}


@pytest.mark.parametrize("kind", TWO_SIZES)
def test_a_file_that_tells_a_larger_size_is_refused_in_little_memory(kind: str):
    make, words = TWO_SIZES[kind]
    data = make()
    with pytest.raises(ImageError, match=words):
        images.read(data)
    if kind.startswith(("WebP", "TIFF, ")):
        assert kilobytes(data) < 20_000


def test_the_height_that_a_jpeg_states_after_its_scan_is_not_believed():
    assert images.read(later_height(encoded("JPEG"))).shape == (3, 24, 32)


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
    with pytest.raises(ImageError, match="9000x9000 pixels, more than the"):
        images.read(stated(data, 9000, 9000))
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
    with pytest.raises(ImageError, match=r"a damaged image|more than the 64000000 allowed"):
        images.read(stated(data, side, side))


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


def test_a_read_waits_for_room():
    thread = threading.Thread(target=images.read, args=(encoded("PNG"),))
    with UNDER_WAY.room(2 * MAX_PIXELS):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()


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
