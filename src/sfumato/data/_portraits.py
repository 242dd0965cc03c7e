"""Portraits: how one chunk of people is painted, from back to front, with a map of what is where.

The public side, and what the names mean, is in `faces`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from sfumato.data import _hats
from sfumato.data.drawing import between, box, coverage, ellipse, sensor_noise, triangle_wave

HAIR_COLORS = ("black", "brown", "blond", "red", "grey")
EXPRESSIONS = ("neutral", "happy", "sad", "surprised")
GLASSES = ("none", "clear", "dark")
GENDERS = ("female", "male")
AGES = ("child", "adult", "senior")
PARTS = (
    "background",
    "clothes",
    "hair",
    "skin",
    "beard",
    "nose",
    "eyes",
    "brows",
    "mouth",
    "glasses",
    "headwear",
)

LOOKS = tuple(
    "width jaw square skin skin_red skin_dark ear eye_gap eye_y eye_width eye_height eye_slant iris "
    "brow_y brow_thick brow_arch brow_slant nose_length nose_width nose_tone mouth_y mouth_width lip "
    "lip_red fringe parting volume length frame curl hair_light beard beard_length freckles mole mole_x "
    "mole_y blush".split()
)
SCENE = tuple(
    "x y size turn yaw light_x light_y gain red green blue ground_r ground_g ground_b other_r other_g "
    "other_b waves wave_x wave_y shirt_r shirt_g shirt_b frame frame_tone frame_size tilt lift smile open "
    "noise grain".split()
)

_HAIR = torch.tensor(
    [
        [0.09, 0.08, 0.09],
        [0.36, 0.21, 0.11],
        [0.88, 0.72, 0.38],
        [0.68, 0.27, 0.10],
        [0.70, 0.70, 0.72],
    ]
)
_SKIN = torch.tensor(
    [
        [0.99, 0.86, 0.77],
        [0.95, 0.76, 0.62],
        [0.85, 0.62, 0.45],
        [0.65, 0.43, 0.29],
        [0.40, 0.25, 0.17],
    ]
)
_IRIS = torch.tensor([[0.34, 0.19, 0.08], [0.20, 0.45, 0.75], [0.25, 0.52, 0.28], [0.13, 0.10, 0.10]])
# Of each expression: smile (corners up), opening, width, how high the brows are, their inner ends up.
_EXPRESSION = torch.tensor(
    [
        [0.02, 0.00, 1.00, 0.00, 0.00],
        [0.12, 0.07, 1.20, 0.03, 0.00],
        [-0.10, 0.00, 0.90, 0.00, 0.35],
        [0.00, 0.14, 0.60, 0.11, 0.05],
    ]
)


@dataclass(frozen=True)
class People:
    """What the images of a world show, one row an image; with `dataclasses.replace`, what they might.

    Attributes:
        seed: which world: it fixes how each person and each kind of hat looks.
        identity: (N,) int64, who.
        headwear: (N,) int64, which kind of hat.
        hair_color: (N,) int64 index into HAIR_COLORS; the same in all images of a person.
        expression: (N,) int64 index into EXPRESSIONS.
        glasses: (N,) int64 index into GLASSES.
        gender: (N,) int64 index into GENDERS; the same in all images of a person.
        age: (N,) int64 index into AGES; the same in all images of a person.
        scene: (N, S) numbers in [0, 1): light, pose, background, clothes, and sensor noise.
    """

    seed: int
    identity: Tensor
    headwear: Tensor
    hair_color: Tensor
    expression: Tensor
    glasses: Tensor
    gender: Tensor
    age: Tensor
    scene: Tensor

    def __len__(self) -> int:
        return len(self.identity)

    def rows(self, rows: Tensor) -> "People":
        """The people at (n,) int64 rows."""
        return replace(self, **{k: v[rows] for k, v in vars(self).items() if isinstance(v, Tensor)})


class _Band:
    """Some rows of a chunk of images, in the coordinates of the faces; painting changes the images."""

    def __init__(self, painter: "Painter", rows: slice) -> None:
        self.rows = rows
        self.image, self.parts = painter.image[:, :, rows], painter.parts[:, rows]
        self.x, self.y = painter.x[:, rows], painter.y[:, rows]

    def paint(self, cover: Tensor, colour: Tensor, part: str, *, shade: Tensor | None = None) -> None:
        """Lay a colour (B, 3, 1, 1), times a shade (B, h, W), over what is there, where it covers."""
        over = colour if shade is None else colour * shade[:, None]
        self.image += cover[:, None] * (over - self.image)
        self.parts.masked_fill_(cover > 0, PARTS.index(part))


class Painter:
    """One chunk of images, painted from back to front. State: the images and their part maps so far.

    Face coordinates: the origin is between the eyes, x right, y down; the chin is at y = 1, the skull
    ends at y = -1, and half a face is about 0.75 wide.
    """

    def __init__(self, world: People, looks: Tensor, hats: _hats.Hats, size: int) -> None:
        self.world, self.hats, self.size = world, hats, size
        self.look = look = dict(zip(LOOKS, looks[:, :, None, None].unbind(1), strict=True))
        self.scene = scene = dict(zip(SCENE, world.scene[:, :, None, None].unbind(1), strict=True))
        self.image = torch.zeros(len(world), 3, size, size)
        self.parts = torch.zeros(len(world), size, size, dtype=torch.uint8)
        self.female = (world.gender == 0)[:, None, None]
        self.child = (world.age == 0)[:, None, None]
        self.senior = (world.age == 2)[:, None, None]

        turn = between(-0.16, 0.16, scene["turn"])
        self.cos, self.sin = turn.cos(), turn.sin()
        self.scale = between(0.47, 0.57, scene["size"])
        self.left, self.top = between(-0.10, 0.10, scene["x"]), between(0.18, 0.32, scene["y"])
        self.pixel = 2 / (size * self.scale)  # (B, 1, 1), in face coordinates
        centres = (torch.arange(size) + 0.5) * (2 / size) - 1
        self.u, self.v = centres[None, None, :], centres[None, :, None]
        u, v = (self.u - self.left) / self.scale, (self.v - self.top) / self.scale
        self.x, self.y = u * self.cos + v * self.sin, v * self.cos - u * self.sin  # (B, H, W)
        self.yaw = between(-0.10, 0.10, scene["yaw"])

        self.width = between(0.66, 0.84, look["width"])
        tone = look["skin"] * (len(_SKIN) - 1)
        below = tone.floor().long().flatten()
        mixed = torch.lerp(_SKIN[below], _SKIN[below + 1], (tone - tone.floor())[:, :, 0])
        ruddy = torch.tensor([0.05, -0.02, -0.03]) * (2 * look["skin_red"][:, :, 0] - 1)
        self.skin = (mixed + ruddy)[:, :, None, None]  # (B, 3, 1, 1)
        hair = _HAIR[world.hair_color][:, :, None, None]
        self.hair = hair * between(0.78, 1.15, look["hair_light"])[:, None]
        self.hair_volume = between(0.10, 0.30, look["volume"].square())

    def paint(self) -> tuple[Tensor, Tensor]:
        """-> (B, 3, H, W) images and (B, H, W) parts, both uint8."""
        self._background()
        self._hair_behind()
        self._body()
        self._head()
        hair = self._hair_before()
        lenses, frames = self._spectacles()
        body, trim = self._hat()
        # What lies over a feature cuts it off sharply, so that a pixel shows a feature or what hides it.
        free = 1 - torch.stack([hair, lenses, frames, body, trim]).amax(0).gt(0).float()
        self._beard_and_nose()
        self._eyes(free)
        self._brows_and_mouth(free)
        whole = self.band(-9, 9)
        strands = 1 + 0.12 * triangle_wave(3.0 * self.x + 1.5 * self.y)
        whole.paint(hair, self.hair, "hair", shade=strands)
        self._wear(lenses, frames, body, trim)
        return self._photograph(), self.parts

    def band(self, low: float, high: float) -> _Band:
        """The rows that can show y from low to high within |x| < 2.2, however the heads are turned."""
        reach = 2.2 * self.sin.abs()
        first = float((self.top + self.scale * (low * self.cos - reach)).min())
        last = float((self.top + self.scale * (high * self.cos + reach)).max())
        half = self.size / 2
        start = min(max(int((first + 1) * half) - 1, 0), self.size - 1)
        rows = slice(start, min(max(int((last + 1) * half) + 2, start + 1), self.size))
        return _Band(self, rows)

    def cover(self, distance: Tensor) -> Tensor:
        return coverage(distance, self.pixel)

    def rgb(self, *names: str) -> Tensor:
        return torch.stack([self.scene[name] for name in names], 1)  # (B, 3, 1, 1)

    def _background(self) -> None:
        s = self.scene
        waves = between(0.3, 3.0, s["waves"])
        phase = (2 * s["wave_x"] - 1) * self.u + (2 * s["wave_y"] - 1) * self.v
        mix = (0.5 + 0.8 * triangle_wave(waves * phase)).clamp_(0, 1)[:, None]
        ground, other = (
            self.rgb("ground_r", "ground_g", "ground_b"),
            self.rgb("other_r", "other_g", "other_b"),
        )
        self.image += (ground + mix * (0.5 * (other - ground))) * 0.8 + 0.1

    def _hair_behind(self) -> None:
        """Hair that falls behind the head: long on most women, short on most men."""
        look = self.look
        longer = torch.where(self.female, 0.35 + 0.65 * look["length"], 0.75 * look["length"].square())
        band = self.band(-9, 1.9)
        down = between(0.15, 1.45, longer)
        wide = self.width * (1.0 + self.hair_volume) + 0.10 * longer
        curl = 0.07 * look["curl"].square() * triangle_wave(1.8 * band.x) * triangle_wave(1.8 * band.y)
        upper = ellipse(band.x, band.y + 0.05, wide, 1.0 + 0.5 * self.hair_volume)
        lower = torch.minimum(box(band.x, band.y - down / 2, wide, down / 2), 9 - band.y)
        band.paint(
            self.cover(torch.maximum(torch.minimum(upper, down - band.y), lower) + curl),
            self.hair * 0.8,
            "hair",
        )

    def _body(self) -> None:
        band = self.band(0.5, 9)
        shoulders = torch.where(self.child, 1.05, 1.35) + 0.15 * ~self.female
        neck = box(band.x, band.y - 1.0, torch.where(self.female, 0.28, 0.38), 0.45)
        band.paint(self.cover(neck), self.skin * 0.82, "skin")
        shirt = self.rgb("shirt_r", "shirt_g", "shirt_b") * 0.85 + 0.05
        band.paint(self.cover(ellipse(band.x, band.y - 2.0, shoulders, 0.78)), shirt, "clothes")

    def _head_outline(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the outline, and 0 at the middle of the face to 1 at its outline."""
        jaw = between(-0.22, 0.10, self.look["jaw"]) - 0.06 * self.female
        corners = between(0.0, 0.55, self.look["square"]) * torch.where(self.female, 0.6, 1.0)
        across = (x / (self.width * (1 + jaw * y.clamp(0, 1)))).clamp_(-1.25, 1.25).square_()
        down = y.clamp(-1.25, 1.25).square_()
        bulge = across + down - corners * across * down
        return (1 - bulge) * (0.5 * self.width), bulge

    def _head(self) -> None:
        look, band = self.look, self.band(-1.2, 1.25)
        sides = band.x.abs() - self.width
        ears = ellipse(sides, band.y - 0.08, between(0.10, 0.20, look["ear"]), 0.22)
        band.paint(self.cover(ears), self.skin * 0.88, "skin")
        outline, bulge = self._head_outline(band.x, band.y)
        band.paint(self.cover(outline), self.skin, "skin", shade=1.04 - 0.16 * bulge.clamp(0, 1.3))

        band = self.band(0.0, 0.75)
        x = band.x - self.yaw
        cheeks = ellipse(x.abs() - 0.42, band.y - 0.38, 0.20, 0.16)
        pink = self.skin * torch.tensor([1.0, 0.72, 0.70])[:, None, None]
        rosy = look["blush"] * (0.30 + 0.35 * self.child)
        band.paint(cheeks.clamp(0, 0.12) / 0.12 * rosy, pink, "skin")
        spots = triangle_wave(6.2 * x) + triangle_wave(6.2 * band.y) - 1.0
        freckled = torch.minimum(spots * 0.05, ellipse(x, band.y - 0.28, 0.55, 0.20))
        band.paint(self.cover(freckled) * (look["freckles"] > 0.75) * 0.6, self.skin * 0.62, "skin")
        at = between(0.25, 0.45, look["mole_x"]) * torch.where(look["mole"] > 0.9, -1.0, 1.0)
        mole = 0.055 - ((x - at).square() + (band.y - between(0.25, 0.7, look["mole_y"])).square()).sqrt()
        band.paint(self.cover(mole) * (look["mole"] > 0.8), self.skin * 0.35, "skin")
        # The old have folds from the nose to the corners of the mouth.
        fold = 0.03 - (x.abs() - 0.22 - 0.45 * (band.y - 0.32)).abs()
        fold = torch.minimum(fold, 0.20 - (band.y - 0.45).abs())
        band.paint(self.cover(fold) * self.senior * 0.7, self.skin * 0.70, "skin")

    def _beard_and_nose(self) -> None:
        look, band = self.look, self.band(0.05, 1.35)
        x, y = band.x - self.yaw, band.y
        outline, _ = self._head_outline(band.x, y)
        bearded = ~self.female & ~self.child & (look["beard"] > 0.5)
        jaw = torch.minimum(
            outline + 0.04, -ellipse(x, y - 0.18, self.width * 0.74, between(0.72, 0.5, look["beard_length"]))
        )
        lip = ellipse(x, y - between(0.50, 0.60, look["mouth_y"]) + 0.14, 0.30, 0.075)
        full = torch.where(look["beard"] > 0.7, jaw, torch.full_like(jaw, -9.0))
        whiskers = torch.maximum(full, torch.where((look["beard"] * 20 % 1) > 0.3, lip, -9.0))
        band.paint(self.cover(whiskers) * bearded * 0.92, self.hair * 0.85, "beard")

        band = self.band(-0.25, 0.6)
        x, y = band.x - 1.5 * self.yaw, band.y
        tip = between(0.22, 0.38, look["nose_length"]) - 0.05 * self.child
        wide = between(0.08, 0.19, look["nose_width"]) * torch.where(self.child, 0.8, 1.0)
        ridge = torch.minimum(0.05 + 0.35 * wide * (y + 0.1) - (x - 0.02).abs(), box(x, y, 9.0, tip))
        shade = between(0.72, 0.88, look["nose_tone"])[:, None]
        band.paint(self.cover(ridge) * 0.35, self.skin * 1.12, "nose")
        band.paint(self.cover(ellipse(x, y - tip, wide, 0.085)), self.skin * shade, "nose")
        band.paint(self.cover(ellipse(x, y - tip + 0.035, wide * 0.75, 0.07)), self.skin * 1.02, "nose")

    def _eyes(self, free: Tensor) -> None:
        look, band = self.look, self.band(-0.35, 0.35)
        seen = free[:, band.rows]
        gap = between(0.27, 0.41, look["eye_gap"])
        wide = between(0.13, 0.20, look["eye_width"])
        high = between(0.065, 0.13, look["eye_height"]) * torch.where(self.child, 1.25, 1.0)
        across = (band.x - self.yaw).abs() - gap  # from the middle of either eye, outwards
        y = band.y - between(-0.06, 0.10, look["eye_y"]) + between(-0.25, 0.35, look["eye_slant"]) * across
        lid = high * (1 - (across / wide).square())
        white = lid - y.abs()
        radius = high * 0.85
        away = (across.square() + y.square()).sqrt()
        band.paint(self.cover(white) * seen, torch.full_like(self.skin, 0.97), "eyes")
        kind = (look["iris"] * len(_IRIS)).long().flatten()
        iris = _IRIS[kind][:, :, None, None]
        inside = self.cover(torch.minimum(white, radius - away)) * seen
        band.paint(inside, iris, "eyes")
        pupil = self.cover(torch.minimum(white, radius * 0.5 - away)) * seen
        band.paint(pupil, torch.full_like(self.skin, 0.05), "eyes")
        glint = 0.03 - ((across - 0.03).square() + (y + 0.035).square()).sqrt()
        band.paint(self.cover(glint) * inside, torch.ones_like(self.skin), "eyes")
        thick = torch.maximum(torch.where(self.female, 0.038, 0.022), 0.3 * self.pixel)
        lashes = torch.minimum(thick - (y + lid).abs(), wide * 1.1 - across.abs())
        band.paint(self.cover(lashes) * seen, self.skin * 0.18, "eyes")

    def _brows_and_mouth(self, free: Tensor) -> None:
        look = self.look
        smile, opening, broad, raised, worried = self._mood()
        band = self.band(-0.60, 0.15)
        across = (band.x - self.yaw).abs() - between(0.30, 0.40, look["eye_gap"])
        at = between(-0.31, -0.20, look["brow_y"]) - raised
        arch = between(0.0, 0.9, look["brow_arch"]) * across.square()
        slant = (between(-0.25, 0.25, look["brow_slant"]) - worried) * across
        thick = between(0.022, 0.060, look["brow_thick"]) * torch.where(self.female, 0.75, 1.15)
        thick = torch.maximum(thick, 0.35 * self.pixel)
        brow = torch.minimum(thick - (band.y - at + slant - arch).abs(), 0.22 - across.abs())
        band.paint(self.cover(brow) * free[:, band.rows], self.hair * 0.62, "brows")

        band = self.band(0.30, 1.05)
        seen = free[:, band.rows]
        half = between(0.22, 0.34, look["mouth_width"]) * broad * torch.where(self.child, 0.85, 1.0)
        across = ((band.x - 1.2 * self.yaw) / half).square()
        y = band.y - between(0.56, 0.68, look["mouth_y"]) + smile * (1.6 * across - 0.8)
        arc = (1 - across).clamp_(-1, 1)
        lips = between(0.035, 0.075, look["lip"]) * torch.where(self.female, 1.15, 0.8)
        redder = torch.tensor([0.82, 0.30, 0.34])[:, None, None]
        red = between(0.15, 0.45, look["lip_red"]) + 0.30 * self.female
        colour = self.skin * 0.78 + red[:, None] * (redder - self.skin * 0.78)
        band.paint(self.cover((lips + opening) * arc - y.abs()) * seen, colour, "mouth")
        gap = torch.maximum(opening, 0.012 + 0.15 * self.pixel)
        inner = gap * arc - 0.2 * lips - y.abs()
        within = self.cover(inner) * seen
        band.paint(within, torch.tensor([0.25, 0.05, 0.07])[:, None, None], "mouth")
        teeth = within * (smile > 0.05) * self.cover(0.3 * opening - y)
        band.paint(teeth, torch.full_like(self.skin, 0.97), "mouth")

    def _mood(self) -> tuple[Tensor, ...]:
        """Smile, opening, width, raised and worried brows: (B, 1, 1) each; no two smiles are quite alike."""
        smile, opening, broad, raised, worried = _EXPRESSION[self.world.expression][:, :, None, None].unbind(
            1
        )
        smile = smile * between(0.75, 1.2, self.scene["smile"])
        return smile, opening * between(0.7, 1.2, self.scene["open"]), broad, raised, worried

    def _hair_before(self) -> Tensor:
        """Coverage by the hair on top of the head and beside the face."""
        look, x, y = self.look, self.x, self.y
        curl = 0.07 * look["curl"].square() * triangle_wave(1.8 * x) * triangle_wave(1.8 * y)
        cap = ellipse(x, y + 0.05, self.width * (1.0 + self.hair_volume), 1.0 + self.hair_volume)
        sides = torch.where(
            self.female, between(0.15, 0.75, look["length"]), between(0.0, 0.35, look["length"])
        )
        fringe = between(0.28, 0.72, look["fringe"]) + 0.3
        parting = between(-0.22, 0.22, look["parting"])
        face = ellipse(
            x - parting,
            y - 0.3,
            self.width * between(0.78, 0.93, look["frame"]) + 0.3 * parting.abs(),
            fringe,
        )
        # Below the eyes the face is open to the chin.
        face = torch.maximum(face, torch.minimum(self.width * 0.86 - x.abs(), y - 0.1))
        return self.cover(torch.minimum(torch.minimum(cap, sides - y), -face) + curl)

    def _spectacles(self) -> tuple[Tensor, Tensor]:
        """Coverage by dark lenses and by frames."""
        look, s = self.look, self.scene
        x, y = self.x - self.yaw, self.y - between(-0.06, 0.10, look["eye_y"]) - 0.03
        gap = between(0.30, 0.38, look["eye_gap"])
        across = x.abs() - gap
        size = between(0.20, 0.27, s["frame_size"])
        round_lens = size - (across.square() + y.square()).sqrt()
        lens = torch.where(s["frame"] > 0.5, round_lens, box(across, y, size * 1.12, size * 0.75))
        thick = torch.maximum(between(0.020, 0.040, s["frame_tone"]), 0.4 * self.pixel)
        rim = thick - lens.abs()
        bridge = torch.minimum(thick - (y + 0.04).abs(), gap - size - x.abs())
        temple = torch.minimum(thick - (y + 0.04).abs(), torch.minimum(across - size, self.width - x.abs()))
        worn = self.world.glasses[:, None, None]
        frames = self.cover(torch.maximum(rim, torch.maximum(bridge, temple)))
        return self.cover(lens) * (worn == 2), frames * (worn > 0)

    def _hat(self) -> tuple[Tensor, Tensor]:
        """Coverage by the hat's body and trim; its plane is kept for the pattern."""
        s = self.scene
        unit = self.width * 1.04 + 0.06
        tilt = between(-0.14, 0.14, s["tilt"])
        x, y = self.x / unit, (between(-0.46, -0.38, s["lift"]) - self.y) / unit
        self.hat_x, self.hat_y = x - tilt * y, y + tilt * x
        return _hats.shape(self.hats, self.hat_x, self.hat_y, self.pixel / unit)

    def _wear(self, lenses: Tensor, frames: Tensor, body: Tensor, trim: Tensor) -> None:
        s = self.scene
        whole = self.band(-9, 9)
        glass = torch.tensor([0.10, 0.10, 0.13])[:, None, None].expand_as(self.skin)
        whole.paint(lenses, glass, "glasses")
        metal = torch.stack([s["frame_tone"] * 0.6, s["frame_size"] * 0.35, s["frame"] * 0.4], 1)
        whole.paint(frames, metal, "glasses")
        shade = 1.08 - 0.28 * self.hat_x.square().clamp_(max=2.0)
        first, second, third = (c[:, :, None, None] for c in self.hats.colours.unbind(1))
        mix = _hats.pattern(self.hats, self.hat_x, self.hat_y, self.yaw * 2, self.pixel)
        cloth = second + mix[:, None] * (first - second)
        whole.paint(body, cloth, "headwear", shade=shade)
        whole.paint(trim, third, "headwear", shade=shade)

    def _photograph(self) -> Tensor:
        """Light, colour of the light, and the sensor: (B, 3, H, W) uint8."""
        s = self.scene
        slope = between(-0.30, 0.30, s["light_x"]) * self.u + between(-0.30, 0.30, s["light_y"]) * self.v
        tint = between(0.88, 1.12, self.rgb("red", "green", "blue")) * between(0.70, 1.12, s["gain"])[:, None]
        levels = self.image * (tint * (1 + slope)[:, None]) * 255
        noise = sensor_noise(s["noise"].flatten(), levels[0].numel()).view_as(levels)
        levels += noise * between(1.0, 5.0, s["grain"])[:, None]
        return levels.round_().clamp_(0, 255).to(torch.uint8)
