"""Reading files from strangers, of which only pixels come out; and writing pictures, their pixels alone.

The first bytes of a file name its decoder, and no other one sees it. Pillow and pillow-heif read the header
first, so the size is checked before any pixel is decoded. ICC profiles are not applied. In all threads
together, decoders hold a limited number of pixels at a time (UNDER_WAY).
"""

import errno
import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError, features

from sfumato.base.files import open_regular, read_regular, whole
from sfumato.errors import ConfigError, ImageError, did_you_mean, needs_extra
from sfumato.images.convention import Images, Pixels, as_array, as_tensor, check_batch, to_float, to_uint8

if TYPE_CHECKING:
    from torch import Tensor

Source: TypeAlias = str | os.PathLike[str] | bytes
# Programs and cameras write these for the formats that are read.
_SUFFIXES = "png apng jpg jpeg jpe jif jfif jfi mpo webp bmp dib gif tif tiff heic heics heif heifs hif"
SUFFIXES = frozenset(f".{suffix}" for suffix in f"{_SUFFIXES} avif avifs".split())

TRANSPARENT = ("PNG", "WEBP")  # formats with transparency
_ANIMATED = ("PNG", "WEBP", "GIF", "AVIF")
_WRITABLE = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}
_EXACT = {"exact": True}  # or WebP chooses the colour of transparent pixels
_SETTINGS: dict[str, dict[str, Any]] = {
    # Run lengths after PNG's filters: 4 times as fast on photographs as Pillow's default, and no larger.
    "PNG": {"compress_level": 1, "compress_type": zlib.Z_RLE},
    "JPEG": {"quality": 95, "subsampling": 0},
    # Method 0: 5 times as fast as the others, and a sixth larger. Here `quality` is the encoder's effort.
    "WEBP": {"lossless": True, "method": 0, "quality": 0} | _EXACT,
    "BMP": {},
}
_LOSSY: dict[str, dict[str, Any]] = {"JPEG": {"subsampling": 0}, "WEBP": {"method": 4} | _EXACT}
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}

# A 50-megapixel photograph passes; a decompression bomb does not, nor many narrow rows, each of which costs
# Pillow time and memory. JPEG and GIF end at this side.
MAX_BYTES, MAX_PIXELS, _MAX_SIDE = 64_000_000, 64_000_000, 65_535
# The most segments, frames or pages of a file: each costs a step in Python, and 64 MB hold 16 million.
_MAX_PARTS = 65_536
_TOO_MANY_PARTS = f"an image in more than {_MAX_PARTS} parts: save it anew"
# A progressive JPEG's scan of 100 bytes takes some 30 ms at 8000x8000: 64 MB of them would take hours. An
# encoder's usual script has 10 scans. Pillow copies all EXIF before for each block.
_MAX_SCANS = 32

_NO_IMAGE = "not an image that can be read"
_TOO_LARGE = "more pixels than allowed"
_KINDS = {
    "JPEG": rb"\xff\xd8\xff",
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "GIF": rb"GIF8[79]a",
    "TIFF": rb"II\*\0|MM\0\*",
    "BigTIFF": rb"II\+\0|MM\0\+",
    "WEBP": rb"RIFF.{4}WEBP",
    "BMP": rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0",  # with its header's length; "BM" begins words
    # "mif1" and "msf1" say only that there are images; the brands after them give the coding.
    "AVIF": rb".{4}ftyp(avi[fs]|m[is]f1.{4}(.{4}){0,60}?avi[fs])",
    "HEIF": rb".{4}ftyp(he[iv][cxms]|m[is]f1)",
}

