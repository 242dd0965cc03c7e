"""Scenes: a world of invented things in front of cluttered backgrounds, for encoders that know no world yet.

A thing is a body with up to four parts, each of its own shape, colours and texture; its class does not depend
on its position, its turn, light, clutter or other things in front of it. No download, nobody is shown.
Clutter of overlapping shapes, few of them large and many small, has the spectrum of photographs (Lee,
Mumford & Huang 2001), and networks that learn from it carry over to photographs (Baradad et al. 2021).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages, split_by_class, without_pixels
from sfumato.data.worlds.drawing import PATTERNS, between, coverage, pattern, sensor_noise, uniforms
from sfumato.errors import ConfigError

SHARES = (0.64, 0.16, 0.20)  # of the things: train, validation, test

_PARTS = 5  # of a thing, its body among them
_CLUTTER = 12  # shapes behind a thing
_LAYER = 19  # numbers in [0, 1) that a layer is made from
_CHUNK_PIXELS = 16 * 64 * 64  # drawn at a time: they fit a core's cache


def scenes(
    *,
    things: int = 500,
    images_per_thing: int = 20,
    backgrounds: int = 40,
    size: int = 64,
    seed: int = 0,
    drawn: bool = True,
) -> LabelledImages:
    """Things, each in front of several kinds of background; the background is independent of the thing.

    The world is fixed by its seed; a larger one begins with the things of a smaller one. Its splits hold
    whole things.

    Args:
        things: how many kinds of thing.
        images_per_thing: how many images of each.
        backgrounds: how many kinds of background: colours and textures of the clutter.
        size: the side of the images in pixels, 16 to 256.
        seed: of the world.
        drawn: False for labels and splits alone: the images have a shape, and no pixels.

    Returns:
        (things * images_per_thing, 3, size, size) images, by thing, labelled `class` and `background`,
        split into train, validation and test.

    Raises:
        ConfigError: a number that cannot work.
    """
    for name, count in {
        "things": things,
        "images_per_thing": images_per_thing,
        "backgrounds": backgrounds,
    }.items():
        if count < 1:
            raise ConfigError(f"scenes: {name} is at least 1, got {count}: ask for more")
    if not 16 <= size <= 256:
        raise ConfigError(f"scenes: size is 16 to 256 pixels, got {size}: draw at 64 and resize")
    if seed < 0:
        raise ConfigError(f"scenes: seed is at least 0, got {seed}: a world is named by a whole number")
    codes = torch.arange(things).repeat_interleave(images_per_thing)
    looks = uniforms(seed, "things", things, 1 + _PARTS * _LAYER)
    kinds = uniforms(seed, "backgrounds", backgrounds, 12)
    whims = uniforms(seed, f"views, {images_per_thing} each", len(codes), 24 + (_CLUTTER + 1) * _LAYER)
    behind = (whims[:, 0] * backgrounds).long()
    images = without_pixels(len(codes), 3, size)
    if drawn:
        images = torch.empty_like(images, device="cpu")
        for rows in torch.split(torch.arange(len(codes)), max(1, _CHUNK_PIXELS // size**2)):
            images[rows] = _draw(looks[codes[rows]], kinds[behind[rows]], whims[rows], size)
    labels = {
        "class": Label(codes, tuple(f"thing-{i:04d}" for i in range(things))),
        "background": Label(behind, tuple(f"background-{i:03d}" for i in range(backgrounds))),
    }
    return LabelledImages("scenes", images, labels, split_by_class(codes, shares=SHARES, seed=seed))


@dataclass(frozen=True)
class _Layer:
    """A textured shape of each of B images. (B,) each, unless said otherwise.

    Attributes:
        x, y: its middle.
        frame: (B, 4), rows of the matrix from the plane to the shape's own axes.
        radii: (B, 2) half-width and half-height.
        norm: (B, 3) shares of a diamond, an ellipse and a box.
        taper: how much narrower it is above than below.
        hole: the share of it that is cut out, or -1.
        pattern: (B, 6) row of PATTERNS.
        waves: (B, 4), see `drawing.pattern`.
        colours: (B, 2, 3).
    """

    x: Tensor
    y: Tensor
    frame: Tensor
    radii: Tensor
    norm: Tensor
    taper: Tensor
    hole: Tensor
    pattern: Tensor
    waves: Tensor
    colours: Tensor


def _layer(u: Tensor, *, x: Tensor, y: Tensor, radius: Tensor) -> _Layer:
    """(B, 19) numbers in [0, 1) and the given values -> a layer."""
    angle = math.tau * u[:, 0]
    norm = u[:, 3:6].square()
    waves_angle = math.tau * u[:, 9]
    waves = between(0.8, 4.5, u[:, 10].square()) / radius.clamp(min=0.15)
    return _Layer(
        x=x,
        y=y,
        frame=_turn(angle),
        radii=radius[:, None] * torch.stack([between(0.45, 1.0, u[:, 1]), between(0.45, 1.0, u[:, 2])], 1),
        norm=norm / norm.sum(1, keepdim=True).clamp(min=1e-6),
        taper=torch.where(u[:, 6] < 0.5, torch.zeros(()), between(-0.9, 0.9, u[:, 7])),
        hole=torch.where(u[:, 8] < 0.85, -torch.ones(()), between(0.35, 0.75, (u[:, 8] - 0.85) / 0.15)),
        pattern=PATTERNS[(u[:, 11] * len(PATTERNS)).long()],
        waves=torch.cat(
            [_turn(waves_angle)[:, :2], torch.stack([waves, waves * between(0.6, 1.6, u[:, 12])], 1)], 1
        ),
        colours=_mute(u[:, 13:19].view(-1, 2, 3)),
    )


def _mute(colours: Tensor) -> Tensor:
    """(..., 3) of any colours -> colours as in photographs, most of them near grey."""
    grey = colours.mean(-1, keepdim=True)
    return grey + 0.6 * (colours - grey)


def _turn(angle: Tensor) -> Tensor:
    """(B,) angles -> (B, 4) rows of the rotations; in double, so that the last bit is always the same."""
    cos, sin = angle.double().cos().float(), angle.double().sin().float()
    return torch.stack([cos, sin, -sin, cos], 1)


def _draw(looks: Tensor, kinds: Tensor, whims: Tensor, size: int) -> Tensor:
    """Draws B scenes. -> (B, 3, size, size) uint8."""
    axis = (torch.arange(size) + 0.5) * (2 / size) - 1
    x, y = axis[None, None, :], axis[None, :, None]
    pixel = 2 / size
    kinds = torch.cat([_mute(kinds[:, :9].view(-1, 3, 3)).flatten(1), kinds[:, 9:]], 1)
    first, second, third = kinds[:, 0:3], kinds[:, 3:6], kinds[:, 6:9]
    # Lit from above or below; with a horizon, the ground has another colour than the sky.
    mix = ((y + 1) / 2).expand(len(whims), size, size)
    canvas = _mix(first, second, mix)
    horizon = between(-0.3, 0.9, whims[:, 1])
    ground = coverage(y - _column(horizon), pixel) * _column((kinds[:, 9] < 0.6).float())
    canvas = _over(canvas, third, ground.expand_as(mix))
    clutter = whims[:, 24:].view(len(whims), _CLUTTER + 1, _LAYER)
    crowded = between(0.4, 1.0, kinds[:, 10])
    for i in range(_CLUTTER):
        layer = _clutter(clutter[:, i], kinds)
        canvas = _paint(canvas, layer, x, y, pixel, seen=whims[:, 2 + i] < crowded)
    # The view: shifted, turned, nearer or farther, and every other time mirrored.
    cos, sin = _turn(between(-0.45, 0.45, whims[:, 14]))[:, :2].unbind(1)
    scale = between(0.55, 1.05, whims[:, 15])
    side = torch.where(whims[:, 16] < 0.5, -1.0, 1.0)
    wide = scale * between(0.82, 1.2, whims[:, 17])
    across = x - _column(between(-0.3, 0.3, whims[:, 18]))
    down = y - _column(between(-0.3, 0.3, whims[:, 19]))
    own_x = (across * _column(cos) + down * _column(sin)) * _column(side / wide)
    own_y = (down * _column(cos) - across * _column(sin)) * _column(1 / scale)
    faded = between(-0.12, 0.12, whims[:, 20:23])
    for layer, seen in _parts(looks):
        canvas = _paint(canvas, layer, own_x, own_y, pixel / 0.8, seen=seen, faded=faded)
    before = clutter[:, _CLUTTER]
    canvas = _paint(canvas, _clutter(before, kinds), x, y, pixel, seen=before[:, 18] < 0.25)
    light = between(0.75, 1.2, whims[:, 23])[:, None, None, None]
    shade = 1 + 0.25 * (_column(whims[:, 20] - 0.5) * x + _column(whims[:, 21] - 0.5) * y)
    grain = sensor_noise(whims[:, 22], 3 * size * size).view(-1, 3, size, size)
    values = canvas * light * shade[:, None] * 255.0 + 4.0 * grain
    return values.round_().clamp_(0, 255).to(torch.uint8)


def _clutter(u: Tensor, kinds: Tensor) -> _Layer:
    """Shapes of a background: few are large, many are small, and half their colours are the background's."""
    radius = 0.14 / (0.1 + u[:, 0])  # 0.13 to 1.4, density as r^-2
    layer = _layer(u.roll(3, 1), x=between(-1.1, 1.1, u[:, 1]), y=between(-1.1, 1.1, u[:, 2]), radius=radius)
    layer.colours.mul_(0.5).add_(0.5 * torch.stack([kinds[:, 0:3], kinds[:, 6:9]], 1))
    plain = (u[:, 5] < kinds[:, 11])[:, None]
    return _Layer(**{**vars(layer), "pattern": torch.where(plain, PATTERNS[0], layer.pattern)})


