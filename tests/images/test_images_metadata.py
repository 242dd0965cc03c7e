"""Whatever else a file carries, only its pixels reach the file that is written."""

import io
import re
import struct
import zlib
from functools import cache

import numpy as np
import pytest
import torch
from picture_files import encoded, jpeg_segment
from PIL import ExifTags, Image, ImageCms, PngImagePlugin, TiffImagePlugin

from sfumato import images

READ = ["JPEG", "MPO", "PNG", "APNG", "WEBP", "TIFF", "GIF", "BMP", "AVIF", "HEIF"]
WRITTEN = ["PNG", "JPEG", "WEBP", "BMP"]

# A picture in blues and greens, and one that would be seen in it.
DOWN, ACROSS = torch.meshgrid(torch.arange(48), torch.arange(64), indexing="ij")
PICTURE = torch.stack([0 * DOWN, 3 * ACROSS, 4 * DOWN]).byte()
MAGENTA = (255, 0, 255)
IPTC = b"\x1c\x02\x05\0\x09IPTC-name"


@pytest.mark.parametrize("source", READ)
def test_the_planted_metadata_is_there_to_begin_with(source: str):
    file, planted = planted_file(source)
    assert [secret for secret in planted if not contains(file, secret)] == []


@pytest.mark.parametrize("format_name", WRITTEN)
@pytest.mark.parametrize("source", READ)
def test_nothing_but_pixels_survives_reading_and_writing(source: str, format_name: str):
    file, planted = planted_file(source)
    written = images.encode(images.read(file), format_name)
    assert [secret for secret in planted if contains(written, secret)] == []
    with Image.open(io.BytesIO(written)) as opened:
        opened.load()
        assert {"exif", "icc_profile", "xmp", "XML:com.adobe.xmp", "comment"} & set(opened.info) == set()
        assert dict(opened.getexif()) == {}
        assert getattr(opened, "text", {}) == {}
        assert getattr(opened, "n_frames", 1) == 1


@pytest.mark.parametrize("source", READ)
def test_the_first_picture_is_read_and_metadata_changes_no_pixel_of_it(source: str):
    """Not what EXIF, ICC or XMP say about colours, either: the values of the file are the pixels."""
    file, _ = planted_file(source)
    pixels = images.read(file)
    # A GIF has 256 colours, and magenta is far.
    assert (pixels.int() - PICTURE.int()).abs().float().mean() < 12
    if source != "HEIF":  # which Pillow does not read
        with Image.open(io.BytesIO(file)) as opened:
            assert np.array_equal(pixels.permute(1, 2, 0).numpy(), np.asarray(opened.convert("RGB")))


def test_a_search_of_a_file_finds_what_is_compressed_or_wide():
    secret = b"a secret"
    assert contains(b"..." + zlib.compress(b"before " + secret), secret)
    assert contains("a secret".encode("utf-16-le"), secret)
    assert not contains(zlib.compress(b"something else"), secret)


# Planting


