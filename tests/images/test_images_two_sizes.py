"""Files that tell their size twice: a decoder takes no more memory than the checked size, whichever it is."""

import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from picture_files import encoded, png_file, png_header
from PIL import Image

from sfumato import images
from sfumato.errors import ImageError
from sfumato.images.reading import MAX_PIXELS, UNDER_WAY, PixelBudget


def noise(kind: str, size: tuple[int, int] = (32, 24), **settings: Any) -> bytes:
    return encoded(Image.effect_noise(size, 60).convert("RGB"), kind, **settings)


def png_of_two_headers(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    return png_file(png_header(*first) + png_header(*second), bytes(second[1] * (3 * second[0] + 1)))


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
    larger = data[:end] + png_header(*LARGE) + data[end:]
    assert images.read(larger).shape == (3, 24, 32)
    assert kilobytes(larger) < 20_000


def patched(data: bytes, place: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(form, changed, place, *values)
    return bytes(changed)


def jpeg_frames(side: int, *, first: bool) -> bytes:
    data = noise("JPEG")
    start = data.index(b"\xff\xc0")
    frame = data[start : start + 2 + int.from_bytes(data[start + 2 : start + 4])]
    larger = patched(frame, 5, ">HH", side, side)
    return data[:start] + (larger + frame if first else frame + larger) + data[start + len(frame) :]


def webp_canvas(side: int) -> bytes:
    data = noise("WEBP", lossless=True, exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    place = data.index(b"VP8X") + 12
    return data[:place] + struct.pack("<I", side)[:3] * 2 + data[place + 6 :]


def tiff_strips(side: int) -> bytes:
    data = noise("TIFF", (64, 48), compression="jpeg")
    return patched(data, data.index(b"\xff\xc0") + 5, ">HH", side, side)


def gif(place: int | None, side: int) -> bytes:
    data = noise("GIF")
    return patched(data, place or data.index(b"\x2c\0\0\0\0") + 5, "<HH", side, side)


LARGER, EITHER = "more pixels than allowed|more than the 64000000 allowed", "damaged|more pixels than allowed"
TWO_SIZES: dict[str, tuple[Callable[[], bytes], str]] = {
    "PNG, two headers": (
        lambda: png_of_two_headers((16, 16), (8, 8)).replace(png_header(8, 8), png_header(HUGE, HUGE)),
        LARGER,
    ),
    "JPEG, a huge frame before": (lambda: jpeg_frames(HUGE, first=True), EITHER),
    "JPEG, a larger frame behind": (lambda: jpeg_frames(8000, first=False), EITHER),
    "WebP, a larger canvas": (lambda: webp_canvas(4000), EITHER),
    "WebP, a huge canvas": (lambda: webp_canvas(HUGE), EITHER),
    "GIF, a larger screen": (lambda: gif(6, 9000), LARGER),
    "GIF, a huge frame": (lambda: gif(None, HUGE), LARGER),
    "TIFF, huge JPEGs in strips": (lambda: tiff_strips(HUGE), "a damaged image"),
}


@pytest.mark.parametrize("kind", TWO_SIZES)
def test_a_file_that_tells_a_larger_size_is_refused_in_little_memory(kind: str):
    make, words = TWO_SIZES[kind]
    data = make()
    with pytest.raises(ImageError, match=words):
        images.read(data)
    if kind.startswith(("WebP", "TIFF, ")):
        assert kilobytes(data) < 20_000


# HEIC and AVIF


def stated(data: bytes, width: int, height: int) -> bytes:
    """The same pixels under another stated size."""
    place = data.index(b"ispe")
    return data[: place + 8] + struct.pack(">II", width, height) + data[place + 16 :]


def test_an_avif_has_the_size_that_it_states_and_that_is_checked():
    data = noise("AVIF", (200, 150))
    assert images.read(data).shape == (3, 150, 200)
    assert images.read(stated(data, 16, 12)).shape == (3, 12, 16)
    with pytest.raises(ImageError, match="9000x9000 pixels, more than the"):
        images.read(stated(data, 9000, 9000))
    large = stated(noise("AVIF", (4000, 3000), quality=1, speed=10), 16, 16)
    assert kilobytes(large) < 8 * 12_000_000 / 1024 + 20_000  # as images.read promises


def test_a_heic_that_states_another_size_than_it_codes_is_refused_in_little_memory():
    data = noise("HEIF", (128, 64))
    assert images.read(data).shape == (3, 64, 128)
    for side in (16, 4000, 9000, HUGE):
        with pytest.raises(ImageError, match=r"a damaged image|more than the 64000000 allowed"):
            images.read(stated(data, side, side))
    large = encoded(Image.new("RGB", (3000, 2000), "red"), "HEIF", quality=1)
    assert kilobytes(stated(large, 16, 16)) < 20_000


# Decodes under way


@pytest.mark.parametrize("held", [60, 1000], ids=["there is room, but another was first", "larger than all"])
def test_decodes_wait_for_room_and_go_in_turn(held: int):
    budget, entered = PixelBudget(100), list[int]()

    def enter(pixels: int) -> None:
        with budget.room(pixels):
            entered.append(pixels)

    threads = [threading.Thread(target=enter, args=(pixels,)) for pixels in (80, 10)]
    with budget.room(held):
        for thread in threads:
            thread.start()
            thread.join(0.2)
        assert entered == []
    for thread in threads:
        thread.join(10)
    assert sorted(entered) == [10, 80]


def test_a_read_waits_for_room_and_gives_it_back_if_it_fails():
    data = bytearray(noise("PNG"))
    data[data.index(b"IDAT") + 8] ^= 255  # of the pixels
    with pytest.raises(ImageError):
        images.read(bytes(data))
    thread = threading.Thread(target=images.read, args=(noise("PNG"),))
    with UNDER_WAY.room(2 * MAX_PIXELS):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()


def test_a_process_that_is_forked_during_a_decode_has_all_the_room():
    script = (
        "import os; from sfumato.images.reading import UNDER_WAY, MAX_PIXELS as most\n"
        "with UNDER_WAY.room(2 * most):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        with UNDER_WAY.room(2 * most): os._exit(7)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 7
