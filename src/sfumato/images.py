"""The image convention: batches are (N, C, H, W); uint8 at rest, float32 in [0, 1] inside networks.

Reading applies the EXIF orientation and then keeps pixels only: the image is rebuilt from its array, so
that no EXIF, GPS, XMP, ICC, comment or thumbnail can travel on (Pillow carries a JPEG comment and an ICC
profile through convert, resize and save).
"""

import io
import os
import struct
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from sfumato.errors import ImageError
from sfumato.files import whole

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"})

# A 50-megapixel photograph passes; a decompression bomb does not.
MAX_PIXELS = 64_000_000
MAX_BYTES = 64_000_000

_PART_BYTES = 1 << 20

# Not ImageOps.exif_transpose: it writes the EXIF block anew, and fails on one that is odd elsewhere.
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# `read` refuses such files itself, with an error that names the file.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

_WRITABLE = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP", ".bmp": "BMP"}


def to_float(images: Tensor) -> Tensor:
    """(..., ) uint8 in 0..255 -> float32 in [0, 1]."""
    if images.dtype != torch.uint8:
        raise ImageError(f"images at rest are uint8, got {images.dtype}: convert with to_uint8 first")
    return images.float().div_(255)


def to_uint8(images: Tensor) -> Tensor:
    """(..., ) float in [0, 1] -> uint8, rounded to the nearest level; values outside are clamped."""
    return images.float().mul(255).round_().clamp_(0, 255).to(torch.uint8)


def check_batch(images: Tensor) -> None:
    """Raise ImageError unless `images` is a (N, C, H, W) uint8 batch with C of 1 or 3."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ImageError(
            f"a batch of images is (N, C, H, W) uint8 with 1 or 3 channels, "
            f"got {tuple(images.shape)} {images.dtype}"
        )


def map_batches(function: Callable[..., np.ndarray], images: Tensor, *others: Tensor) -> Tensor:
    """Apply a NumPy function of (n, C, H, W) to small parts of a batch, on all of torch's threads.

    Parts that fit the cache make plain strided NumPy several times faster than one pass over the batch;
    NumPy and Pillow leave the interpreter free meanwhile, so that threads help. `others` are cut alike.
    """
    arrays = [tensor.numpy() for tensor in (images, *others)]
    step = max(1, _PART_BYTES // max(1, arrays[0][:1].nbytes))
    parts = [[array[i : i + step] for array in arrays] for i in range(0, len(images), step)]
    if len(parts) < 2:
        return torch.from_numpy(function(*arrays))
    with ThreadPoolExecutor(min(len(parts), torch.get_num_threads())) as pool:
        return torch.from_numpy(np.concatenate(list(pool.map(lambda part: function(*part), parts))))


def read(source: str | os.PathLike[str] | bytes, *, channels: int = 3, size: int | None = None) -> Tensor:
    """Read one image file, or its bytes. -> (channels, H, W) uint8, upright, with no metadata.

    Args:
        source: a path, or the encoded bytes.
        channels: 3 for RGB, 1 for grey (ITU-R 601 luma). Transparent parts show white behind.
        size: side in pixels of a centre square, resized by Lanczos; None keeps the image's own size.

    Raises:
        ImageError: no such file, no image, truncated, or larger than MAX_BYTES or MAX_PIXELS.
    """
    name = "<bytes>" if isinstance(source, bytes) else os.fspath(source)
    data = source if isinstance(source, bytes) else _bytes_of(Path(name))
    if len(data) > MAX_BYTES:
        raise ImageError(f"{name}: {len(data)} bytes, more than the {MAX_BYTES} allowed: resize the file")
    try:
        with Image.open(io.BytesIO(data)) as opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise ImageError(
                    f"{name}: {width}x{height} pixels, more than the {MAX_PIXELS} allowed: resize the file"
                )
            opened.load()  # turns a TIFF itself, and then says so
            turn = _TURNS.get(opened.getexif().get(_ORIENTATION, 1))
            upright = opened if turn is None else opened.transpose(turn)
            pixels = _eight_bits(upright, "L" if channels == 1 else "RGB")
    except ImageError:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise ImageError(f"{name}: not an image that can be read ({_reason(error)})") from error
    except (OSError, ValueError, SyntaxError, EOFError, struct.error) as error:
        # Pillow's decoders raise any of these on damaged files.
        raise ImageError(f"{name}: a damaged image ({_reason(error)})") from error
    if size is not None:
        pixels = ImageOps.fit(pixels, (size, size), Image.Resampling.LANCZOS)
    array = np.array(pixels, dtype=np.uint8)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def write(path: str | os.PathLike[str], image: Tensor) -> None:
    """Write one (C, H, W) uint8 image, its format by the suffix, with pixels and nothing else.

    The file appears whole or not at all. Raises ImageError for a suffix that is not written here.
    """
    path = Path(path)
    format_name = _WRITABLE.get(path.suffix.lower())
    if format_name is None:
        raise ImageError(f"{path}: cannot write {path.suffix!r}: use one of {', '.join(sorted(_WRITABLE))}")
    encoded = encode(image, format_name)
    try:
        with whole(path) as temporary:
            temporary.write_bytes(encoded)
    except OSError as error:
        raise ImageError(f"{path}: cannot be written ({error.strerror})") from error


def encode(image: Tensor, format_name: str = "PNG") -> bytes:
    """One (C, H, W) uint8 image as the bytes of a file with pixels and nothing else."""
    check_batch(image[None])
    array = image[0].numpy() if image.shape[0] == 1 else image.permute(1, 2, 0).contiguous().numpy()
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, format=format_name)
    return buffer.getvalue()


def _bytes_of(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ImageError(
                f"{path}: {path.stat().st_size} bytes, more than the {MAX_BYTES} allowed: resize the file"
            )
        return path.read_bytes()
    except OSError as error:
        raise ImageError(f"{path}: cannot be read ({error.strerror})") from error


def _eight_bits(image: Image.Image, mode: str) -> Image.Image:
    """To "L" or "RGB" at 8 bits a channel; transparency is laid on white."""
    if image.mode.startswith("I;16"):
        # convert("L") would clip 16-bit greys at 255; the high byte is the picture.
        image = Image.fromarray((np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        # convert("L") would clip these too, and nothing says which range is the picture's.
        raise ValueError(f"values of mode {image.mode} have no stated range: save it with 8 or 16 bits")
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.new("RGBA", layer.size, "white")
        image.alpha_composite(layer)
    return image.convert(mode)


def _reason(error: Exception) -> str:
    return str(error).split("<")[0].strip(" :'") or type(error).__name__
