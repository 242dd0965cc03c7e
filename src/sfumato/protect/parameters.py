"""What the parameters of every protection share: how they are checked, and how they are written."""

import dataclasses
import hashlib
import math
from pathlib import Path
from typing import Any

from torch import Tensor

from sfumato.errors import ArtefactError, SpecError
from sfumato.images import check_batch


# In grey levels, root mean square: what JPEG of quality 95 changes in a photograph (1.2 to 3.9 on LFW and Caltech
# 101, 2 in the middle of faces; a PSNR of 42 dB). Nobody sees it, and every network forgives it: a release that
# is no further from its image, and noise that is no stronger, is the image itself.
LEAST_DIFFERENCE = 2.0


def canonical(name: str, protection: Any) -> str:
    """`name:key=value,...` in the order of the dataclass fields, leaving out those at their default."""
    parts = [
        f"{field.name}={_number(value)}"
        for field in dataclasses.fields(protection)
        if (value := getattr(protection, field.name)) != field.default
    ]
    return f"{name}:{','.join(parts)}" if parts else name


def check_above_zero(name: str, key: str, value: float, cure: str) -> None:
    """Raise SpecError unless 0 < value < inf."""
    if not (value > 0 and math.isfinite(value)):
        raise SpecError(f"{name}: {key}={_number(value)} is not above 0: {cure}")


def check_path(name: str, key: str, path: str) -> None:
    """Raise SpecError for the path of a file that a spec could not be read back with."""
    if not path or path != path.strip() or "," in path:
        raise SpecError(
            f"{name}: {key}={path!r}: a path without commas, which separate parameters, "
            "nor spaces at its ends: rename the file"
        )


def artefact_digest(path: str) -> str:
    """The SHA-256 of a file that a spec only names; see release.made_of. Raises ArtefactError."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ArtefactError(f"{path}: cannot be read ({error.strerror})") from error


def check_pixels(name: str, pixels: int) -> int:
    """The number of pixels that neighbours differ in. Raises SpecError below 1."""
    if pixels < 1:
        raise SpecError(f"{name}: pixels={pixels}: a guarantee is about at least 1 pixel")
    return pixels


def check_cell(name: str, cell: int, images: Tensor) -> None:
    """Raise SpecError unless (N, C, H, W) images hold at least one whole cell."""
    check_batch(images)
    height, width = images.shape[2:]
    if cell > min(height, width):
        raise SpecError(
            f"{name}: cell={cell} is larger than the {height}x{width} images: "
            f"choose a cell of at most {min(height, width)} (the paper uses 2 to 10)"
        )


def _number(value: float | str) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
