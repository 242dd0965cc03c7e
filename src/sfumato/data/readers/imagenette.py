"""Imagenette in its official layout: train and val, each with a folder per WordNet id."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, assemble
from sfumato.data.readers.layout import classes_in, part
from sfumato.errors import DataError, ImageError, did_you_mean

_WHAT = "the content of imagenette2.tgz"

_NAMES = {
    "n01440764": "tench",
    "n02102040": "English springer",
    "n02979186": "cassette player",
    "n03000684": "chain saw",
    "n03028079": "church",
    "n03394916": "French horn",
    "n03417042": "garbage truck",
    "n03425413": "gas pump",
    "n03445777": "golf ball",
    "n03888257": "parachute",
}


def imagenette(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads Imagenette (Howard 2019), full size or the copies of 320 and 160 pixels.

    The official split is by image: all ten classes are in both parts. `val`, on which results are reported,
    is the split "test"; there is no "validation". The CSV of noisy labels is not read.

    Args:
        root: the folder with imagenette2, imagenette2-320 or imagenette2-160, or one of these.
        size, channels, skip_unreadable: see `folder`.

    Returns:
        Label `class`, by English names ("tench", ...).

    Raises:
        DataError: a part of the layout is missing, or an unknown class.
        ImageError: a file that is not an image.
    """
    copies = ("imagenette2", "imagenette2-320", "imagenette2-160")
    train = part("imagenette", Path(root), "train", *(f"{copy}/train" for copy in copies), what=_WHAT)
    found, left_out = [], Counter[str]()
    for directory, split in ((train, "train"), (train.parent / "val", "test")):
        for path, wordnet in classes_in("imagenette", directory, left_out, what=_WHAT):
            if wordnet not in _NAMES:
                raise DataError(
                    f"{directory}: {wordnet!r} is not one of the ten classes: {did_you_mean(wordnet, _NAMES)}"
                )
            found.append((path, _NAMES[wordnet], split))
    files, classes, splits = zip(*found, strict=True)
    return assemble(
        "imagenette",
        files,
        {"class": classes},
        splits,
        size=size,
        channels=channels,
        left_out=left_out,
        skip_unreadable=skip_unreadable,
    )
