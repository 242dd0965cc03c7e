"""People: the table of the people in images of `faces`, and the words and ranges of its columns."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

HAIR_COLORS = ("black", "brown", "blond", "red", "grey")
EXPRESSIONS = ("neutral", "happy", "sad", "surprised")
GLASSES = ("none", "clear", "dark")
GENDERS = ("female", "male")  # how a person presents
AGES = ("child", "adult", "senior")
FACE = ("hair", "skin", "beard", "nose", "eyes", "brows", "mouth")
PARTS = ("background", "clothes", *FACE, "glasses", "headwear")

# The looks of a person: numbers spread evenly over these ranges; lengths are in units of half a face.
LOOKS = {
    "width": (0.66, 0.84),
    "jaw": (-0.22, 0.10),
    "square": (0.0, 0.55),
    "skin": (0.0, 1.0),
    "skin_red": (0.0, 1.0),
    "ear": (0.10, 0.20),
    "eye_gap": (0.27, 0.41),
    "eye_y": (-0.06, 0.10),
    "eye_width": (0.13, 0.20),
    "eye_height": (0.065, 0.13),
    "eye_slant": (-0.25, 0.35),
    "iris": (0.0, 1.0),
    "brow_y": (-0.31, -0.20),
    "brow_thick": (0.022, 0.060),
    "brow_arch": (0.0, 0.9),
    "brow_slant": (-0.25, 0.25),
    "nose_length": (0.22, 0.38),
    "nose_width": (0.08, 0.19),
    "nose_tone": (0.72, 0.88),
    "mouth_y": (0.56, 0.68),
    "mouth_width": (0.22, 0.34),
    "lip": (0.035, 0.075),
    "lip_red": (0.15, 0.45),
    "fringe": (0.28, 0.72),
    "parting": (-0.22, 0.22),
    "volume": (0.0, 1.0),
    "length": (0.0, 1.0),
    "frame": (0.78, 0.93),
    "curl": (0.0, 1.0),
    "hair_light": (0.78, 1.15),
    "beard": (0.0, 1.0),
    "beard_length": (0.72, 0.5),
    "moustache": (0.0, 1.0),
    "freckles": (0.0, 1.0),
    "mole": (0.0, 1.0),
    "mole_x": (0.25, 0.45),
    "mole_y": (0.25, 0.7),
    "blush": (0.0, 1.0),
}
# The changes from image to image, in the same way.
SCENE = {
    "x": (-0.10, 0.10),
    "y": (0.18, 0.33),
    "size": (0.52, 0.63),
    "turn": (-0.16, 0.16),
    "yaw": (-0.10, 0.10),
    "light_x": (-0.40, 0.40),
    "light_y": (-0.40, 0.40),
    "gain": (0.60, 1.10),
    "red": (0.82, 1.18),
    "green": (0.82, 1.18),
    "blue": (0.82, 1.18),
    "ground_r": (0.0, 1.0),
    "ground_g": (0.0, 1.0),
    "ground_b": (0.0, 1.0),
    "other_r": (0.0, 1.0),
    "other_g": (0.0, 1.0),
    "other_b": (0.0, 1.0),
    "waves": (0.3, 3.0),
    "wave_x": (0.0, 1.0),
    "wave_y": (0.0, 1.0),
    "shirt_r": (0.05, 0.9),
    "shirt_g": (0.05, 0.9),
    "shirt_b": (0.05, 0.9),
    "frame": (0.0, 1.0),
    "frame_thick": (0.02, 0.04),
    "metal_r": (0.0, 0.6),
    "metal_g": (0.0, 0.35),
    "metal_b": (0.0, 0.4),
    "frame_size": (0.20, 0.27),
    "tilt": (-0.22, 0.22),
    "fade": (0.0, 0.35),
    "lift": (-0.46, -0.38),
    "smile": (0.75, 1.2),
    "open": (0.7, 1.2),
    "noise": (0.0, 1.0),
    "grain": (1.0, 7.0),
}


@dataclass(frozen=True)
class People:
    """The content of the images of a world, one row an image; `dataclasses.replace` varies it.

    Attributes:
        seed: of the world: it fixes the looks of each person and each kind of hat.
        identity: (N,) int64, the person.
        headwear: (N,) int64, the kind of hat.
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
        return replace(self, **{k: v[rows] for k, v in vars(self).items() if k != "seed"})

    def append(self, others: "People") -> "People":
        """These rows, and then others of the same world."""
        theirs = vars(others)
        both: dict[str, Any] = {k: torch.cat([v, theirs[k]]) for k, v in vars(self).items() if k != "seed"}
        return replace(self, **both)
