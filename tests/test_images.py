"""The image convention, and reading and writing that let pixels through and nothing else."""

import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms, PngImagePlugin
from torch import Tensor

from sfumato import images
from sfumato.errors import ImageError

FORMATS = ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"]
WRITTEN = [".png", ".jpg", ".jpeg", ".webp", ".bmp"]
LOSSLESS = [".png", ".bmp"]


# The convention


def test_all_256_levels_survive_the_way_to_float_and_back():
    levels = torch.arange(256).to(torch.uint8)
    assert torch.equal(images.to_uint8(images.to_float(levels)), levels)


def test_floats_are_levels_in_256ths_of_one_less():
    assert images.to_float(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx(
        [0, 0.2, 1]
    )


@settings(deadline=None)
@given(st.lists(st.floats(-1, 2, width=32), min_size=1, max_size=20))
def test_to_uint8_gives_the_nearest_level_and_clamps(values: list[float]):
    nearest = [min(range(256), key=lambda level: abs(level - 255 * value)) for value in values]
    got = images.to_uint8(torch.tensor(values))
    for value, level, expected in zip(values, got.tolist(), nearest, strict=True):
        # Halfway between two levels, either is the nearest.
        assert level == expected or abs(abs(255 * value - level) - 0.5) < 1e-3


def test_to_float_refuses_images_that_are_float_already():
    with pytest.raises(ImageError, match=r"uint8, got torch\.float32: convert with to_uint8"):
        images.to_float(torch.zeros(1, 3, 4, 4))


@pytest.mark.parametrize(
    "batch",
    [
        torch.zeros(1, 3, 4, 4),
        torch.zeros(3, 4, 4, dtype=torch.uint8),
        torch.zeros(1, 2, 4, 4, dtype=torch.uint8),
        torch.zeros(1, 4, 4, 3, dtype=torch.uint8),
    ],
    ids=["float", "one image", "two channels", "channels last"],
)
def test_a_batch_that_is_not_n_c_h_w_uint8_is_refused_with_its_shape(batch: Tensor):
    with pytest.raises(ImageError, match=r"\(N, C, H, W\) uint8 with 1 or 3 channels, got \("):
        images.check_batch(batch)


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_colour_batches_are_accepted(channels: int):
    images.check_batch(torch.zeros(0, channels, 4, 5, dtype=torch.uint8))


# Parts of a batch


def rows_reversed_and_thinned(part: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(part[:, :, ::-1, ::2]).astype(np.int32) * 3


@pytest.mark.parametrize("count", [0, 1, 7, 109, 200])
@pytest.mark.parametrize("threads", [1, 3])
def test_map_batches_is_the_function_applied_at_once_on_any_number_of_threads(count: int, threads: int):
    batch = (
        noise_image(3 * count, 64, 50).view(count, 3, 64, 50) if count else torch.empty(0, 3, 64, 50).byte()
    )
    with torch_threads(threads):
        mapped = images.map_batches(rows_reversed_and_thinned, batch)
    assert torch.equal(mapped, torch.from_numpy(rows_reversed_and_thinned(batch.numpy())))


def test_map_batches_works_on_parts():
    seen: list[int] = []

    def note(part: np.ndarray) -> np.ndarray:
        seen.append(len(part))
        return part

    images.map_batches(note, torch.zeros(200, 3, 64, 50, dtype=torch.uint8))
    assert sum(seen) == 200
    assert len(seen) > 1


# Reading


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_is_read_in_colour_with_channels_first(tmp_path: Path, format_name: str):
    tile = Image.new("RGB", (6, 4), (200, 40, 90))
    path = tmp_path / f"tile.{format_name.lower()}"
    path.write_bytes(encoded(tile, format_name))
    pixels = images.read(path)
    assert pixels.shape == (3, 4, 6)
    assert pixels.dtype == torch.uint8
    # JPEG and WebP store chroma with some rounding.
    assert (pixels.int() - torch.tensor([200, 40, 90])[:, None, None]).abs().max() <= 4


@pytest.mark.parametrize("format_name", ["PNG", "BMP", "TIFF"])
def test_lossless_formats_are_read_to_the_pixel(format_name: str):
    pixels = noise_image(3, 9, 7)
    assert torch.equal(images.read(encoded(as_pillow(pixels), format_name)), pixels)


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_is_read_in_grey(format_name: str):
    pixels = images.read(encoded(Image.new("L", (6, 4), 77), format_name), channels=1)
    assert pixels.shape == (1, 4, 6)
    assert (pixels.int() - 77).abs().max() <= 2


def test_grey_of_colour_is_the_luma_of_itu_r_601():
    pixels = noise_image(3, 16, 16)
    luma = (torch.tensor([0.299, 0.587, 0.114])[:, None, None] * pixels.float()).sum(0)
    grey = images.read(images.encode(pixels), channels=1)[0]
    assert (grey.float() - luma).abs().max() <= 0.51  # half a level of rounding, and Pillow's 16-bit weights


def test_colour_of_grey_has_three_equal_channels():
    grey = noise_image(1, 5, 6)
    assert torch.equal(images.read(images.encode(grey)), grey.expand(3, 5, 6))


def test_a_palette_image_is_read_in_its_colours():
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putdata([0, 1])
    assert images.read(encoded(picture, "PNG"))[:, 0].T.tolist() == [[10, 20, 30], [200, 100, 50]]


def test_a_bilevel_image_is_black_and_white():
    picture = Image.new("1", (2, 1))
    picture.putdata([0, 1])
    assert images.read(encoded(picture, "PNG"), channels=1).flatten().tolist() == [0, 255]


def test_cmyk_is_read_as_rgb():
    ink = encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG")
    red, green, blue = images.read(ink)[:, 4, 4].tolist()
    assert red > 200
    assert max(green, blue) < 60


@pytest.mark.parametrize("format_name", ["PNG", "TIFF"])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_grey_keeps_its_range(format_name: str, channels: int):
    """Pillow's own convert("L") would show all that is above 255 of 65,535 as white."""
    ramp = np.arange(256, dtype=np.uint16).reshape(16, 16) * 257
    pixels = images.read(encoded(Image.fromarray(ramp), format_name), channels=channels)
    assert torch.equal(pixels, torch.arange(256).view(1, 16, 16).expand(channels, 16, 16).byte())


def test_big_endian_16_bit_grey_keeps_its_range():
    ramp = (np.arange(256).reshape(16, 16) * 257).astype(">u2")
    pixels = images.read(encoded(Image.fromarray(ramp), "TIFF"), channels=1)
    assert torch.equal(pixels, torch.arange(256).view(1, 16, 16).byte())


def test_16_bit_colour_keeps_its_range():
    body = b"\0" + struct.pack(">6H", 0, 32768, 65535, 257, 2570, 25700)  # two pixels of one row, filter 0
    pixels = images.read(png_file(2, 1, body, depth=16))
    assert pixels[:, 0].T.tolist() == [[0, 128, 255], [1, 10, 100]]


def test_transparency_is_laid_on_white():
    picture = Image.new("RGBA", (3, 1))
    picture.putdata([(10, 20, 30, 255), (10, 20, 30, 0), (0, 0, 0, 51)])  # opaque, clear, a fifth
    assert images.read(encoded(picture, "PNG"))[:, 0].T.tolist() == [
        [10, 20, 30],
        [255, 255, 255],
        [204, 204, 204],
    ]


def test_transparency_of_grey_is_laid_on_white():
    picture = Image.new("LA", (2, 1))
    picture.putdata([(40, 255), (40, 0)])
    assert images.read(encoded(picture, "PNG"), channels=1).flatten().tolist() == [40, 255]


@pytest.mark.parametrize("format_name", ["PNG", "GIF"])
def test_a_transparent_palette_entry_is_laid_on_white(format_name: str):
    picture = Image.new("P", (2, 1))
    picture.putpalette([10, 20, 30, 200, 100, 50])
    picture.putdata([0, 1])
    data = encoded(picture, format_name, transparency=1)
    assert images.read(data)[:, 0].T.tolist() == [[10, 20, 30], [255, 255, 255]]


def test_of_an_animation_the_first_frame_is_read():
    frames = [Image.new("RGB", (4, 4), colour) for colour in ((250, 0, 0), (0, 250, 0))]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert images.read(data)[:, 0, 0].tolist() == [250, 0, 0]


# What EXIF orientations 1 to 8 ask of a viewer, on (H, W) arrays: CIPA DC-008, Tag 0x0112.
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).T,
    8: lambda stored: np.rot90(stored, 1),
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_the_exif_orientation_is_applied(orientation: int, format_name: str):
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3).repeat(16, 0).repeat(16, 1) * 40
    exif = Image.Exif()
    exif[0x0112] = orientation
    better = {"quality": 95} if format_name in ("JPEG", "WEBP") else {}
    data = encoded(Image.fromarray(stored), format_name, exif=exif, **better)
    upright = UPRIGHT[orientation](stored)
    pixels = images.read(data, channels=1)[0]
    assert pixels.shape == upright.shape
    assert (pixels.int() - torch.from_numpy(upright.astype(int))).abs().max() < 20  # JPEG; tiles differ by 40


