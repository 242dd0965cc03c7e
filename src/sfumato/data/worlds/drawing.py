"""The tools of the procedural worlds: repeatable numbers, shapes with soft edges, sensor noise.

A shape is a signed distance to its outline, positive inside; `coverage` turns it into shares of pixels. They
are made only by +, -, *, /, sqrt, floor, min and max, which IEEE 754 rounds alike, and angles turned in
double precision: an image is the same in any batch, and a seed gives the same bytes.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from sfumato.errors import ConfigError

# A pattern is the sign of a + b·p + c·q + d·p·q + e·(p² + q²), p and q triangle waves along two axes, after
# p has been shifted by f·q.
PATTERNS = torch.tensor(
    [
        [9.0, 0.0, 0.0, 0.0, 0.0, 0.0],  # plain
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],  # stripes
        [0.6, 1.0, 0.0, 0.0, 0.0, 0.0],  # pinstripes
        [0.0, 0.0, 0.0, 1.6, 0.0, 0.0],  # checks
        [1.3, -2.0, -2.0, 0.0, 1.0, 0.0],  # dots
        [0.0, 1.0, 1.0, 0.0, 0.0, 0.0],  # diamonds
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.30],  # zigzag
        [0.1, -0.6, -0.6, -0.6, 0.0, 0.0],  # windows
    ]
)

_NOISE_LENGTH = 1 << 21  # of the tape of sensor noise; ten images of 256x256 in colour


def check_world(
    world: str, *, size: int = 64, most: int = 256, usual: int = 64, seed: int = 0, **counts: int
) -> None:
    """Raises ConfigError for a size, a seed or a count that cannot work."""
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"{world}: {name} is at least 1, got {count}: ask for more")
    if not 16 <= size <= most:
        raise ConfigError(f"{world}: size is 16 to {most} pixels, got {size}: draw at {usual} and resize")
    if seed < 0:
        raise ConfigError(f"{world}: seed is at least 0, got {seed}: a world is named by a whole number")


def uniforms(seed: int, stream: str, rows: int, columns: int) -> Tensor:
    """(rows, columns) float32 in [0, 1), fixed by the seed and the stream's name.

    Row i does not depend on the number of rows: a larger world begins with the smaller one.
    """
    key = np.random.SeedSequence([seed, *stream.encode()]).generate_state(2, np.uint64)
    numbers = np.random.Generator(np.random.Philox(key=key)).random((rows, columns))
    # Rounding up to float32 could give 1.0, a row past the end of a table.
    return torch.from_numpy(np.minimum(numbers, 1 - 2**-24).astype(np.float32))


def permutation(seed: int, stream: str, count: int) -> Tensor:
    """(count,) int64: a random order, fixed by the seed, the stream's name and the count."""
    return uniforms(seed, stream, count, 1).flatten().argsort(stable=True)


def between(low: float, high: float, u: Tensor) -> Tensor:
    """Spreads numbers in [0, 1) evenly over [low, high)."""
    return low + (high - low) * u


def around_zero(u: Tensor) -> Tensor:
    """(..., 3) uniforms -> (...) numbers of mean 0 and standard deviation 1 within ±3: near normal."""
    return (u[..., 0] + u[..., 1] + u[..., 2] - 1.5) * 2.0


def coverage(distance: Tensor, pixel: Tensor | float) -> Tensor:
    """How much of each pixel a shape covers, 0 to 1, for pixels of side `pixel` in the distance's unit."""
    return (distance * (1 / pixel)).add_(0.5).clamp_(0.0, 1.0)


def choose(first: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """`a` in the images for which `first`, a bool (B, 1, 1), holds, and `b` in the others."""
    # torch.where on a broadcast mask takes fifty times as long.
    share = first.float()
    return a * share + b * (1 - share)


def ellipse(x: Tensor, y: Tensor, rx: Tensor | float, ry: Tensor | float) -> Tensor:
    """Signed distance to an ellipse at the origin, to first order: exact at the outline."""
    px, py = x * (1 / rx), y * (1 / ry)  # a division by a broadcast tensor is several times as slow
    slope = ((px * (1 / rx)).square_() + (py * (1 / ry)).square_()).sqrt_().mul_(2.0).add_(1e-6)
    return (1.0 - px.square_() - py.square_()) / slope


def box(x: Tensor, y: Tensor, rx: Tensor | float, ry: Tensor | float) -> Tensor:
    """Signed distance to a rectangle at the origin, of half-sides rx and ry; corners are sharp."""
    return torch.minimum(rx - x.abs(), ry - y.abs())


def triangle_wave(t: Tensor) -> Tensor:
    """Period 1, from 1 at whole numbers to -1 halfway, and straight between."""
    return (t - t.floor() - 0.5).abs_().mul_(4.0).sub_(1.0)


def pattern(
    rows: Tensor, frames: Tensor, x: Tensor, y: Tensor, phase: Tensor, pixel: Tensor | float
) -> Tensor:
    """How much of the first of two colours each pixel shows. (B, h, W), in a plane with such pixels.

    `rows` and `frames` are those of `Hats`; x, y are coordinates of pixels of side `pixel`; the pattern is
    shifted along itself by the (B, 1, 1) `phase`.
    """
    cos, sin, along, across = (c[:, None, None] for c in frames.unbind(1))
    a, b, c, d, e, f = (k[:, None, None] for k in rows.unbind(1))
    q = triangle_wave((y * cos - x * sin) * across)
    p = triangle_wave((x * cos + y * sin) * along + phase + f * q)
    field = a + b * p + c * q + d * p * q + e * (p.square() + q.square())
    # A wave climbs 4 in its length: one pixel spans that many levels.
    return coverage(field, 4.0 * along * pixel)


def sensor_noise(starts: Tensor, length: int) -> Tensor:
    """(N,) numbers in [0, 1) -> (N, length) of a near-normal noise with standard deviation 1.

    Every row is a window of one long tape: the number sets the window's beginning.
    """
    tape = _noise_tape()
    at = (starts.double() * (_NOISE_LENGTH - length)).long()
    return torch.stack([tape[i : i + length] for i in at.tolist()])


@cache
def _noise_tape() -> Tensor:
    return around_zero(uniforms(0, "sensor noise", _NOISE_LENGTH, 3))
