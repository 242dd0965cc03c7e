"""Reading and writing of pictures, only their pixels: in files, and as other libraries hold them."""

import errno
import io
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from PIL import Image, ImageOps

from sfumato.base.files import open_regular, read_regular, whole
from sfumato.errors import ConfigError, ImageError, did_you_mean
from sfumato.images import decoding
from sfumato.images.convention import Images, Pixels, as_array, as_tensor, check_batch, to_float, to_uint8
from sfumato.images.decoding import MAX_PARTS, MAX_PIXELS, naming, not_read, open_picture

if TYPE_CHECKING:
    from torch import Tensor

# Programs and cameras write these for the formats that are read.
_SUFFIXES = "png apng jpg jpeg jpe jif jfif jfi mpo webp bmp dib gif tif tiff heic heics heif heifs hif"
SUFFIXES = frozenset(f".{suffix}" for suffix in f"{_SUFFIXES} avif avifs".split())

MAX_BYTES = 64_000_000

TRANSPARENT = ("PNG", "WEBP")  # formats with transparency

_ANIMATED = ("PNG", "WEBP", "GIF", "AVIF")
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

Source: TypeAlias = str | os.PathLike[str] | bytes


def read(source: Source, *, channels: int | None = 3, size: int | None = None) -> "Tensor":
    """Reads one image file, or its bytes. -> (channels, H, W) uint8, upright, without metadata.

    JPEG (of a phone's MPO, the photograph), PNG, WebP, TIFF, BMP, GIF, HEIC (with the extra `heic`) and AVIF
    (if Pillow was built with it), recognised by their first bytes; of several pictures the first, in HEIC the
    primary one. Transparent parts show white, and of 16 bits the high 8 are kept.

    Guarantees: any bytes give an image or one of the errors below, never a warning or another error (only
    libtiff writes lines to stderr on damaged pixels), in seconds. Decoding takes at most 20 bytes of memory
    for each of MAX_PIXELS, besides two copies of the file; an AVIF that codes more pixels than it states
    adds 8 bytes for each of at most 268 million. Tested by tests/endurance/mutants.py. All threads of a
    process together decode images of 2 * MAX_PIXELS at a time: further calls wait. Raises MissingExtraError
    without pillow-heif, and ImageError for no such file, no image, a damaged or too large one, and unread
    kinds: floats, whose range nothing states, and files that take decoders minutes.

    Args:
        source: a path, or the encoded bytes.
        channels: 3 for RGB, 1 for grey (ITU-R 601 luma), None for the image's own: 1 if its format, or all
            colours of its palette, used or not, are grey; 3 otherwise.
        size: side in pixels of a centre square, resized by Lanczos; None keeps the image's own size.
    """
    return as_tensor(read_array(source, channels=channels, size=size))


def read_array(source: Source, *, channels: int | None = 3, size: int | None = None) -> Pixels:
    """See `read`; the same image as an array, without PyTorch."""
    if channels not in (1, 3, None):
        raise ConfigError(f"channels is 1, 3 or None for the image's own, got {channels}")
    name, data = name_and_bytes(source)
    with naming(name):
        return _decode(open_picture(data), channels, size)


def read_first(source: Source, *, channels: int | None = 3, size: int | None = None) -> tuple[Pixels, int]:
    """Reads a file as `read_array` does, once. -> its first picture, and the number of others in it."""
    name, data = name_and_bytes(source)
    with naming(name):
        return _decode(open_picture(data), channels, size), len(_others(data))


def count_pictures(source: Source) -> int:
    """The number of pictures in an image file: pages, frames, thumbnails of its container, depth maps.

    Neither the thumbnail in EXIF, nor layers. Raises ImageError, also for more than MAX_PARTS parts.
    """
    name, data = name_and_bytes(source)
    with naming(name):
        return 1 + len(_others(data))


