"""Files that tell their size twice: what a check reads is what the decoder obeys, or the file is refused."""

import io
import struct
import subprocess
import sys
import threading
import zlib

import pytest
import torch
from PIL import Image, features

from sfumato import images
from sfumato.decoding import MAX_PIXELS, UNDER_WAY, PixelBudget
from sfumato.errors import ImageError


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


READS = """
import resource, sys
from sfumato import images
from sfumato.errors import ImageError
data = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    images.read(data)
except ImageError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def kilobytes(data: bytes) -> int:
    """How much the peak of a process grows that reads the file."""
    done = subprocess.run([sys.executable, "-c", READS], input=data, capture_output=True, check=True)
    return int(done.stdout)


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
    data = stated(encoded("AVIF", (6000, 4000), quality=1), 16, 16)
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


def test_no_more_pixels_are_decoded_at_once_than_allowed_and_all_are_decoded():
    data = images.encode(torch.zeros(3, 300, 300, dtype=torch.uint8))
    most, under_way, lock = 0, 0, threading.Lock()
    budget = PixelBudget(250_000)

    def decode() -> None:
        nonlocal most, under_way
        for _ in range(20):
            budget.enter(90_000)
            with lock:
                under_way += 90_000
                most = max(most, under_way)
            images.read(data)
            with lock:
                under_way -= 90_000
            budget.leave(90_000)

    threads = [threading.Thread(target=decode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert most <= 250_000


def test_a_file_that_is_refused_gives_its_room_back():
    data = bytearray(images.encode(torch.zeros(3, 64, 64, dtype=torch.uint8)))
    data[data.index(b"IDAT") + 8] ^= 255  # of the pixels
    for _ in range(3):
        with pytest.raises(ImageError):
            images.read(bytes(data))
    UNDER_WAY.enter(2 * MAX_PIXELS)
    UNDER_WAY.leave(2 * MAX_PIXELS)
