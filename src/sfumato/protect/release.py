"""Releases, and the protocol of every protection."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.errors import DataError
from sfumato.images import Images, Pixels, as_array, as_tensor

if TYPE_CHECKING:
    from torch import Tensor

# The kinds of releases: values of pixels; the pixels that a mask would show; the numbers of a feature; the
# bits of a code; and the name of a class.
KINDS = ("pixels", "shape", "numbers", "bits", "answer")
IMAGES = ("pixels", "shape")  # those that people can look at


@dataclass(frozen=True)
class Release:
    """Protected images that leave a device.

    Attributes:
        array: (N, C, h, w) uint8, the values. Pixelized images travel as one value a cell, all that
            they hold; otherwise h and w are those of the images. A tensor becomes the array of its memory.
        spec: the protection that made them.
        size: (H, W) of the original images.
        cell: side of the square of pixels for each value; 1 without cells.
        shown: (N, 1, H, W) bool, the shown pixels, as many in each image: `values` are 0 elsewhere.
            None if all are shown.
    """

    array: Pixels
    spec: str
    size: tuple[int, int]
    cell: int = 1
    shown: "Tensor | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "array", as_array(self.array))

    @property
    def values(self) -> "Tensor":
        """The values as a tensor, in the same memory."""
        return as_tensor(self.array)

    def images(self) -> "Tensor":
        """The images that a receiver sees: (N, C, H, W) uint8, cells enlarged, hidden pixels 0."""
        return as_tensor(self.pictures())

    def pictures(self) -> Pixels:
        """See `images`; the same as an array."""
        return _enlarge(self.array, cell=self.cell, size=self.size)

    def shapes(self) -> "Tensor":
        """The shapes of masks alone: (N, C, H, W) uint8, 255 for shown pixels and 0 for hidden ones.

        Raises:
            DataError: all pixels are shown: there is no shape.
        """
        if self.shown is None:
            raise DataError(f"{self.spec} shows all pixels: its releases have no shape; use a mask")
        return self.shown.expand(-1, self.array.shape[1], -1, -1).byte() * 255

    def vectors(self) -> "Tensor":
        """The release as numbers: (N, C·h·w) float32, values from 0 to 1, and hidden ones 0.

        With a mask, each pixel has one more number: whether it is shown.
        """
        import torch

        values = self.values.flatten(1).float() / 255
        return values if self.shown is None else torch.cat([values, self.shown.flatten(1).float()], 1)

    def rows(self, rows: list[int]) -> "Release":
        """The release of some of the images."""
        shown = None if self.shown is None else self.shown[rows]
        return replace(self, array=self.array[rows], shown=shown)

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image, before any compression; see pack. Raises DataError for a mask of no image."""
        if self.shown is None:
            return int(np.prod(self.array.shape[1:]))
        if not len(self.shown):
            raise DataError(f"{self.spec}: a release of no image does not say how many pixels a mask shows")
        bits = self.shown[0].numel()
        return -(-bits // 8) + int(self.shown[0].sum()) * int(self.array.shape[1])

    def pack(self) -> list[bytes]:
        """The bytes of each image: its values; with a mask, the mask's bits and the shown values.

        Bits are row by row, eight a byte, the first the highest, 1 for a shown pixel. The values of
        the shown pixels follow, channel by channel. Hidden pixels have no bytes.
        """
        if self.shown is None:
            return [values.tobytes() for values in self.array]
        return [
            np.packbits(shown).tobytes() + values[:, shown[0]].tobytes()
            for values, shown in zip(self.array, self.shown.numpy(), strict=True)
        ]


def unpack(packets: Sequence[bytes], *, spec: str, shape: tuple[int, int, int]) -> Release:
    """Reads the packets of `Release.pack`, of masked images of (C, H, W).

    Raises:
        DataError: a packet is not as long as its mask says.
    """
    import torch

    channels, height, width = shape
    values = np.zeros((len(packets), *shape), np.uint8)
    shown = np.zeros((len(packets), 1, height, width), bool)
    head = -(-height * width // 8)
    for i, packet in enumerate(packets):
        flags = np.unpackbits(np.frombuffer(packet, np.uint8, min(head, len(packet))))[: height * width]
        if len(packet) != head + channels * int(flags.sum()):
            raise DataError(
                f"a packet of {len(packet)} bytes does not hold a masked {channels}x{height}x{width} image: "
                "pass the shape that was released, and whole packets"
            )
        shown[i, 0] = flags.reshape(height, width)
        revealed = np.frombuffer(packet, np.uint8, offset=head).reshape(channels, -1)
        values[i][:, shown[i, 0]] = revealed
    return Release(values, spec, (height, width), shown=torch.from_numpy(shown))


class Protection(Protocol):
    """A way to protect images on the device. Implementations are frozen dataclasses of its parameters."""

    @property
    def cell(self) -> int | Fraction:
        """The side of the square of pixels for each released value; 1 without cells.

        A fraction is of the shorter side of the image: see parameters.cell_in_pixels.
        """

    @property
    def draws_noise(self) -> bool:
        """Whether two releases of one image differ: then the first is kept, and noise never drawn again."""

    @property
    def spec(self) -> str:
        """The canonical string, such as "dp-pix:cell=4,epsilon=3"; parse(spec) gives this protection."""

    def release(self, images: Images, noise: Noise) -> Release:
        """Protects (N, C, H, W) uint8 images, with fresh noise for every image in the batch.

        Args:
            images: the originals, a tensor or an array.
            noise: `fresh_noise()` when the result leaves the device; a seeded one only for copies that
                stay, as in training and studies.

        Raises:
            SpecError: a parameter does not fit images of this size.
        """

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """What a release of a (C, H, W) image provably hides; None if nothing is proved.

        Args:
            shape: of the image.
            pixels: how many pixels may differ between neighbours, from 1 up; None for the number that the
                spec names, or 1.
        """

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """Why a release cannot come from this protection, in words, or None if it can.

        A guard against mistakes, not against people: anybody can add the missing sign to a clear image.

        Args:
            release: of any images, with the cell of this protection, and masked if its releases are.
            false_alarm: the largest chance that an image is suspected for its noise, whatever
                it shows. Without noise, no true release is suspected.
            made_of: the digest of the artefact that made it; another artefact here says nothing about it.
                None if it is not known.
        """


@runtime_checkable
class Trained(Protocol):
    """A protection whose spec names a file, but not its content."""

    def digest(self) -> str:
        """The digest of that file. Raises ArtefactError if it cannot be read."""


@runtime_checkable
class Encoding(Protocol):
    """A protection that releases in two steps: numbers of an image, always the same, and noise."""

    def encode(self, images: Images) -> "Tensor":
        """(N, C, H, W) uint8 images -> (N, d), as `Protection.release` does, and with its errors."""

    def release_of(self, numbers: "Tensor", noise: Noise) -> Any:
        """Releases (N, d) numbers: `release(images, noise)` is `release_of(encode(images), noise)`."""


def kind_of(protection: Any) -> str:
    """The kind of a protection's releases, of KINDS."""
    kind: str = getattr(protection, "kind", "pixels")
    return kind


def file_digest_of(protection: Any) -> str | None:
    """The digest of the trained artefact of a protection; None for most.

    Keep it with any result that is kept under a spec: the artefact may be trained again at the same path.
    """
    return protection.digest() if isinstance(protection, Trained) else None


def artefact_of(protection: Any) -> str | None:
    """The part of `file_digest_of` that travels: the digest of an artefact, which others have too; else None.

    A table of boxes or an index belongs to the device: a digest would let others check guesses of its
    content.
    """
    return file_digest_of(protection) if hasattr(protection, "artefact") else None


def enlarge(values: "Tensor", *, cell: int, size: tuple[int, int]) -> "Tensor":
    """Repeats every cell over its pixels: (N, C, h, w) -> (N, C, H, W). Border cells are cut to the image."""
    return values if cell == 1 else as_tensor(_enlarge(values.numpy(), cell=cell, size=size))


def _enlarge(values: Pixels, *, cell: int, size: tuple[int, int]) -> Pixels:
    # Not by indices, in torch: 40 times slower.
    if cell == 1:
        return values
    wide = values.repeat(cell, axis=3)[..., : size[1]]
    return wide.repeat(cell, axis=2)[:, :, : size[0]]
