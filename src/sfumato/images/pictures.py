"""Pictures as other libraries hold them: of Pillow, arrays (H, W, C), tensors (C, H, W); and back."""

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from sfumato.errors import ImageError
from sfumato.images.convention import Pixels, as_array, check_batch, to_float, to_uint8
from sfumato.images.decoding import eight_bits


def take(picture: Any) -> tuple[Pixels, Callable[[Pixels], Any]]:
    """Takes a picture of Pillow, an array or a tensor, or a batch of them, without metadata.

    A picture of Pillow is turned upright by its EXIF, and laid on white if it is transparent; it comes back
    as "L" or "RGB". Arrays are (H, W), (H, W, C) or (N, H, W, C) uint8. Tensors are (C, H, W) or
    (N, C, H, W), uint8 or floats in [0, 1], which are rounded to 256 levels; a subclass of Tensor comes back
    as itself, on its device. Raises ImageError for another type, shape or range.

    Returns:
        (N, C, H, W) uint8 pixels, and a function that maps pixels of this shape to the library, type, axes
        and range of what was taken.
    """
    if isinstance(picture, Image.Image):
        taken, to_array = take(np.asarray(eight_bits(ImageOps.exif_transpose(picture), None)))
        return taken, lambda pixels: Image.fromarray(np.ascontiguousarray(to_array(pixels)))
    if isinstance(picture, np.ndarray):
        if picture.dtype != np.uint8 or not 2 <= picture.ndim <= 4:
            raise ImageError(
                f"an array of {picture.shape} {picture.dtype}: arrays are (H, W), (H, W, C) or (N, H, W, C) "
                "uint8: protect before it is scaled"
            )
        batch = {2: picture[None, ..., None], 3: picture[None]}.get(picture.ndim, picture)
        shape = picture.shape
        return _check(np.moveaxis(batch, -1, 1)), lambda pixels: np.moveaxis(pixels, 1, -1).reshape(shape)
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
            raise ImageError(
                f"a tensor with values from {plain.min():.3g} to {plain.max():.3g}: floats are from 0 to 1: "
                "protect before Normalize"
            )
        plain = to_uint8(plain)

    def give_back(pixels: Pixels) -> Any:
        made = torch.from_numpy(np.ascontiguousarray(pixels))
        made = (to_float(made).to(dtype) if dtype.is_floating_point else made).to(device)
        return (made[0] if alone else made).as_subclass(kind)

    return _check(as_array(plain[None] if alone else plain)), give_back


def _check(pixels: Pixels) -> Pixels:
    check_batch(pixels)
    return np.ascontiguousarray(pixels)
