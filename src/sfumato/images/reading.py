"""Reading and writing image files.

Only pixels are read (sfumato.images.decoding) and written, so files hold no metadata.
"""

import errno
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from sfumato.base.files import read_regular, whole
from sfumato.errors import ConfigError, ImageError, did_you_mean
from sfumato.images.convention import Images, Pixels, as_array, as_tensor, check_batch
from sfumato.images.decoding import DECODING_ERRORS, UNDER_WAY, decode, open_picture, refusal

if TYPE_CHECKING:
    from torch import Tensor

# Programs and cameras write these for the formats that are read.
_SUFFIXES = "png apng jpg jpeg jpe jif jfif jfi mpo webp bmp dib gif tif tiff heic heics heif heifs hif"
SUFFIXES = frozenset(f".{suffix}" for suffix in f"{_SUFFIXES} avif avifs".split())

MAX_BYTES = 64_000_000

TRANSPARENT = ("PNG", "WEBP")  # formats with transparency

_WRITABLE = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}
_SETTINGS: dict[str, dict[str, Any]] = {
    # Run lengths after PNG's filters: 4 times as fast on photographs as Pillow's default, and no larger.
    "PNG": {"compress_level": 1, "compress_type": zlib.Z_RLE},
    "JPEG": {"quality": 95, "subsampling": 0},
    # Method 0: 5 times as fast as the others, and a sixth larger. Here `quality` is the encoder's effort.
    "WEBP": {"lossless": True, "method": 0, "quality": 0},
    "BMP": {},
}
_LOSSY: dict[str, dict[str, Any]] = {"JPEG": {"subsampling": 0}, "WEBP": {"lossless": False, "method": 4}}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read(
    source: str | os.PathLike[str] | bytes, *, channels: int | None = 3, size: int | None = None
) -> "Tensor":
    """Reads one image file, or its bytes. -> (channels, H, W) uint8, upright, without metadata.

    JPEG (of a phone's MPO, the photograph), PNG, WebP, TIFF, BMP, GIF, HEIC (with the extra `heic`) and AVIF
    (if Pillow was built with it), recognised by their first bytes; of several pictures the first, in HEIC the
    primary one. Transparent parts show white, and of 16 bits the high 8 are kept.

    Guarantees: any bytes give an image or one of the errors below, never a warning or another error (only
    libtiff writes lines to stderr on damaged pixels), in seconds. Decoding takes at most 20 bytes of memory
    for each of MAX_PIXELS, besides two copies of the file; an AVIF that codes more pixels than it states
    adds 8 bytes for each of at most 268 million. Tested by tests/endurance/mutants.py. All threads of a
    process together decode images of 2 * MAX_PIXELS at a time: further calls wait.

    Args:
        source: a path, or the encoded bytes.
        channels: 3 for RGB, 1 for grey (ITU-R 601 luma), None for the image's own: 1 if its format, or all
            colours of its palette, used or not, are grey; 3 otherwise.
        size: side in pixels of a centre square, resized by Lanczos; None keeps the image's own size.

    Raises:
        ImageError: no such file, no image, damaged, larger than MAX_BYTES, MAX_PIXELS or MAX_SIDE, or of an
            unread kind: floats, whose range nothing states, or files that take decoders minutes.
        MissingExtraError: the file is HEIC, and pillow-heif is not installed.
    """
    return as_tensor(read_array(source, channels=channels, size=size))


def read_array(
    source: str | os.PathLike[str] | bytes, *, channels: int | None = 3, size: int | None = None
) -> Pixels:
    """See `read`; the same image as an array, without PyTorch."""
    if channels not in (1, 3, None):
        raise ConfigError(f"channels is 1, 3 or None for the image's own, got {channels}")
    name, data = name_and_bytes(source)
    with naming(name):
        return pixels_of(open_picture(data), channels, size)


