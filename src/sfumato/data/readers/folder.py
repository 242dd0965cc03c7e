"""A folder per class: DIR/anna/1.jpg, or DIR/train/anna/1.jpg with the splits as folders above."""

import math
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, count
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor

from sfumato import images
from sfumato.base.files import check_alike, leads_out
from sfumato.data.labelled import LabelledImages, label_of, name_some, rows_by_split, split_by_class
from sfumato.data.readers.stored import at_once, fetch, memory
from sfumato.data.splitting import SHARES
from sfumato.errors import ConfigError, DataError, ImageError

# Words for splits, as of Hugging Face's datasets; case does not matter.
SPLITS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "val", "valid", "dev"), "validation"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    "distractors": "distractors",
}

_MOST_SPLITS = 4  # folders side by side that may be splits under other names

Decoded: TypeAlias = tuple[Tensor, int]  # an image, and the number of further pictures of its file
Root: TypeAlias = str | os.PathLike[str]
Skip: TypeAlias = Callable[[ImageError], None] | None
Form: TypeAlias = tuple[int, int, Skip]  # size, channels and skip_unreadable; see `folder`

DEFAULT_SIZE = 84  # the paper's, for CelebA and MiniImageNet


def folder(
    root: Root, *, size: int = DEFAULT_SIZE, channels: int = 3, skip_unreadable: Skip = None
) -> LabelledImages:
    """Reads a folder of images, a sub-folder per class.

    Images of more than SFUMATO_MEMORY bytes together, 2 GiB by default, are decoded once into a file of the
    user's cache (sfumato.data.readers.stored), as of every source of files: a private copy, until cleared.

    Files are images by their suffix or their first bytes; others, and hidden ones, are left out and counted.
    A link that leads out of the folder is a file that cannot be read, unless it leads to a folder of
    SFUMATO_OUTSIDE. Without split folders, whole classes are given to train, validation and test (60, 15 and
    25 in 100, by seed 0).

    Args:
        root: the folder.
        size: every image becomes a centre square of this side, in pixels.
        channels: 3 for RGB, 1 for grey.
        skip_unreadable: called with the error of each file that is not an image, which is then left out;
            None raises the first such error.
    """
    root = Path(root)
    if root.is_file():
        raise DataError(f"{root}: is a file: for a table of images, write table:{root}")
    if not root.is_dir():
        raise DataError(f"{root}: no such folder: name one that holds a sub-folder of images per class")
    splits_of = _folders_of_splits(root)
    left_out = Counter[str]()
    if splits_of:
        found = [(*each, split) for top, split in splits_of for each in files_by_class(top, left_out)]
    else:
        found = [(*each, "") for each in files_by_class(root, left_out)]
    if not found:
        raise DataError(
            f"{root}: no images: put them in a sub-folder per class, as {root.resolve().name}/anna/1.jpg"
        )
    files, classes, splits = zip(*found, strict=True)
    below: dict[str, set[str]] = {}  # the folders below each class that has some
    depth = 2 if splits_of else 1
    for parts in (path.relative_to(root).parts for path in files):
        if len(parts) > depth + 1:
            below.setdefault("/".join(parts[:depth]), set()).add(parts[depth])
    if below:
        if not splits_of:
            _check_one_reading(root, files, below)
        left_out["folders below a class, whose names are no labels"] += sum(map(len, below.values()))
    return assemble(
        f"folder:{root}",
        files,
        {"class": classes},
        splits if splits_of else None,
        (size, channels, skip_unreadable),
        root=root,
        left_out=left_out,
    )


