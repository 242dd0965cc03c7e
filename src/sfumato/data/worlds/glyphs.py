"""Glyphs: a world of invented letters, drawn by strokes, in the manner of Omniglot (Lake et al. 2015).

A class is a character: one to four strokes, each a line, a corner, a curve or an arc, often joined to an
earlier one. A drawer writes all characters with one hand: its own pen, slant, size and care. No download.
"""

import math

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages, split_by_class, without_pixels
from sfumato.data.worlds.drawing import around_zero, between, check_world, coverage, sensor_noise, uniforms

SHARES = (0.64, 0.16, 0.20)  # of the characters: train, validation, test

_STROKES = 4  # at most
_KNOTS = 5  # control points of a stroke
_PIECES = 4  # straight pieces between two control points
_CHUNK_PIXELS = 16 * 64 * 64  # drawn at a time: they fit a core's cache


def glyphs(
    *, classes: int = 1000, drawers: int = 20, size: int = 28, seed: int = 0, drawn: bool = True
) -> LabelledImages:
    """Characters, each drawn once by every drawer, as white ink (255) on black (0).

    The world is fixed by its seed; a larger one begins with the characters of a smaller one. Its splits
    hold whole characters.

    Args:
        classes: how many characters.
        drawers: how many hands, which is the number of images of a character.
        size, seed, drawn: see `faces`.

    Returns:
        (classes * drawers, 1, size, size) images, by class and then by drawer, labelled `class` and
        `drawer`, split into train, validation and test.
    """
    check_world("glyphs", size=size, most=256, usual=28, seed=seed, classes=classes, drawers=drawers)
    codes = torch.arange(classes).repeat_interleave(drawers)
    hands = torch.arange(drawers).repeat(classes)
    images = _draw(codes, hands, size, seed) if drawn else without_pixels(len(codes), 1, size)
    labels = {
        "class": Label(codes, tuple(f"character-{i:04d}" for i in range(classes))),
        "drawer": Label(hands, tuple(f"drawer-{i:02d}" for i in range(drawers))),
    }
    splits = split_by_class(codes, shares=SHARES, seed=seed)
    return LabelledImages("glyphs", images, labels, splits)