_JPEG_MARKER = re.compile(rb"\xff+([\xc0-\xcf\xd9-\xfe])")
_JPEG = re.compile(rb"\xff\xd8\xff[\xc0-\xc4\xdb-\xef\xfe]")
# None, fax, LZW, JPEG, Deflate and PackBits, as cameras, scanners and editors write.
_TIFF_CODECS = re.compile(r"raw|tiff_ccitt|group[34]|tiff_lzw|jpeg|packbits|tiff(_adobe)?_deflate")
_SUBFILE, _PHOTOMETRIC, _ORIENTATION, _STRIP_LENGTHS, _SUBSAMPLING = 254, 262, 274, 279, 530
_TILE_WIDTH, _TILE_HEIGHT, _TILE_LENGTHS, _SUB_DIRECTORIES = 322, 323, 325, 330
_T = Image.Transpose
_TURNS = {2: _T.FLIP_LEFT_RIGHT, 3: _T.ROTATE_180, 4: _T.FLIP_TOP_BOTTOM, 5: _T.TRANSPOSE}
_TURNS |= {6: _T.ROTATE_270, 7: _T.TRANSVERSE, 8: _T.ROTATE_90}  # by EXIF's orientations
# The errors on damaged files. Pillow raises TypeError at tags of other types than it expects.
_DAMAGES: tuple[type[Exception], ...] = (ArithmeticError, EOFError, LookupError, OSError, RuntimeError)
_DAMAGES += (SyntaxError, TypeError, ValueError, struct.error, Image.DecompressionBombError)
# About damaged metadata, and about sizes, which are checked here.
warnings.filterwarnings("ignore", module=r"PIL\.")


def read(source: Source, *, channels: int | None = 3, size: int | None = None) -> "Tensor":
    """Reads one image file, or its bytes. -> (channels, H, W) uint8, upright, without metadata.

    JPEG (of a phone's MPO, the photograph), PNG, WebP, TIFF, BMP, GIF, HEIC (with the extra `heic`) and AVIF
    (if Pillow was built with it), recognised by their first bytes; of several pictures the first, in HEIC the
    primary one. Transparent parts show white, and of 16 bits the high 8 are kept. `channels` is 3 for RGB, 1
    for grey (ITU-R 601 luma), None for the image's own: 1 if its format, or all colours of its palette, used
    or not, are grey; 3 otherwise. `size` is the side in pixels of a centre square, resized by Lanczos; None
    keeps the image's own size.

    Guarantees: any bytes give an image or one of the errors below, never a warning or another error (only
    libtiff writes lines to stderr on damaged pixels), in seconds. Decoding takes at most 20 bytes of memory
    for each of MAX_PIXELS, besides two copies of the file; an AVIF that codes more pixels than it states
    adds 8 bytes for each of at most 268 million. Tested by tests/endurance/mutants.py. All threads of a
    process together decode images of 2 * MAX_PIXELS at a time: further calls wait. Raises MissingExtraError
    without pillow-heif, and ImageError for no such file, no image, a damaged or too large one, and unread
    kinds: floats, whose range nothing states, and files that take decoders minutes.
    """
    return as_tensor(read_array(source, channels=channels, size=size))


def read_array(source: Source, *, channels: int | None = 3, size: int | None = None) -> Pixels:
    """See `read`; the same image as an array, without PyTorch."""
    if channels not in (1, 3, None):
        raise ConfigError(f"channels is 1, 3 or None for the image's own, got {channels}")
    name, data = name_and_bytes(source)
    with _naming(name):
        return _decode(open_picture(data), channels, size)


def read_first(source: Source, *, channels: int | None = 3, size: int | None = None) -> tuple[Pixels, int]:
    """Reads a file as `read_array` does, once. -> its first picture, and the number of others in it."""
    name, data = name_and_bytes(source)
    with _naming(name):
        return _decode(open_picture(data), channels, size), len(_others(data))


def count_pictures(source: Source) -> int:
    """The number of pictures in an image file: pages, frames, thumbnails of its container, depth maps.

    Neither the thumbnail in EXIF, nor layers. Raises ImageError, also for more than _MAX_PARTS parts.
    """
    name, data = name_and_bytes(source)
    with _naming(name):
        return 1 + len(_others(data))