def test_bytes_and_path_give_the_same_pixels(tmp_path: Path):
    data = images.encode(noise_image(3, 5, 6))
    (tmp_path / "a.png").write_bytes(data)
    assert torch.equal(images.read(data), images.read(tmp_path / "a.png"))
    assert torch.equal(images.read(data), images.read(str(tmp_path / "a.png")))


def test_the_suffix_does_not_decide_what_a_file_is(tmp_path: Path):
    (tmp_path / "a.jpg").write_bytes(images.encode(noise_image(3, 5, 6), "PNG"))
    assert torch.equal(images.read(tmp_path / "a.jpg"), noise_image(3, 5, 6))


@pytest.mark.parametrize(("height", "width"), [(20, 30), (30, 20), (20, 20), (21, 30), (6, 30)])
def test_size_gives_the_centre_square(height: int, width: int):
    """A picture that shows each pixel's own place keeps showing it, in a square around its centre."""
    x, y = torch.arange(width).expand(height, width), torch.arange(height)[:, None].expand(height, width)
    pixels = images.read(images.encode((torch.stack([x, y, y]) * 8).byte()), size=10)
    side = min(height, width)
    steps = (torch.arange(10) + 0.5) * side / 10 - 0.5
    expected_x, expected_y = (width - side) / 2 + steps, (height - side) / 2 + steps
    assert pixels.shape == (3, 10, 10)
    inner = slice(2, -2)  # at the border of the image the resampling filter is cut
    assert (pixels[0] / 8 - expected_x)[:, inner].abs().max() < 0.25
    assert (pixels[1] / 8 - expected_y[:, None])[inner].abs().max() < 0.25


