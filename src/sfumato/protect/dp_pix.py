"""DP-Pix: pixelization with noise, differentially private between images that differ in m pixels."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from sfumato.dp.guarantee import Definition, Guarantee
from sfumato.dp.mechanisms import MAX_SCALE, Noise
from sfumato.errors import SpecError
from sfumato.images import Pixels, map_batches
from sfumato.protect.parameters import (
    LEAST_DIFFERENCE,
    cell_in_pixels,
    check_bounds,
    check_pixels,
    check_single_pixels,
    check_size_of_cell,
)
from sfumato.protect.pixels import OfPixels, cell_areas, cell_means, cell_sums, spread
from sfumato.protect.recognition import Law

_MOST_CHANNELS = 3


class _OnSums(OfPixels):
    """Noise on the sums of cells, which are then divided; what follows the noise is post-processing.

    Attributes:
        cell: b, the side of a cell in pixels; the paper uses 2 to 10. Or a share of the shorter side of the
            image, see `cell_in_pixels`: the noise and the guarantee are then those of its cells in pixels.
        pixels: m, how many pixels may differ between neighbours, each in all channels.
    """

    cell: int | Fraction
    pixels: int

    definition: ClassVar[Definition]
    source: ClassVar[str]
    draws_noise = True

    def change(self, images: Pixels, cell: int, noise: Noise) -> Pixels:
        """See OfPixels.change."""
        areas = cell_areas(images.shape[2], images.shape[3], cell)
        drawn = self._draw((*images.shape[:2], *areas.shape), areas, cell, noise)

        def noisy_means(part: np.ndarray, noise_of_part: np.ndarray) -> np.ndarray:
            return cell_means(noise_of_part + cell_sums(part, cell=cell), areas)

        return map_batches(noisy_means, images, drawn)

    def guarantee(self, shape: tuple[int, int, int], pixels: int | None = None) -> Guarantee:
        """See Protection.guarantee; the proof is in the class."""
        channels, height, width = shape
        pixels = check_pixels(self.name, self.pixels if pixels is None else pixels)
        cell = cell_in_pixels(self, height, width)
        areas = cell_areas(height, width, cell)
        return Guarantee(
            definition=self.definition,
            value=self._cost(min(pixels, height * width), channels, areas, cell),
            pixels=pixels,
            whole_image=self._cost(height * width, channels, areas, cell),
            source=self.source,
        )

    def _draw(
        self, shape: tuple[int, ...], areas: NDArray[np.int64], cell: int, noise: Noise
    ) -> NDArray[np.int64]:
        """Whole numbers for all sums, (N, C, h, w)."""
        raise NotImplementedError

    def _cost(self, pixels: int, channels: int, areas: NDArray[np.int64], cell: int) -> float:
        """The number of the definition for images that differ in so many pixels."""
        raise NotImplementedError


@dataclass(frozen=True)
class DPPix(_OnSums):
    """DP-Pix of Fan (2018), as used by Parnami et al. 2022, Sec. III-C, Eq. (5).

    The paper adds Laplace(255 m / (b^2 eps)) to cell MEANS of grey images. That is too little noise for the
    smaller cells at a border, and eps for each channel of a colour image. Here integers are added
    to cell SUMS, whose joint L1 sensitivity is 255 m C for cells of any size.

    Pure epsilon-DP by the discrete Laplace mechanism: k pixels move the sums by 255 k C in L1 norm, and cost
    k / m times epsilon. The published scale is proportional to the area of a cell: a pixel in a cell of n
    pixels costs C b^2 / (n m) of it, so the worst neighbours differ in the smallest cells.

    Attributes:
        cell, pixels: see _OnSums; the paper has m = 1.
        epsilon: > 0, spent by one release of one image.
        variant: "sound" is epsilon-DP. "published" has the paper's scale, with the same exact noise, and
            states the larger epsilon that this scale really gives.
    """

    cell: int | Fraction
    epsilon: float
    pixels: int = 1
    variant: str = "sound"

    name = "dp-pix"
    definition = "pure"
    source = "Laplace mechanism on integer cell sums: Ghosh, Roughgarden & Sundararajan 2009"

    def __post_init__(self) -> None:
        check_size_of_cell("dp-pix", self.cell)
        check_bounds("dp-pix", "epsilon", self.epsilon, "smaller hides more; the paper uses 3")
        check_bounds("dp-pix", "pixels", self.pixels, "the paper uses 1")
        if self.variant not in ("sound", "published"):
            raise SpecError(f"dp-pix: variant={self.variant} is unknown: choose sound or published")
        # A discrete Laplace variable of scale s has a standard deviation slightly below s·√2.
        most = 255 * self.pixels * math.sqrt(2) / LEAST_DIFFERENCE
        check_single_pixels("dp-pix", self.cell, "epsilon", self.epsilon, most)
        if 255 * self.pixels * _MOST_CHANNELS / _exact(self.epsilon) > MAX_SCALE:
            raise _beyond(self, "epsilon")

    def _draw(
        self, shape: tuple[int, ...], areas: NDArray[np.int64], cell: int, noise: Noise
    ) -> NDArray[np.int64]:
        scale = 255 * self.pixels / _exact(self.epsilon)
        if self.variant == "sound":
            return noise.laplace(shape, scale=scale * shape[1])
        drawn = np.empty(shape, np.int64)
        for area in np.unique(areas).tolist():
            rows, columns = (areas == area).nonzero()
            part = noise.laplace((*shape[:2], len(rows)), scale=scale * area / cell**2)
            drawn[:, :, rows, columns] = part
        return drawn

    def _cost(self, pixels: int, channels: int, areas: NDArray[np.int64], cell: int) -> float:
        if self.variant == "sound":
            return self.epsilon * (pixels / self.pixels)
        smallest = spread(pixels, areas, largest_first=False)
        shares = float((smallest / np.sort(areas, axis=None)).sum())
        return self.epsilon * channels * cell**2 / self.pixels * shares

    def law(self, shape: tuple[int, int, int]) -> Law:
        """See OfPixels.law."""
        area = cell_in_pixels(self, *shape[1:]) ** 2
        channels = shape[0] if self.variant == "sound" else 1
        return Law("laplace", 255 * self.pixels * channels / (self.epsilon * area), area)


@dataclass(frozen=True)
class DPPixGaussian(_OnSums):
    """DP-Pix with discrete Gaussian noise: less than Laplace noise if m pixels are several cells.

    Not in the paper. The L2 norm of the change of all cell sums together counts: 255 m sqrt(C) as
    long as m pixels fit one cell, growing like the root of m from there on. The L1 norm stays 255 m C.

    rho-zCDP by the discrete Gaussian mechanism: k_c pixels in cell c move its C sums by at most 255 k_c each:
    the squared L2 sensitivity is 255^2 C times the largest sum of k_c^2, which has full cells.

    Attributes:
        cell, pixels: see _OnSums.
        rho: > 0, of zero-concentrated differential privacy, spent by one release of one image.
    """

    cell: int | Fraction
    rho: float
    pixels: int = 1

    name = "dp-pix-gaussian"
    definition = "concentrated"
    source = "discrete Gaussian mechanism on integer cell sums: Canonne, Kamath & Steinke 2020, Thm. 4"

    def __post_init__(self) -> None:
        check_size_of_cell("dp-pix-gaussian", self.cell)
        check_bounds("dp-pix-gaussian", "rho", self.rho, "smaller hides more; 0.5 is like mu = 1")
        check_bounds("dp-pix-gaussian", "pixels", self.pixels, "1 or more")
        squares = self.pixels**2  # at most, for any image
        if isinstance(self.cell, int):
            squares = self.pixels * min(self.pixels, self.cell**2)
        self._check_single_pixels(squares, self.cell)
        if self._variance(squares, _MOST_CHANNELS) > MAX_SCALE**2:
            raise _beyond(self, "rho")

    def _draw(
        self, shape: tuple[int, ...], areas: NDArray[np.int64], cell: int, noise: Noise
    ) -> NDArray[np.int64]:
        squares = _squares(self.pixels, areas)
        self._check_single_pixels(squares, cell)  # now for these images, which may have fewer pixels
        return noise.discrete_gaussian(shape, variance=self._variance(squares, shape[1]))

    def _cost(self, pixels: int, channels: int, areas: NDArray[np.int64], cell: int) -> float:
        return float(_exact(self.rho) / _squares(self.pixels, areas) * _squares(pixels, areas))

    def law(self, shape: tuple[int, int, int]) -> Law:
        """See OfPixels.law."""
        channels, height, width = shape
        cell = cell_in_pixels(self, height, width)
        area = cell**2
        squares = _squares(self.pixels, cell_areas(height, width, cell))
        return Law("normal", 255 * math.sqrt(squares * channels / (2 * self.rho)) / area, area)

    def _variance(self, squares: int, channels: int) -> Fraction:
        return squares * 255**2 * channels / (2 * _exact(self.rho))

    def _check_single_pixels(self, squares: int, cell: int | Fraction) -> None:
        most = squares * 255**2 / (2 * LEAST_DIFFERENCE**2)
        check_single_pixels("dp-pix-gaussian", cell, "rho", self.rho, most)


def _beyond(protection: _OnSums, key: str) -> SpecError:
    return SpecError(
        f"{protection.name}: pixels={protection.pixels} with {key}={getattr(protection, key):g} needs noise "
        f"beyond 64 bits: choose fewer pixels, or a larger {key}"
    )


def _squares(pixels: int, areas: NDArray[np.int64]) -> int:
    """The largest sum over cells of the squared number of `pixels` in each."""
    everything = int(areas.sum())
    return int((spread(min(pixels, everything), areas, largest_first=True) ** 2).sum())


def _exact(value: float) -> Fraction:
    """The decimal that the user wrote: the proof is about that number."""
    return Fraction(str(value))
