"""What the tests of official layouts share: a photograph to write, and a data set read back as words."""

from pathlib import Path

import numpy as np
from PIL import Image

from sfumato.data import LabelledImages


def photograph(path: Path, level: int = 0, *, size: tuple[int, int] = (20, 16), mode: str = "RGB") -> None:
    """Write a picture of one grey level, (width, height) as `size`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level,) * 3).convert(mode).save(path)


def values(data: LabelledImages, label: str) -> list[str]:
    """The name of a label on each row."""
    return [data.label(label).names[code] for code in data.label(label).codes]


def by_split(data: LabelledImages, label: str) -> dict[str, set[str]]:
    """The names of a label in each split."""
    return {name: set(values(data.split(name), label)) for name in data.splits}


def levels(data: LabelledImages) -> list[int]:
    """The grey level of each image; JPEG may move it by one."""
    return np.asarray(data.images.float().mean((1, 2, 3)).round().int()).tolist()