def read_pictures(source: Source, *, channels: int = 3) -> Iterator[Pixels | ImageError]:
    """Yields the pictures of a file, the first one first, each (channels, H, W) uint8 and upright.

    A frame of an animation is the whole canvas, as a viewer shows it. A further picture that cannot be read
    yields its error; a frame ends the animation then. Pictures behind 4 * MAX_PIXELS in all are not read. One
    is held at a time, and of an animation a canvas besides. Raises ImageError if the first cannot be read.
    """
    name, data = name_and_bytes(source)
    with _naming(name):
        first = _decode(open_picture(data), channels)
    yield first
    left, animated = 4 * MAX_PIXELS - first[0].size, _kind_of(data) in _ANIMATED
    try:
        with _naming(name):
            others = _others(data)
    except ImageError as error:
        yield error
        return
    for opened in others:
        try:
            with _naming(name):
                picture = _check_size(opened())
                # A byte that is copied costs an eighth of a pixel.
                left -= picture.size[0] * picture.size[1] + (0 if animated else len(data) // 8)
                if left < 0:
                    return
                yield _decode(picture, channels)
        except ImageError as error:
            yield error
            if animated:
                return


def is_image(source: Source) -> bool:
    """Whether a file is to be read as an image: by its first bytes (512 are enough), or by its suffix."""
    head = source if isinstance(source, bytes) else b""
    if not isinstance(source, bytes):
        if Path(source).suffix.lower() in SUFFIXES:
            return True
        with suppress(OSError), open_regular(source) as file:
            head = file.read(512)
    return any(re.match(begins, head, re.DOTALL) for begins in _KINDS.values())


def name_and_bytes(source: Source) -> tuple[str, bytes]:
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


def _decode(picture: Any, channels: int | None, size: int | None = None) -> Pixels:
    """Decodes an opened picture as `read` does, in its turn."""
    with UNDER_WAY.room(picture.size[0] * picture.size[1]):
        return _planes(_upright(picture, channels), size)


def resize(image: Pixels, size: int) -> Pixels:
    """The centre square of a (C, H, W) uint8 image with a side of `size` pixels, as `read` gives it."""
    return _planes(Image.merge(_MODES[len(image)], [Image.fromarray(plane) for plane in image]), size)


def _planes(picture: Image.Image, size: int | None = None) -> Pixels:
    if size is not None:
        picture = ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS)
    bands = picture.getbands()
    planes = np.empty((len(bands), *picture.size[::-1]), np.uint8)
    for plane, band in zip(planes, bands, strict=True):  # a third of the time of a transposed copy
        plane[:] = np.frombuffer(picture.tobytes("raw", band), np.uint8).reshape(plane.shape)
    return planes


