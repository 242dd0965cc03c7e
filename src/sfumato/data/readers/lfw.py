"""Labeled Faces in the Wild in its official layout: a folder per person, lists of people, lists of pairs."""

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, assemble
from sfumato.data.readers.layout import (
    bad_line,
    check_files,
    check_positive,
    class_splits,
    classes_in,
    lines,
    optional,
    part,
)
from sfumato.errors import DataError, ImageError

_WHAT = "the content of lfw.tgz"


@dataclass(frozen=True)
class Pair:
    """Two photographs of the verification test, and whether they show one person; fold is 1 to 10."""

    first: Path
    second: Path
    same: bool
    fold: int


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


def pairs(root: str | os.PathLike[str]) -> list[Pair]:
    """The pairs of pairs.txt, in its order: ten folds of 300 pairs of one person and 300 of two.

    Args:
        root: the folder with pairs.txt and the photographs; see `lfw`.

    Raises:
        DataError: a part of the layout is missing, or a line is malformed.
    """
    root = Path(root)
    path = part("lfw", root, "pairs.txt", what="pairs.txt")
    directory = _photographs(root)
    rows = lines(path)
    number, header = next(rows, (1, []))
    if len(header) != 2 or not all(field.isdecimal() and int(field) > 0 for field in header):
        raise bad_line(path, number, repr(" ".join(header)), "the number of folds and of pairs in each")
    folds, each = map(int, header)
    found = []
    for row, (number, fields) in enumerate(rows):
        same = row % (2 * each) < each  # those of one person come first in every fold
        names = [*fields[:2], fields[0], *fields[2:]] if same else fields  # name, number, name, number
        if len(names) != 4 or not (names[1].isdecimal() and names[3].isdecimal()):
            expected = "a name and two numbers" if same else "a name and a number, twice"
            raise bad_line(path, number, repr(" ".join(fields)), expected)
        first, second = _file(directory, *names[:2]), _file(directory, *names[2:])
        found.append(Pair(first, second, same, 1 + row // (2 * each)))
    if len(found) != 2 * folds * each:
        raise DataError(
            f"{path}: {len(found)} pairs, and its first line promises {2 * folds * each}: download it again"
        )
    check_files("lfw", (file for pair in found for file in (pair.first, pair.second)), what=_WHAT)
    return found


def _photographs(root: Path) -> Path:
    return part("lfw", root, "lfw", "lfw-deepfunneled", "lfw_funneled", "lfw-funneled", what=_WHAT)


def _file(directory: Path, name: str, number: str) -> Path:
    return directory / name / f"{name}_{int(number):04d}.jpg"


def _people(path: Path) -> list[str]:
    """The names of a list of people: their number, then a name and how many images there are, a line each."""
    names = []
    for row, (number, fields) in enumerate(lines(path)):
        if not fields[-1].isdecimal() or len(fields) != (1 if row == 0 else 2):
            expected = "a name and a number of images" if row else "the number of people"
            raise bad_line(path, number, repr(" ".join(fields)), expected)
        names += fields[:-1]
    return names
