"""A folder per class: DIR/anna/1.jpg, or DIR/train/anna/1.jpg with the splits as folders above."""

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import torch
from torch import Tensor

from sfumato import images
from sfumato.base.files import check_alike, leads_out
from sfumato.data.labelled import LabelledImages, label_of, rows_by_split, split_by_class
from sfumato.data.readers.stored import at_once, fetch, memory
from sfumato.data.splitting import SHARES
from sfumato.errors import ConfigError, DataError, ImageError

SPLITS = {
    "train": "train",
    "validation": "validation",
    "val": "validation",
    "valid": "validation",
    "test": "test",
    "distractors": "distractors",
}

DEFAULT_SIZE = 84  # the paper's, for CelebA and MiniImageNet


def folder(
    root: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads a folder of images, a sub-folder per class.

    Images of more than SFUMATO_MEMORY bytes together, 2 GiB by default, are not held in memory, but decoded
    once into a file of the user's cache (sfumato.data.readers.stored): a private copy, until it is cleared.
    The same holds for every source whose images are files.

    Files without an image suffix, and hidden ones, are ignored. A link that leads out of the folder is
    a file that cannot be read, unless it leads to a folder of SFUMATO_OUTSIDE. Without split folders, whole
    classes are given to train, validation and test (60, 15 and 25 in 100, by seed 0).

    Args:
        root: the folder.
        size: every image becomes a centre square of this side, in pixels.
        channels: 3 for RGB, 1 for grey.
        skip_unreadable: called with the error of each file that is not an image, which is then left out;
            None raises the first such error.

    Raises:
        DataError: no such folder, no images in it, or splits next to classes.
        ImageError: a file that has an image suffix and is not an image.
    """
    root = Path(root)
    if root.is_file():
        raise DataError(f"{root}: is a file: for a table of images, write table:{root}")
    if not root.is_dir():
        raise DataError(f"{root}: no such folder: name one that holds a sub-folder of images per class")
    tops = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    named = bool(tops) and all(path.name in SPLITS for path in tops)
    _check_tops(root, tops)
    if named:
        found = [(*pair, SPLITS[top.name]) for top in tops for pair in files_by_class(top)]
    else:
        found = [(*pair, "") for pair in files_by_class(root)]
    if not found:
        raise DataError(
            f"{root}: no images: put them in a sub-folder per class, as {root.resolve().name}/anna/1.jpg"
        )
    files, classes, splits = zip(*found, strict=True)
    return assemble(
        f"folder:{root}",
        files,
        {"class": classes},
        splits if named else None,
        size=size,
        channels=channels,
        root=root,
        skip_unreadable=skip_unreadable,
    )


def _check_tops(root: Path, tops: list[Path]) -> None:
    """Raises DataError if folders of splits lie next to folders of classes."""
    splits = [top for top in tops if top.name in SPLITS]
    others = [top for top in tops if top.name not in SPLITS]
    for top in splits if others else []:
        if files_by_class(top):  # a class that is called "train" has images, not sub-folders
            raise DataError(
                f"{root}: {top.name}/ holds a sub-folder per class, as a split does, and {others[0].name}/ "
                f"lies next to it: move the classes into {' and '.join(split.name for split in splits)}, or "
                f"{top.name}/ elsewhere"
            )


def files_by_class(directory: Path) -> list[tuple[Path, str]]:
    """Each image in the sub-folders of a folder, at any depth, and the name of its sub-folder; in order.

    Files without an image suffix, and hidden ones, are ignored.
    """
    return [
        (path, top.name)
        for top in sorted(directory.iterdir())
        if top.is_dir()
        for path in sorted(top.rglob("*"))
        if path.suffix.lower() in images.SUFFIXES
        and not any(part.startswith(".") for part in path.relative_to(directory).parts)
        and path.is_file()
    ]


def assemble(
    name: str,
    files: Sequence[Path],
    columns: Mapping[str, Sequence[str]],
    splits: Sequence[str] | None,
    *,
    size: int,
    channels: int,
    crop: int | None = None,
    root: Path | None = None,
    skip_unreadable: Callable[[ImageError], None] | None,
) -> LabelledImages:
    """Reads files into LabelledImages.

    Args:
        name: of their source.
        files: one a row.
        columns: label name -> the value of each row; without splits, the first one decides them.
        splits: the split of each row, or ""; None to give whole classes to splits.
        size, channels, skip_unreadable: see `folder`.
        crop: the side of the centre square that is kept before resizing, in pixels; None keeps the largest.
        root: the folder that no link may leave; None if that was checked.

    Raises:
        ConfigError, ImageError: see `folder`.
        DataError: no file can be read, or two values of a label look alike.
    """
    outside = frozenset(path for path in files if root is not None and leads_out(path, root))
    return gather(
        name,
        lambda: _decode(files, outside, size=size, channels=channels, crop=crop),
        columns,
        splits,
        shape=(channels, size, size),
        files=files,
        stamped=files,
        settings={"crop": crop} | ({"outside": sorted(map(str, outside))} if outside else {}),
        skip_unreadable=skip_unreadable,
    )


def gather(
    name: str,
    decode: Callable[[], Iterator[Tensor | ImageError]],
    columns: Mapping[str, Sequence[str]],
    splits: Sequence[str] | None,
    *,
    shape: tuple[int, int, int],
    files: Sequence[Path] = (),
    stamped: Sequence[Path],
    settings: object,
    skip_unreadable: Callable[[ImageError], None] | None,
) -> LabelledImages:
    """Gathers decoded images into LabelledImages; see `assemble` for the other arguments and the errors.

    Args:
        decode: begins to decode: the image of each row, in order, or its error.
        shape: C, H and W of the images.
        files: one a row, or none.
        stamped: the files that decide the images, for the cache.
        settings: whatever else decides them.
    """
    channels, size, _ = shape
    if size < 1:
        raise ConfigError(f"{name}: size={size}: at least 1 pixel")
    if channels not in (1, 3):
        raise ConfigError(f"{name}: channels={channels}: 3 for colour or 1 for grey")
    for key, values in columns.items():
        check_alike(name, f"values of the label {key!r} are", sorted(set(values)))
    number = len(next(iter(columns.values())))
    failed: dict[int, ImageError] = {}

    def tell(error: ImageError) -> None:
        if skip_unreadable is None:
            raise ImageError(f"{error}: remove the file, or pass skip_unreadable") from error
        skip_unreadable(error)

    def fill(take: Callable[[Tensor], object]) -> dict[int, ImageError]:
        """Passes on each image in order, and returns the errors of the others."""
        for row, image in enumerate(decode()):
            if isinstance(image, ImageError):
                failed[row] = image
                tell(image)
            else:
                take(image)
        if len(failed) == number:
            raise DataError(
                f"{name}: none of the {number} files is an image that can be read, such as "
                f"{next(iter(failed.values()))}"
            )
        return failed

    pixels: Tensor
    if number * math.prod(shape) <= memory():
        # Not a list to stack: it would hold every pixel twice.
        room, places = torch.empty(number, *shape, dtype=torch.uint8), count()
        fill(lambda image: room[next(places)].copy_(image))
        pixels = room[: number - len(failed)]
    else:
        pixels, known = fetch(name, stamped, (number, *shape), settings, fill)
        for row, error in known.items():
            if row not in failed:  # it failed already when the images were stored
                tell(error)
        failed = known
    kept = [row for row in range(number) if row not in failed]
    labels = {key: label_of([values[i] for i in kept]) for key, values in columns.items()}
    names = _names([files[i] for i in kept]) if files else ()
    if splits is None:
        first, by = next(iter(labels.items()))
        splits_of = split_by_class(by.codes, shares=SHARES, seed=0)
        return LabelledImages(name, pixels, labels, splits_of, split_by=first, files=names)
    return LabelledImages(name, pixels, labels, rows_by_split([splits[i] for i in kept]), files=names)


def _names(files: Sequence[Path]) -> tuple[str, ...]:
    """The names of files below the folder that all lie in."""
    paths = [Path(os.path.normpath(path.absolute())) for path in files]  # links are not followed
    root = os.path.commonpath([path.parent for path in paths])
    return tuple(path.relative_to(root).as_posix() for path in paths)


def _decode(
    files: Sequence[Path], outside: Collection[Path], *, size: int, channels: int, crop: int | None
) -> Iterator[Tensor | ImageError]:
    """The image of each file, in order, or its error; on all of torch's threads."""

    def read(path: Path) -> Tensor | ImageError:
        if path in outside:
            return ImageError(
                f"{path}: is a link out of its folder (if you trust it, set "
                f"SFUMATO_OUTSIDE={Path(os.path.realpath(path)).parent})",
                cause="a link out of its folder",
            )
        try:
            return _read(path, size=size, channels=channels, crop=crop)
        except ImageError as error:
            return error

    threads = torch.get_num_threads()
    # Not all at once: decoded images wait in memory.
    step = max(threads, at_once() // (channels * size**2))
    with ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(files), step):
            yield from pool.map(read, files[start : start + step])


def _read(path: Path, *, size: int, channels: int, crop: int | None) -> Tensor:
    if crop is None:
        return images.read(path, channels=channels, size=size)
        # Cropped before it is resized: resizing a region would blend in the pixels around it.
    pixels = images.read(path, channels=channels)  # (C, H, W)
    height, width = pixels.shape[1:]
    side = min(crop, height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[:, top : top + side, left : left + side]
    return images.read(images.encode(square, "BMP"), channels=channels, size=size)
