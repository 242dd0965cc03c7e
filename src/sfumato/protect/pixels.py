"""Protections of pixels: none at all, a black block, blur, pixelization and Gaussian noise.

All take (N, C, H, W) uint8 images; the values of pixelized ones travel at cell resolution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, Pixels, as_array, check_batch, map_batches
from sfumato.protect.parameters import (
    cell_in_pixels,
    check_bounds,
    check_cell,
    check_pixels,
    check_size_of_cell,
)
from sfumato.protect.recognition import Law, lacks_noise
from sfumato.protect.release import Protection, Release

_SHARE = "it is the part of the side, up to 1"
_RADIUS = "the paper uses 1 to 5"
_LARGE = 1 << 16  # pixels


class OfPixels(Protection):
    """A protection of pixels, by what it makes of an array. No state."""

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        height, width = images.shape[2:]
        cell = cell_in_pixels(self, height, width)
        check_cell(self.name, cell, images)
        values = self.change(as_array(images), cell, noise)
        return Release(values, self.spec, (height, width), cell)

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """(N, C, H, W) uint8 -> (N, C, h, w) uint8: the values that leave, one for each cell."""
        raise NotImplementedError

    def law(self, shape: tuple[int, int, int]) -> Law | None:
        """The law of the noise on each value, or on the mean of a whole cell, of a (C, H, W) image."""
        return None

    def suspicious(self, release: Release, *, false_alarm: float) -> str | None:
        """See Protection.suspicious: a release may lack its noise."""
        law = self.law((release.array.shape[1], *release.size))
        return None if law is None else lacks_noise(release, law, false_alarm=false_alarm)


@dataclass(frozen=True)
class Clear(OfPixels):
    """The image as it is: the baseline of every study, never a default."""

    name, cell = "none", 1

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        return images


def centre(shape: Sequence[int], share: float) -> tuple[slice, slice]:
    """Rows and columns of the centre of images of shape (N, C, H, W): its sides are `share` of theirs."""
    hidden = [max(1, round(share * side)) for side in shape[2:]]
    starts = [(side - length) // 2 for side, length in zip(shape[2:], hidden, strict=True)]
    rows, columns = (slice(start, start + length) for start, length in zip(starts, hidden, strict=True))
    return rows, columns


@dataclass(frozen=True)
class Block(OfPixels):
    """Blackens the centre square, whose side is `share` of the image's.

    Source: the "Block" baseline of the mask paper (docs/papers.md, "Mask"), which blackens the centre of
    aligned faces and does not say how much; 0.6 of the side hides brows to chin there. Nothing is proved: it
    hides its pixels wholly and all others not at all.
    """

    share: float = 0.6

    name, cell = "block", 1

    def __post_init__(self) -> None:
        check_bounds("block", "share", self.share, _SHARE)

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        rows, columns = centre(images.shape, self.share)
        released = images.copy()
        released[:, :, rows, columns] = 0
        return released


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
            blurred = [np.asarray(Image.fromarray(plane).filter(both)) for plane in planes]
            return np.stack(blurred).reshape(part.shape)
        return _blur_rows(_blur_rows(part, radius), radius)

    return map_batches(along_both, images)


def _blur_rows(part: np.ndarray, radius: float) -> np.ndarray:
    """Blurs along the last axis and swaps the last two: (n, C, H, W) -> (n, C, W, H)."""
    picture = Image.fromarray(np.ascontiguousarray(part).reshape(-1, part.shape[-1]))
    rows = np.asarray(picture.filter(ImageFilter.GaussianBlur((radius, 0)))).reshape(part.shape)
    # Copy even a single column: its view would have read-only bytes.
    return rows.swapaxes(-1, -2).copy()


@dataclass(frozen=True)
class Blur(OfPixels):
    """Gaussian blur of standard deviation `radius`, in pixels; the paper uses 1 to 5.

    Nothing is proved: it is deterministic, and a trained network undoes much of it.
    """

    radius: float

    name, cell = "blur", 1

    def __post_init__(self) -> None:
        check_bounds("blur", "radius", self.radius, _RADIUS)

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        return blur(images, radius=self.radius)


@dataclass(frozen=True)
class CentreBlur(OfPixels):
    """Gaussian blur inside the centre square, whose side is `share` of the image's."""

    radius: float
    share: float = 0.6

    name, cell = "centre-blur", 1

    def __post_init__(self) -> None:
        check_bounds("centre-blur", "radius", self.radius, _RADIUS)
        check_bounds("centre-blur", "share", self.share, _SHARE)

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        rows, columns = centre(images.shape, self.share)
        released = images.copy()
        released[:, :, rows, columns] = blur(images, radius=self.radius)[:, :, rows, columns]
        return released


def cell_sums(images: np.ndarray, *, cell: int) -> np.ndarray:
    """Sums over square cells of b x b pixels. (N, C, H, W) uint8 -> (N, C, h, w) int32 or int64.

    h = ceil(H / b), w = ceil(W / b): the cells of the last row and column may be smaller.
    """
    # Strided adds of whole rows, then of columns: 4 to 7 times faster than a reduction over a view.
    row_type = np.uint16 if cell <= 257 else np.uint32  # 257 * 255 = 65,535
    rows = _add_strides(images, cell, axis=2, dtype=row_type)
    return _add_strides(rows, cell, axis=3, dtype=np.int32 if cell <= 2901 else np.int64)


