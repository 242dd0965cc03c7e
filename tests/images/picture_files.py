"""Image files for the tests of images, by encoders and by hand."""

import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image, features


def encoded(picture: Image.Image, format_name: str, **settings: Any) -> bytes:
    if format_name == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    buffer = io.BytesIO()
    if format_name == "HEIF":
        pillow_heif = pytest.importorskip("pillow_heif")
        if isinstance(settings.get("exif"), Image.Exif):
            settings["exif"] = settings["exif"].tobytes()
        pillow_heif.from_pillow(picture).save(buffer, **settings)
    else:
        picture.save(buffer, format_name, **settings)
    return buffer.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_header(width: int, height: int, depth: int = 8, colours: int = 2) -> bytes:
    return png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, 0))


def png_file(header: bytes, rows: bytes, more: bytes = b"") -> bytes:
    """A PNG by hand, whose header may declare more than its rows hold."""
    chunks = header + more + png_chunk(b"IDAT", zlib.compress(rows, 9)) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def jpeg_segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body
