"""Gaussian blur, of the whole image or of its centre."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, Pixels, as_array, check_batch, map_batches
from sfumato.protect.block import SHARE, centre
from sfumato.protect.parameters import Parametrised, check_bounds
from sfumato.protect.recognition import Floats, first_image
from sfumato.protect.release import Release

_PASSED = 0.03  # the largest share of a pattern's amplitude that a blur passes, for patterns that are checked
_LARGE = 1 << 16  # pixels
_ROUNDING = 1.0  # in grey levels, of blurring in whole numbers


def blur(images: Pixels, *, radius: float) -> Pixels:
    """Blurs exactly as Pillow's GaussianBlur(radius). (N, C, H, W) uint8 -> the same.

    Source: Parnami et al. 2022, Sec. III-B, Eq. (4), who run Pillow. Its filter is three box blurs that
    approximate a Gaussian of standard deviation `radius`, with extended edges. The rows of all small images
    and their channels are blurred as ONE tall picture, then the columns: the same bytes without a call an
    image. For large images each plane is a call, for a copy with swapped axes costs more than that.
    """

    def along_both(part: np.ndarray) -> np.ndarray:
        if part.shape[2] * part.shape[3] >= _LARGE:
            planes = part.reshape(-1, *part.shape[2:])
            both = ImageFilter.GaussianBlur(radius)
            return np.stack([np.asarray(Image.fromarray(plane).filter(both)) for plane in planes]).reshape(
                part.shape
            )
        return _blur_rows(_blur_rows(part, radius), radius)

    return map_batches(along_both, images)


def _blur_rows(part: np.ndarray, radius: float) -> np.ndarray:
    """Blurs along the last axis and swaps the last two: (n, C, H, W) -> (n, C, W, H)."""
    picture = Image.fromarray(np.ascontiguousarray(part).reshape(-1, part.shape[-1]))
    rows = np.asarray(picture.filter(ImageFilter.GaussianBlur((radius, 0)))).reshape(part.shape)
    # Copy even a single column: its view would have read-only bytes.
    return rows.swapaxes(-1, -2).copy()


def may_be_blurred(values: NDArray[np.uint8], radius: float, *, cut_out: bool = False) -> bool:
    """Whether (C, H, W) values may come from a Gaussian blur; False means that they cannot.

    Source: ours. A blur of standard deviation r leaves exp(-2·π²·f²·r²) of the amplitude of a pattern of
    frequency f. We check the patterns of which it leaves less than PASSED: of those, an image of any contrast
    keeps a root mean square of at most PASSED·127.5 grey levels, plus ROUNDING. A blur below 0.85 pixels
    leaves more of all patterns: it is not checked.

    Patterns are those of the values mirrored at their edges. A blur that continued beyond the edges has
    slopes there, of at most 255 / (r·√2π) a pixel, which the mirror turns into kinks: see _kinks. Without an
    allowance for them, 2 of 200 photographs of 32x32 pixels were refused at centre-blur:radius=10
    (studies/guard.py).

    Args:
        values: of the blurred part.
        radius: r.
        cut_out: whether they were cut out of a larger image, all of which was blurred.
    """
    cut = math.sqrt(-math.log(_PASSED) / 2) / (math.pi * radius)
    if cut >= 0.5 or (cut_out and min(values.shape[1:]) < 2):
        return True
    height, width = values.shape[1:]
    spectrum = _cosines(height) @ values.astype(np.float64) @ _cosines(width).T  # (C, H, W)
    rows, columns = np.arange(height) / (2 * height) > cut, np.arange(width) / (2 * width) > cut
    fine = spectrum[:, rows[:, None] | columns]
    most = 127.5 * _PASSED + _ROUNDING
    if cut_out:
        floats = values.astype(np.float64)
        most += math.hypot(_kinks(floats, radius, cut), _kinks(floats.swapaxes(1, 2), radius, cut))
    return bool(math.sqrt((fine**2).sum() / values.size) <= most)


def _kinks(values: Floats, radius: float, cut: float) -> float:
    """The patterns finer than `cut` that mirroring adds at the ends of lines: their root mean square.

    A line of n pixels with the slope s at both ends has cosines of amplitude (2n·s/π²)·√2·2/k² at the
    frequencies k/2n: only odd k if the slopes are equal, and only even k if they are opposite.

    Args:
        values: (..., n), the lines. Their slopes count as far as a blur of that radius leaves any.
        radius, cut: see may_be_blurred.
    """
    size = values.shape[-1]
    most = 255 / (radius * math.sqrt(2 * math.pi))
    ends = np.abs(np.diff(values, axis=-1)[..., [0, -1]]) + _ROUNDING
    slope = math.sqrt((np.minimum(ends, most) ** 2).mean())
    waves = np.arange(1, 4 * size)
    power = np.where(waves / (2 * size) > cut, 1.0 / waves.astype(np.float64) ** 4, 0.0)
    return float(slope * size * math.sqrt(8 * max(power[::2].sum(), power[1::2].sum())) / math.pi**2)


@lru_cache(maxsize=16)
def _cosines(size: int) -> Floats:
    """The orthonormal DCT-II, (size, size): it continues an image beyond its edges about as a blur does."""
    middles, waves = np.arange(size) + 0.5, np.arange(size)[:, None]
    cosines: Floats = np.cos(np.pi * waves * middles / size) * math.sqrt(2 / size)
    cosines[0] /= math.sqrt(2)
    return cosines


@dataclass(frozen=True)
class Blur(Parametrised):
    """Gaussian blur of standard deviation `radius`, in pixels; the paper uses 1 to 5.

    Nothing is proved: it is deterministic, and a trained network undoes much of it.
    """

    radius: float

    name = "blur"
    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("blur", "radius", self.radius, "the paper uses 1 to 5")

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        blurry = blur(as_array(images), radius=self.radius)
        return Release(blurry, self.spec, (images.shape[2], images.shape[3]))

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """See Suspecting.suspicious."""
        sharp = (not may_be_blurred(image, self.radius) for image in release.array)
        return first_image(sharp, "is sharper than that leaves any")


@dataclass(frozen=True)
class CentreBlur(Parametrised):
    """Gaussian blur inside the centre square, whose side is `share` of the image's."""

    radius: float
    share: float = 0.6

    name = "centre-blur"
    cell = 1
    draws_noise = False

    def __post_init__(self) -> None:
        check_bounds("centre-blur", "radius", self.radius, "the paper uses 1 to 5")
        check_bounds("centre-blur", "share", self.share, SHARE)

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        rows, columns = centre(images.shape, self.share)
        released = as_array(images).copy()
        released[:, :, rows, columns] = blur(as_array(images), radius=self.radius)[:, :, rows, columns]
        return Release(released, self.spec, (images.shape[2], images.shape[3]))

    def suspicious(self, release: Release, *, false_alarm: float, made_of: str | None = None) -> str | None:
        """See Suspecting.suspicious."""
        rows, columns = centre(release.array.shape, self.share)
        inside = release.array[:, :, rows, columns]
        sharp = (not may_be_blurred(image, self.radius, cut_out=True) for image in inside)
        return first_image(sharp, "is sharper in its centre than that leaves any")
