"""Near copies of a picture, by a fingerprint: flipped, cropped, recompressed, or with a pixel changed."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sfumato.images import check_batch
from sfumato.protect.pixelize import cell_areas, cell_sums

_SIDE = 16
_LUMA = (0.299, 0.587, 0.114)


@dataclass(frozen=True)
class Fingerprint:
    """What near copies are told by, and the keys of an index that finds them.

    Two images are compared when one of the probes of one is among the keys of the other.
    """

    bits: bytes  # a thumbnail of 16 x 16 values of 4 bits: 128 bytes, by which two images are compared
    keys: tuple[int, ...]  # at most 24 numbers below 2^63, under which an image is stored
    probes: tuple[int, ...]  # at most 200, under which images like it are looked up


def fingerprints(images: Tensor) -> list[Fingerprint | None]:
    """The fingerprint of each image, None where it is too flat or too small to be told from others.

    Args:
        images: (N, C, H, W) uint8 with C of 1 or 3, of any size.

    Raises:
        ImageError: `images` is something else.
    """
    check_batch(images)
    return [_fingerprint(_grey(image)) for image in images]


def near_copies(first: bytes, second: bytes) -> bool:
    """Whether two images are near copies of each other, by the `bits` of their fingerprints. Symmetric."""
    one, other = _unpack(first), _unpack(second)
    return bool(max(float((turned * other).sum()) for turned in _symmetries(one)) >= 0.96)


def _grey(image: Tensor) -> np.ndarray:
    """(C, H, W) uint8 -> the centre square as (16, 16) float32 averages."""
    side = min(image.shape[1:])
    top, left = (image.shape[1] - side) // 2, (image.shape[2] - side) // 2
    square = image[:, top : top + side, left : left + side]
    cell = side // 64
    if cell > 1:
        areas = cell_areas(side, side, cell).numpy()
        sums = torch.from_numpy(cell_sums(square[None].numpy(), cell=cell)[0] / areas).float()
    else:
        sums = square.float()
    grey = sums[0] if len(sums) == 1 else sum(w * c for w, c in zip(_LUMA, sums, strict=True))
    shares = _shares(grey.shape[0])
    return (shares @ grey @ shares.T).numpy()


def _shares(side: int) -> Tensor:
    """(16, side) by how much each pixel of a line counts in each of 16 averages."""
    edges = torch.arange(_SIDE + 1, dtype=torch.float64) * side / _SIDE
    pixels = torch.arange(side, dtype=torch.float64)
    overlap = (edges[1:, None].minimum(pixels + 1) - edges[:-1, None].maximum(pixels)).clamp(min=0)
    return (overlap / overlap.sum(1, keepdim=True)).float()


def _fingerprint(grey: np.ndarray) -> Fingerprint | None:
    spread = grey.std()
    if spread < 2.0:
        return None
    levels = np.clip(np.rint((grey - grey.mean()) / spread * 3 + 7.5), 0, 15).astype(np.uint8).ravel()
    keys = _keys(grey)
    probes = {key for turned in _symmetries(grey) for key in _keys(turned)}
    return Fingerprint((levels[::2] << 4 | levels[1::2]).tobytes(), keys, tuple(sorted(probes)))


def _unpack(bits: bytes) -> np.ndarray:
    packed = np.frombuffer(bits, np.uint8)
    values = np.stack([packed >> 4, packed & 15], 1).reshape(_SIDE, _SIDE).astype(np.float32)
    values -= values.mean()
    return values / max(float(np.sqrt((values * values).sum())), 1e-6)


def _symmetries(square: np.ndarray) -> list[np.ndarray]:
    """A square turned and mirrored in the eight ways that leave it a square."""
    return [np.rot90(side, turns) for side in (square, square[:, ::-1]) for turns in range(4)]


_FREQUENCIES = [(u, v) for u in range(7) for v in range(7) if 0 < u + v <= 6]
_COSINES = np.cos(np.pi * (np.arange(_SIDE) + 0.5) * np.arange(7)[:, None] / _SIDE).astype(np.float32)


def _keys(grey: np.ndarray) -> tuple[int, ...]:
    """Signs of low frequencies, in bands: a copy that changes a few of them leaves another band whole."""
    spectrum = _COSINES @ (grey - grey.mean()) @ _COSINES.T
    signs = [int(spectrum[u, v] > 0) for u, v in _FREQUENCIES]
    bands = [signs[i::3] + signs[(i + 1) % 3 :: 6] for i in range(3)] + [
        signs[i : i + 13] for i in (0, 7, 14)
    ]
    return tuple((band << 40) | int("".join(map(str, bits)), 2) for band, bits in enumerate(bands))