def cell_areas(height: int, width: int, cell: int) -> NDArray[np.int64]:
    """The number of pixels in each cell of a grid: (h, w) int64, less than b * b only at the border."""
    return np.outer(_lengths(height, cell), _lengths(width, cell))


def cell_means(sums: np.ndarray, areas: np.ndarray) -> np.ndarray:
    """Sums of cells -> their uint8 means, halves rounded up, clamped. (N, C, h, w), (h, w) -> (N, C, h, w).

    The same on every machine: for sums from 0 to 255 * area, the quotient (2 sum + area) / (2 area) is an
    integer or at least 1 / (2 area) below the next one, more than the error of rounding, in float32 as
    long as the area is below 2^14.
    """
    kind = np.float32 if areas.max() < 1 << 14 else np.float64
    doubled = np.clip(sums, 0, 255 * areas).astype(kind)
    doubled *= 2
    doubled += areas.astype(kind)
    doubled /= (2 * areas).astype(kind)
    means: np.ndarray = doubled.astype(np.uint8)  # towards zero
    return means


def spread(pixels: int, areas: NDArray[np.int64], *, largest_first: bool) -> NDArray[np.int64]:
    """The number of `pixels` in each cell, filling one cell after another. (h, w) -> (h * w,) int64.

    Filling the largest cells first maximises the sum of squares, filling the smallest first the sum of
    shares: the worst neighbours of an image. More pixels than there are fill all.
    """
    ordered = np.sort(areas, axis=None)
    if largest_first:
        ordered = ordered[::-1]
    return np.clip(pixels - ordered.cumsum() + ordered, 0, ordered)


def _lengths(side: int, cell: int) -> NDArray[np.int64]:
    """(ceil(side / cell),) the number of pixels of each cell along one side."""
    return np.minimum(side - np.arange(0, side, cell), cell)


def _add_strides(array: np.ndarray, step: int, *, axis: int, dtype: type) -> np.ndarray:
    """Adds up every `step` neighbours along `axis`; the remainder makes a last, smaller sum."""
    moved = array.swapaxes(axis, -1)  # a view: the result has the layout of the input
    total: np.ndarray = moved[..., 0::step].astype(dtype, order="K")
    for offset in range(1, step):
        part = moved[..., offset::step]
        total[..., : part.shape[-1]] += part
    summed: np.ndarray = total.swapaxes(axis, -1)
    return summed


@dataclass(frozen=True)
class Pixelize(OfPixels):
    """Square cells of `cell` x `cell` pixels, each shown as its mean.

    Source: Parnami et al. 2022, Sec. III-B; cells of 2, 4, 6, 8 and 10. Their average pooling drops the
    border that does not fill a cell; here it makes smaller cells. `cell`: in pixels, or a share of the
    shorter side of the image, see `cell_in_pixels`.
    """

    cell: int | Fraction

    name = "pixelize"

    def __post_init__(self) -> None:
        check_size_of_cell("pixelize", self.cell)

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        areas = cell_areas(images.shape[2], images.shape[3], cell)
        return map_batches(lambda part: cell_means(cell_sums(part, cell=cell), areas), images)


@dataclass(frozen=True)
class Gaussian(OfPixels):
    """Gaussian noise of standard deviation `sigma`, in grey levels, then clamped and rounded.

    Source: Parnami et al. 2022, Sec. III-A; sigma of 40 to 200. The noise is rounded before it is added;
    for integer pixels that gives the same distribution as rounding after.
    """

    sigma: float

    name, cell = "gaussian", 1
    draws_noise = True

    def __post_init__(self) -> None:
        check_bounds("gaussian", "sigma", self.sigma, "the paper uses 40 to 200")

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        # Beyond 255 the sum is clamped for any pixel.
        drawn = noise.rounded_gaussian(images.shape, sigma=self.sigma, bound=255)
        drawn += images
        return np.clip(drawn, 0, 255, out=drawn).astype(np.uint8)

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee:
        """mu-GDP with mu = sensitivity / sigma (Dong, Roth & Su 2022, Theorem 2.7).

        m pixels move m C values by at most 255 each, an L2 sensitivity of 255 sqrt(m C); clamping and
        rounding are post-processing.
        """
        channels, height, width = shape
        pixels = check_pixels("gaussian", 1 if pixels is None else pixels)
        one_pixel = 255 * math.sqrt(channels) / self.sigma
        return Guarantee(
            definition="gaussian",
            value=one_pixel * math.sqrt(min(pixels, height * width)),
            pixels=pixels,
            whole_image=one_pixel * math.sqrt(height * width),
            source="Gaussian mechanism: Dong, Roth & Su 2022, Thm. 2.7",
        )

    def law(self, shape: tuple[int, int, int]) -> Law:
        """The noise on each value of a (C, H, W) image of any shape."""
        return Law("normal", self.sigma)
