"""Caltech-101 in its official layout: a folder per class below 101_ObjectCategories."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, assemble
from sfumato.data.readers.layout import class_splits, classes_in, part
from sfumato.errors import ImageError

_WHAT = "the content of 101_ObjectCategories.tar.gz"

_BACKGROUND = "BACKGROUND_Google"  # not one of the 101 classes


def caltech101(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    background: bool = False,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads Caltech-101 (Fei-Fei, Fergus & Perona 2004), with whole classes in train, validation and test.

    There is no official split. Classes are drawn by seed 0, 60, 15 and 25 in 100; Faces_easy shows the
    photographs of Faces once more, and gets the split of Faces.

    Args:
        root: the folder with 101_ObjectCategories.
        size, channels, skip_unreadable: see `folder`.
        background: whether BACKGROUND_Google is read, as one more class.

    Returns:
        Label `class`, by the names of the folders.

    Raises:
        DataError: a part of the layout is missing.
        ImageError: a file that is not an image.
    """
    directory = part("caltech101", Path(root), "101_ObjectCategories", what=_WHAT)
    left_out = Counter[str]()
    every = classes_in("caltech101", directory, left_out, what=_WHAT)
    found = [(path, name) for path, name in every if background or name != _BACKGROUND]
    left_out[f"images of the class {_BACKGROUND}"] = len(every) - len(found)
    classes = [name for _, name in found]
    return assemble(
        "caltech101",
        [path for path, _ in found],
        {"class": classes},
        class_splits(["Faces" if name == "Faces_easy" else name for name in classes]),
        size=size,
        channels=channels,
        left_out=left_out,
        skip_unreadable=skip_unreadable,
    )