def _folders_of_splits(root: Path) -> list[tuple[Path, str]]:
    """The folders of splits and their splits; none if folders are classes. Raises DataError for a mixture."""
    tops = [path for path in sorted(root.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    splits = [(top, SPLITS[top.name.lower()]) for top in tops if top.name.lower() in SPLITS]
    others = [top for top in tops if splits and top.name.lower() not in SPLITS and _list(top, Counter())]
    for top, _ in splits if others else []:
        if files_by_class(top, Counter()):  # a class that is called "train" has images, not sub-folders
            raise DataError(
                f"{root}: {top.name}/ holds a sub-folder per class, as a split does, and {others[0].name}/ "
                f"lies next to it: move the classes into {' and '.join(each.name for each, _ in splits)}, or "
                f"{top.name}/ elsewhere"
            )
    for (first, split), (second, other) in combinations(splits if not others else [], 2):
        if split == other:
            raise DataError(
                f"{root}: {first.name}/ and {second.name}/ are both the split {split!r}: put them into one "
                "folder, or move one elsewhere"
            )
    return [] if others else splits


def _check_one_reading(root: Path, files: Sequence[Path], below: dict[str, set[str]]) -> None:
    """Raises DataError if the folders of classes may as well be splits, or one more folder above classes."""
    tops = dict.fromkeys(path.relative_to(root).parts[0] for path in files)
    if any(len(path.relative_to(root).parts) == 2 for path in files):
        return  # images lie in them
    first = next(iter(tops))
    inside = ", ".join(sorted(below[first])[:3])
    if len(tops) == 1:
        raise DataError(
            f"{root}: holds one folder, {first}/, and that holds {inside}: if these are the classes or "
            f"splits, write folder:{root / first}; if {first} is the only class, move its images up into it"
        )
    words = [SPLITS.keys() & set(re.split("[^a-z]+", top.lower())) for top in tops]
    alike = (
        len(tops) <= _MOST_SPLITS and len(below[first]) > 1 and len(set(map(frozenset, below.values()))) == 1
    )
    if all(words) or alike:
        names = " and ".join(f"{top}/" for top in list(tops)[:_MOST_SPLITS])
        raise DataError(
            f"{root}: are {names} splits or classes? Each holds folders, such as {inside}: if they are "
            "splits, call them train, validation and test; if they are classes, move the images up into them"
        )


def _list(directory: Path, left_out: Counter[str]) -> list[Path]:
    """The images below a folder, at any depth, in order; counts other files."""
    found = []
    for path in sorted(directory.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(directory).parts):
            left_out["hidden"] += not path.is_dir()
        elif path.is_dir():
            left_out["links to folders"] += path.is_symlink()
        elif not path.is_file():
            left_out["no regular files"] += 1
        elif images.is_image(path):
            found.append(path)
        else:
            left_out["no images by their first bytes"] += 1
    return found


def files_by_class(directory: Path, left_out: Counter[str]) -> list[tuple[Path, str]]:
    """Each image in the sub-folders of a folder, at any depth, and the name of its sub-folder; in order."""
    found, empty = [], []
    for top in sorted(directory.iterdir()):
        if top.name.startswith("."):
            left_out["hidden"] += 1
        elif top.is_dir():
            paths = _list(top, left_out)
            found += [(path, top.name) for path in paths]
            empty += [] if paths else [top.name]
        elif top.is_file() and images.is_image(top):
            left_out["images in no folder of a class"] += 1
        else:
            left_out["no images by their first bytes"] += 1
    if empty:
        left_out[f"folders without an image: {name_some(empty)}"] += len(empty)
    return found


def assemble(
    name: str,
    files: Sequence[Path],
    columns: Mapping[str, Sequence[str]],
    splits: Sequence[str] | None,
    form: Form,
    *,
    crop: int | None = None,
    root: Path | None = None,
    left_out: Mapping[str, int] = MappingProxyType({}),
) -> LabelledImages:
    """Reads files into LabelledImages; raises the errors of `folder`.

    Args:
        name, left_out: see LabelledImages.
        files: one a row.
        columns: label name -> the value of each row; without splits, the first one decides them.
        splits: the split of each row, or ""; None to give whole classes to splits.
        form: size, channels and skip_unreadable of `folder`.
        crop: the side of the centre square that is kept before resizing, in pixels; None keeps the largest.
        root: the folder that no link may leave; None if that was checked.
    """
    outside = frozenset(path for path in files if root is not None and leads_out(path, root))
    settings = {"crop": crop} | ({"outside": sorted(map(str, outside))} if outside else {})

    def decode() -> Iterator[Decoded | ImageError]:
        return _decode(files, outside, size=form[0], channels=form[1], crop=crop)

    return gather(name, decode, columns, splits, form, files, files, settings, left_out)


def gather(
    name: str,
    decode: Callable[[], Iterator[Decoded | ImageError]],
    columns: Mapping[str, Sequence[str]],
    splits: Sequence[str] | None,
    form: Form,
    files: Sequence[Path] = (),
    stamped: Sequence[Path] = (),
    settings: object = None,
    left_out: Mapping[str, int] = MappingProxyType({}),
) -> LabelledImages:
    """Gathers decoded images into LabelledImages; see `assemble` for the other arguments and the errors.

    `decode` begins to decode: the image of each row, in order, and how many further pictures its file has; or
    its error. The cache knows the images by the `stamped` files, and by `settings`.
    """
    size, channels, skip_unreadable = form
    shape = (channels, size, size)
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

    def fill(take: Callable[[Tensor], object]) -> tuple[dict[int, ImageError], int]:
        """Passes on each image in order; returns the errors of the others, and counts further pictures."""
        further = 0
        for row, decoded in enumerate(decode()):
            if isinstance(decoded, ImageError):
                failed[row] = decoded
                tell(decoded)
            else:
                take(decoded[0])
                further += decoded[1]
        if len(failed) == number:
            raise DataError(
                f"{name}: none of the {number} files is an image that can be read, such as "
                f"{next(iter(failed.values()))}"
            )
        return failed, further

    pixels: Tensor
    if number * math.prod(shape) <= memory():
        # Not a list to stack: it would hold every pixel twice.
        room, places = torch.empty(number, *shape, dtype=torch.uint8), count()
        _, further = fill(lambda image: room[next(places)].copy_(image))
        pixels = room[: number - len(failed)]
    else:
        pixels, known, further = fetch(name, stamped, (number, *shape), settings, fill)
        for row, error in known.items():
            if row not in failed:  # it failed already when the images were stored
                tell(error)
        failed = known
    kept = [row for row in range(number) if row not in failed]
    labels = {key: label_of([values[i] for i in kept]) for key, values in columns.items()}
    paths = [Path(os.path.normpath(files[i].absolute())) for i in kept] if files else []  # links stay
    top = os.path.commonpath([path.parent for path in paths]) if files else ""
    names = tuple(path.relative_to(top).as_posix() for path in paths)
    first: str | None
    first, by = next(iter(labels.items()))
    omitted = Counter(left_out)
    if further:
        omitted["further pictures of files, such as pages or frames"] = further
    if lost := sorted(set(columns[first]) - set(by.names)):
        omitted[f"values of {first!r} of which no image can be read: {name_some(lost)}"] = len(lost)
    if splits is None:
        parts = split_by_class(by.codes, shares=SHARES, seed=0)
    else:
        parts, first = rows_by_split([splits[i] for i in kept]), None
    return LabelledImages(name, pixels, labels, parts, split_by=first, files=names, left_out=+omitted)


def _decode(
    files: Sequence[Path], outside: Collection[Path], *, size: int, channels: int, crop: int | None
) -> Iterator[Decoded | ImageError]:
    """The image of each file, in order, or its error; on all of torch's threads."""

    def read(path: Path) -> Decoded | ImageError:
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


def _read(path: Path, *, size: int, channels: int, crop: int | None) -> Decoded:
    # Cropped before it is resized: resizing a region would blend in the pixels around it.
    pixels, further = images.read_first(path, channels=channels, size=size if crop is None else None)
    if crop is None:
        return images.as_tensor(pixels), further
    height, width = pixels.shape[1:]
    side = min(crop, height, width)
    top, left = (height - side) // 2, (width - side) // 2
    square = pixels[:, top : top + side, left : left + side]
    return images.read(images.encode(square, "BMP"), channels=channels, size=size), further
