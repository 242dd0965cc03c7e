"""MiniImageNet in its two usual layouts: the CSV files of Ravi & Larochelle, or a folder per class."""

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, assemble
from sfumato.data.readers.layout import check_files, classes_in, columns, part
from sfumato.errors import DataError, ImageError

_WHAT = "images with train.csv, val.csv and test.csv, or the folders train, val and test,"


def miniimagenet(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads MiniImageNet (Vinyals et al. 2016) with the split of Ravi & Larochelle 2017.

    There are 64, 16 and 20 classes of 600 images each; fewer are accepted.

    Args:
        root: the folder with train.csv, val.csv and test.csv (columns filename and label) and the images in
            images; without train.csv, with the folders train, val and test, each with a folder per class.
        size, channels, skip_unreadable: see `folder`.

    Returns:
        Label `class`: the WordNet id ("n01532829").

    Raises:
        DataError: a part of the layout is missing, a row of a list is malformed, or a class is in two splits.
        ImageError: a file that is not an image.
    """
    root = Path(root)
    by_list = part("miniimagenet", root, "train.csv", "train", what=_WHAT).suffix == ".csv"
    found, left_out = [], Counter[str]()
    for name in ("train", "val", "test"):
        rows = _read_list(root, name) if by_list else _in_folders(root, name, left_out)
        found += [(path, wordnet, SPLITS[name]) for path, wordnet in rows]
    _check_classes(root, [(wordnet, split) for _, wordnet, split in found])
    files, classes, splits = zip(*found, strict=True)
    return assemble(
        "miniimagenet",
        files,
        {"class": classes},
        splits,
        size=size,
        channels=channels,
        left_out=left_out,
        skip_unreadable=skip_unreadable,
    )


def _read_list(root: Path, name: str) -> list[tuple[Path, str]]:
    path = part("miniimagenet", root, f"{name}.csv", what=_WHAT)
    directory = part("miniimagenet", root, "images", what=_WHAT)
    rows = [(directory / filename, label) for _, (filename, label) in columns(path, "filename", "label")]
    if not rows:
        raise DataError(f"{path}: no rows under the header: download it again")
    check_files("miniimagenet", [file for file, _ in rows], what=_WHAT)
    return rows


def _in_folders(root: Path, name: str, left_out: Counter[str]) -> list[tuple[Path, str]]:
    directory = part("miniimagenet", root, name, what=_WHAT)
    return classes_in("miniimagenet", directory, left_out, what=_WHAT)


def _check_classes(root: Path, pairs: list[tuple[str, str]]) -> None:
    split_of: dict[str, str] = {}
    for wordnet, split in pairs:
        if split_of.setdefault(wordnet, split) != split:
            raise DataError(
                f"{root}: the class {wordnet} is in {split_of[wordnet]} and in {split}: "
                "few-shot tests need classes that were never trained on, so take it out of one"
            )
