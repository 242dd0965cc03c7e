"""Gaussian blur, of the whole image or of its centre."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageFilter
from torch import Tensor

from sfumato.dp.mechanisms import Noise
from sfumato.images import check_batch, map_batches
from sfumato.protect.block import SHARE, centre
from sfumato.protect.parameters import canonical, check_bounds
from sfumato.protect.release import Release


def blur(images: Tensor, *, radius: float) -> Tensor:
    """Gaussian blur exactly as Pillow's GaussianBlur(radius). (N, C, H, W) uint8 -> the same.

    Source: Parnami et al. 2022, Sec. III-B, Eq. (4), who run Pillow. Its filter is three box blurs that
    approximate a Gaussian of standard deviation `radius`, edges extended. Rows of all images and
    channels are blurred as ONE tall picture, then columns: the same bytes without a call an image.
    """

    def along_both(part: np.ndarray) -> np.ndarray:
        return _blur_rows(_blur_rows(part, radius), radius)

    return map_batches(along_both, images)


def _blur_rows(part: np.ndarray, radius: float) -> np.ndarray:
    """Blur along the last axis and swap the last two: (n, C, H, W) -> (n, C, W, H)."""
    picture = Image.fromarray(np.ascontiguousarray(part).reshape(-1, part.shape[-1]))
    rows = np.asarray(picture.filter(ImageFilter.GaussianBlur((radius, 0)))).reshape(part.shape)
    # A copy also of one column, of which a view would be of bytes that are read only.
    return rows.swapaxes(-1, -2).copy()


@dataclass(frozen=True)
class Blur:
    """Gaussian blur of standard deviation `radius`, in pixels; the paper uses 1 to 5."""

    radius: float

    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("blur", "radius", self.radius, "the paper uses 1 to 5")

    @property
    def spec(self) -> str:
        """See Protection.spec."""
        return canonical("blur", self)

    def release(self, images: Tensor, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        return Release(blur(images, radius=self.radius), self.spec, (images.shape[2], images.shape[3]))

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> None:
        """None: blur is deterministic, and a trained network undoes much of it."""
        return


@dataclass(frozen=True)
class CentreBlur:
    """Gaussian blur inside the centre square only, whose side is `share` of the image's."""

    radius: float
    share: float = 0.6

    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("centre-blur", "radius", self.radius, "the paper uses 1 to 5")
        check_bounds("centre-blur", "share", self.share, SHARE)

    @property
    def spec(self) -> str:
        """See Protection.spec."""
        return canonical("centre-blur", self)

    def release(self, images: Tensor, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        rows, columns = centre(images, self.share)
        released = images.clone()
        released[:, :, rows, columns] = blur(images, radius=self.radius)[:, :, rows, columns]
        return Release(released, self.spec, (images.shape[2], images.shape[3]))

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> None:
        """None: blur is deterministic, and all around the centre is shown."""
        return
