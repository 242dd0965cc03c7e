"""Releases that are not images: the numbers of a feature or a code, with their noise, and the bits of a code.

They travel, are stored and are compared without PyTorch; tensors are for computing with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.dp.naming import discrete_mu
from sfumato.errors import DataError
from sfumato.protect.release import Released

if TYPE_CHECKING:
    from torch import Tensor

GRID = 1024  # steps of a released number in a unit, if something is proved
MOST_BITS = 64  # of a code
FEATURE = "private feature"  # the kind of an artefact of features


@dataclass(frozen=True)
class FeatureRelease(Released):
    """Private features, or codes of numbers: `array` is (N, d) float32."""

    kind = "numbers"

    def numbers(self) -> np.ndarray:
        """See Released.numbers."""
        return self.array


@dataclass(frozen=True)
class BitsRelease(Released):
    """Codes of bits: `array` is (N, b) bool."""

    kind = "bits"

    def numbers(self) -> np.ndarray:
        """The release as numbers: (N, b) float32, 1 and -1."""
        return 2 * self.array.astype(np.float32) - 1

    @property
    def bytes_per_image(self) -> int:
        """See Released.bytes_per_image."""
        return -(-int(self.array.shape[1]) // 8)

    def pack(self) -> list[bytes]:
        """The bytes of each image: its bits, eight a byte, the first the highest, and 0s at the end."""
        return [np.packbits(row).tobytes() for row in self.array]


def unpack_numbers(packets: Sequence[bytes], *, spec: str, dimension: int) -> FeatureRelease:
    """Reads the packets of `FeatureRelease.pack`. Raises DataError for other lengths."""
    check_packets(
        packets, 4 * dimension, f"is not a feature of {dimension} numbers, which has", "the dimension"
    )
    numbers = np.frombuffer(b"".join(packets), "<f4").astype(np.float32)
    return FeatureRelease(numbers.reshape(len(packets), dimension), spec)


def unpack_bits(packets: Sequence[bytes], *, spec: str, bits: int) -> BitsRelease:
    """Reads the packets of `BitsRelease.pack`. Raises DataError for other lengths or more bits."""
    length = -(-bits // 8)
    check_packets(packets, length, f"is not a code of {bits} bits, which has", "the number of bits")
    read = np.frombuffer(b"".join(packets), np.uint8).reshape(len(packets), length)
    flags = np.unpackbits(read, axis=1).astype(bool)
    if flags[:, bits:].any():
        raise DataError(f"a code of {bits} bits has bits beyond the last: damaged")
    return BitsRelease(flags[:, :bits].copy(), spec)


def check_packets(packets: Sequence[bytes], length: int, what: str, wanted: str) -> None:
    """Raises DataError unless all packets have one length; `what` and `wanted`: words for the error."""
    for packet in packets:
        if len(packet) != length:
            raise DataError(
                f"a packet of {len(packet)} bytes {what} {length}: pass {wanted} of the release, and whole "
                "packets"
            )


def clip_and_noise(features: "Tensor", noise: Noise, *, norm: float, variance: float) -> "Tensor":
    """Clips to an L2 norm, and adds Gaussian noise of variance s to each number. (N, d) -> (N, d) float32.

    Guarantees ρ-zCDP between any two features, with ρ = (2·norm)² / 2s (Canonne, Kamath & Steinke 2020,
    Theorem 4): a clipped feature is rounded towards 0 to multiples of 1/GRID, which increases no norm, and
    the noise is the discrete Gaussian on the same grid, exact in integers.

    Raises DataError for features that are not finite, which have no norm to clip.
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
    is the reference for `naming`. The number does not depend on how many pixels differ.
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
