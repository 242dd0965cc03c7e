"""What leaves a device, and what every protection offers."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise


@dataclass(frozen=True)
class Release:
    """Protected images as they leave a device.

    Attributes:
        values: (N, C, h, w) uint8. Pixelized images travel as one value a cell, which is all that they
            hold; otherwise h and w are those of the images.
        spec: the protection that made them.
        size: (H, W) of the original images.
        cell: side of the square of pixels that each value stands for; 1 where there are no cells.
    """

    values: Tensor
    spec: str
    size: tuple[int, int]
    cell: int = 1

    def images(self) -> Tensor:
        """What the receiver sees: (N, C, H, W) uint8, every cell enlarged to its pixels."""
        return enlarge(self.values, cell=self.cell, size=self.size)

    @property
    def bytes_per_image(self) -> int:
        """How many bytes of values travel for one image, before any compression."""
        return self.values[0].numel()


class Protection(Protocol):
    """A way to protect images on the device. Implementations are frozen dataclasses of its parameters."""

    @property
    def cell(self) -> int:
        """The side of the square of pixels that a released value stands for; 1 where there are no cells."""

    @property
    def draws_noise(self) -> bool:
        """Whether two releases of one image differ: then the first is kept, and never drawn again."""

    @property
    def spec(self) -> str:
        """The canonical string, such as "dp-pix:cell=4,epsilon=3"; parse(spec) gives this protection."""

    def release(self, images: Tensor, noise: Noise) -> Release:
        """Protect (N, C, H, W) uint8 images, with fresh noise for every image in the batch.

        Args:
            images: the originals.
            noise: `fresh_noise()` when the result leaves the device; a seeded one only for copies that
                stay, as in training and studies.

        Raises:
            SpecError: a parameter does not fit images of this size.
        """

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee | None:
        """What a release of a (C, H, W) image is proved to hide; None when nothing is proved.

        Args:
            shape: of the image.
            pixels: how many pixels may differ between neighbours, from 1 up; None for the number that the
                spec names, or 1.
        """


def enlarge(values: Tensor, *, cell: int, size: tuple[int, int]) -> Tensor:
    """Repeat every cell over its pixels: (N, C, h, w) -> (N, C, H, W). Border cells are cut to the image."""
    if cell == 1:
        return values
    # Not by indices, in torch: 40 times slower.
    wide = values.numpy().repeat(cell, axis=3)[..., : size[1]]
    return torch.from_numpy(wide.repeat(cell, axis=2)[:, :, : size[0]])
