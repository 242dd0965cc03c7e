"""A folder per class: DIR/anna/1.jpg, or DIR/train/anna/1.jpg with the splits as folders above."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

from sfumato import images
from sfumato.data.labelled import LabelledImages, label_of, split_by_class
from sfumato.errors import ConfigError, DataError, ImageError

SPLITS = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "valid": "validation",
    "test": "test",
}
SHARES = (0.6, 0.15, 0.25)  # of the classes, where a source names no splits

DEFAULT_SIZE = 84  # the paper's, for CelebA and MiniImageNet


def folder(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Read a folder of images, a sub-folder per class, into memory.

    Files that have no image suffix, and hidden ones, are passed over. Without split folders, whole
    classes are given to train, validation and test (60, 15 and 25 in 100, by seed 0).

    Args:
        root: the folder.
        size: every image becomes a centre square of this side, in pixels.
        channels: 3 for RGB, 1 for grey.
        skip_unreadable: called with the error of each file that is no image, which is then left out;
            None raises the first such error.

    Raises:
        DataError: no such folder, or no images in it.
        ImageError: a file that has an image suffix and is no image.
    """
    root = Path(root)
    if not root.is_dir():
        raise DataError(f"{root}: no such folder: name one that holds a sub-folder of images per class")
    tops = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    named = bool(tops) and all(path.name in SPLITS for path in tops)
    files: list[Path] = []
    classes: list[str] = []
    splits: list[str] = []
    for top in tops:
        for class_folder in sorted(top.iterdir()) if named else [top]:
            found = _image_files(class_folder) if class_folder.is_dir() else []
            files += found
            classes += [class_folder.name] * len(found)
            splits += [SPLITS.get(top.name, "") if named else ""] * len(found)
    if not files:
        raise DataError(
            f"{root}: no images: put them in a sub-folder per class, as {root.resolve().name}/anna/1.jpg"
        )
    return assemble(
        f"folder:{root}",
        files,
        {"class": classes},
        splits if named else None,
        size=size,
        channels=channels,
        skip_unreadable=skip_unreadable,
    )


def _image_files(directory: Path) -> list[Path]:
    return sorted(
        path
        for path in directory.rglob("*")
        if path.suffix.lower() in images.SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(directory.parent).parts)
        and path.is_file()
    )


def assemble(
    name: str,
    files: Sequence[Path],
    columns: dict[str, list[str]],
    splits: Sequence[str] | None,
    *,
    size: int,
    channels: int,
    skip_unreadable: Callable[[ImageError], None] | None,
) -> LabelledImages:
    """Read files into LabelledImages.

    Args:
        name: where they come from.
        files: one a row.
        columns: label name -> the value of each row; without splits, the first one decides them.
        splits: the split of each row, "" for none; None to give whole classes to splits.
        size, channels, skip_unreadable: see `folder`.
    """

    if size < 1:
        raise ConfigError(f"{name}: size={size}: at least 1 pixel")
    if channels not in (1, 3):
        raise ConfigError(f"{name}: channels={channels}: 3 for colour or 1 for grey")

    def read(path: Path) -> Tensor | ImageError:
        try:
            return images.read(path, channels=channels, size=size)
        except ImageError as error:
            return error

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        results = list(pool.map(read, files))
    kept = []
    for i, result in enumerate(results):
        if not isinstance(result, ImageError):
            kept.append(i)
        elif skip_unreadable is None:
            raise ImageError(f"{result}: remove the file, or pass skip_unreadable") from result
        else:
            skip_unreadable(result)
    if not kept:
        raise DataError(f"{name}: none of the {len(files)} files is an image that can be read")
    pixels = torch.stack([result for result in results if isinstance(result, Tensor)])
    labels = {key: label_of([values[i] for i in kept]) for key, values in columns.items()}
    if splits is None:
        by = next(iter(labels.values()))
        return LabelledImages(name, pixels, labels, split_by_class(by.codes, shares=SHARES, seed=0))
    rows = {
        split: torch.tensor([row for row, i in enumerate(kept) if splits[i] == split], dtype=torch.int64)
        for split in dict.fromkeys(SPLITS.values())
    }
    return LabelledImages(name, pixels, labels, {split: r for split, r in rows.items() if len(r)})
