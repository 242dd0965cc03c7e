"""Hats: shapes, patterns and colours of the headwear that people in `faces` wear.

A kind of hat is a row of numbers, fixed by the world's seed and the kind. Each family is a small function
from a plane to the coverage of two layers: the body with the pattern, and the trim (brim, band, pompom). The
plane's origin is the middle of the hat's rim; y points up, and a head is 2 wide.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.data.worlds.drawing import (
    PATTERNS,
    between,
    box,
    choose,
    coverage,
    ellipse,
    pattern,
    triangle_wave,
    uniforms,
)

_COLOURS = torch.tensor(
    [
        [0.84, 0.12, 0.16], [0.95, 0.48, 0.10], [0.98, 0.83, 0.15], [0.45, 0.72, 0.18],
        [0.05, 0.45, 0.24], [0.10, 0.68, 0.66], [0.35, 0.70, 0.95], [0.12, 0.30, 0.75],
        [0.10, 0.12, 0.36], [0.46, 0.22, 0.65], [0.88, 0.30, 0.65], [0.98, 0.72, 0.78],
        [0.50, 0.28, 0.14], [0.90, 0.82, 0.66], [0.96, 0.96, 0.94], [0.10, 0.10, 0.11],
    ]
)  # fmt: skip

_ANGLES = torch.tensor([0.0, 0.25, 0.5, 0.75]) * torch.pi
_COS, _SIN = _ANGLES.cos(), _ANGLES.sin()


@dataclass(frozen=True)
class Hats:
    """The looks of hats, one row a hat."""

    family: Tensor  # (N,) int64 index into FAMILIES
    pattern: Tensor  # (N, 6) row of PATTERNS
    frame: Tensor  # (N, 4) cosine and sine of the pattern's direction, and its waves per unit along p and q
    colours: Tensor  # (N, 3, 3) body, body's second colour, trim; RGB in [0, 1]
    shape: Tensor  # (N, 4) height, width, extra and decoration in [0, 1), for the family to use

    def rows(self, rows: Tensor) -> "Hats":
        """The hats at these rows."""
        return Hats(*(column[rows] for column in vars(self).values()))


def kinds(count: int, *, seed: int) -> Hats:
    """The first kinds of hat of a world: a larger count begins with the same ones."""
    u = uniforms(seed, "hats", count, 21)
    first = (u[:, 0] * len(_COLOURS)).long()
    second = (first + 1 + (u[:, 1] * (len(_COLOURS) - 1)).long()) % len(_COLOURS)
    third = (second + 1 + (u[:, 2] * (len(_COLOURS) - 1)).long()) % len(_COLOURS)
    colours = _COLOURS[torch.stack([first, second, third], 1)]
    colours = (colours + 0.10 * (u[:, 3:12].view(count, 3, 3) - 0.5)).clamp(0.03, 1.0)
    angle = (u[:, 12] * len(_ANGLES)).long()
    waves = between(0.9, 2.2, u[:, 13])
    frame = torch.stack([_COS[angle], _SIN[angle], waves, waves * between(0.7, 1.4, u[:, 14])], 1)
    return Hats(
        family=(u[:, 15] * len(FAMILIES)).long(),
        # One hat in 15 is plain; two plain hats differ in shape and colours only.
        pattern=PATTERNS[((u[:, 16] * (2 * len(PATTERNS) - 1) + 1) / 2).long()],
        frame=frame,
        colours=colours,
        shape=u[:, 17:21],
    )


@dataclass(frozen=True)
class Worn:
    """Hats on heads: two layers, the trim over the body, and their colours."""

    body: Tensor  # (B, h, W) coverage
    trim: Tensor  # (B, h, W) coverage
    cloth: Tensor  # (B, 3, h, W) colour of the body
    ribbon: Tensor  # (B, 3, 1, 1) colour of the trim
    shade: Tensor  # (B, h, W), a factor of both colours: hats are round


def wear(
    hats: Hats, x: Tensor, y: Tensor, pixel: Tensor, *, tilt: Tensor, fade: Tensor, phase: Tensor
) -> Worn:
    """Hats of ONE family, tilted, faded by the sun, their pattern shifted along itself. (B, 1, 1) each."""
    x, y = x - tilt * y, y + tilt * x
    body, trim = shape(hats, x, y, pixel)
    mix = pattern(hats.pattern, hats.frame, x, y, phase, pixel)[:, None]
    first, second, third = (c[:, :, None, None] for c in hats.colours.unbind(1))
    cloth = second + mix * (first - second)
    grey = hats.colours.mean((1, 2))[:, None, None, None]
    cloth, third = (c + fade[:, None] * (grey - c) for c in (cloth, third))
    return Worn(body, trim, cloth, third, 1.08 - 0.28 * x.square().clamp_(max=2.0))


def shape(hats: Hats, x: Tensor, y: Tensor, pixel: Tensor) -> tuple[Tensor, Tensor]:
    """Coverage of the body and of the trim, which lies on it, for hats of ONE family. (B, h, W) each."""
    family = FAMILIES[int(hats.family[0])]
    body, trim = family(x, y, Shape(*hats.shape[:, :, None, None].unbind(1)))
    return coverage(body, pixel), coverage(trim, pixel)


class Shape(NamedTuple):
    """The numbers in [0, 1) that distinguish hats of a family, (B, 1, 1) each."""

    height: Tensor
    width: Tensor
    extra: Tensor
    decoration: Tensor


def _dome(x: Tensor, y: Tensor, width: Tensor | float, height: Tensor) -> Tensor:
    return torch.minimum(ellipse(x, y, width, height), y + 0.06)


def _block(x: Tensor, y: Tensor, bottom: Tensor, top: Tensor, height: Tensor) -> Tensor:
    """A trapezium on the rim, of half-widths `bottom` and `top`."""
    return torch.minimum(
        box(x, y - height / 2, 9.0, height / 2), bottom + (top - bottom) * (y / height) - x.abs()
    )


def _ball(x: Tensor, y: Tensor, radius: Tensor, shown: Tensor) -> Tensor:
    return torch.where(shown, radius, -9.0) - (x.square() + y.square()).sqrt()


def _beanie(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.80, 1.25, s.height)
    radius = between(0.18, 0.34, s.extra)
    band = box(x, y - 0.10, 1.10, between(0.12, 0.22, s.width))
    return _dome(x, y, 1.05, height), torch.maximum(
        band, _ball(x, y - height - 0.08, radius, s.decoration > 0.4)
    )


def _cap(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.70, 1.0, s.height)
    side = torch.where(s.decoration > 0.5, 1.0, -1.0) * between(0.35, 0.85, s.extra)
    peak = torch.minimum(ellipse(x - side, y - 0.02, between(0.8, 1.1, s.width), 0.24), 0.14 - y)
    return _dome(x, y, 1.05, height), torch.maximum(peak, ellipse(x, y - height, 0.16, 0.09))


def _top_hat(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.9, 1.5, s.height)
    bottom = between(0.80, 0.95, s.width)
    body = _block(x, y, bottom, bottom * between(0.85, 1.2, s.extra), height)
    brim = ellipse(x, y - 0.02, between(1.25, 1.6, s.decoration), 0.13)
    return body, torch.maximum(brim, torch.minimum(body, 0.30 - y))


def _bowler(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    body = torch.minimum(
        ellipse(x, y - 0.1, between(0.85, 1.0, s.width), between(0.65, 0.9, s.height)), y + 0.02
    )
    # The brim curls up at its ends.
    brim = ellipse(x, y - 0.12 * x.square(), between(1.3, 1.5, s.extra), 0.12)
    return body, torch.maximum(brim, torch.minimum(body, 0.12 + 0.14 * s.decoration - y))


def _turban(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.45, 0.65, s.height)
    body = torch.maximum(
        ellipse(x, y - 0.38, between(1.10, 1.3, s.width), height), _dome(x, y, 0.85, height + 0.55)
    )
    jewel = _ball(x, (y - 0.42) / 1.3, between(0.12, 0.22, s.extra), s.decoration > 0.3)
    return torch.minimum(body, y + 0.06), jewel


def _cone(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(1.2, 1.7, s.height)
    body = _block(x, y, between(0.75, 1.0, s.width), torch.zeros_like(height), height)
    brim = ellipse(x, y, between(1.2, 1.6, s.extra), 0.15) - 9.0 * (s.decoration <= 0.5)
    ball = _ball(x, y - height + 0.05, between(0.12, 0.24, s.extra), s.decoration <= 0.5)
    return body, torch.maximum(brim, ball)


def _headband(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    half = between(0.16, 0.30, s.height)
    body = box(x, y - 0.16 - 0.12 * (1 - x.square()), 1.12, half)
    across = x - between(-0.8, 0.8, s.width)
    up = y - 0.42
    bow = torch.minimum(0.10 + 0.65 * across.abs() - up.abs(), between(0.25, 0.45, s.extra) - across.abs())
    flower = _ball(across, up, between(0.20, 0.36, s.extra), s.decoration <= 0.5)
    return body, choose(s.decoration > 0.5, bow, flower)


def _crown(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.45, 0.75, s.height)
    points = 1.0 + (s.extra * 3).floor()  # to each side
    spikes = triangle_wave(x * points / 2.0) * between(0.18, 0.30, s.width)
    flare = 1.0 + 0.12 * y
    body = torch.minimum(torch.minimum(height + spikes - y, y + 0.08), flare - x.abs())
    band = torch.minimum(box(x, y - 0.04, 1.05, 0.11), flare - x.abs())
    jewel = _ball(x, y - 0.38, 0.10 + 0.1 * s.decoration, s.decoration > 0.3)
    return body, torch.maximum(band, jewel)


def _bucket(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.6, 0.95, s.height)
    body = _block(x, y - 0.05, between(0.95, 1.05, s.width), between(0.65, 0.85, s.extra), height)
    brim = torch.minimum(box(x, y, 9.0, 0.20), 1.22 - 0.9 * y - x.abs())
    return torch.maximum(body, brim), box(x, y - 0.22, 1.02, 0.08) - 9.0 * (s.decoration <= 0.4)


def _beret(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    side = torch.where(s.decoration > 0.5, 1.0, -1.0) * between(0.15, 0.4, s.extra)
    height = between(0.34, 0.5, s.height)
    body = ellipse(x - side, y - 0.36 - 0.25 * side * x, between(1.1, 1.35, s.width), height)
    stem = box(x - side, y - 0.36 - 0.25 * side * side - height, 0.07, 0.13)
    return body, torch.maximum(box(x, y - 0.06, 1.02, 0.09), stem)


def _sun_hat(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    crown = _dome(x, y, between(0.7, 0.9, s.extra), between(0.65, 1.1, s.height))
    brim = ellipse(x, y - 0.02, between(1.55, 1.9, s.width), 0.24)
    ribbon = torch.minimum(torch.minimum(crown, y - 0.12), between(0.30, 0.46, s.decoration) - y)
    return torch.maximum(crown, brim), ribbon


def _fez(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.7, 1.05, s.height)
    top = between(0.5, 0.7, s.extra)
    body = _block(x, y, between(0.8, 0.95, s.width), top, height)
    side = torch.where(s.decoration > 0.5, 1.0, -1.0) * top
    cord = box(x - side / 2, y - height, top / 2, 0.06)
    return body, torch.maximum(cord, box(x - side, y - height + 0.22, 0.11, 0.26))


def _chef(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    height = between(0.55, 0.95, s.height)
    radius = between(0.34, 0.46, s.extra)
    puffs = torch.maximum(
        radius - ((x.abs() - between(0.45, 0.65, s.width)).square() + (y - height).square()).sqrt(),
        ellipse(x, y - height - 0.08, 0.5, radius + 0.06),
    )
    stem = _block(x, y, torch.full_like(height, 0.92), torch.full_like(height, 0.80), height)
    return torch.maximum(puffs, stem), box(x, y - 0.12, 0.98, between(0.13, 0.24, s.decoration))


def _ears(x: Tensor, y: Tensor, s: Shape) -> tuple[Tensor, Tensor]:
    """A hood with two ears: pointed like a cat's or round like a bear's."""
    height = between(0.7, 0.95, s.height)
    across, up = x.abs() - between(0.55, 0.75, s.width), y - 0.85 * height
    size = between(0.28, 0.42, s.extra)
    pointed = torch.minimum(size - across.abs() - 0.5 * up, up + size)
    ears = choose(s.decoration > 0.5, pointed, size - (across.square() + up.square()).sqrt())
    hood = torch.maximum(_dome(x, y, 1.08, height), ears)
    return hood, torch.maximum(torch.minimum(ears - 0.12, up + 0.1), box(x, y - 0.05, 1.08, 0.10))


FAMILIES = (
    _beanie, _cap, _top_hat, _bowler, _turban, _cone, _headband,
    _crown, _bucket, _beret, _sun_hat, _fez, _chef, _ears,
)  # fmt: skip
