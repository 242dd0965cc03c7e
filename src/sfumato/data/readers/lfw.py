"""Labeled Faces in the Wild in its official layout: a folder per person, and lists of people."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, assemble
from sfumato.data.readers.layout import (
    bad_line,
    check_positive,
    class_splits,
    classes_in,
    lines,
    optional,
    part,
)
from sfumato.errors import DataError, ImageError

_WHAT = "the content of lfw.tgz"


def lfw(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    least_images: int = 1,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads LFW (Huang et al. 2007): as published, funneled, or deep-funneled.

    Splits are by person. If the folder has peopleDevTrain.txt and peopleDevTest.txt, they are those of
    View 1, train and test, without a validation; otherwise people are drawn by seed 0, 60, 15 and 25 in 100
    for train, validation and test.

    Args:
        root: the folder with lfw, lfw-deepfunneled or lfw_funneled, each as Name/Name_0001.jpg.
        size, channels, skip_unreadable: see `folder`.
        least_images: people with fewer images are left out. 1,680 of the 5,749 people have two or more, and
            158 have ten, which 5-shot episodes with 5 queries need.

    Returns:
        Label `identity`, by names as on disk ("Aaron_Eckhart").

    Raises:
        DataError: a part of the layout is missing, a list is malformed, or nobody has enough images.
        ImageError: a file that is not an image.
    """
    check_positive("lfw", least_images=least_images)
    root = Path(root)
    left_out = Counter[str]()
    found = classes_in("lfw", _photographs(root), left_out, what=_WHAT)
    counts = Counter(name for _, name in found)
    found = [(path, name) for path, name in found if counts[name] >= least_images]
    left_out[f"images of people with fewer than {least_images}"] = counts.total() - len(found)
    if not found:
        most = max(counts.values())
        raise DataError(f"{root}: nobody has {least_images} images, the most is {most}: lower least_images")
    people = [name for _, name in found]
    official = optional(root, "peopleDevTrain.txt"), optional(root, "peopleDevTest.txt")
    if official[0] and official[1]:
        split_of = dict.fromkeys(_people(official[0]), "train") | dict.fromkeys(_people(official[1]), "test")
        splits = [split_of.get(name, "") for name in people]
    else:
        splits = class_splits(people)
    return assemble(
        "lfw",
        [path for path, _ in found],
        {"identity": people},
        splits,
        size=size,
        channels=channels,
        left_out=left_out,
        skip_unreadable=skip_unreadable,
    )


def _photographs(root: Path) -> Path:
    return part("lfw", root, "lfw", "lfw-deepfunneled", "lfw_funneled", "lfw-funneled", what=_WHAT)


def _people(path: Path) -> list[str]:
    """The names of a list of people: their number, then a name and how many images there are, a line each."""
    names = []
    for row, (number, fields) in enumerate(lines(path)):
        if not fields[-1].isdecimal() or len(fields) != (1 if row == 0 else 2):
            expected = "a name and a number of images" if row else "the number of people"
            raise bad_line(path, number, repr(" ".join(fields)), expected)
        names += fields[:-1]
    return names