def _parts(looks: Tensor) -> list[tuple[_Layer, Tensor]]:
    """A thing's parts, the farthest first, and which things have them: its body, and others at its edge.

    Half of the others come in pairs, to the left and right.
    """
    count = len(looks)
    u = looks[:, 1:].view(count, _PARTS, _LAYER)
    has = 1 + looks[:, 0] * _PARTS  # 1 to 5 parts
    parts: list[tuple[_Layer, Tensor]] = []
    for i in range(1, _PARTS):
        angle = _turn(math.tau * u[:, i, 17])
        away = between(0.35, 0.75, u[:, i, 18])
        x, y = angle[:, 0] * away, angle[:, 1] * away
        radius = between(0.12, 0.45, u[:, i, 16])
        layer = _layer(u[:, i], x=x, y=y, radius=radius)
        present = has > i + 0.5
        parts.append((layer, present))
        mirrored = layer.frame * torch.tensor([-1.0, 1.0, -1.0, 1.0])
        parts.append((_Layer(**{**vars(layer), "x": -x, "frame": mirrored}), present & (u[:, i, 15] < 0.5)))
    zero = torch.zeros(count)
    body = _layer(u[:, 0], x=zero, y=zero, radius=between(0.4, 0.75, u[:, 0, 16]))
    # Parts lie behind the body or in front of it.
    behind = [(layer, present & (u[:, 1 + k // 2, 14] < 0.5)) for k, (layer, present) in enumerate(parts)]
    ahead = [(layer, present & (u[:, 1 + k // 2, 14] >= 0.5)) for k, (layer, present) in enumerate(parts)]
    return [*behind, (body, torch.ones(count, dtype=torch.bool)), *ahead]


def _paint(
    canvas: Tensor,
    layer: _Layer,
    x: Tensor,
    y: Tensor,
    pixel: float,
    *,
    seen: Tensor,
    faded: Tensor | None = None,
) -> Tensor:
    """Paints a layer over those images that show it, without work on the others."""
    rows = seen.nonzero().flatten()
    if not len(rows):
        return canvas
    layer = _Layer(**{name: column[rows] for name, column in vars(layer).items()})
    x, y = (c[rows] if len(c) > 1 else c for c in (x, y))
    across, down = x - _column(layer.x), y - _column(layer.y)
    a, b, c, d = (_column(k) for k in layer.frame.unbind(1))
    own_x, own_y = across * a + down * b, across * c + down * d
    rx, ry = (_column(r) for r in layer.radii.unbind(1))
    v = own_y * (1 / ry)
    u = (own_x * (1 / rx)).abs() * (1 / (1 + _column(layer.taper) * 0.5 * (v.clamp(-1, 1) + 1) * 0.9))
    v = v.abs()
    diamond, round_, square = (_column(k) for k in layer.norm.unbind(1))
    far = diamond * (u + v) + round_ * (u.square() + v.square()).sqrt() + square * torch.maximum(u, v)
    inside = torch.minimum(1 - far, far - _column(layer.hole)) * torch.minimum(rx, ry)
    share = pattern(layer.pattern, layer.waves, own_x, own_y, torch.zeros(1, 1, 1), pixel)
    colours = layer.colours if faded is None else (layer.colours + faded[rows, None]).clamp(0, 1)
    paint = _mix(colours[:, 1], colours[:, 0], share)
    cover = coverage(inside, pixel)[:, None]
    canvas[rows] = canvas[rows] * (1 - cover) + paint * cover
    return canvas


def _column(values: Tensor) -> Tensor:
    return values[:, None, None]


def _mix(first: Tensor, second: Tensor, share: Tensor) -> Tensor:
    """(B, 3) colours and (B, H, W) the share of the second -> (B, 3, H, W)."""
    first, second = first[:, :, None, None], second[:, :, None, None]
    return first + share[:, None] * (second - first)


def _over(canvas: Tensor, colour: Tensor, cover: Tensor) -> Tensor:
    cover = cover[:, None]
    return canvas * (1 - cover) + colour[:, :, None, None] * cover