def read_pictures(source: Source, *, channels: int = 3) -> Iterator[Pixels | ImageError]:
    """Yields the pictures of a file, the first one first, each (channels, H, W) uint8 and upright.

    A frame of an animation is the whole canvas, as a viewer shows it. A further picture that cannot be read
    yields its error; a frame ends the animation then. Pictures behind 4 * MAX_PIXELS in all are not read. One
    is held at a time, and of an animation a canvas besides. Raises ImageError if the first cannot be read.
    """
    name, data = name_and_bytes(source)
    with naming(name):
        first = _decode(open_picture(data), channels)
    yield first
    left, animated = 4 * MAX_PIXELS - first[0].size, decoding.kind_of(data) in _ANIMATED
    try:
        with naming(name):
            others = _others(data)
    except ImageError as error:
        yield error
        return
    for opened in others:
        try:
            with naming(name):
                picture = decoding.check_size(opened())
                # A byte that is copied costs an eighth of a pixel.
                left -= picture.size[0] * picture.size[1] + (0 if animated else len(data) // 8)
                if left < 0:
                    return
                yield _decode(picture, channels)
        except ImageError as error:
            yield error
            if animated:
                return


def _others(data: bytes) -> list[Any]:
    """A function for each picture of a file behind the first one, which opens it."""
    kind = decoding.kind_of(data)
    if kind in _ANIMATED:
        picture = open_picture(data)
        if picture.n_frames > MAX_PARTS:
            raise not_read(decoding.TOO_MANY_PARTS)
        return [lambda frame=frame: picture.seek(frame) or picture for frame in range(1, picture.n_frames)]
    if kind == "JPEG":
        return [lambda start=start: open_picture(data[start:]) for start in decoding.jpegs(data)[1:]]
    if kind == "TIFF":
        order = ">" if data.startswith(b"MM") else "<"
        heads = [data[:4] + struct.pack(order + "I", start) for start in decoding.directories(data)[1:]]
        return [lambda head=head: open_picture(head + data[8:]) for head in heads]
    return _others_of_heic(data) if kind == "HEIF" else []


def _others_of_heic(data: bytes) -> list[Any]:
    file, openers = decoding.open_heic(data), list[Any]()
    for number, image in enumerate(file):
        beside = [*([] if number == file.primary_index else [image]), *image.info["depth_images"]]
        openers += [lambda each=each: each for each in beside]
        openers += [partial(image.get_thumbnail, each) for each in range(len(image.info["thumbnails"]))]
        openers += [partial(image.get_aux_image, each) for ids in image.info["aux"].values() for each in ids]
    track = data.find(b"stsz") + 12  # the frames of a sequence, of which libheif opens none
    frames = min(*struct.unpack_from(">I", data, track), MAX_PARTS) if track > 12 else 0
    return openers + [_refuse_frame] * frames


def _refuse_frame() -> Any:
    raise not_read("a frame of a sequence in HEIC: save it as PNG or JPEG")


def is_image(source: Source) -> bool:
    """Whether a file is to be read as an image: by its first bytes (512 are enough), or by its suffix."""
    head = source if isinstance(source, bytes) else b""
    if not isinstance(source, bytes):
        if Path(source).suffix.lower() in SUFFIXES:
            return True
        with suppress(OSError), open_regular(source) as file:
            head = file.read(512)
    try:
        return bool(decoding.kind_of(head))
    except ImageError as error:
        return error.cause != decoding.NO_IMAGE  # as of a BigTIFF, which is one


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
    with decoding.UNDER_WAY.room(picture.size[0] * picture.size[1]):
        return _planes(decoding.decode(picture, channels), size)


def resize(image: Pixels, size: int) -> Pixels:
    """The centre square of a (C, H, W) uint8 image with a side of `size` pixels, as `read` gives it."""
    return _planes(Image.merge(_MODES[len(image)], [Image.fromarray(plane) for plane in image]), size)


def _planes(picture: Image.Image, size: int | None = None) -> Pixels:
    if size is not None:
        picture = ImageOps.fit(picture, (size, size), Image.Resampling.LANCZOS)
    width, height = picture.size
    bands = picture.getbands()
    planes = np.empty((len(bands), height, width), np.uint8)
    for plane, band in zip(planes, bands, strict=True):  # a third of the time of a transposed copy
        plane[:] = np.frombuffer(picture.tobytes("raw", band), np.uint8).reshape(height, width)
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

    The same pixels give the same bytes, as long as the versions of Pillow and its libraries stay. Raises
    ImageError or ConfigError for another image, format or quality.

    Args:
        image: with 1 or 3 channels.
        format_name: "PNG", "BMP", "WEBP" or "JPEG".
        quality: 1 to 100, for the lossy formats only. JPEG has 95 by default, always with full chroma, since
            a subsampled one mixes the colours of protected cells. WebP is lossless unless a quality is given.
        shown: (1, H, W) bool, the shown pixels: the others are transparent, and `read` makes them white.
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
        if format_name == "WEBP":  # which otherwise chooses the colour of transparent pixels
            settings = settings | {"exact": True}
    buffer = io.BytesIO()
    # merge is 8 times as fast as a transposed copy of the array.
    Image.merge(_MODES[len(planes)], planes).save(buffer, format=format_name, **settings)
    return buffer.getvalue()


def take(picture: Any) -> tuple[Pixels, Callable[[Pixels], Any]]:
    """Takes a picture of Pillow, an array or a tensor, or a batch of them, without metadata.

    A picture of Pillow is turned upright by its EXIF, and laid on white if it is transparent; it comes back
    as "L" or "RGB". Arrays are (H, W), (H, W, C) or (N, H, W, C) uint8. Tensors are (C, H, W) or
    (N, C, H, W), uint8 or floats in [0, 1], which are rounded to 256 levels. Raises ImageError for others.

    Returns (N, C, H, W) uint8 pixels, and a function that maps such pixels to the library, type (also a
    subclass of Tensor), device, axes and range of `picture`.
    """
    if isinstance(picture, Image.Image):
        taken, to_array = take(np.asarray(decoding.eight_bits(ImageOps.exif_transpose(picture), None)))
        return taken, lambda pixels: Image.fromarray(np.ascontiguousarray(to_array(pixels)))
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or not 2 <= picture.ndim <= 4:
            words = "arrays are (H, W), (H, W, C) or (N, H, W, C) uint8: protect before it is scaled"
            raise ImageError(f"an array of {picture.shape} {picture.dtype}: {words}")
        batch, shape = (
            {2: picture[None, ..., None], 3: picture[None]}.get(picture.ndim, picture),
            picture.shape,
        )
        pixels = np.ascontiguousarray(np.moveaxis(batch, -1, 1))
        check_batch(pixels)
        return pixels, lambda made: np.moveaxis(made, 1, -1).reshape(shape)
    if not hasattr(picture, "as_subclass"):  # which tensors have
        raise ImageError(
            f"a {type(picture).__name__}: a picture is a PIL.Image, an array (H, W, C) of uint8, or a tensor "
            "(C, H, W): take it out of its tuple or dictionary first"
        )
    return _take_tensor(picture)


def _take_tensor(picture: Any) -> tuple[Pixels, Callable[[Pixels], Any]]:
    import torch

    kind, alone, dtype, device = type(picture), picture.ndim == 3, picture.dtype, picture.device
    plain = picture.detach().as_subclass(torch.Tensor).cpu()
    if dtype.is_floating_point:
        if plain.numel() and not (plain.min() >= 0 and plain.max() <= 1):
            words = f"a tensor with values from {plain.min():.3g} to {plain.max():.3g}"
            raise ImageError(f"{words}: floats are from 0 to 1: protect before Normalize")
        plain = to_uint8(plain)

    def give_back(pixels: Pixels) -> Any:
        made = torch.from_numpy(np.ascontiguousarray(pixels))
        made = (to_float(made).to(dtype) if dtype.is_floating_point else made).to(device)
        return (made[0] if alone else made).as_subclass(kind)

    taken = np.ascontiguousarray(as_array(plain[None] if alone else plain))
    check_batch(taken)
    return taken, give_back
