"""The inputs of a client: files, Pillow images and tensors, converted to the images that a model takes."""

import io
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Union

from PIL import Image, ImageOps

from sfumato import images
from sfumato.device.ledger.fingerprints import fingerprints
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.errors import ImageError
from sfumato.images import Images, Pixels, as_array

if TYPE_CHECKING:  # a client that sends pixels needs no PyTorch
    from torch import Tensor

_Image = TypeVar("_Image")

Source = Union[str, os.PathLike[str], Image.Image, "Tensor", Pixels]

_MOST_IMAGES = 32  # of a request
_MOST_VALUES = 8_000_000  # pixels in all channels of a request


def as_list(sources: Source | Iterable[Source]) -> Iterable[Source]:
    """Return images as an iterable; a single image becomes a list of one."""
    single = isinstance(sources, str | os.PathLike | Image.Image)
    if single or getattr(sources, "ndim", 0) == 3:  # an array or a tensor
        return [sources]  # type: ignore[list-item]
    return sources  # type: ignore[return-value]


def batches(images: Iterable[_Image], shape: tuple[int, int, int]) -> Iterator[list[_Image]]:
    """Yield the images of each request, of shape (C, H, W)."""
    values = shape[0] * shape[1] * shape[2]
    count = max(1, min(_MOST_IMAGES, _MOST_VALUES // values))
    left = iter(images)
    while batch := list(islice(left, count)):
        yield batch


def image_of(source: Source, shape: tuple[int, int, int]) -> tuple[Pixels, Fingerprint | None]:
    """Read an image as a model takes it, (C, H, W) uint8, and the fingerprint of the original picture.

    Raises ImageError as `fit` does.
    """
    picture, image = fit(source, shape)
    return image, fingerprints(picture[None])[0]


def fit(source: Source, shape: tuple[int, int, int]) -> tuple[Pixels, Pixels]:
    """Read a picture. Returns it as read, and as a model takes it: (C, H, W) uint8.

    Raises:
        ImageError: it cannot be read; or the model's images are not square and have another size.
    """
    channels, height, width = shape
    content: str | os.PathLike[str] | bytes
    if isinstance(source, Image.Image):
        content = _as_file(source)
    elif isinstance(source, str | os.PathLike):
        content = source
    else:
        given: Images = source[None]
        images.check_batch(given)
        pixels = as_array(given)[0]
        if pixels.shape == shape:
            return pixels, pixels
        content = images.encode(pixels)
    picture = images.read_array(content, channels=channels)
    image = images.resize(picture, height) if height == width else picture
    if image.shape != shape:
        raise ImageError(
            f"an image of {image.shape[1]}x{image.shape[2]} pixels, and the model's are {height}x{width}: "
            "resize it yourself: only squares are cropped here",
            cause="of another size",
        )
    return picture, image


def _as_file(picture: Image.Image) -> bytes:
    """Encode as TIFF, which has every mode of Pillow; an invalid image is refused as in a file."""
    buffer = io.BytesIO()
    try:
        # By default Pillow compresses it like the file it came from, which may be lossy.
        ImageOps.exif_transpose(picture).save(buffer, "TIFF", compression="raw")
    except (OSError, ValueError, SyntaxError) as error:
        raise ImageError(f"{picture!r}: cannot be used ({error})") from error
    return buffer.getvalue()


def name_of(source: Source) -> str:
    """Return the name of the file of an image; "" if it is not a file."""
    return Path(source).name if isinstance(source, str | os.PathLike) else ""
