"""The bounds and checks of parameters, shared by all protections."""

import dataclasses
import math
import re
from dataclasses import replace
from fractions import Fraction
from typing import Any, get_type_hints

from sfumato.errors import SpecError, shorten
from sfumato.images import Images, check_batch
from sfumato.protect.release import FilePath, cell_of, number

# In grey levels, root mean square: the change of a photograph by JPEG of quality 95 (2 in the middle of LFW's
# faces, a PSNR of 42 dB). Nobody sees it: a release no further from its image, or noise no stronger, protects
# nothing.
LEAST_DIFFERENCE = 2.0

# The least and the most of each parameter, for any image: protection -> parameter -> both. The page
# keeps the same table (web/src/protect/parameters.ts), and a test compares them.
#
# At the least radius the median release of a face of LFW differs from it by 2.7 grey levels, and at 0.4 by
# 1.7, less than LEAST_DIFFERENCE. A share of 0.1 is one pixel in a hundred. No image has longer sides than
# the largest cell. The other limits are far beyond use, and within floating point, 64-bit noise and Pillow.
BOUNDS: dict[str, dict[str, tuple[float, float]]] = {
    "blur": {"radius": (0.5, 10_000)},
    "centre-blur": {"radius": (0.5, 10_000), "share": (0.1, 1)},
    "block": {"share": (0.1, 1)},
    "pixelize": {"cell": (2, 65_535)},
    "gaussian": {"sigma": (LEAST_DIFFERENCE, 1e9)},
    "dp-pix": {"cell": (1, 65_535), "epsilon": (1e-12, 1e12), "pixels": (1, 1e9)},
    "dp-pix-gaussian": {"cell": (1, 65_535), "rho": (1e-12, 1e12), "pixels": (1, 1e9)},
    "feature": {"noise": (1e-12, 1e12), "norm": (1e-6, 1e6)},
    "code": {"noise": (1e-12, 1e12), "norm": (1e-6, 1e6), "epsilon": (1e-12, 1e3)},
}
_STRONGER_WHEN_LARGER = ("cell", "radius", "share", "sigma")

PLACES = ("faces", "background", "box")
REGION = re.compile(rf"@({'|'.join(PLACES)})(?::(.*))?$")  # at the end of a spec: see region

# The largest share of the pixels of an image that a mask shows, or that leaves for a service around a region:
# the pixels around the hidden ones reveal them.
MOST_SHOWN = 0.99

_IN_CLEAR = "or write none to send images in clear"


def read_cell(text: str) -> int | Fraction:
    """The size of a cell as a spec writes it: pixels, or a fraction of the shorter side of the image."""
    if "/" not in text:
        return int(text)
    part, _, whole = text.partition("/")
    if not (part.isdecimal() and whole.isdecimal() and int(whole)):
        raise ValueError
    return Fraction(int(part), int(whole))


def check_size_of_cell(name: str, cell: int | Fraction) -> None:
    """Raises SpecError unless the size of a cell is within BOUNDS, or a fraction of at most a half."""
    if isinstance(cell, int):
        check_bounds(name, "cell", cell, "the paper uses 2 to 10")
    elif not 0 < cell <= Fraction(1, 2):
        raise SpecError(
            f"{name}: cell={_brief(cell)} is a share of the shorter side of an image: choose one above 0 and "
            "of at most 1/2, such as 1/8"
        )


def cell_in_pixels(protection: Any, height: int, width: int) -> int:
    """The side of the cells of a protection on images of one size; 1 without cells.

    A cell of 1/8 has an eighth of the shorter side, rounded up: there are never more than 8 along that side.
    Raises SpecError for cells of so few pixels that they protect nothing.
    """
    cell = cell_of(protection)
    if isinstance(cell, Fraction):
        cell = replace(protection, cell=math.ceil(cell * min(height, width))).cell  # replace checks it
    return int(cell)


def check_bounds(name: str, key: str, value: float, cure: str) -> None:
    """Raises SpecError unless a parameter is within BOUNDS: strong enough to protect, and computable."""
    least, most = BOUNDS[name][key]
    given = f"{name}: {key}={_brief(value)}"
    if not value > 0:
        raise SpecError(f"{given} is not above 0: {cure}")
    if value < least and key in _STRONGER_WHEN_LARGER:
        raise SpecError(
            f"{given} leaves the image {'' if key == 'cell' else 'nearly '}as it is: choose a {key} of at "
            f"least {number(least)}, {_IN_CLEAR}"
        )
    if value < least:
        raise SpecError(f"{given} is too small to compute with: choose at least {number(least)}")
    if value > most:
        raise SpecError(f"{given} is too large: choose at most {number(most)}")


def check_single_pixels(name: str, cell: int | Fraction, key: str, value: float, most: float) -> None:
    """Raises SpecError if cells are single pixels, and their noise, which alone hides them, is too little.

    `key` sets it, the larger the less; at `most` its standard deviation is LEAST_DIFFERENCE grey levels.
    """
    if cell == 1 and value > most:
        raise SpecError(
            f"{name}: cell=1 with {key}={_brief(value)} leaves the image nearly as it is: choose a cell of "
            f"at least 2, or {key} of at most {math.floor(most)}, {_IN_CLEAR}"
        )


def check_shown(name: str, keep: float) -> None:
    """Raises SpecError if more than MOST_SHOWN of the pixels are shown."""
    if keep > MOST_SHOWN:
        raise SpecError(
            f"{name}: keep={_brief(keep)} leaves the image nearly as it is: choose at most {MOST_SHOWN} (the "
            f"paper shows 0.25), {_IN_CLEAR}"
        )


def file_parameters(kind: Any) -> set[str]:
    """The parameters of a protection, a dataclass, that are files."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name for field in dataclasses.fields(kind) if hints[field.name] == FilePath}


def check_path(name: str, key: str, path: FilePath) -> None:
    """Raises SpecError for the path of a file that a spec could not represent."""
    if not path or path != path.strip() or "," in path or REGION.search(path):
        raise SpecError(
            f"{name}: {key}={path!r}: a path has no commas, which separate parameters, no spaces at "
            "its ends, and no @faces, @background or @box: rename the file"
        )


def check_pixels(name: str, pixels: int) -> int:
    """Returns the number of pixels that neighbours differ in. Raises SpecError below 1."""
    if pixels < 1:
        raise SpecError(f"{name}: pixels={pixels}: a guarantee is about at least 1 pixel")
    return pixels


def check_cell(name: str, cell: int, images: Images) -> None:
    """Raises SpecError unless (N, C, H, W) images hold at least one whole cell."""
    check_batch(images)
    height, width = images.shape[2:]
    if cell > min(height, width):
        raise SpecError(
            f"{name}: cell={cell} is larger than the {height}x{width} images: "
            f"choose a cell of at most {min(height, width)} (the paper uses 2 to 10)"
        )


def _brief(value: float | Fraction) -> str:
    """A number in a message; it may have thousands of digits."""
    return shorten(number(value), 24)
