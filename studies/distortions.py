"""The distortions of photographs that people were shown, each with a strength.

Source: Geirhos et al. 2018, "Generalisation in humans and deep neural networks", NeurIPS, Sec. 2 and
appendix, and the code published with it, which decides if the paper is silent or the two differ.

All take (N, C, H, W) floats in [0, 1], C of 1 or 3, and return (N, 1, H, W), grey. Lengths are in pixels of a
photograph 224 wide, and scaled to others. Omitted: eidolons, which need their own library; false colours,
which need the measured curve of the experiment's monitor; and JPEG, the format of some photographs.
"""

import math

import torch
from torch import Tensor, fft

from sfumato.assess.people import CONTRAST, SIDE
from sfumato.errors import ConfigError

_LUMA = (0.2125, 0.7154, 0.0721)  # of scikit-image, which the experiment used
_MEAN = 0.4423  # grey level of the experiment's photographs, which pads them for filtering
_CUT = 4  # cut-off of the Gaussian filter, in standard deviations


def grey(images: Tensor) -> Tensor:
    """Remove the colour of photographs, as in the experiment `colour`, condition `bw`."""
    if not images.is_floating_point() or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ConfigError(
            f"distortions take (N, C, H, W) floats in [0, 1] with 1 or 3 channels, got {tuple(images.shape)} "
            f"{images.dtype}: use images.to_float"
        )
    if images.shape[1] == 1:
        return images
    weights = torch.tensor(_LUMA, dtype=images.dtype, device=images.device)
    return torch.einsum("nchw,c->nhw", images, weights)[:, None]


def contrast(images: Tensor, *, level: float) -> Tensor:
    """Reduce the contrast towards middle grey: (1 - level) / 2 + level * grey, with a level from 0 to 1."""
    if not 0 <= level <= 1:
        raise ConfigError(f"level={level:g}: a contrast is from 0 (uniform grey) to 1 (unchanged)")
    return (1 - level) / 2 + level * grey(images)


def uniform_noise(images: Tensor, generator: torch.Generator, *, width: float) -> Tensor:
    """Add noise from [-width, width) to each pixel at a contrast of 30%, clamped to [0, 1]."""
    if not width >= 0:
        raise ConfigError(f"width={width:g}: half the range of the noise is at least 0")
    faint = contrast(images, level=CONTRAST)
    return (faint + width * _uniform(faint.shape, generator).to(faint)).clamp(0, 1)


def low_pass(images: Tensor, *, deviation: float) -> Tensor:
    """Apply a Gaussian filter, cut off at four standard deviations, padded with mean grey."""
    return _smooth(grey(images), deviation).clamp(0, 1)


def high_pass(images: Tensor, *, deviation: float) -> Tensor:
    """Keep what a low pass removes, shifted to the mean grey of all photographs and clamped to [0, 1].

    An infinite deviation, the experiment's `inf`, leaves the image unchanged.
    """
    clear = grey(images)
    if deviation == math.inf:
        return clear
    rest = clear - _smooth(clear, deviation)
    return (rest - rest.mean((2, 3), keepdim=True) + _MEAN).clamp(0, 1)


def phase_noise(images: Tensor, generator: torch.Generator, *, width: float) -> Tensor:
    """Shift each phase of the Fourier transform by an angle from [-width, width) degrees.

    The mean is kept, and for even sizes the highest frequency of each axis. The paper mentions phases only;
    its code draws the angles a of a frequency and b of its conjugate separately and keeps the real part, so
    that the amplitude shrinks to |cos((a + b) / 2)| of it, at 180 degrees to half of the power on average.
    People saw the output of that code, so this does the same. Sums are clamped to [0, 1].
    """
    if not 0 <= width <= 180:
        raise ConfigError(f"width={width:g}: a phase moves by 0 to 180 degrees")
    clear = grey(images)
    angles = math.radians(width) * _uniform(clear.shape, generator).to(clear)
    angles[:, :, 0, 0] = 0
    for axis in (2, 3):
        if clear.shape[axis] % 2 == 0:
            angles.select(axis, clear.shape[axis] // 2).zero_()
    spectrum = fft.fft2(clear) * torch.polar(torch.ones_like(angles), angles)
    scrambled: Tensor = fft.ifft2(spectrum).real.clamp(0, 1)
    return scrambled


def rotate(images: Tensor, *, degrees: int) -> Tensor:
    """Turn counter-clockwise by a multiple of 90 degrees."""
    if degrees % 90:
        raise ConfigError(f"degrees={degrees}: photographs were turned by 0, 90, 180 or 270")
    return grey(images).rot90(degrees // 90, (2, 3))


def equalise_power(images: Tensor) -> Tensor:
    """Give each image the mean amplitudes of all, with its own phases; clamped to [0, 1].

    The experiment averages over its own photographs; this averages over the batch.
    """
    spectrum = fft.fft2(grey(images))
    equal = torch.polar(spectrum.abs().mean(0, keepdim=True).expand(spectrum.shape), spectrum.angle())
    equalised: Tensor = fft.ifft2(equal).real.clamp(0, 1)
    return equalised


def _uniform(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw from [-1, 1)."""
    return 2 * torch.rand(shape, generator=generator) - 1


def _smooth(clear: Tensor, deviation: float) -> Tensor:
    if not deviation >= 0 or math.isinf(deviation):
        raise ConfigError(
            f"deviation={deviation:g}: the deviation of a filter is at least 0 pixels, and finite"
        )
    if deviation == 0:
        return clear
    height, width = clear.shape[2:]
    rows, columns = (_weights(side, deviation * width / SIDE).to(clear) for side in (height, width))
    # After subtracting the padding grey, the padding is zero and needs no matrix entries.
    return _MEAN + rows @ (clear - _MEAN) @ columns.T


def _weights(side: int, deviation: float) -> Tensor:
    """Return (side, side) weights: row i has those of all positions in the filtered position i."""
    reach = int(_CUT * deviation + 0.5)  # as SciPy rounds it

    def bell(distances: Tensor) -> Tensor:
        return (-0.5 * (distances / deviation).square()).exp()

    places = torch.arange(side, dtype=torch.float64)
    distances = places[:, None] - places
    inside = distances.abs() <= reach
    return bell(distances) * inside / bell(torch.arange(-reach, reach + 1, dtype=torch.float64)).sum()
