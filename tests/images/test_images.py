"""The image convention; reading and writing, but for metadata: see test_images_metadata.py."""

import io
import struct
import sys
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import mutants
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from picture_files import encoded, jpeg_segment, png_chunk, png_file, png_header
from PIL import Image, JpegImagePlugin, PngImagePlugin
from torch import Tensor

from sfumato import images
from sfumato.errors import ConfigError, ImageError, MissingExtraError

FORMATS = ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "HEIF", "AVIF"]
LOSSLESS = [".png", ".bmp", ".webp"]


# The convention


@given(st.lists(st.floats(-1, 2, width=32), min_size=1, max_size=20))
def test_to_uint8_gives_the_nearest_level_and_clamps_and_to_float_none_of_it_away(values: list[float]):
    levels = torch.arange(256).to(torch.uint8)
    assert torch.equal(images.to_uint8(images.to_float(levels)), levels)
    nearest = [min(range(256), key=lambda level: abs(level - 255 * value)) for value in values]
    got = images.to_uint8(torch.tensor(values))
    for value, level, expected in zip(values, got.tolist(), nearest, strict=True):
        # Halfway between two levels, either is the nearest.
        assert level == expected or abs(abs(255 * value - level) - 0.5) < 1e-3


def test_a_batch_that_is_not_n_c_h_w_uint8_is_refused_with_its_shape():
    shapes = [(3, 4, 4), (1, 2, 4, 4), (1, 4, 4, 3)]  # one image, two channels, channels last
    for batch in (torch.zeros(1, 3, 4, 4), *(torch.zeros(shape, dtype=torch.uint8) for shape in shapes)):
        with pytest.raises(ImageError, match=r"\(N, C, H, W\) uint8 with 1 or 3 channels, got \("):
            images.check_batch(batch)
    with pytest.raises(ImageError, match=r"uint8, got torch\.float32: convert with to_uint8"):
        images.to_float(torch.zeros(1, 3, 4, 4))