def write(path: str | os.PathLike[str], image: Images, *, quality: int | None = None) -> None:
    """Writes one (C, H, W) uint8 image as `encode` does, its format by the suffix, whole or not at all."""
    path = Path(path)
    if path.suffix.lower() not in _WRITABLE:
        raise ImageError(f"{path}: cannot write {path.suffix!r}: use one of {', '.join(sorted(_WRITABLE))}")
    content = encode(image, _WRITABLE[path.suffix.lower()], quality=quality)
    try:
        with whole(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise ImageError(f"{path}: cannot be written ({error.strerror})") from error


def encode(
    image: Images, format_name: str = "PNG", *, quality: int | None = None, shown: "Tensor | None" = None
) -> bytes:
    """Encodes one (C, H, W) uint8 image as the bytes of a file with pixels and nothing else.

    The same pixels give the same bytes, as long as the versions of Pillow and its libraries stay. The format
    is PNG, BMP, WEBP or JPEG. A quality, 1 to 100, is for the lossy ones: JPEG has 95 by default, always with
    full chroma, since a subsampled one mixes the colours of protected cells; WebP is lossless without one.
    Pixels outside of `shown`, (1, H, W) bool, are transparent, and `read` makes them white. Raises ImageError
    or ConfigError for another image, format or quality.
    """
    check_batch(image[None])
    if format_name not in _SETTINGS:
        raise ImageError(f"cannot write {format_name!r}: {did_you_mean(format_name, _SETTINGS)}")
    settings = _SETTINGS[format_name]
    if quality is not None:
        if format_name not in _LOSSY or not 1 <= quality <= 100:
            raise ConfigError(f"quality is 1 to 100, for JPEG or WEBP, got {quality} for {format_name}")
        settings = _LOSSY[format_name] | {"quality": quality}
    # Equal to fromarray, without its look at types and strides: a fifth of the time for a small image.
    pixels = np.ascontiguousarray(as_array(image))
    planes = [Image.frombuffer("L", pixels.shape[:0:-1], plane, "raw", "L", 0, 1) for plane in pixels]
    if shown is not None:
        if format_name not in TRANSPARENT:
            raise ConfigError(f"{format_name} has no transparency: write {' or '.join(TRANSPARENT)}")
        planes.append(Image.fromarray(shown[0].numpy().astype(np.uint8) * np.uint8(255)))
    buffer = io.BytesIO()
    # merge is 8 times as fast as a transposed copy of the array.
    Image.merge(_MODES[len(planes)], planes).save(buffer, format=format_name, **settings)
    return buffer.getvalue()


def take(picture: Any) -> tuple[Pixels, Callable[[Pixels], Any]]:
    """Takes a picture of Pillow, an array or a tensor, or a batch of them, without metadata.

    A picture of Pillow is turned upright by its EXIF, and laid on white if it is transparent; it comes back
    as "L" or "RGB". Arrays are (H, W), (H, W, C) or (N, H, W, C) uint8. Tensors are (C, H, W) or
    (N, C, H, W), uint8 or floats in [0, 1], which are rounded to 256 levels. Raises ImageError for others.
    -> (N, C, H, W) uint8 pixels, and a function that maps such pixels to the library, type (also a subclass
    of Tensor), device, axes and range of `picture`.
    """
    if isinstance(picture, Image.Image):
        taken, to_array = take(np.asarray(_eight_bits(ImageOps.exif_transpose(picture), None)))
        return taken, lambda pixels: Image.fromarray(np.ascontiguousarray(to_array(pixels)))
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or not 2 <= picture.ndim <= 4:
            words = "arrays are (H, W), (H, W, C) or (N, H, W, C) uint8: protect before it is scaled"
            raise ImageError(f"an array of {picture.shape} {picture.dtype}: {words}")
        shape = picture.shape
        batch = {2: picture[None, ..., None], 3: picture[None]}.get(len(shape), picture)
        taken, give_back = np.moveaxis(batch, -1, 1), lambda made: np.moveaxis(made, 1, -1).reshape(shape)
    elif hasattr(picture, "as_subclass"):  # which tensors have
        taken, give_back = _take_tensor(picture)
    else:
        words = "a picture is a PIL.Image, an array (H, W, C) of uint8, or a tensor (C, H, W)"
        raise ImageError(f"a {type(picture).__name__}: {words}: take it out of its tuple or dictionary first")
    pixels = np.ascontiguousarray(taken)
    check_batch(pixels)
    return pixels, give_back


def _take_tensor(picture: Any) -> tuple[Pixels, Callable[[Pixels], Any]]:
    import torch

    plain, alone = picture.detach().as_subclass(torch.Tensor).cpu(), picture.ndim == 3
    if floats := plain.is_floating_point():
        if plain.numel() and not (plain.min() >= 0 and plain.max() <= 1):
            words = f"a tensor with values from {plain.min():.3g} to {plain.max():.3g}"
            raise ImageError(f"{words}: floats are from 0 to 1: protect before Normalize")
        plain = to_uint8(plain)

    def give_back(pixels: Pixels) -> Any:
        made = torch.from_numpy(np.ascontiguousarray(pixels))
        made = (to_float(made) if floats else made).to(picture.device, picture.dtype)
        return (made[0] if alone else made).as_subclass(type(picture))

    return as_array(plain[None] if alone else plain), give_back


class PixelBudget:
    """Limits the pixels that this process decodes at once; further decodes wait, in turn. State: those."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Begins anew, in a process that a fork made: the threads that decoded are not in it."""
        self._under_way, self._turn, self._change = 0, Lock(), Condition()

    @contextmanager
    def room(self, pixels: int) -> Iterator[None]:
        """Waits for room, and gives it back at the end. More pixels than the limit are decoded alone."""
        with self._turn, self._change:
            self._change.wait_for(lambda: not self._under_way or self._under_way + pixels <= self._limit)
            self._under_way += pixels
        try:
            yield
        finally:
            with self._change:
                self._under_way -= pixels
                self._change.notify()


UNDER_WAY = PixelBudget(2 * MAX_PIXELS)  # of all threads
os.register_at_fork(after_in_child=UNDER_WAY.forget)


def _refuse(message: str) -> NoReturn:
    """Raises the error of an unread kind of image, whose message says what to do."""
    raise ImageError(message, cause="a kind of image that is not read")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Turns errors of decoders into an ImageError that names the file."""
    try:
        yield
    except ImageError as error:
        raise ImageError(f"{name}: {error}", cause=error.cause) from error
    except _DAMAGES as error:
        cause = _NO_IMAGE if isinstance(error, UnidentifiedImageError) else "a damaged image"
        cause = _TOO_LARGE if isinstance(error, Image.DecompressionBombError) else cause
        reason = str(error).split("<")[0].strip(" :'\n") or type(error).__name__
        raise ImageError(f"{name}: {cause} ({reason})", cause=cause) from error


def _kind_of(data: bytes) -> str:
    """The decoder for a file's first bytes; no other one ever sees the file. Raises ImageError."""
    kind = next((kind for kind, begins in _KINDS.items() if re.match(begins, data, re.DOTALL)), None)
    if kind is None:
        known = "JPEG, PNG, WebP, TIFF, BMP, GIF, HEIC and AVIF are"
        raise ImageError(f"{_NO_IMAGE} ({known}): save it as PNG or JPEG", cause=_NO_IMAGE)
    return kind if kind != "BigTIFF" else _refuse("a BigTIFF: save it as an ordinary TIFF")


class _Counted(io.BytesIO):
    """Bytes that a decoder reads in a limited number of parts: each costs Pillow a step in Python."""

    _left = 32 * _MAX_PARTS  # the blocks of a GIF of 64 MB, four times

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            _refuse(_TOO_MANY_PARTS)
        return super().read(size)


def open_picture(data: bytes) -> Any:
    """Opens the first picture of a file, by Pillow or pillow-heif, without decoding it.

    Raises ImageError for one that is too large, or takes its decoder long; _DAMAGES for a damaged one.
    """
    kind = _kind_of(data)
    if kind == "HEIF":
        heif = _open_heic(data)
        return _check_size(heif[heif.primary_index])
    if kind == "AVIF" and not features.check("avif"):
        _refuse("an AVIF, which this build of Pillow does not read: save it as PNG or JPEG")
    if kind == "JPEG" and data.count(b"\xff\xda") + data.count(b"Exif") > _MAX_SCANS:
        parts = ((marker, data[start + 4 : start + 8]) for marker, start, _ in _jpeg_segments(data, 0))
        if sum(marker == 0xDA or name == b"Exif" for marker, name in parts) > _MAX_SCANS:
            _refuse(f"a JPEG of more than {_MAX_SCANS} scans and blocks of EXIF: save it anew")
    picture = _check_size(Image.open(_Counted(data), formats=(kind,)))
    if kind == "TIFF":
        _check_tiff(picture.tag_v2, picture.info["compression"], len(data))
    elif kind == "BMP" and picture.tile[0][0] == "bmp_rle":  # Pillow decodes it in Python, in minutes
        _refuse("a run-length coded BMP: save it as PNG")
    return picture


def _open_heic(data: bytes) -> Any:
    """Opens a HEIC: pillow-heif is not registered with Pillow, and so changes nothing for other code."""
    with needs_extra("reading HEIC", "heic"):
        import pillow_heif
    return pillow_heif.open_heif(data)


def _check_size(picture: Any) -> Any:
    """Returns an opened picture. Raises ImageError if it is larger than allowed."""
    width, height = picture.size
    if width * height > MAX_PIXELS or max(width, height) > _MAX_SIDE:
        words = f"{width}x{height} pixels, more than the {MAX_PIXELS} allowed, or the {_MAX_SIDE} of a side"
        raise ImageError(f"{words}: resize the file", cause=_TOO_LARGE)
    return picture


def _check_tiff(tags: Any, codec: str, length: int) -> None:
    if tags.get(_SUBFILE) == 1:
        _refuse("a thumbnail before the picture, as in a camera's raw file: save it as PNG or JPEG")
    if not _TIFF_CODECS.fullmatch(codec):
        _refuse(f"a TIFF of compression {codec}: save it with LZW or Deflate")
    if (codec, tags.get(_PHOTOMETRIC)) == ("raw", 6) and tags.get(_SUBSAMPLING) != (1, 1):
        _refuse("a TIFF of uncompressed, subsampled YCbCr: save it as RGB")
    if tags.get(_TILE_WIDTH, 0) * tags.get(_TILE_HEIGHT, 0) > MAX_PIXELS:
        raise ValueError("tiles larger than images may be")
    if sum(tags.get(_STRIP_LENGTHS, ())) + sum(tags.get(_TILE_LENGTHS, ())) > length:
        raise ValueError("strips that overlap")


def _jpeg_segments(data: bytes, position: int) -> Iterator[tuple[int, int, int]]:
    """The marker, start and end of each segment of the JPEG at a position."""
    position += 2
    for _ in range(_MAX_PARTS):
        if (match := _JPEG_MARKER.search(data, position)) is None:
            return
        marker, start, position = match[1][0], match.end() - 2, match.end()
        if marker == 0xD9:
            yield marker, start, position
            return
        position += struct.unpack_from(">H", data, position)[0]
        if marker == 0xDA:  # coded data, up to the next marker but restarts
            following = _JPEG_MARKER.search(data, position)
            position = len(data) if following is None else following.start()
        yield marker, start, position
    _refuse(_TOO_MANY_PARTS)


def _jpegs(data: bytes) -> list[int]:
    """Where the JPEGs of a file begin, one behind the other, as in an MPO and in photographs with depth."""
    starts = [0]
    while len(starts) <= _MAX_PARTS:
        ends = [end for _, _, end in _jpeg_segments(data, starts[-1])]
        if (following := _JPEG.search(data, max(starts[-1] + 2, *ends[-1:]))) is None:
            return starts
        starts.append(following.start())
    _refuse(_TOO_MANY_PARTS)


def _directories(data: bytes) -> list[bytes]:
    """The first 8 bytes of a TIFF, for each of its directories: its pages, and those below them."""
    order, found, tags = ">" if data.startswith(b"MM") else "<", dict[int, None](), 0
    queue = [*struct.unpack_from(order + "I", data, 4)]
    for place in queue:  # it grows
        if place in found or not 8 <= place <= len(data) - 6:
            continue
        found[place] = None
        (number,) = struct.unpack_from(order + "H", data, place)
        tags, end = tags + number, place + 2 + 12 * number
        if tags > 16 * _MAX_PARTS or len(queue) > _MAX_PARTS:
            _refuse(_TOO_MANY_PARTS)
        for entry in range(place + 2, min(end, len(data) - 11), 12):
            tag, count, start = struct.unpack_from(order + "H2xII", data, entry)
            if tag == _SUB_DIRECTORIES:
                start = start if count > 1 else entry + 8
                queue += struct.unpack_from(f"{order}{min(count, _MAX_PARTS)}I", data, start)
        if end + 4 <= len(data):
            queue += struct.unpack_from(order + "I", data, end)
    return [data[:4] + struct.pack(order + "I", place) for place in found]


def _upright(picture: Any, channels: int | None) -> Image.Image:
    """Decodes an opened picture, upright, "L" or "RGB", as sfumato.images.read promises."""
    if not isinstance(picture, ImageFile.ImageFile):  # of pillow-heif, which turns it
        return _eight_bits(picture.to_pillow(), channels)
    if picture.format == "PNG":
        coding = picture.tile[0][3]
        if coding in ("L;2", "L;4") and "transparency" in picture.info:  # Pillow shows them as 8 bits
            picture.info["transparency"] *= 255 // (2 ** int(coding[2]) - 1)
        elif coding == "RGB;16B":  # 8 bits cannot distinguish the transparent colour from its neighbours
            picture.info.pop("transparency", None)
        elif coding == "LA;16B" and channels is None:  # which Pillow reads as RGBA
            channels = 1
    picture.load()
    pixels, orientation = _eight_bits(picture, channels), 1
    if picture.format == "AVIF":
        picture.info.pop("xmp", None)  # its boxes turn it, which Pillow states as EXIF
    if picture.format != "TIFF":  # which Pillow has turned
        with suppress(*_DAMAGES):
            orientation = picture.getexif().get(_ORIENTATION, 1)
    return pixels.transpose(_TURNS[orientation]) if orientation in _TURNS else pixels


def _eight_bits(image: Image.Image, channels: int | None) -> Image.Image:
    """Converts to "L" or "RGB" at 8 bits a channel; transparency is laid on white."""
    if image.mode == "P" and image.palette is None:
        raise ValueError("a palette image without a palette")
    palette = (image.getpalette("RGB") or []) if image.mode in ("P", "PA") else None
    grey = image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16")
    grey = grey if palette is None else palette[0::3] == palette[1::3] == palette[2::3]
    mode = "L" if channels == 1 or (channels is None and grey) else "RGB"
    if image.mode.startswith("I;16"):
        levels = np.asarray(image)  # convert("L") would clip them at 255; the high byte is the picture
        high = (levels.astype(np.uint16) >> 8).astype(np.uint8)
        if getattr(image, "tag_v2", {}).get(_PHOTOMETRIC) == 0:  # Pillow heeds it only up to 8 bits
            high = 255 - high
        if "transparency" in image.info:
            high[levels == image.info["transparency"]] = 255
        return Image.fromarray(high).convert(mode)
    if image.mode in ("I", "F"):  # convert("L") would clip these, too
        _refuse(f"{image.mode} values have no stated range: save it with 8 or 16 bits a channel")
    if image.has_transparency_data:
        layer = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
        image = Image.new("RGB", layer.size, "white")
        image.paste(layer, mask=layer)
    elif image.mode == "LAB":
        image = image.convert("RGB")  # the only conversion from it
    return image if image.mode == mode else image.convert(mode)


def _others(data: bytes) -> list[Any]:
    """A function for each picture of a file behind the first one, which opens it."""
    kind = _kind_of(data)
    if kind in _ANIMATED:
        picture = open_picture(data)
        if picture.n_frames > _MAX_PARTS:
            _refuse(_TOO_MANY_PARTS)
        return [lambda frame=frame: picture.seek(frame) or picture for frame in range(1, picture.n_frames)]
    if kind == "JPEG":
        return [lambda start=start: open_picture(data[start:]) for start in _jpegs(data)[1:]]
    if kind == "TIFF":
        return [lambda head=head: open_picture(head + data[8:]) for head in _directories(data)[1:]]
    if kind != "HEIF":
        return []
    file, openers = _open_heic(data), list[Any]()
    for number, image in enumerate(file):
        beside = [*([] if number == file.primary_index else [image]), *image.info["depth_images"]]
        openers += [lambda each=each: each for each in beside]
        openers += [partial(image.get_thumbnail, each) for each in range(len(image.info["thumbnails"]))]
        openers += [partial(image.get_aux_image, each) for ids in image.info["aux"].values() for each in ids]
    track = data.find(b"stsz") + 12  # the frames of a sequence, of which libheif opens none
    frames = min(*struct.unpack_from(">I", data, track), _MAX_PARTS) if track > 12 else 0
    return openers + [partial(_refuse, "a frame of a sequence in HEIC: save it as PNG or JPEG")] * frames