@cache
def planted_file(source: str) -> tuple[bytes, list[bytes]]:
    """A file with every kind of metadata that its format can carry, and what was planted in it."""
    picture = Image.fromarray(PICTURE.permute(1, 2, 0).contiguous().numpy())
    second = Image.new("RGB", picture.size, MAGENTA)
    trailer = b"TRAILING-bytes"
    exif, in_exif = planted_exif()
    icc, in_icc = planted_icc()
    xmp = b"<x:xmpmeta xmlns:x='adobe:ns:meta/'>XMP-packet</x:xmpmeta>"
    everywhere = [*in_exif, in_icc, b"XMP-packet", trailer]
    match source:
        case "JPEG" | "MPO":
            more = {"save_all": True, "append_images": [second]} if source == "MPO" else {}
            settings = {"exif": exif, "icc_profile": icc, "comment": b"COM-comment", "quality": 95}
            data = encoded(picture, source, **settings, **more)
            iptc = b"Photoshop 3.0\0" + b"8BIM\x04\x04\0\0" + struct.pack(">I", 14) + IPTC
            segments = jpeg_segment(0xED, iptc) + jpeg_segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + xmp)
            segments += jpeg_segment(0xE7, b"APP7-segment")
            secrets = [*everywhere, b"IPTC-name", b"APP7-segment", b"COM-comment"]
            if source == "MPO":  # segments would move its second picture, whose place the file states
                return data + trailer, [*in_exif, in_icc, trailer, b"COM-comment"]
            return data[:2] + segments + data[2:] + trailer, secrets
        case "PNG" | "APNG":
            text = PngImagePlugin.PngInfo()
            text.add_text("Author", "TEXT-chunk")
            text.add_text("Notes", "ZTXT-chunk", zip=True)
            text.add_itxt("XML:com.adobe.xmp", xmp.decode())
            text.add_itxt("Title", "ITXT-chunk", zip=True)
            text.add(b"prVt", b"PRIVATE-chunk")
            text.add(b"prVz", b"LATE-chunk", after_idat=True)
            more = {"save_all": True, "append_images": [second]} if source == "APNG" else {}
            data = encoded(picture, "PNG", exif=exif, icc_profile=icc, pnginfo=text, **more)
            late = [b"LATE-chunk"] if source == "PNG" else []
            chunks = [b"TEXT-chunk", b"ZTXT-chunk", b"ITXT-chunk", b"PRIVATE-chunk", *late]
            return data + trailer, [*everywhere, *chunks]
        case "WEBP":
            data = encoded(picture, "WEBP", quality=95, exif=exif, icc_profile=icc, xmp=xmp)
            private = b"prVt" + struct.pack("<I", 14) + b"PRIVATE-chunk\0"
            data = data[:4] + struct.pack("<I", len(data) + len(private) - 8) + data[8:] + private
            return data + trailer, [*everywhere, b"PRIVATE-chunk"]
        case "TIFF":
            tags = TiffImagePlugin.ImageFileDirectory_v2()
            tags[270], tags[315], tags[305] = "TIFF-description", "TIFF-artist", "TIFF-software"
            tags[700], tags[33723] = xmp, IPTC
            tags[65000] = "PRIVATE-tag"
            tags.tagtype[65000] = 2
            second_tags = TiffImagePlugin.ImageFileDirectory_v2()
            second_tags[270] = "SECOND-page"
            second.encoderinfo = {"tiffinfo": second_tags}
            both = {"save_all": True, "append_images": [second]}
            data = encoded(picture, "TIFF", tiffinfo=tags, icc_profile=icc, **both)
            secrets = [b"XMP-packet", b"IPTC-name", b"PRIVATE-tag", b"SECOND-page", in_icc, trailer]
            return data + trailer, [*secrets, b"TIFF-description", b"TIFF-artist", b"TIFF-software"]
        case "GIF":
            data = encoded(picture, "GIF", comment=b"GIF-comment", save_all=True, append_images=[second])
            screen = 13 + (6 << (data[10] & 7))
            application = b"!\xff\x0bXMP DataXMP" + bytes([len(xmp)]) + xmp + b"\0"
            data = data[:screen] + application + data[screen:]
            return data + trailer, [b"GIF-comment", b"XMP-packet", trailer]
        case "BMP":
            data = encoded(picture, "BMP")
            (start,) = struct.unpack_from("<I", data, 10)
            data = data[:10] + struct.pack("<I", start + 7) + data[14:start] + b"BMP-gap" + data[start:]
            return data + trailer, [b"BMP-gap", trailer]
        case _:
            data = encoded(picture, source, quality=95, exif=exif, xmp=xmp, icc_profile=icc)
            return data + trailer, everywhere


def planted_exif() -> tuple[bytes, list[bytes]]:
    """An EXIF block, with a picture among its notes, and what is in it."""
    thumbnail = encoded(Image.new("RGB", (16, 16), MAGENTA), "JPEG")
    exif = Image.Exif()
    exif[0x010E], exif[0x013B] = "EXIF-description", "EXIF-artist"
    details, place = exif.get_ifd(ExifTags.IFD.Exif), exif.get_ifd(ExifTags.IFD.GPSInfo)
    details[0x9286] = b"UNICODE\0" + "USER-comment".encode("utf-16-le")
    details[0x927C] = b"MAKER-note" + thumbnail
    details[0xA431] = "SERIAL-number"
    place[0x001B], place[0x001D] = b"ASCII\0\0\0GPS-method", "2024:GPS-date"
    secrets = [b"EXIF-description", b"EXIF-artist", b"USER-comment", b"MAKER-note", b"SERIAL-number"]
    return exif.tobytes(), [*secrets, b"GPS-method", b"GPS-date", thumbnail[-40:]]


def planted_icc() -> tuple[bytes, bytes]:
    """A valid profile, described in UTF-16 by what is planted."""
    name = "sRGB built-in"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert name.encode("utf-16-be") in profile
    return profile.replace(name.encode("utf-16-be"), "ICC-profile-1".encode("utf-16-be")), b"ICC-profile-1"


# Searching


def contains(data: bytes, secret: bytes) -> bool:
    """Whether it is in a file, as it is, in UTF-16, or in any zlib stream of the file."""
    spellings = [secret, *(secret.decode("latin-1").encode(f"utf-16-{order}") for order in ("le", "be"))]
    return any(spelling in stratum for stratum in strata(data) for spelling in spellings)


@cache
def strata(data: bytes) -> list[bytes]:
    found = [data]
    for start in re.finditer(rb"[\x08-\x78][\x01\x5e\x9c\xda]", data):
        stream = zlib.decompressobj()
        try:
            found.append(stream.decompress(data[start.start() :], 1 << 20))
        except zlib.error:
            continue
    return found
