"""Releases that are not images: the numbers of a feature or a code, with their noise, and the bits of a code.

They travel, are stored and are compared without PyTorch; tensors are for computing with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Self

import numpy as np

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.dp.naming import discrete_mu
from sfumato.errors import DataError

if TYPE_CHECKING:
    from torch import Tensor

GRID = 1024  # steps of a released number in a unit, if something is proved
MOST_BITS = 64  # of a code
FEATURE = "private feature"  # the kind of an artefact of features


def _array(values: "Tensor | np.ndarray") -> np.ndarray:
    return values if isinstance(values, np.ndarray) else values.detach().numpy()


@dataclass(frozen=True)
class _VectorRelease:
    """Vectors that leave a device instead of images: a row each.

    Attributes:
        array: (N, d). A tensor becomes the array of its memory.
        spec: the protection that made them.
    """

    array: np.ndarray
    spec: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", _array(self.array))

    @property
    def values(self) -> "Tensor":
        """The array as a tensor, in the same memory."""
        import torch

        return torch.from_numpy(self.array)

    def numbers(self) -> np.ndarray:
        """The release as numbers: (N, d) float32."""
        raise NotImplementedError

    def vectors(self) -> "Tensor":
        """See `numbers`; the same as a tensor."""
        import torch

        return torch.from_numpy(self.numbers())

    def rows(self, rows: list[int]) -> Self:
        """The release of some of the images."""
        return replace(self, array=self.array[rows])


@dataclass(frozen=True)
class FeatureRelease(_VectorRelease):
    """Private features, or codes of numbers: `array` is (N, d) float32."""

    kind = "numbers"

    def numbers(self) -> np.ndarray:
        """See _VectorRelease.numbers."""
        return self.array

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image."""
        return 4 * int(self.array.shape[1])

    def pack(self) -> list[bytes]:
        """The bytes of each image: its numbers, little-endian."""
        return [row.astype("<f4").tobytes() for row in self.array]


@dataclass(frozen=True)
class BitsRelease(_VectorRelease):
    """Codes of bits: `array` is (N, b) bool."""

    kind = "bits"

    def numbers(self) -> np.ndarray:
        """The release as numbers: (N, b) float32, 1 and -1."""
        return 2 * self.array.astype(np.float32) - 1

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image."""
        return -(-int(self.array.shape[1]) // 8)

    def pack(self) -> list[bytes]:
        """The bytes of each image: its bits, eight a byte, the first the highest, and 0s at the end."""
        return [np.packbits(row).tobytes() for row in self.array]


def unpack_numbers(packets: Sequence[bytes], *, spec: str, dimension: int) -> FeatureRelease:
    """Reads the packets of `FeatureRelease.pack`. Raises DataError for other lengths."""
    wrong = [len(packet) for packet in packets if len(packet) != 4 * dimension]
    if wrong:
        raise DataError(
            f"a packet of {wrong[0]} bytes is not a feature of {dimension} numbers, which has "
            f"{4 * dimension}: "
            "pass the dimension that was released, and whole packets"
        )
    numbers = np.frombuffer(b"".join(packets), "<f4").astype(np.float32)
    return FeatureRelease(numbers.reshape(len(packets), dimension), spec)


def unpack_bits(packets: Sequence[bytes], *, spec: str, bits: int) -> BitsRelease:
    """Reads the packets of `BitsRelease.pack`.

    Raises:
        DataError: a packet of another length, or with bits beyond the last.
    """
    length = -(-bits // 8)
    for packet in packets:
        if len(packet) != length:
            raise DataError(
                f"a packet of {len(packet)} bytes is not a code of {bits} bits, which has {length}: pass the "
                "number of bits that was released, and whole packets"
            )
    read = np.frombuffer(b"".join(packets), np.uint8).reshape(len(packets), length)
    flags = np.unpackbits(read, axis=1).astype(bool)
    if flags[:, bits:].any():
        raise DataError(f"a code of {bits} bits has bits beyond the last: damaged")
    return BitsRelease(flags[:, :bits].copy(), spec)


def clip_and_noise(features: "Tensor", noise: Noise, *, norm: float, variance: float) -> "Tensor":
    """Clips to an L2 norm, and adds Gaussian noise of variance s to each number. (N, d) -> (N, d) float32.

    Guarantees ρ-zCDP between any two features, with ρ = (2·norm)² / 2s (Canonne, Kamath & Steinke 2020,
    Theorem 4): a clipped feature is rounded towards 0 to multiples of 1/GRID, which increases no norm, and
    the noise is the discrete Gaussian on the same grid, exact in integers.

    Args:
        features: (N, d), finite.
        noise: draws the numbers.
        norm: above 0.
        variance: s, above 0.

    Raises:
        DataError: features that are not finite, which have no norm to clip.
    """
    import torch

    if not features.isfinite().all():
        raise DataError("features that are not finite cannot be clipped: the extractor returned NaN")
    exact = features.double()
    # Slightly below the norm: rounding in the product must not exceed it.
    scale = (norm * (1 - 1e-9) / exact.norm(dim=1, keepdim=True)).clamp(max=1.0)
    whole = (exact * scale * GRID).trunc().long()
    drawn = noise.discrete_gaussian(whole.shape, variance=Fraction(str(variance)) * GRID**2)
    return torch.as_tensor((whole + torch.from_numpy(drawn)).double() / GRID).float()


def guarantee_of_clipped(*, norm: float, variance: float, pixels: int) -> Guarantee:
    """The guarantee of `clip_and_noise`: ρ-zCDP, ρ = 2·norm² / variance, for any two images.

    The middle of the ball is half as far from each image as two may be from each other, and noise around it
    is the reference for `naming`.

    Args:
        norm, variance: of `clip_and_noise`.
        pixels: how many may differ; the number does not depend on it.
    """
    rho = float(2 * Fraction(str(norm)) ** 2 / Fraction(str(variance)))
    return Guarantee(
        definition="concentrated",
        value=rho,
        pixels=pixels,
        whole_image=rho,
        source="discrete Gaussian: Canonne, Kamath & Steinke 2020, Thm. 4",
        centre=discrete_mu(radius=norm, variance=variance, step=1 / GRID),
    )
