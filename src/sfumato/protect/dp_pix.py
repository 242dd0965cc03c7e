"""DP-Pix: pixelization with Laplace noise, differentially private between images that differ in m pixels."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.errors import SpecError
from sfumato.images import map_batches
from sfumato.protect.parameters import canonical, check_above_zero, check_cell
from sfumato.protect.pixelize import cell_areas, cell_means, cell_sums
from sfumato.protect.release import Release


@dataclass(frozen=True)
class DPPix:
    """DP-Pix of Fan (2018), as used by Parnami et al. 2022, Sec. III-C, Eq. (5).

    The paper adds Laplace(255 m / (b^2 eps)) to cell MEANS of grey images. On the smaller cells at a
    border that is too little noise, and for colour it is eps for each channel. Here integers are added
    to cell SUMS, whose joint L1 sensitivity is 255 m C whatever the sizes of the cells.

    Attributes:
        cell: b, the side of a cell in pixels; the paper uses 2 to 10.
        epsilon: > 0, spent by one release of one image.
        pixels: m, how many pixels may differ between neighbours, each in all channels.
        variant: "sound" is epsilon-DP. "published" has the paper's scale, with the same exact noise, and
            states the larger epsilon that this scale really gives.
    """

    cell: int
    epsilon: float
    pixels: int = 1
    variant: str = "sound"

    def __post_init__(self) -> None:
        check_above_zero("dp-pix", "cell", self.cell, "the paper uses 2 to 10")
        check_above_zero("dp-pix", "epsilon", self.epsilon, "smaller hides more; the paper uses 3")
        check_above_zero("dp-pix", "pixels", self.pixels, "the paper uses 1")
        if self.variant not in ("sound", "published"):
            raise SpecError(f"dp-pix: variant={self.variant} is unknown: choose sound or published")

    @property
    def spec(self) -> str:
        """See Protection.spec."""
        return canonical("dp-pix", self)

    def release(self, images: Tensor, noise: Noise) -> Release:
        """See Protection.release. The values travel at cell resolution."""
        check_cell("dp-pix", self.cell, images)
        channels, height, width = images.shape[1:]
        areas = cell_areas(height, width, self.cell)
        drawn = self._noise((len(images), channels, *areas.shape), areas, noise)

        def noisy_means(part: np.ndarray, noise_of_part: np.ndarray) -> np.ndarray:
            return cell_means(noise_of_part + cell_sums(part, cell=self.cell), areas.numpy())

        values = map_batches(noisy_means, images, drawn)
        return Release(values, self.spec, (height, width), self.cell)

    def _noise(self, shape: tuple[int, ...], areas: Tensor, noise: Noise) -> Tensor:
        # Fraction(str()) is the decimal that the user wrote; the proof is about that number.
        scale = 255 * self.pixels / Fraction(str(self.epsilon))
        if self.variant == "sound":
            return noise.laplace(shape, scale=scale * shape[1])
        drawn = torch.empty(shape, dtype=torch.int64)
        for area in areas.unique().tolist():
            rows, columns = (areas == area).nonzero(as_tuple=True)
            part = noise.laplace((*shape[:2], len(rows)), scale=scale * area / self.cell**2)
            drawn[:, :, rows, columns] = part
        return drawn

    def guarantee(self, shape: tuple[int, int, int]) -> Guarantee:
        """Pure epsilon-DP by the discrete Laplace mechanism on cell sums; the rest is post-processing.

        m pixels move the sums by 255 m C in L1 norm, all H W of them by 255 H W C. The published scale is
        proportional to the area of a cell: m pixels in the smallest cell, n pixels large, cost
        C b^2 / n times the stated epsilon, and each of the cells costs at most C b^2 / m of it.
        """
        channels, height, width = shape
        value, whole = self.epsilon, self.epsilon * height * width / self.pixels
        if self.variant == "published":
            areas = cell_areas(height, width, self.cell)
            value = self.epsilon * channels * self.cell**2 / int(areas.min())
            whole = self.epsilon * channels * self.cell**2 * areas.numel() / self.pixels
        return Guarantee(
            definition="pure",
            value=value,
            pixels=self.pixels,
            whole_image=max(whole, value),
            source="Laplace mechanism on integer cell sums: Ghosh, Roughgarden & Sundararajan 2009",
        )