@pytest.mark.parametrize("count", [0, 1, 7, 200])
def test_map_batches_is_the_function_applied_at_once_on_any_number_of_threads(count: int, monkeypatch):
    def thin(part: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(part[:, :, ::-1, ::2]).astype(np.int32) * 3

    batch = np.resize(noise_image(3, 64, 50).numpy(), (count, 3, 64, 50))
    for threads in (1, 3):
        monkeypatch.setattr(images.convention, "thread_count", lambda threads=threads: threads)
        assert np.array_equal(images.map_batches(thin, batch), thin(batch))


# Reading


@pytest.mark.parametrize("format_name", FORMATS)
def test_every_format_is_read_in_colour_and_in_grey(tmp_path: Path, format_name: str):
    path = tmp_path / f"tile.{format_name.lower()}"
    path.write_bytes(encoded(Image.new("RGB", (6, 4), (200, 40, 90)), format_name))
    pixels = images.read(path)
    assert (pixels.shape, pixels.dtype) == ((3, 4, 6), torch.uint8)
    # Lossy formats store chroma with some rounding.
    assert (pixels.int() - torch.tensor([200, 40, 90])[:, None, None]).abs().max() <= 4
    grey = images.read(encoded(Image.new("L", (6, 4), 77), format_name), channels=1)
    assert grey.shape == (1, 4, 6)
    assert (grey.int() - 77).abs().max() <= 2


def test_grey_of_colour_is_the_luma_of_itu_r_601():
    pixels = noise_image(3, 16, 16)
    luma = (torch.tensor([0.299, 0.587, 0.114])[:, None, None] * pixels.float()).sum(0)
    grey = images.read(images.encode(pixels), channels=1)[0]
    assert (grey.float() - luma).abs().max() <= 0.51  # half a level of rounding, and Pillow's 16-bit weights


@pytest.mark.parametrize(("format_name", "kind"), [("PNG", "<u2"), ("TIFF", "<u2"), ("TIFF", ">u2")])
@pytest.mark.parametrize("channels", [1, 3])
def test_16_bit_grey_keeps_its_range(format_name: str, kind: str, channels: int):
    """Pillow's own convert("L") would show all that is above 255 of 65,535 as white."""
    ramp = (np.arange(256).reshape(16, 16) * 257).astype(kind)
    pixels = images.read(encoded(Image.fromarray(ramp), format_name), channels=channels)
    assert torch.equal(pixels, torch.arange(256).view(1, 16, 16).expand(channels, 16, 16).byte())


RGB_16 = [0, 32768, 65535, 257, 2570, 25700]
PALETTE = Image.frombytes("P", (2, 1), b"\0\1")
PALETTE.putpalette([10, 20, 30, 200, 100, 50])
PREMULTIPLIED = {258: (8, 8), 262: (1,), 338: (1,)}
INKS = [(255, 128, 128), (0, 128, 128), (137, 208, 195)]  # white, black, a red in sRGB's gamut

# A file -> the pixels of its row, and how far they may be off.
ROWS: dict[str, tuple[Callable[[], bytes], list[Any], int]] = {
    "CMYK": (lambda: encoded(row("CMYK", [(0, 255, 255, 0)] * 8), "JPEG"), [[254, 0, 0]] * 8, 55),
    "LAB": (lambda: encoded(row("LAB", INKS), "TIFF"), [[255] * 3, [0] * 3, [255, 30, 30]], 30),
    "grey of LAB": (lambda: encoded(row("LAB", INKS[:2]), "TIFF"), [255, 0], 0),
    # Pillow heeds that white is zero up to 8 bits.
    "white is 0": (lambda: tiff_file(2, 1, b"\0\xff", {258: (8,), 262: (0,)}), [255, 0], 0),
    "white is 0 of 16": (lambda: tiff_file(2, 1, b"\0\0\xff\xff", {258: (16,), 262: (0,)}), [255, 0], 0),
    "16 bits a colour of TIFF": (
        lambda: tiff_file(2, 1, struct.pack("<6H", *RGB_16), {258: (16, 16, 16), 262: (2,)}),
        [[0, 128, 255], [1, 10, 100]],
        0,
    ),
    "16 bits a colour of PNG": (lambda: png_16(RGB_16, 2), [[0, 128, 255], [1, 10, 100]], 0),
    "transparency": (
        lambda: encoded(row("RGBA", [(10, 20, 30, 255), (10, 20, 30, 0), (0, 0, 0, 51)]), "PNG"),
        [[10, 20, 30], [255] * 3, [204] * 3],
        0,
    ),
    # 40 of a possible 200, and 55 of white.
    "premultiplied": (lambda: tiff_file(1, 1, b"\x28\xc8", PREMULTIPLIED), [[95] * 3], 0),
    # Not its neighbour, which has the same high byte.
    "a clear level of 16 bits": (lambda: png_16([0x1234, 0x1235], 0, b"\x12\x34"), [255, 0x12], 0),
    # Of its 8 bits, Pillow would compare the wrong ones, and make another colour white.
    "a clear colour of 16 bits": (
        lambda: png_16([0x1234] * 3 + [0x3400] * 3, 2, b"\x12\x34" * 3),
        [[0x12] * 3, [0x34] * 3],
        0,
    ),
    "a clear entry": (lambda: encoded(PALETTE, "GIF", transparency=1), [[10, 20, 30], [255] * 3], 0),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_file_shows_what_its_coding_says(kind: str):
    make, expected, most = ROWS[kind]
    pixels = images.read(make(), channels=3 if isinstance(expected[0], list) else 1)[:, 0].T.squeeze(1)
    assert (pixels.int() - torch.tensor(expected)).abs().max() <= most


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_transparent_level_of_a_few_bits_is_laid_on_white(depth: int):
    """Pillow shows 2 and 4 bits as 8, and would look for the level among those."""
    body, top = bytes([0, 1 << (8 - 2 * depth)]), 2**depth - 1
    header = png_header(2, 1, depth, 0)
    clear = png_file(header, body, png_chunk(b"tRNS", b"\0\1"))
    assert images.read(clear, channels=1).flatten().tolist() == [0, 255]
    assert images.read(png_file(header, body), channels=1).flatten().tolist() == [0, 255 // top]


# HEIC


def test_of_a_heic_with_several_pictures_the_primary_one_is_read():
    pillow_heif = pytest.importorskip("pillow_heif")
    container = pillow_heif.HeifFile()
    for colour in ("red", "lime", "blue"):
        container.add_from_pillow(Image.new("RGB", (64, 64), colour))
    buffer = io.BytesIO()
    container.save(buffer, primary_index=1)
    red, green, blue = images.read(buffer.getvalue())[:, 9, 9].tolist()
    assert green > 240
    assert max(red, blue) < 15


@pytest.mark.parametrize("brand", [b"heic", b"hevc", b"mif1"])
def test_a_heic_without_its_plugin_names_the_extra(brand: bytes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    head = struct.pack(">I4s4s4x4s4s", 24, b"ftyp", brand, b"mif1", b"heic")
    with pytest.raises(MissingExtraError, match=r"reading HEIC .* -e '\.\[heic\]'"):
        images.read(head + bytes(100))


# Channels


# By the format, however grey the pixels are, so that a folder of photographs has one shape.
OWN: dict[str, tuple[int, Callable[[], bytes]]] = {
    "1": (1, lambda: encoded(row("1", [0, 1]), "PNG")),
    "L": (1, lambda: encoded(row("L", [0, 1]), "JPEG")),
    "LA": (1, lambda: encoded(Image.new("LA", (4, 4)), "PNG")),
    "16 bits": (1, lambda: encoded(Image.new("I;16", (4, 4)), "PNG")),
    "16 bits and alpha": (1, lambda: png_file(png_header(1, 1, 16, 4), bytes(5))),
    "grey palette": (1, lambda: encoded(row("P", [0, 1], [10, 10, 10, 200, 200, 200]), "PNG")),
    "RGBA": (3, lambda: encoded(Image.new("RGBA", (4, 4)), "PNG")),
    "coloured palette": (3, lambda: encoded(row("P", [0, 1], [10, 10, 10, 200, 200, 201]), "PNG")),
}


@pytest.mark.parametrize("kind", OWN)
def test_an_image_has_the_channels_of_its_format(kind: str):
    channels, make = OWN[kind]
    data = make()
    assert torch.equal(images.read(data, channels=None), images.read(data, channels=channels))


def test_other_numbers_of_channels_are_refused():
    with pytest.raises(ConfigError, match="channels is 1, 3 or None for the image's own, got 2"):
        images.read(b"", channels=2)


# Orientation


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
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "TIFF", "WEBP", "HEIF", "AVIF"])
def test_the_exif_orientation_is_applied(orientation: int, format_name: str):
    """Once: a HEIC and an AVIF state it in boxes of their own too."""
    stored = np.arange(6, dtype=np.uint8).reshape(2, 3).repeat(16, 0).repeat(16, 1) * 40
    exif = Image.Exif()
    exif[0x0112] = orientation
    better = {} if format_name in ("PNG", "TIFF") else {"quality": 95}
    data = encoded(Image.fromarray(stored), format_name, exif=exif, **better)
    upright = UPRIGHT[orientation](stored)
    pixels = images.read(data, channels=1)[0]
    assert pixels.shape == upright.shape
    assert (pixels.int() - torch.from_numpy(upright.astype(int))).abs().max() < 20  # JPEG; tiles differ by 40


EXIF_6 = b"Exif\0\0II*\0" + struct.pack("<IHHHII", 8, 1, 0x0112, 3, 1, 6) + bytes(4)
XMP_6 = (
    b"<x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>"
    b"<rdf:Description xmlns:tiff='http://ns.adobe.com/tiff/1.0/' tiff:Orientation=\"6\"/>"
    b"</rdf:RDF></x:xmpmeta>"
)


def png_with(key: str, text: bytes, *, hexed: bool = False, zipped: bool = False) -> bytes:
    info = PngImagePlugin.PngInfo()
    lines = f"\nexif\n{len(text):8d}\n{text.hex()}\n" if hexed else text.decode()
    (info.add_text if hexed else info.add_itxt)(key, lines, zip=zipped)
    return encoded(Image.new("RGB", (6, 4)), "PNG", pnginfo=info)


@pytest.mark.parametrize(
    "file",
    [
        lambda: png_with("Raw profile type exif", EXIF_6, hexed=True, zipped=True),
        lambda: png_with("XML:com.adobe.xmp", XMP_6),
        lambda: png_with("XML:com.adobe.xmp", XMP_6, zipped=True),
        lambda: png_with("XML:com.adobe.xmp", b"<tiff:Orientation>6</tiff:Orientation>"),
        lambda: encoded(Image.new("RGB", (6, 4)), "JPEG", xmp=XMP_6),
        lambda: encoded(Image.new("RGB", (6, 4)), "WEBP", xmp=XMP_6),
        lambda: encoded(Image.new("RGB", (6, 4)), "TIFF", tiffinfo={700: XMP_6}),
    ],
)
def test_an_orientation_is_applied_whichever_block_states_it(file: Callable[[], bytes]):
    assert images.read(file()).shape == (3, 6, 4)


def test_an_exif_block_without_an_orientation_that_can_be_read_means_upright_and_exif_counts_before_xmp():
    upright = [EXIF_6[6:-8] + bytes([way, *bytes(7)]) for way in (0, 1, 9, 255)]
    damaged = [b"", b"II", b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff", bytes(40)]
    for exif in (*upright, *damaged, b"II*\0\x08\0\0\0\1\0\x12\1"):
        settings = {"exif": b"Exif\0\0" + exif} | ({"xmp": XMP_6} if exif in upright else {})
        assert images.read(encoded(Image.new("RGB", (6, 4)), "JPEG", **settings)).shape == (3, 4, 6)


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


# Files that are refused

PHOTO = torch.arange(3 * 40 * 40).view(3, 40, 40).mul(37).remainder(251).byte()


@pytest.mark.parametrize("format_name", FORMATS)
def test_a_file_cut_anywhere_is_refused_or_whole(format_name: str):
    """Whole: only a trailer is missing, and no pixel. Never a part of an image, never another error."""
    whole = encoded(as_pillow(PHOTO), format_name)
    pixels = images.read(whole)
    for end in range(0, len(whole), 1 + len(whole) // 150):
        with suppress(ImageError):
            assert torch.equal(images.read(whole[:end]), pixels), f"cut at {end} of {len(whole)}"
    with pytest.raises(ImageError, match=r"<bytes>: (a damaged image|not an image that can be read) \(\w"):
        images.read(whole[: len(whole) // 2])


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "text": (lambda: b"dear diary, this is text\n" * 9, "not an image that can be read"),
    "empty": (lambda: b"", "not an image that can be read"),
    "signature": (lambda: b"\x89PNG\r\n\x1a\n", "not an image that can be read|a damaged image"),
    "BigTIFF": (lambda: b"II+\0" + bytes(20), "a BigTIFF: save it as an ordinary TIFF"),
    "float": (lambda: encoded(Image.new("F", (2, 1)), "TIFF"), "F values have no stated range: save it with"),
    "int32": (lambda: encoded(Image.new("I", (2, 1)), "TIFF"), "I values have no stated range: save it with"),
    "raw": (lambda: encoded(Image.new("L", (6, 4)), "TIFF", tiffinfo={254: 1}), "a thumbnail before the pic"),
    # Pillow has limits of its own, a warning and an error, above ours: they must not show.
    "bomb": (
        lambda: png_file(png_header(8001, 8001), b""),
        "8001x8001 pixels, more than the 64000000 allowed",
    ),
    "many rows": (lambda: png_file(png_header(1, 70_000), b""), ".*or the 65535 of a side: resize"),
    "large bomb": (lambda: png_file(png_header(20_000, 20_000), b""), "more pixels than allowed"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_is_not_read_is_named_with_the_way_out(tmp_path: Path, kind: str):
    make, words = REFUSED[kind]
    path = tmp_path / "holiday.png"
    path.write_bytes(make())
    with pytest.raises(ImageError, match=rf"holiday\.png: ({words})"):
        images.read(path)


@pytest.mark.parametrize("format_name", ["PPM", "EPS", "ICO", "TGA", "PCX", "SGI", "DDS", "JPEG2000", "PDF"])
def test_no_other_decoder_of_pillow_sees_a_file(format_name: str, monkeypatch: pytest.MonkeyPatch):
    data = encoded(Image.new("RGB", (32, 32)), format_name)
    monkeypatch.setattr(Image, "open", None)
    with pytest.raises(ImageError, match=r"not an image that can be read \(JPEG, PNG, .* are\): save it as"):
        images.read(data)


def test_a_missing_file_is_named_and_the_cause_of_a_refusal_has_neither_names_nor_numbers(tmp_path: Path):
    with pytest.raises(ImageError, match=r"gone\.png: cannot be read \(No such file"):
        images.read(tmp_path / "gone.png")
    (tmp_path / "holiday.png").write_bytes(png_file(png_header(9000, 9000), b""))
    (tmp_path / "text.png").write_bytes(b"text")
    (tmp_path / "cut.png").write_bytes(images.encode(PHOTO)[:-30])
    causes = []
    for name in ("holiday.png", "text.png", "cut.png"):
        with pytest.raises(ImageError) as refused:
            images.read(tmp_path / name)
        causes.append(refused.value.cause)
    assert causes == ["more pixels than allowed", "not an image that can be read", "a damaged image"]


def test_an_image_of_just_as_many_pixels_or_bytes_as_allowed_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    images.write(tmp_path / "large.png", PHOTO)
    size = (tmp_path / "large.png").stat().st_size
    monkeypatch.setattr(images.reading, "MAX_PIXELS", 40 * 40)
    monkeypatch.setattr(images.reading, "MAX_BYTES", size)
    assert torch.equal(images.read(tmp_path / "large.png"), PHOTO)
    monkeypatch.setattr(images.reading, "MAX_PIXELS", 40 * 40 - 1)
    with pytest.raises(ImageError, match=r"large\.png: 40x40 pixels, more than the 1599 allowed, .*: resize"):
        images.read(tmp_path / "large.png")
    monkeypatch.setattr(images.reading, "MAX_BYTES", size - 1)
    for source in (tmp_path / "large.png", images.encode(PHOTO)):
        with pytest.raises(ImageError, match=f"{size:,} bytes, more than the {size - 1:,} allowed: resize"):
            images.read(source)


def test_damaged_metadata_is_read_over_in_silence_on_many_threads(capfd: pytest.CaptureFixture[str]):
    """Pillow itself warns of each of these, and here warnings are errors."""
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHII", 2, 0x010E, 2, 10**6, 10**6)
    jpeg, photo = encoded(as_pillow(PHOTO), "JPEG", exif=exif), small("JPEG")
    mpo = photo[:2] + jpeg_segment(0xE2, b"MPF\0II*\0\0\0") + photo[2:]
    apng = encoded(as_pillow(PHOTO), "PNG", save_all=True, append_images=[as_pillow(255 - PHOTO)])
    broken = apng.replace(png_chunk(b"acTL", bytes((0, 0, 0, 2)) + bytes(4)), png_chunk(b"acTL", bytes(8)))
    assert broken != apng
    with ThreadPoolExecutor(4) as pool:
        expected = [images.read(photo), images.read(photo), PHOTO] * 5
        assert all(map(torch.equal, pool.map(images.read, [jpeg, mpo, broken] * 5), expected))
    assert capfd.readouterr() == ("", "")


# Files made to take a decoder long, or much memory


PARTS = "more than 65536 parts: save it anew"

# A name -> the file, and what its refusal says; None where the picture is read all the same.
SLOW: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "JPEG of many scans": (lambda: scans(200), "more than 32 scans and blocks of EXIF"),
    "JPEG of the usual scans": (lambda: scans(1), None),
    "JPEG of many segments": (lambda: with_bytes("JPEG", 2, b"\xff\xfe\0\2" * 10**7), PARTS),
    "JPEG of junk": (lambda: with_bytes("JPEG", 2, b"\xff" + bytes(5 * 10**7)), PARTS),
    "JPEG of many blocks": (lambda: with_bytes("JPEG", 2, EXIF * 900), "more than 32 scans and blocks"),
    "PNG of many chunks": (lambda: with_bytes("PNG", 33, png_chunk(b"IDAT", b"") * 4 * 10**6), PARTS),
    "PNG of zipped text": (lambda: with_bytes("PNG", 33, png_chunk(b"zTXt", ZEROS) * 90), "too large"),
    "PNG of more rows than are said": (lambda: png_file(png_header(8, 8), bytes(10**8)), None),
    "GIF of a huge screen": (lambda: small("GIF")[:6] + b"\xff" * 4 + small("GIF")[10:], "pixels"),
    "GIF of many comments": (lambda: with_gif_block(b"!\xfe" + b"\1a" * 10**7 + b"\0"), PARTS),
    "WebP of many chunks": (
        lambda: b"RIFF\xff\xff\xff\2" + small("WEBP")[8:] + b"junk\0\0\0\0" * 6 * 10**6,
        "a damaged image",
    ),
    "TIFF of many tags": (lambda: many_tags(small("TIFF")), None),
    "TIFF of many strips": (lambda: tiff_file(1, 60_000, bytes(10), {273: (8,) * 70_000}), None),
    "TIFF of overlapping strips": (
        lambda: tiff_file(1, 9000, bytes(10**6), {259: (5,), 273: (8,) * 9000, 279: (10**6,) * 9000}),
        "strips that overlap",
    ),
    "TIFF of huge tiles": (
        lambda: tiff_file(8, 8, bytes(64), {322: (65_520,), 323: (65_520,), 324: (8,), 325: (64,)}),
        "tiles larger than images may be",
    ),
    "TIFF of scans": (lambda: tiff_file(800, 800, scans(99), {259: (7,)}), "a damaged image"),
    "TIFF of LZMA": (lambda: tiff_file(8, 8, bytes(64), {259: (34925,)}), "lzma: save it with LZW"),
    "BMP of run lengths": (lambda: RUN_LENGTHS, "run-length coded BMP: save it as PNG"),
}


@pytest.mark.parametrize("name", SLOW)
def test_no_file_takes_long(name: str):
    make, refusal = SLOW[name]
    data = make()
    started = time.process_time()
    if refusal is None:
        images.read(data)
    else:
        with pytest.raises(ImageError, match=refusal):
            images.read(data)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("part", range(4))
def test_mutants_are_read_or_refused(part: int):
    """The short form of tests/endurance/mutants.py: no other exception, no warning, and none over 2 s."""
    for index in range(100 * part, 100 * (part + 1)):
        format_name, data = mutants.mutant(1234, index)
        started = time.process_time()
        assert not mutants.outcome(data).startswith("FAILED"), f"mutant {index}, once a {format_name}"
        assert time.process_time() - started < 2


# Writing


@pytest.mark.parametrize("suffix", LOSSLESS)
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_written_reads_back_to_the_pixel(tmp_path: Path, suffix: str, channels: int):
    pixels = noise_image(channels, 11, 6)
    images.write(tmp_path / f"a{suffix}", pixels)
    assert torch.equal(images.read(tmp_path / f"a{suffix}", channels=channels), pixels)


def test_a_suffix_format_or_quality_that_is_not_written_is_refused_with_those_that_are(tmp_path: Path):
    with pytest.raises(ImageError, match=r"a\.gif: cannot write '\.gif': use one of \.bmp, \.jpeg, \.jpg, "):
        images.write(tmp_path / "a.gif", PHOTO)
    with pytest.raises(ImageError, match=r"cannot write 'GIF': .*Known: BMP, JPEG, PNG, WEBP"):
        images.encode(PHOTO, "GIF")
    for name, quality in (("PNG", 90), ("JPEG", 0), ("WEBP", 101)):
        with pytest.raises(ConfigError, match=f"1 to 100, for JPEG or WEBP, got {quality} for {name}"):
            images.encode(PHOTO, name, quality=quality)


def test_a_jpeg_has_quality_95_and_full_chroma():
    with Image.open(io.BytesIO(images.encode(PHOTO, "JPEG"))) as opened:
        tables, sampling = opened.quantization, JpegImagePlugin.get_sampling(opened)
    with Image.open(io.BytesIO(encoded(as_pillow(PHOTO), "JPEG", quality=95))) as reference:
        assert tables == reference.quantization
    assert sampling == 0  # 4:4:4


def test_a_webp_is_lossy_only_when_a_quality_is_asked_for(tmp_path: Path):
    images.write(tmp_path / "a.webp", PHOTO, quality=50)
    assert (tmp_path / "a.webp").read_bytes() == images.encode(PHOTO, "WEBP", quality=50)
    assert not torch.equal(images.read(tmp_path / "a.webp"), PHOTO)


@pytest.mark.parametrize("format_name", ["PNG", "JPEG", "WEBP", "BMP"])
def test_the_same_pixels_give_the_same_bytes(format_name: str):
    first = images.encode(PHOTO, format_name)
    strided = PHOTO.repeat_interleave(2, dim=2)[:, :, ::2]
    assert images.encode(strided, format_name) == first


def test_a_place_where_nothing_can_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(ImageError, match=r"a\.png: cannot be written \(File exists\)"):
        images.write(tmp_path / "file" / "a.png", PHOTO)


# Digests


def test_a_digest_is_of_shape_and_pixels_in_order_and_not_of_their_place_in_memory():
    assert images.digest(PHOTO.permute(0, 2, 1).contiguous().permute(0, 2, 1)) == images.digest(PHOTO)
    other = PHOTO.clone()
    other[2, 39, 39] += 1
    flat = torch.zeros(1, 1, 12, dtype=torch.uint8)
    pictures = [PHOTO, other, PHOTO[:1], flat, flat.view(1, 12, 1), flat.view(1, 3, 4), flat.view(3, 1, 4)]
    assert len({images.digest(picture) for picture in pictures}) == len(pictures)


# Helpers


def noise_image(channels: int, height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * width)
    return torch.randint(0, 256, (channels, height, width), generator=generator).to(torch.uint8)


def as_pillow(pixels: Tensor) -> Image.Image:
    return Image.fromarray(pixels.permute(1, 2, 0).contiguous().numpy())


def row(mode: str, values: list[Any], palette: list[int] | None = None) -> Image.Image:
    picture = Image.new(mode, (len(values), 1))
    if palette:
        picture.putpalette(palette)
    picture.putdata(values)
    return picture


ZEROS = b"k\0\0" + zlib.compress(bytes(10**7))


def png_16(samples: list[int], colours: int, clear: bytes = b"") -> bytes:
    """Two pixels of 16 bits, and the level or colour that is transparent."""
    body = b"\0" + struct.pack(f">{len(samples)}H", *samples)
    return png_file(png_header(2, 1, 16, colours), body, png_chunk(b"tRNS", clear) if clear else b"")


def tiff_file(width: int, height: int, samples: bytes, tags: dict[int, tuple[int, ...]]) -> bytes:
    """A little-endian TIFF by hand: one uncompressed strip of grey, if the tags do not say otherwise."""
    usual = {256: (width,), 257: (height,), 258: (8,), 259: (1,), 262: (1,), 278: (height,)}
    if 322 not in tags:
        usual |= {273: (8,), 279: (len(samples),)}
    values = usual | tags
    values[277] = (len(values[258]),)
    at = 8 + len(samples) + len(samples) % 2
    entries, outside = b"", b""
    for tag, numbers in sorted(values.items()):
        body = struct.pack(f"<{len(numbers)}I", *numbers)
        where = body if len(numbers) == 1 else struct.pack("<I", at + 2 + 12 * len(values) + 4 + len(outside))
        outside += body if len(numbers) > 1 else b""
        entries += struct.pack("<HHI", tag, 4, len(numbers)) + where
    directory = struct.pack("<H", len(values)) + entries + bytes(4) + outside
    return b"II*\0" + struct.pack("<I", at) + samples.ljust(at - 8, b"\0") + directory


# The header of a BMP with 8 bits a pixel.
RUN_LENGTHS = struct.pack("<2sIHHI", b"BM", 0, 0, 0, 1078)
RUN_LENGTHS += struct.pack("<IiiHHIIiiII", 40, 8000, 8000, 1, 8, 1, 0, 0, 0, 0, 0) + bytes(1024)
# A segment of JPEG.
EXIF = b"\xff\xe1\xff\xffExif\0\0" + bytes(65_527)


def small(format_name: str) -> bytes:
    return encoded(as_pillow(PHOTO), format_name)


def with_bytes(format_name: str, place: int, more: bytes) -> bytes:
    data = small(format_name)
    return data[:place] + more + data[place:]


def with_gif_block(block: bytes) -> bytes:
    """A GIF with a block before its first picture."""
    return with_bytes("GIF", 13 + (6 << (small("GIF")[10] & 7)), block)


def many_tags(data: bytes) -> bytes:
    """A TIFF with all the private tags there are: Pillow reads all of them, three times."""
    (start,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, start)
    entries = data[start + 2 : start + 2 + 12 * count]
    entries += b"".join(struct.pack("<HHII", tag, 4, 1, 0) for tag in range(40_000, 65_000) if tag != 0xBC01)
    directory = struct.pack("<H", len(entries) // 12) + entries + bytes(4)
    return data[:4] + struct.pack("<I", len(data)) + data[8:] + directory


def scans(count: int) -> bytes:
    """A progressive JPEG whose last scan refines the same again and again."""
    data = encoded(Image.new("L", (800, 800), 99), "JPEG", progressive=True)
    start = data.rindex(b"\xff\xda")
    return data[:start] + data[start:-2] * count + data[-2:]
