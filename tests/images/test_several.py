"""Files of several pictures: how many there are, and each of them; a format by its first bytes."""

import io
import struct
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from picture_files import encoded
from PIL import Image

from sfumato import images
from sfumato.errors import ImageError

SEVERAL = ["GIF", "PNG", "WEBP", "TIFF", "MPO", "AVIF", "HEIF", "JPEGs"]
LOSSLESS = ["PNG", "WEBP", "TIFF"]


def pictures() -> list[Image.Image]:
    base = Image.new("RGB", (56, 40), "red")
    second = base.copy()
    second.paste((0, 255, 0), (5, 5, 19, 19))
    third = second.copy()
    third.paste((0, 0, 255), (20, 20, 40, 30))
    return [base, second, third]


@cache
def file_of(kind: str) -> bytes:
    first, *others = pictures()
    if kind == "HEIF":
        buffer, heif = io.BytesIO(), pytest.importorskip("pillow_heif").HeifFile()
        for picture in pictures():
            heif.add_from_pillow(picture)
        heif.save(buffer, format="HEIF", quality=95)
        return buffer.getvalue()
    if kind == "JPEGs":
        return b"".join(encoded(picture, "JPEG", quality=95) for picture in pictures())
    settings = {"WEBP": {"lossless": True}, "MPO": {"quality": 95}}.get(kind, {})
    return encoded(first, kind, save_all=True, append_images=others, **settings)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
def test_a_file_of_one_picture_has_one(kind: str):
    assert images.count_pictures(encoded(pictures()[0], kind) + b"bytes behind it") == 1


@pytest.mark.parametrize("kind", SEVERAL)
def test_each_picture_is_counted_and_read_as_a_viewer_shows_it(kind: str):
    read = list(images.read_pictures(file_of(kind)))
    assert len(read) == images.count_pictures(file_of(kind)) == 3
    for pixels, picture in zip(read, pictures(), strict=True):
        difference = np.abs(pixels.astype(int) - np.moveaxis(np.asarray(picture), -1, 0))
        assert difference.max() == 0 if kind in LOSSLESS else difference.mean() < 9


def test_a_further_picture_that_is_damaged_yields_its_error():
    data = bytearray(file_of("MPO"))
    second = data.index(
        b"\xff\xc0", images.encode(np.zeros((3, 40, 56), np.uint8), "JPEG").index(b"\xff\xc0") + 700
    )
    data[second + 5 : second + 9] = bytes(4)
    _, broken, third = images.read_pictures(bytes(data))
    assert isinstance(broken, ImageError)
    assert isinstance(third, np.ndarray)


def test_a_jpeg_behind_other_data_counts_and_a_video_or_the_thumbnail_in_exif_does_not():
    exif, thumbnail = Image.Exif(), encoded(pictures()[2], "JPEG")
    exif[0x927C] = thumbnail
    photo = encoded(pictures()[0], "JPEG", exif=exif) + b"\0\0\0\x18ftypmp42" + bytes(5000)
    assert images.count_pictures(photo) == 1
    both = photo + thumbnail
    assert images.count_pictures(both) == len(list(images.read_pictures(both))) == 2


def test_a_picture_below_a_page_of_a_tiff_is_read():
    data = file_of("TIFF")
    (first,) = struct.unpack_from("<I", data, 4)
    (second,) = struct.unpack_from("<I", data, first + 2 + 12 * struct.unpack_from("<H", data, first)[0])
    below = struct.pack("<HHHII", 1, 330, 4, 1, second) + bytes(4)
    tags = data[first + 2 : first + 2 + 12 * struct.unpack_from("<H", data, first)[0]]
    page = struct.pack("<H", len(tags) // 12 + 1) + tags + below[2:-4] + bytes(4)
    whole = data[:4] + struct.pack("<I", len(data)) + data[8:] + page
    read = list(images.read_pictures(whole))
    assert images.count_pictures(whole) == 3
    assert np.array_equal(read[1], np.moveaxis(np.asarray(pictures()[1]), -1, 0))


def test_the_thumbnail_of_a_heic_is_a_picture_of_its_own():
    data = encoded(Image.new("RGB", (256, 128), "red"), "HEIF", thumbnails=[64])
    sizes = [pixels.shape for pixels in images.read_pictures(data)]
    assert sizes == [(3, 128, 256), (3, 32, 64)]


GIF = b"GIF89a" + struct.pack("<HHBBB", 8000, 8000, 0x80, 0, 0) + bytes(6)
FRAME = b"\x2c" + struct.pack("<4HB", 0, 0, 8000, 8000, 0) + b"\x02"
BOMBS = {
    "tiny blocks of a GIF": GIF + FRAME + b"\x01\0" * 10_000_000,
    "frames of a GIF": GIF + (FRAME + b"\x02\x4c\x01\0") * 500_000,
    "tiny JPEGs": b"\xff\xd8\xff\xfe\0\2\xff\xd9" * 5_000_000,
    "directories that overlap": b"II*\0"
    + struct.pack("<IHHHIII", 8, 1, 330, 4, 65_000, 100, 0).ljust(96, b"\0")[:92]
    + b"".join(struct.pack("<I", 300_000 + 2 * i) for i in range(65_000)).ljust(299_900, b"\0")
    + struct.pack("<H", 60_000) * 800_000,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_that_would_take_minutes_to_count_is_refused_within_seconds(bomb: str):
    begun = time.process_time()
    with pytest.raises(ImageError, match="more than 65536 parts"):
        images.count_pictures(BOMBS[bomb])
    assert time.process_time() - begun < 10


def test_the_frames_of_a_file_are_read_up_to_four_times_the_pixels_of_an_image(monkeypatch):
    monkeypatch.setattr(images.reading, "MAX_PIXELS", 80 * 80)
    frames = [Image.new("L", (80, 80), shade) for shade in range(0, 250, 40)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert images.count_pictures(data) == 7
    assert sum(1 for _ in images.read_pictures(data, channels=1)) == 4


@pytest.mark.parametrize("name", ["a", "b.jpg_large", "c.JPG~2", "d.txt", "e.jfif", "f.JPE"])
def test_a_format_is_known_by_its_first_bytes_whatever_the_name(tmp_path: Path, name: str):
    pictures()[0].save(tmp_path / name, "JPEG")
    assert images.is_image(tmp_path / name)
    assert images.is_image((tmp_path / name).read_bytes()[:512])


@pytest.mark.parametrize(
    "content", [b"", b"BMW is no bitmap" * 40, b"%PDF-1.7", b"\0\0\0\x18ftypisom" + bytes(99)]
)
def test_other_files_are_no_images(tmp_path: Path, content: bytes):
    (tmp_path / "a.dat").write_bytes(content)
    assert not images.is_image(tmp_path / "a.dat")


def test_a_file_that_says_by_its_suffix_that_it_is_an_image_is_to_be_read(tmp_path: Path):
    (tmp_path / "a.hif").write_bytes(b"damaged")
    assert images.is_image(tmp_path / "a.hif")
    assert not images.is_image(tmp_path / "missing")