def _draw(codes: Tensor, hands: Tensor, size: int, seed: int) -> Tensor:
    """(N, 1, size, size) uint8: each of the first characters by each of the first drawers, (N,) each."""
    classes, drawers = int(codes[-1]) + 1, int(hands[-1]) + 1
    knots, smoothness, present = characters(classes, seed=seed)
    images = torch.empty(len(codes), 1, size, size, dtype=torch.uint8)
    style = uniforms(seed, "drawers", drawers, 8)
    # By class and then by drawer, so that the numbers of a class do not depend on how many follow.
    whims = uniforms(seed, f"whims of {drawers}", len(codes), 8 + _STROKES * _KNOTS * 6)
    step = max(1, _CHUNK_PIXELS // size**2)
    for rows in torch.split(torch.arange(len(codes)), step):
        kinds = codes[rows]
        points, radii = _by_hand(knots[kinds], smoothness[kinds], style[hands[rows]], whims[rows])
        images[rows, 0] = _ink(points, present[kinds], radii, whims[rows, 7], size)
    return images


def characters(classes: int, *, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The strokes of the first characters of a world, before anybody draws them.

    -> (M, S, K, 2) control points x, y within ±1, y down; (M, S) smoothness, from 0 for corners to 1 for
    curves; (M, S) bool, which strokes the character has.
    """
    u = uniforms(seed, "characters", classes, 1 + _STROKES * 24)
    count = torch.bucketize(u[:, 0].contiguous(), torch.tensor([0.15, 0.60, 0.92]), right=True) + 1  # 1 to 4
    present = torch.arange(_STROKES) < count[:, None]
    strokes = u[:, 1:].view(classes, _STROKES, 24)

    # A walk over a lattice of 4 by 4 points: letters keep to a few heights and columns.
    lattice = (strokes[..., : 2 * _KNOTS].view(classes, _STROKES, _KNOTS, 2) * 4).floor() / 1.5 - 1.0
    start, end = lattice[:, :, :1], lattice[:, :, 1:2]
    t = torch.linspace(0, 1, _KNOTS)[:, None]
    line = start + (end - start) * t
    # A corner or a curve passes through three points, and the points halfway.
    third = lattice[:, :, 2:3]
    bent = torch.cat([start, (start + end) / 2, end, (end + third) / 2, third], 2)
    winding = torch.cat([start, end, third, lattice[:, :, 3:4], lattice[:, :, 4:5]], 2)
    turn = (strokes[..., 10, None] + between(0.35, 1.0, strokes[..., 11, None]) * t[:, 0]) * math.tau
    # In double: in float32 the last bit of a cosine depends on the position in the table.
    circle = torch.stack([turn.double().cos(), turn.double().sin()], -1).float()
    radius = between(0.25, 0.75, strokes[..., 12, None, None])
    squash = torch.stack(
        [torch.ones_like(turn), between(0.6, 1.3, strokes[..., 13, None].expand_as(turn))], -1
    )
    arc = start * 0.5 + radius * squash * circle

    kind = torch.bucketize(strokes[..., 14].contiguous(), torch.tensor([0.30, 0.48, 0.64, 0.70]), right=True)
    # A lone bar would differ from its neighbours only by its slant, which is the hand's.
    kind[:, 0] = torch.where((count == 1) & (kind[:, 0] == 0), 4, kind[:, 0])
    shapes = torch.stack([line, bent, bent, winding, arc])  # line, corner, curve, winding, arc
    knots = shapes[kind, torch.arange(classes)[:, None], torch.arange(_STROKES)]
    smoothness = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0])[kind]
    # A line from a point to itself would be a dot among letters; make it a diagonal dash.
    dot = (kind == 0) & (start == end).all(-1)[..., 0]
    knots = torch.where(dot[..., None, None], knots + (t - 0.5) * 0.7, knots)

    # Most strokes begin on the one before.
    joined = strokes[..., 15] < 0.65
    at = (strokes[..., 16] * _KNOTS).long()
    for i in range(1, _STROKES):
        place = knots[torch.arange(classes), i - 1, at[:, i]]  # (M, 2)
        moved = knots[:, i] + (place - knots[:, i, 0])[:, None]
        knots[:, i] = torch.where(joined[:, i, None, None], moved, knots[:, i])

    # Fill the same square with every character, without stretching a bar into a block.
    hidden = ~present[..., None, None]
    low = knots.masked_fill(hidden, math.inf).amin((1, 2), keepdim=True)
    high = knots.masked_fill(hidden, -math.inf).amax((1, 2), keepdim=True)
    half = (high - low) / 2
    half = torch.maximum(half, 0.7 * half.amax(-1, keepdim=True)).clamp(min=0.2)
    return (knots - (low + high) / 2) / half, smoothness, present


def _by_hand(knots: Tensor, smoothness: Tensor, style: Tensor, whim: Tensor) -> tuple[Tensor, Tensor]:
    """A character as one drawer writes it. -> (B, S, P, 2) points of its strokes, (B,) pen radii.

    (B, 8) numbers in [0, 1) of the drawer are slant, turn, size, pen, care, roundness; (B, 8 + S*K*6) others
    are of this drawing.
    """
    count = len(knots)
    care = between(0.09, 0.20, style[:, 4, None, None, None])
    tremble = around_zero(whim[:, 8:].view(count, _STROKES, _KNOTS, 2, 3))
    # A stroke bends as a whole more than it shakes: pull every knot towards the mean of its neighbours.
    between_ends = (tremble[:, :, :-2] + tremble[:, :, 2:]) / 2
    tremble[:, :, 1:-1] = 0.7 * between_ends + 0.3 * tremble[:, :, 1:-1]
    knots = knots + care * tremble

    mixed = 0.6 * style[:, :4] + 0.4 * whim[:, :4] - 0.5  # a hand is mostly, not always, the same
    slant, turn = 0.90 * mixed[:, 0], 0.80 * mixed[:, 1]
    size = 0.58 * (1.0 + 0.35 * mixed[:, 2])
    wide = 1.0 + 0.40 * (whim[:, 4] - 0.5)
    cos, sin = turn.double().cos().float(), turn.double().sin().float()
    # Columns of size * rotation @ [[wide, slant], [0, 1]].
    ahead = torch.stack([cos * wide, sin * wide], -1) * size[:, None]
    down = torch.stack([cos * slant - sin, sin * slant + cos], -1) * size[:, None]
    shift = 0.30 * (whim[:, 5:7] - 0.5)
    knots = (
        knots[..., :1] * ahead[:, None, None] + knots[..., 1:] * down[:, None, None] + shift[:, None, None]
    )

    # Cardinal splines: tangents of 0 give straight pieces, of (next - previous) / 2 give Catmull-Rom.
    bend = (smoothness + 0.35 * (style[:, 5, None] - 0.3)).clamp(0, 1.2)[..., None, None]
    padded = torch.cat([knots[:, :, :1], knots, knots[:, :, -1:]], 2)
    tangents = bend * (padded[:, :, 2:] - padded[:, :, :-2]) / 2
    t = torch.arange(_PIECES)[:, None] / _PIECES
    p0, p1 = knots[:, :, :-1, None], knots[:, :, 1:, None]
    m0, m1 = tangents[:, :, :-1, None], tangents[:, :, 1:, None]
    curve = (
        (2 * t**3 - 3 * t**2 + 1) * p0
        + (t**3 - 2 * t**2 + t) * m0
        + (3 * t**2 - 2 * t**3) * p1
        + (t**3 - t**2) * m1
    )  # (B, S, K - 1, pieces, 2)
    points = torch.cat([curve.flatten(2, 3), knots[:, :, -1:]], 2)
    return points, between(0.040, 0.090, mixed[:, 3] + 0.5)


def _ink(points: Tensor, present: Tensor, radii: Tensor, noise: Tensor, size: int) -> Tensor:
    """Draw polylines with a round pen: (B, S, P, 2) points within ±1 -> (B, size, size) uint8.

    (B, S) which strokes there are, (B,) radii of the pen at the same scale, and (B,) which sensor noise. The
    distance to a piece of stroke is taken in a small window around it, and each pixel keeps the least.
    """
    points = (points + 1) * (size / 2)
    radii = (radii * (size / 2)).clamp(min=0.6)  # in pixels; a thinner pen would fade away
    image = torch.arange(len(points))[:, None, None].expand(points.shape[:3])[:, :, 1:]
    keep = present[:, :, None].expand_as(image)
    start, end = points[:, :, :-1][keep], points[:, :, 1:][keep]  # (L, 2)
    image = image[keep]
    reach = math.ceil(float(radii.max())) + 1
    window = math.ceil(float((end - start).abs().max())) + 2 * reach + 1
    corner = torch.minimum(start, end).floor() - reach
    pixels = corner[:, None] + torch.arange(window)[:, None]  # (L, window, 2)
    from_start = pixels + 0.5 - start[:, None]
    x, y = from_start[:, None, :, 0], from_start[:, :, None, 1]
    dx, dy = (end - start)[:, 0, None, None], (end - start)[:, 1, None, None]
    scale = 1.0 / (dx * dx + dy * dy).clamp(min=1e-6)
    along = ((x * (dx * scale)) + (y * (dy * scale))).clamp_(0, 1)  # (L, window, window)
    squared = (x - along * dx).square_() + (y - along * dy).square_()
    # One pixel of border takes all that falls outside.
    column, row = (pixels.long() + 1).clamp_(0, size + 1).unbind(-1)
    side = size + 2
    index = (image[:, None] * side + row)[:, :, None] * side + column[:, None]
    nearest = torch.full((len(points) * side * side,), float(size * size))
    nearest.scatter_reduce_(0, index.flatten(), squared.flatten(), "amin")
    distance = nearest.view(-1, side, side)[:, 1:-1, 1:-1].sqrt()
    ink = coverage(radii[:, None, None] - distance, 1.0) * 255.0
    grain = sensor_noise(noise, size * size).view_as(ink)
    return (ink + 6.0 * grain * (ink > 0)).round_().clamp_(0, 255).to(torch.uint8)