def name_and_bytes(source: str | os.PathLike[str] | bytes) -> tuple[str, bytes]:
    """A file's name in errors, and its bytes, at most MAX_BYTES. Raises ImageError."""
    name = "<bytes>" if isinstance(source, bytes) else os.fspath(source)
    try:
        data = source if isinstance(source, bytes) else read_regular(name, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise OSError(errno.EFBIG, f"{len(data):,} bytes, more than the {MAX_BYTES:,} allowed")
    except OSError as error:
        large = error.errno == errno.EFBIG
        words = f"{error.strerror}: resize the file" if large else f"cannot be read ({error.strerror})"
        cause = "more bytes than allowed" if large else "cannot be read"
        raise ImageError(f"{name}: {words}", cause=cause) from error
    return name, data


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Turns errors of decoders into an ImageError that names the file."""
    try:
        yield
    except DECODING_ERRORS as error:
        raise refusal(name, error) from error


def pixels_of(picture: Any, channels: int | None, size: int | None = None) -> Pixels:
    """Decodes an opened picture as `read` does, in its turn."""
    with UNDER_WAY.room(picture.size[0] * picture.size[1]):
        return planes_of(decode(picture, channels), size)


def resize(image: Pixels, size: int) -> Pixels:
    """The centre square of a (C, H, W) uint8 image with a side of `size` pixels, as `read` gives it."""
    return planes_of(Image.merge(_MODES[len(image)], [Image.fromarray(plane) for plane in image]), size)


def planes_of(picture: Image.Image, size: int | None = None) -> Pixels:
    """The (C, H, W) pixels of a picture, or of its centre square with a side of `size` pixels."""
    if size is not None:
        picture = ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS)
    width, height = picture.size
    bands = picture.getbands()
    planes = np.empty((len(bands), height, width), np.uint8)
    for plane, band in zip(planes, bands, strict=True):  # a third of the time of a transposed copy
        plane[:] = np.frombuffer(picture.tobytes("raw", band), np.uint8).reshape(height, width)
    return planes


def write(path: str | os.PathLike[str], image: Images, *, quality: int | None = None) -> None:
    """Writes one (C, H, W) uint8 image, its format by the suffix, with pixels and nothing else.

    The file appears whole or not at all. Raises ImageError for an unknown suffix, or as `encode` does.
    """
    path = Path(path)
    if path.suffix.lower() not in _WRITABLE:
        raise ImageError(f"{path}: cannot write {path.suffix!r}: use one of {', '.join(sorted(_WRITABLE))}")
    encoded = encode(image, _WRITABLE[path.suffix.lower()], quality=quality)
    try:
        with whole(path) as temporary:
            temporary.write_bytes(encoded)
    except OSError as error:
        raise ImageError(f"{path}: cannot be written ({error.strerror})") from error


def encode(
    image: Images, format_name: str = "PNG", *, quality: int | None = None, shown: "Tensor | None" = None
) -> bytes:
    """Encodes one (C, H, W) uint8 image as the bytes of a file with pixels and nothing else.

    The same pixels give the same bytes, as long as the versions of Pillow and its libraries stay.

    Args:
        image: with 1 or 3 channels.
        format_name: "PNG", "BMP", "WEBP" or "JPEG".
        quality: 1 to 100, for the lossy formats only. JPEG has 95 by default, always with full chroma, since
            a subsampled one mixes the colours of protected cells. WebP is lossless unless a quality is given.
        shown: (1, H, W) bool, the shown pixels: the others are transparent, and `read` makes them white.

    Raises ImageError or ConfigError for another image, format or quality.
    """
    check_batch(image[None])
    if format_name not in _SETTINGS:
        raise ImageError(f"cannot write {format_name!r}: {did_you_mean(format_name, _SETTINGS)}")
    settings = _SETTINGS[format_name]
    if quality is not None:
        if format_name not in _LOSSY or not 1 <= quality <= 100:
            raise ConfigError(f"quality is 1 to 100, for JPEG or WEBP, got {quality} for {format_name}")
        settings = _LOSSY[format_name] | {"quality": quality}
    size = (image.shape[2], image.shape[1])
    # Equal to fromarray, without its look at types and strides: a fifth of the time for a small image.
    pixels = np.ascontiguousarray(as_array(image))
    planes = [Image.frombuffer("L", size, plane, "raw", "L", 0, 1) for plane in pixels]
    if shown is not None:
        if format_name not in TRANSPARENT:
            raise ConfigError(f"{format_name} has no transparency: write {' or '.join(TRANSPARENT)}")
        planes.append(Image.fromarray(shown[0].numpy().astype(np.uint8) * np.uint8(255)))
        # Otherwise WebP chooses the colour of transparent pixels.
        settings = settings | ({"exact": True} if format_name == "WEBP" else {})
    buffer = io.BytesIO()
    # merge is 8 times as fast as a transposed copy of the array.
    Image.merge(_MODES[len(planes)], planes).save(buffer, format=format_name, **settings)
    return buffer.getvalue()