def test_size_keeps_the_pixels_of_a_square_of_that_size():
    pixels = noise_image(3, 8, 8)
    assert torch.equal(images.read(images.encode(pixels), size=8), pixels)


def test_size_enlarges_a_small_image():
    assert images.read(images.encode(noise_image(3, 4, 7)), size=32).shape == (3, 32, 32)


# Metadata


@pytest.mark.parametrize("suffix", WRITTEN)
@pytest.mark.parametrize("source", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
def test_nothing_but_pixels_survives_reading_and_writing(tmp_path: Path, source: str, suffix: str):
    file, planted = planted_file(source)
    pixels = images.read(file)
    written = tmp_path / f"written{suffix}"
    images.write(written, pixels)
    for data in (written.read_bytes(), images.encode(pixels, images._WRITABLE[suffix])):
        assert [secret for secret in planted if secret in data] == []
        with Image.open(io.BytesIO(data)) as opened:
            # Compressed metadata would not show as bytes, but Pillow would find it.
            opened.load()
            assert {"exif", "icc_profile", "xmp", "XML:com.adobe.xmp", "comment"} & set(opened.info) == set()
            assert dict(opened.getexif()) == {}
            assert getattr(opened, "text", {}) == {}


@pytest.mark.parametrize("source", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
def test_the_planted_metadata_is_there_to_begin_with(source: str):
    file, planted = planted_file(source)
    assert [secret for secret in planted if secret not in file] == []


@pytest.mark.parametrize("suffix", LOSSLESS)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_reads_back_to_the_pixel(tmp_path: Path, suffix: str, channels: int):
    pixels = noise_image(channels, 11, 6)
    images.write(tmp_path / f"a{suffix}", pixels)
    assert torch.equal(images.read(tmp_path / f"a{suffix}", channels=channels), pixels)


def test_an_image_with_strides_is_written_as_it_looks():
    pixels = noise_image(3, 12, 12)[:, ::2, 1::3]
    assert torch.equal(images.read(images.encode(pixels)), pixels)


# Files that are refused

PHOTO = torch.arange(3 * 40 * 40).view(3, 40, 40).mul(37).remainder(251).byte()


@pytest.mark.parametrize("format_name", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP"])
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # Pillow's own remarks on a cut TIFF
def test_a_file_cut_anywhere_is_refused_or_whole(format_name: str):
    """Whole: only a trailer is missing, and no pixel. Never a part of an image, never another error."""
    whole = encoded(as_pillow(PHOTO), format_name)
    pixels = images.read(whole)
    for end in range(0, len(whole), 1 + len(whole) // 150):
        with suppress(ImageError):
            assert torch.equal(images.read(whole[:end]), pixels), f"cut at {end} of {len(whole)}"


@pytest.mark.parametrize("format_name", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_a_truncated_file_is_named_as_damaged(tmp_path: Path, format_name: str):
    whole = encoded(as_pillow(PHOTO), format_name)
    path = tmp_path / "cut.png"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ImageError, match=r"cut\.png: (a damaged image|not an image that can be read) \(\w"):
        images.read(path)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"dear diary, this is text\n" * 9, "not an image that can be read"),
        (b"", "not an image that can be read"),
        (b"\x89PNG\r\n\x1a\n", "not an image that can be read|a damaged image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not an image that can be read"),
    ],
    ids=["text", "empty", "signature only", "svg"],
)
def test_a_file_that_is_no_image_is_named(tmp_path: Path, content: bytes, problem: str):
    path = tmp_path / "holiday.png"
    path.write_bytes(content)
    with pytest.raises(ImageError, match=rf"holiday\.png: ({problem}) \(\w"):
        images.read(path)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(ImageError, match=r"gone\.png: cannot be read \(No such file"):
        images.read(tmp_path / "gone.png")


def test_a_directory_is_named(tmp_path: Path):
    (tmp_path / "album.png").mkdir()
    with pytest.raises(ImageError, match=r"album\.png: cannot be read \(Is a directory"):
        images.read(tmp_path / "album.png")


def test_bytes_that_are_no_image_are_called_bytes():
    with pytest.raises(ImageError, match=r"^<bytes>: not an image"):
        images.read(b"text")


def test_an_image_of_just_as_many_pixels_as_allowed_is_read(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 40 * 40)
    assert torch.equal(images.read(images.encode(PHOTO)), PHOTO)


def test_an_image_of_more_pixels_than_allowed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 40 * 40 - 1)
    images.write(tmp_path / "large.png", PHOTO)
    with pytest.raises(ImageError, match=r"large\.png: 40x40 pixels, more than the 1599 allowed: resize"):
        images.read(tmp_path / "large.png")


