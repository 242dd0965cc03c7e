"""Additive Gaussian noise on every value."""

import math
from dataclasses import dataclass

import numpy as np

from sfumato.dp.guarantee import Guarantee
from sfumato.dp.mechanisms import Noise
from sfumato.images import Images, as_array, check_batch
from sfumato.protect.parameters import Parametrised, check_bounds, check_pixels
from sfumato.protect.recognition import Law
from sfumato.protect.release import Release


@dataclass(frozen=True)
class Gaussian(Parametrised):
    """Gaussian noise of standard deviation `sigma`, in grey levels, then clamped and rounded.

    Source: Parnami et al. 2022, Sec. III-A; sigma of 40 to 200. The noise is rounded before it is added;
    for integer pixels that gives the same distribution as rounding after.
    """

    sigma: float

    name = "gaussian"
    cell = 1
    draws_noise = True

    def __post_init__(self) -> None:
        check_bounds("gaussian", "sigma", self.sigma, "the paper uses 40 to 200")

    def release(self, images: Images, noise: Noise) -> Release:
        """See Protection.release."""
        check_batch(images)
        # Beyond 255 the sum is clamped for any pixel.
        drawn = noise.rounded_gaussian(tuple(images.shape), sigma=self.sigma, bound=255)
        drawn += as_array(images)
        released = np.clip(drawn, 0, 255, out=drawn).astype(np.uint8)
        return Release(released, self.spec, (images.shape[2], images.shape[3]))

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
