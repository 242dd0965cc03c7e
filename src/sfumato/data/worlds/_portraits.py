"""Portraits: the table of the people in images of `faces`, and painting them from back to front."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sfumato.data.worlds import _hats
from sfumato.data.worlds.drawing import between, box, choose, coverage, ellipse, sensor_noise, triangle_wave

HAIR_COLORS = ("black", "brown", "blond", "red", "grey")
EXPRESSIONS = ("neutral", "happy", "sad", "surprised")
GLASSES = ("none", "clear", "dark")
GENDERS = ("female", "male")  # how a person presents
AGES = ("child", "adult", "senior")
FACE = ("hair", "skin", "beard", "nose", "eyes", "brows", "mouth")
PARTS = ("background", "clothes", *FACE, "glasses", "headwear")

# The looks of a person: numbers spread evenly over these ranges; lengths are in units of half a face.
LOOKS = {
    "width": (0.66, 0.84), "jaw": (-0.22, 0.10), "square": (0.0, 0.55), "skin": (0.0, 1.0),
    "skin_red": (0.0, 1.0), "ear": (0.10, 0.20), "eye_gap": (0.27, 0.41), "eye_y": (-0.06, 0.10),
    "eye_width": (0.13, 0.20), "eye_height": (0.065, 0.13), "eye_slant": (-0.25, 0.35), "iris": (0.0, 1.0),
    "brow_y": (-0.31, -0.20), "brow_thick": (0.022, 0.060), "brow_arch": (0.0, 0.9),
    "brow_slant": (-0.25, 0.25), "nose_length": (0.22, 0.38), "nose_width": (0.08, 0.19),
    "nose_tone": (0.72, 0.88), "mouth_y": (0.56, 0.68), "mouth_width": (0.22, 0.34), "lip": (0.035, 0.075),
    "lip_red": (0.15, 0.45), "fringe": (0.28, 0.72), "parting": (-0.22, 0.22), "volume": (0.0, 1.0),
    "length": (0.0, 1.0), "frame": (0.78, 0.93), "curl": (0.0, 1.0), "hair_light": (0.78, 1.15),
    "beard": (0.0, 1.0), "beard_length": (0.72, 0.5), "moustache": (0.0, 1.0), "freckles": (0.0, 1.0),
    "mole": (0.0, 1.0), "mole_x": (0.25, 0.45), "mole_y": (0.25, 0.7), "blush": (0.0, 1.0),
}  # fmt: skip
# The changes from image to image, in the same way.
SCENE = {
    "x": (-0.10, 0.10), "y": (0.18, 0.33), "size": (0.52, 0.63), "turn": (-0.16, 0.16),
    "yaw": (-0.10, 0.10), "light_x": (-0.40, 0.40), "light_y": (-0.40, 0.40), "gain": (0.60, 1.10),
    "red": (0.82, 1.18), "green": (0.82, 1.18), "blue": (0.82, 1.18), "ground_r": (0.0, 1.0),
    "ground_g": (0.0, 1.0), "ground_b": (0.0, 1.0), "other_r": (0.0, 1.0), "other_g": (0.0, 1.0),
    "other_b": (0.0, 1.0), "waves": (0.3, 3.0), "wave_x": (0.0, 1.0), "wave_y": (0.0, 1.0),
    "shirt_r": (0.05, 0.9), "shirt_g": (0.05, 0.9), "shirt_b": (0.05, 0.9), "frame": (0.0, 1.0),
    "frame_thick": (0.02, 0.04), "metal_r": (0.0, 0.6), "metal_g": (0.0, 0.35), "metal_b": (0.0, 0.4),
    "frame_size": (0.20, 0.27), "tilt": (-0.22, 0.22), "fade": (0.0, 0.35), "lift": (-0.46, -0.38),
    "smile": (0.75, 1.2), "open": (0.7, 1.2), "noise": (0.0, 1.0), "grain": (1.0, 7.0),
}  # fmt: skip


@dataclass(frozen=True)
class People:
    """The content of the images of a world, one row an image; `dataclasses.replace` varies it."""

    seed: int  # of the world: it fixes the looks of each person and each kind of hat
    identity: Tensor  # (N,) int64, the person
    headwear: Tensor  # (N,) int64, the kind of hat
    hair_color: Tensor  # (N,) int64 index into HAIR_COLORS; the same in all images of a person
    expression: Tensor  # (N,) int64 index into EXPRESSIONS
    glasses: Tensor  # (N,) int64 index into GLASSES
    gender: Tensor  # (N,) int64 index into GENDERS; the same in all images of a person
    age: Tensor  # (N,) int64 index into AGES; the same in all images of a person
    scene: Tensor  # (N, S) numbers in [0, 1): light, pose, background, clothes, and sensor noise

    def __len__(self) -> int:
        return len(self.identity)

    def rows(self, rows: Tensor) -> "People":
        """The people at (n,) int64 rows."""
        return replace(self, **{k: v[rows] for k, v in vars(self).items() if k != "seed"})

    def append(self, others: "People") -> "People":
        """These rows, and then others of the same world."""
        theirs = vars(others)
        both: dict[str, Any] = {k: torch.cat([v, theirs[k]]) for k, v in vars(self).items() if k != "seed"}
        return replace(self, **both)


_HAIR = torch.tensor(
    [
        [0.09, 0.08, 0.09], [0.36, 0.21, 0.11], [0.88, 0.72, 0.38], [0.68, 0.27, 0.10], [0.70, 0.70, 0.72],
    ]
)  # fmt: skip
_SKIN = torch.tensor(
    [
        [0.99, 0.86, 0.77], [0.95, 0.76, 0.62], [0.85, 0.62, 0.45], [0.65, 0.43, 0.29], [0.40, 0.25, 0.17],
    ]
)  # fmt: skip
_IRIS = torch.tensor([[0.34, 0.19, 0.08], [0.20, 0.45, 0.75], [0.25, 0.52, 0.28], [0.13, 0.10, 0.10]])
# For each expression: smile (corners up), opening, width, height of the brows, their inner ends up.
_EXPRESSION = torch.tensor(
    [
        [0.02, 0.00, 1.00, 0.00, 0.00], [0.12, 0.07, 1.20, 0.03, 0.00], [-0.10, 0.00, 0.90, 0.00, 0.35],
        [0.00, 0.14, 0.60, 0.11, 0.05],
    ]
)  # fmt: skip


def spread(table: Tensor, ranges: dict[str, tuple[float, float]]) -> dict[str, Tensor]:
    """(B, K) numbers in [0, 1) -> (B, 1, 1) each, by name and within its range."""
    low, high = torch.tensor(list(ranges.values())).unbind(1)
    return dict(zip(ranges, (low + (high - low) * table)[:, :, None, None].unbind(1), strict=True))


class _Band:
    """Some rows of a chunk of images, in the coordinates of the faces; painting changes the images."""

    def __init__(self, painter: "Painter", rows: slice) -> None:
        self.rows = rows
        self.image, self.parts = painter.image[:, :, rows], painter.parts[:, rows]
        self.x, self.y = painter.x[:, rows], painter.y[:, rows]

    def paint(self, cover: Tensor, colour: Tensor, part: str, *, shade: Tensor | None = None) -> None:
        """Paints a colour (B, 3, 1, 1), times a shade (B, h, W), over the image, by its cover."""
        over = colour if shade is None else colour * shade[:, None]
        self.image += (over - self.image).mul_(cover[:, None])
        # As masked_fill_, which takes thirty times as long.
        touched = (cover > 0).view(torch.uint8)
        self.parts.mul_(1 - touched).add_(touched, alpha=PARTS.index(part))


class _Layer(NamedTuple):
    """A layer to paint later: the arguments of _Band.paint."""

    band: _Band
    cover: Tensor
    colour: Tensor
    part: str
    shade: Tensor | None = None


class Painter:
    """One chunk of images, painted from back to front. State: the images and their part maps so far.

    Face coordinates: the origin is between the eyes, x right, y down; the chin is at y = 1, the skull
    ends at y = -1, and half a face is about 0.75 wide.
    """

    def __init__(self, world: People, looks: Tensor, hats: _hats.Hats, size: int) -> None:
        self.world, self.hats, self.size = world, hats, size
        self.look = look = spread(looks, LOOKS)
        self.scene = scene = spread(world.scene, SCENE)
        self.image = torch.zeros(len(world), 3, size, size)
        self.parts = torch.zeros(len(world), size, size, dtype=torch.uint8)
        self.female = (world.gender == 0)[:, None, None]
        self.child = (world.age == 0)[:, None, None]
        self.senior = (world.age == 2)[:, None, None]

        turn = scene["turn"]
        # In double: in float32 the last bit of a cosine depends on the position in the batch.
        self.cos, self.sin = turn.double().cos().float(), turn.double().sin().float()
        self.scale = scene["size"]
        self.left, self.top = scene["x"], scene["y"]
        self.pixel = 2 / (size * self.scale)  # (B, 1, 1), in face coordinates
        centres = (torch.arange(size) + 0.5) * (2 / size) - 1
        self.u, self.v = centres[None, None, :], centres[None, :, None]
        u, v = (self.u - self.left) / self.scale, (self.v - self.top) / self.scale
        self.x, self.y = u * self.cos + v * self.sin, v * self.cos - u * self.sin  # (B, H, W)
        self.yaw = scene["yaw"]

        self.width = look["width"]
        tone = look["skin"] * (len(_SKIN) - 1)
        below = tone.floor().long().flatten()
        share = (tone - tone.floor())[:, :, 0]
        mixed = _SKIN[below] * (1 - share) + _SKIN[below + 1] * share
        ruddy = torch.tensor([0.05, -0.02, -0.03]) * (2 * look["skin_red"][:, :, 0] - 1)
        self.skin = (mixed + ruddy)[:, :, None, None]  # (B, 3, 1, 1)
        hair = _HAIR[world.hair_color][:, :, None, None]
        self.hair = hair * look["hair_light"][:, None]
        self.volume = between(0.10, 0.30, look["volume"].square())

    def paint(self) -> tuple[Tensor, Tensor]:
        """-> (B, 3, H, W) images and (B, H, W) parts, both uint8."""
        self._background()
        self._hair_behind()
        self._body()
        self._head()
        self._beard_and_nose()
        # Layers that will cover glasses, eyes, brows and mouth cut them off sharply: a pixel shows one of
        # them or its cover, never both, so that no smile shines through the soft edge of a hat.
        hat = self._hat()
        over = [self._hair_before(), *self._spectacles(self._free_of(hat)), *hat]
        free = self._free_of(over)
        self._eyes(free)
        self._brows_and_mouth(free)
        for layer in over:
            layer.band.paint(layer.cover, layer.colour, layer.part, shade=layer.shade)
        return self._photograph(), self.parts

    def band(self, low: float, high: float, *, wide: float = 1.1) -> _Band:
        """The rows that can show y from low to high within |x| < wide, for any turn of the heads.

        Paint in a band must end within it: the band depends on the chunk, the image must not.
        """
        reach = wide * self.sin.abs()
        first = float((self.top + self.scale * (low * self.cos - reach)).min())
        last = float((self.top + self.scale * (high * self.cos + reach)).max())
        half = self.size / 2
        start = min(max(int((first + 1) * half) - 1, 0), self.size - 1)
        rows = slice(start, min(max(int((last + 1) * half) + 2, start + 1), self.size))
        return _Band(self, rows)

    def cover(self, distance: Tensor) -> Tensor:
        return coverage(distance, self.pixel)

    def _free_of(self, layers: Iterable[_Layer]) -> Tensor:
        """(B, H, W), 1 for pixels that no layer will touch, and 0 for the others."""
        free = torch.ones_like(self.x)
        for layer in layers:
            free[:, layer.band.rows].mul_(layer.cover <= 0)
        return free

    def rgb(self, *names: str) -> Tensor:
        return torch.stack([self.scene[name] for name in names], 1)  # (B, 3, 1, 1)

    def _background(self) -> None:
        s = self.scene
        phase = (2 * s["wave_x"] - 1) * self.u + (2 * s["wave_y"] - 1) * self.v
        mix = (0.5 + 0.8 * triangle_wave(s["waves"] * phase)).clamp_(0, 1)[:, None]
        # Paler than hats, so that the hat is often the loudest thing in the picture.
        ground = self.rgb("ground_r", "ground_g", "ground_b")
        other = self.rgb("other_r", "other_g", "other_b")
        colour = ground + mix * (0.5 * (other - ground))
        self.image += 0.18 + 0.45 * colour + 0.27 * colour.mean(1, keepdim=True)

    def _hair_behind(self) -> None:
        """Hair that falls behind the head: long on most women, short on most men."""
        look = self.look
        longer = torch.where(self.female, 0.35 + 0.65 * look["length"], 0.75 * look["length"].square())
        band = self.band(-1.5, 1.7, wide=1.4)
        down = between(0.15, 1.45, longer)
        wide = self.width * (1.0 + self.volume) + 0.10 * longer
        curl = 0.07 * look["curl"].square() * triangle_wave(1.8 * band.x) * triangle_wave(1.8 * band.y)
        upper = ellipse(band.x, band.y + 0.05, wide, 1.0 + 0.5 * self.volume)
        lower = box(band.x, band.y - down / 2, wide, down / 2)
        hair = torch.maximum(torch.minimum(upper, down - band.y), lower) + curl
        band.paint(self.cover(hair), self.hair * 0.8, "hair")

    def _body(self) -> None:
        band = self.band(0.5, 9.0, wide=2.2)
        shoulders = torch.where(self.child, 1.05, 1.35) + 0.15 * ~self.female
        neck = box(band.x, band.y - 1.0, torch.where(self.female, 0.28, 0.38), 0.45)
        band.paint(self.cover(neck), self.skin * 0.82, "skin")
        shirt = self.rgb("shirt_r", "shirt_g", "shirt_b")
        band.paint(self.cover(ellipse(band.x, band.y - 1.86, shoulders, 0.78)), shirt, "clothes")

    def _head_outline(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the outline, and 0 at the middle of the face to 1 at its outline."""
        jaw = self.look["jaw"] - 0.06 * self.female
        corners = self.look["square"] * torch.where(self.female, 0.6, 1.0)
        across = (x / (self.width * (1 + jaw * y.clamp(0, 1)))).clamp_(-1.25, 1.25).square_()
        down = y.clamp(-1.25, 1.25).square_()
        bulge = across + down - corners * across * down
        return (1 - bulge) * (0.5 * self.width), bulge

    def _head(self) -> None:
        look, band = self.look, self.band(-1.2, 1.25)
        sides = band.x.abs() - self.width
        ears = ellipse(sides, band.y - 0.08, look["ear"], 0.22)
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
        at = look["mole_x"] * torch.where(look["mole"] > 0.9, -1.0, 1.0)
        mole = 0.055 - ((x - at).square() + (band.y - look["mole_y"]).square()).sqrt()
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
        around = ellipse(x, y - 0.18, self.width * 0.74, look["beard_length"])
        jaw = torch.minimum(torch.minimum(outline + 0.04, y - 0.12), -around)
        lip = ellipse(x, y - look["mouth_y"] + 0.20, 0.30, 0.075)
        full = jaw - 9.0 * (look["beard"] <= 0.7)
        whiskers = torch.maximum(full, lip - 9.0 * (look["moustache"] <= 0.3))
        band.paint(self.cover(whiskers) * bearded * 0.92, self.hair * 0.85, "beard")

        band = self.band(-0.25, 0.6)
        x, y = band.x - 1.5 * self.yaw, band.y
        tip = look["nose_length"] - 0.05 * self.child
        wide = look["nose_width"] * torch.where(self.child, 0.8, 1.0)
        bridge = torch.minimum(y + 0.12, tip - y)
        ridge = torch.minimum(0.05 + 0.35 * wide * (y + 0.1) - (x - 0.02).abs(), bridge)
        shade = look["nose_tone"][:, None]
        band.paint(self.cover(ridge) * 0.35, self.skin * 1.12, "nose")
        band.paint(self.cover(ellipse(x, y - tip, wide, 0.085)), self.skin * shade, "nose")
        band.paint(self.cover(ellipse(x, y - tip + 0.035, wide * 0.75, 0.07)), self.skin * 1.02, "nose")

    def _eyes(self, free: Tensor) -> None:
        look, band = self.look, self.band(-0.35, 0.35)
        seen = free[:, band.rows]
        wide = look["eye_width"]
        high = look["eye_height"] * torch.where(self.child, 1.25, 1.0)
        across = (band.x - self.yaw).abs() - look["eye_gap"]  # from the middle of either eye, outwards
        y = band.y - look["eye_y"] + look["eye_slant"] * across
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
        mood = _EXPRESSION[self.world.expression][:, :, None, None]
        smile, opening, broad, raised, worried = mood.unbind(1)  # (B, 1, 1) each
        smile, opening = smile * self.scene["smile"], opening * self.scene["open"]  # no two are quite alike
        band = self.band(-0.80, 0.15)
        across = (band.x - self.yaw).abs() - (0.10 + 0.72 * look["eye_gap"])
        at = look["brow_y"] - raised
        arch = look["brow_arch"] * across.square()
        slant = (look["brow_slant"] - worried) * across
        thick = look["brow_thick"] * torch.where(self.female, 0.75, 1.15)
        thick = torch.maximum(thick, 0.35 * self.pixel)
        brow = torch.minimum(thick - (band.y - at + slant - arch).abs(), 0.22 - across.abs())
        band.paint(self.cover(brow) * free[:, band.rows], self.hair * 0.62, "brows")

        band = self.band(0.30, 1.05)
        seen = free[:, band.rows]
        half = look["mouth_width"] * broad * torch.where(self.child, 0.85, 1.0)
        x = band.x - 1.2 * self.yaw
        across = (x / half).square()
        y = band.y - look["mouth_y"] + smile * (1.6 * across - 0.8)
        arc = 1 - across
        lips = look["lip"] * torch.where(self.female, 1.15, 0.8)
        redder = torch.tensor([0.82, 0.30, 0.34])[:, None, None]
        red = look["lip_red"] + 0.30 * self.female
        colour = self.skin * 0.78 + red[:, None] * (redder - self.skin * 0.78)
        band.paint(
            self.cover(torch.minimum((lips + opening) * arc - y.abs(), half - x.abs())) * seen,
            colour,
            "mouth",
        )
        gap = torch.maximum(opening, 0.012 + 0.15 * self.pixel)
        inner = torch.minimum(gap * arc - 0.2 * lips - y.abs(), 0.9 * half - x.abs())
        within = self.cover(inner) * seen
        band.paint(within, torch.tensor([0.25, 0.05, 0.07])[:, None, None], "mouth")
        teeth = within * (smile > 0.05) * self.cover(0.3 * opening - y)
        band.paint(teeth, torch.full_like(self.skin, 0.97), "mouth")

    def _hair_before(self) -> _Layer:
        """The hair on top of the head and at the sides of the face."""
        look, band = self.look, self.band(-1.5, 0.95, wide=1.4)
        x, y = band.x, band.y
        curl = 0.07 * look["curl"].square() * triangle_wave(1.8 * x) * triangle_wave(1.8 * y)
        cap = ellipse(x, y + 0.05, self.width * (1 + self.volume), 1 + self.volume)
        short, long = between(0.0, 0.35, look["length"]), between(0.15, 0.75, look["length"])
        sides = torch.where(self.female, long, short)
        fringe = look["fringe"] + 0.3
        opening = self.width * look["frame"] + 0.3 * look["parting"].abs()
        face = ellipse(x - look["parting"], y - 0.3, opening, fringe)
        # Below the eyes the face is open to the chin.
        face = torch.maximum(face, torch.minimum(self.width * 0.86 - x.abs(), y - 0.1))
        cover = self.cover(torch.minimum(torch.minimum(cap, sides - y), -face) + curl)
        strands = 1 + 0.12 * triangle_wave(3.0 * x + 1.5 * y)
        return _Layer(band, cover, self.hair, "hair", strands)

    def _spectacles(self, free: Tensor) -> tuple[_Layer, _Layer]:
        """Dark lenses, and frames, except under a hat."""
        look, s, band = self.look, self.scene, self.band(-0.45, 0.55)
        x, y = band.x - self.yaw, band.y - look["eye_y"] - 0.03
        gap = 0.15 + 0.56 * look["eye_gap"]
        across = x.abs() - gap
        size = s["frame_size"]
        round_lens = size - (across.square() + y.square()).sqrt()
        lens = choose(s["frame"] > 0.5, round_lens, box(across, y, size * 1.12, size * 0.75))
        thick = torch.maximum(s["frame_thick"], 0.4 * self.pixel)
        # The bridge between the lenses, and the temples from the lenses to the ears.
        bar = torch.minimum(thick - (y + 0.04).abs(), torch.maximum(-lens, across - size))
        bar = torch.minimum(bar, self.width - x.abs())
        frames = self.cover(torch.maximum(thick - lens.abs(), bar))
        seen = free[:, band.rows]
        worn = self.world.glasses[:, None, None]
        glass = torch.tensor([0.10, 0.10, 0.13])[:, None, None]
        metal = self.rgb("metal_r", "metal_g", "metal_b")
        return (
            _Layer(band, self.cover(lens) * (worn == 2) * seen, glass, "glasses"),
            _Layer(band, frames * (worn > 0) * seen, metal, "glasses"),
        )

    def _hat(self) -> tuple[_Layer, _Layer]:
        s, band = self.scene, self.band(-9.0, 0.45, wide=2.0)
        unit = self.width * 1.04 + 0.06
        x, y = band.x / unit, (s["lift"] - band.y) / unit
        worn = _hats.wear(
            self.hats, x, y, self.pixel / unit, tilt=s["tilt"], fade=s["fade"], phase=self.yaw * 4
        )
        return (
            _Layer(band, worn.body, worn.cloth, "headwear", worn.shade),
            _Layer(band, worn.trim, worn.ribbon, "headwear", worn.shade),
        )

    def _photograph(self) -> Tensor:
        """Light, colour of the light, and the sensor: (B, 3, H, W) uint8."""
        s = self.scene
        slope = s["light_x"] * self.u + s["light_y"] * self.v
        tint = self.rgb("red", "green", "blue") * s["gain"][:, None]
        levels = self.image * (tint * (1 + slope)[:, None]) * 255
        noise = sensor_noise(s["noise"].flatten(), levels[0].numel()).view_as(levels)
        levels += noise * s["grain"][:, None]
        return levels.round_().clamp_(0, 255).to(torch.uint8)