@pytest.mark.parametrize("side", [8001, 10_000, 20_000])
def test_a_small_file_that_declares_a_huge_image_is_refused_unopened(tmp_path: Path, side: int):
    """Pillow has limits of its own, a warning and an error, above ours: they must not show."""
    (tmp_path / "bomb.png").write_bytes(png_file(side, side, b""))
    with pytest.raises(ImageError, match=r"bomb\.png: .*pixels"):
        images.read(tmp_path / "bomb.png")


def test_a_file_of_more_bytes_than_allowed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(images, "MAX_BYTES", 100)
    (tmp_path / "long.png").write_bytes(bytes(101))
    with pytest.raises(ImageError, match=r"long\.png: 101 bytes, more than the 100 allowed"):
        images.read(tmp_path / "long.png")
    with pytest.raises(ImageError, match=r"<bytes>: 101 bytes, more than the 100 allowed"):
        images.read(bytes(101))


def test_exif_that_cannot_be_rewritten_raises_nothing_but_image_error():
    """ImageWidth as text, beside an orientation: a reader that rewrites the EXIF block fails in struct."""
    entries = struct.pack(">HHI4s", 0x0100, 2, 4, b"abc\0") + struct.pack(">HHIHH", 0x0112, 3, 1, 6, 0)
    exif = b"Exif\0\0MM\0*\0\0\0\x08" + struct.pack(">H", 2) + entries + bytes(4)
    with suppress(ImageError):
        assert images.read(encoded(Image.new("RGB", (6, 4)), "JPEG", exif=exif)).shape == (3, 6, 4)


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # Pillow's own remarks on damaged EXIF
@settings(deadline=None)
@given(place=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_wrong_byte_in_the_header_raises_nothing_but_image_error(place: int, value: int):
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    data = bytearray(encoded(Image.new("RGB", (6, 4)), "JPEG", exif=exif))
    data[place % 160] = value
    with suppress(ImageError):
        images.read(bytes(data))


# Writing


def test_a_suffix_that_is_not_written_is_refused_with_those_that_are(tmp_path: Path):
    with pytest.raises(
        ImageError, match=r"a\.gif: cannot write '\.gif': use one of \.bmp, \.jpeg, \.jpg, \.png"
    ):
        images.write(tmp_path / "a.gif", PHOTO)
    assert list(tmp_path.iterdir()) == []


def test_an_upper_case_suffix_is_written(tmp_path: Path):
    images.write(tmp_path / "A.PNG", PHOTO)
    assert torch.equal(images.read(tmp_path / "A.PNG"), PHOTO)


def test_a_float_image_is_not_written(tmp_path: Path):
    with pytest.raises(ImageError, match="uint8"):
        images.write(tmp_path / "a.png", PHOTO.float() / 255)
    assert list(tmp_path.iterdir()) == []


def test_writing_replaces_a_file(tmp_path: Path):
    images.write(tmp_path / "a.png", PHOTO)
    images.write(tmp_path / "a.png", 255 - PHOTO)
    assert torch.equal(images.read(tmp_path / "a.png"), 255 - PHOTO)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    images.write(tmp_path / "a.png", PHOTO)
    monkeypatch.setattr(Path, "write_bytes", half_a_write)
    with pytest.raises(ImageError, match=r"a\.png: cannot be written \(No space left"):
        images.write(tmp_path / "a.png", 255 - PHOTO)
    assert torch.equal(images.read(tmp_path / "a.png"), PHOTO)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


def test_a_write_onto_a_directory_leaves_nothing_beside_it(tmp_path: Path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ImageError, match=r"a\.png: cannot be written"):
        images.write(tmp_path / "a.png", PHOTO)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


# Helpers


def noise_image(channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (channels, height, width), generator=generator).to(torch.uint8)


def as_pillow(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def encoded(picture: Image.Image, format_name: str, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, format_name, **settings)
    return buffer.getvalue()


def png_file(width: int, height: int, rows: bytes, *, depth: int = 8) -> bytes:
    """An RGB PNG by hand, whose header may declare more than its rows hold."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def planted_file(source: str) -> tuple[bytes, list[bytes]]:
    """A file with every kind of metadata that its format can carry, and the strings planted in it."""
    exif = Image.Exif()
    exif[0x010E] = "EXIF-description"
    exif[0x013B] = "EXIF-artist"
    exif.get_ifd(0x8825)[0x001B] = b"GPS-position"
    icc = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes() + b"ICC-profile"
    xmp = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>XMP-packet</x:xmpmeta>"
    picture = as_pillow(noise_image(3, 24, 32))
    seen_exif = [b"EXIF-description", b"EXIF-artist", b"GPS-position"]
    trailer = b"TRAILING-bytes"
    match source:
        case "JPEG":
            data = encoded(picture, "JPEG", exif=exif, icc_profile=icc, xmp=xmp, comment=b"COM-comment")
            return data + trailer, [*seen_exif, b"ICC-profile", b"XMP-packet", b"COM-comment", trailer]
        case "PNG":
            text = PngImagePlugin.PngInfo()
            text.add_text("Author", "TEXT-chunk")
            text.add_itxt("XML:com.adobe.xmp", xmp.decode())
            text.add(b"prVt", b"PRIVATE-chunk")
            data = encoded(picture, "PNG", exif=exif, icc_profile=icc, pnginfo=text)
            return data + trailer, [*seen_exif, b"TEXT-chunk", b"XMP-packet", b"PRIVATE-chunk", trailer]
        case "WEBP":
            data = encoded(picture, "WEBP", exif=exif, icc_profile=icc, xmp=xmp)
            return data + trailer, [*seen_exif, b"ICC-profile", b"XMP-packet", trailer]
        case "TIFF":
            exif[0x02BC] = xmp
            data = encoded(picture, "TIFF", exif=exif, icc_profile=icc)
            return data + trailer, [*seen_exif[:2], b"ICC-profile", b"XMP-packet", trailer]
        case "GIF":
            data = encoded(picture, "GIF", comment=b"GIF-comment")
            return data + trailer, [b"GIF-comment", trailer]
        case _:
            return encoded(picture, "BMP") + trailer, [trailer]


def half_a_write(path: Path, data: bytes) -> int:
    with path.open("wb") as opened:
        opened.write(data[: len(data) // 2])
    raise OSError(28, "No space left on device", os.fspath(path))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
