"""The image convention: batches are (N, C, H, W); uint8 at rest, float32 in [0, 1] inside networks."""

import hashlib
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sfumato.base.hardware import thread_count
from sfumato.errors import ImageError

if TYPE_CHECKING:
    from torch import Tensor

Pixels: TypeAlias = NDArray[np.uint8]
Images: TypeAlias = "Tensor | Pixels"


def as_array(images: Images) -> Pixels:
    """The array of images, in the same memory."""
    return images if isinstance(images, np.ndarray) else images.numpy()


def as_tensor(images: Images) -> "Tensor":
    """The tensor of images, in the same memory."""
    import torch

    return torch.from_numpy(images) if isinstance(images, np.ndarray) else images


def to_float(images: "Tensor") -> "Tensor":
    """(..., ) uint8 in 0..255 -> float32 in [0, 1]."""
    if str(images.dtype) != "torch.uint8":
        raise ImageError(f"images at rest are uint8, got {images.dtype}: convert with to_uint8 first")
    return images.float().div_(255)


def to_uint8(images: "Tensor") -> "Tensor":
    """(..., ) float in [0, 1] -> uint8, rounded to the nearest level; other values are clamped."""
    return images.float().mul(255).round_().clamp_(0, 255).byte()


def check_batch(images: Images) -> None:
    """Raises ImageError unless `images` is a (N, C, H, W) uint8 batch with C of 1 or 3."""
    if str(images.dtype) not in ("uint8", "torch.uint8") or images.ndim != 4 or images.shape[1] not in (1, 3):
        words = "a batch of images is (N, C, H, W) uint8 with 1 or 3 channels"
        raise ImageError(f"{words}, got {tuple(images.shape)} {images.dtype}")


def map_batches(function: Callable[..., np.ndarray], images: np.ndarray, *others: np.ndarray) -> np.ndarray:
    """Applies a NumPy function of (n, C, H, W) to small parts of a batch, on all threads of `thread_count`.

    Parts that fit the cache make strided NumPy several times faster. `others` are cut alike.
    """
    step = max(1, (1 << 20) // max(1, images[:1].nbytes))  # images of a MiB
    parts = [[array[i : i + step] for array in (images, *others)] for i in range(0, len(images), step)]
    if len(parts) < 2:
        return function(images, *others)
    with ThreadPoolExecutor(min(len(parts), thread_count())) as pool:
        return np.concatenate(list(pool.map(lambda part: function(*part), parts)))


def digest(image: Images) -> bytes:
    """SHA-256 over shape and pixels of one (C, H, W) uint8 image: equal for the same picture in any file."""
    check_batch(image[None])
    digested = hashlib.sha256(struct.pack("<3Q", *image.shape))
    digested.update(np.ascontiguousarray(as_array(image)).data)
    return digested.digest()
