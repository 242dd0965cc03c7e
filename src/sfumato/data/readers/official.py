"""Data sets in their official layouts: reading the parts of one, and three that are a folder per class."""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from sfumato.data.labelled import LabelledImages, label_of, split_by_class
from sfumato.data.readers.catalogue import sources
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, Root, Skip, assemble, files_by_class
from sfumato.data.splitting import SHARES
from sfumato.errors import ConfigError, DataError, did_you_mean

_BACKGROUND = "BACKGROUND_Google"  # not one of the 101 classes


def part(source: str, root: Root, *names: str, what: str = "") -> Path:
    """The first ROOT/name that exists, or ROOT itself if it has such a name, or one deeper under that name.

    The error names the existing files, and the source of `what`, or of the archive.
    """
    root = Path(root)
    places = [root / name for name in names] + [root] * (root.resolve().name in names)
    for place in places:
        if place.exists():
            deeper = place / place.name
            return deeper if deeper.is_dir() else place
    found = "no such folder"
    if root.is_dir():
        found = ", ".join(sorted(entry.name for entry in root.iterdir())[:6]) or "nothing"
    raise DataError(f"{root}: no {' or '.join(names)} (found: {found}): {_cure(source, what)}")


def optional(root: Root, *names: str) -> Path | None:
    """The first ROOT/name that exists, if any."""
    return next((path for name in names if (path := Path(root) / name).exists()), None)


def classes_in(source: str, directory: Path, left_out: Counter[str]) -> list[tuple[Path, str]]:
    """See `files_by_class`. Raises DataError for a folder without images."""
    found = files_by_class(directory, left_out) if directory.is_dir() else []
    if not found:
        raise DataError(f"{directory}: no images in sub-folders: {_cure(source)}")
    return found


def check_files(source: str, files: Iterable[Path]) -> None:
    """Raises DataError unless every file that a list names exists."""
    missing = [path for path in files if not path.is_file()]
    if missing:
        others = f", like {len(missing) - 1} others that the list names" if missing[1:] else ""
        raise DataError(f"{missing[0]}: no such file{others}: {_cure(source)}")


def _cure(source: str, what: str = "") -> str:
    facts = sources()[source]
    return f"put {what or facts.archive} there, from {facts.url}"


def check_positive(source: str, **settings: int | None) -> None:
    """Raises ConfigError for a setting below 1; None is the default."""
    for name, value in settings.items():
        if value is not None and value < 1:
            raise ConfigError(f"{source}: {name}={value}: at least 1")


def lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Number and fields of each line that is not blank: by commas in a .csv, by white space elsewhere."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            if path.suffix == ".csv":
                reader = csv.reader(opened)
                for fields in reader:
                    if fields:
                        yield reader.line_num, fields
            else:
                for number, line in enumerate(opened, 1):
                    if fields := line.split():
                        yield number, fields
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as text in UTF-8 ({error}): download it again") from error


def columns(path: Path, *names: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and the values of some columns, for each row of a CSV under its header."""
    rows = lines(path)
    header = next(rows, (0, []))[1]
    for name in names:
        if name not in header:
            raise DataError(f"{path}: no column {name!r}: {did_you_mean(name, header)}")
    places = [header.index(name) for name in names]
    for number, fields in rows:
        if len(fields) != len(header):
            raise bad_line(path, number, f"{len(fields)} values", f"{len(header)}, as in the header")
        yield number, [fields[place] for place in places]


def bad_line(path: Path, number: int, found: str, expected: str) -> DataError:
    """The error for a line that the official list does not have."""
    return DataError(f"{path}, line {number}: {found} instead of {expected}: download the file again")


def class_splits(values: Sequence[str], *, shares: tuple[float, float, float] = SHARES) -> list[str]:
    """The split of each row, with whole values given to splits by seed 0; see `split_by_class`."""
    split_of = [""] * len(values)
    for split, rows in split_by_class(label_of(values).codes, shares=shares, seed=0).items():
        for row in rows.tolist():
            split_of[row] = split
    return split_of


def caltech101(
    root: Root,
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    background: bool = False,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Reads Caltech-101 (Fei-Fei, Fergus & Perona 2004) from the folder with 101_ObjectCategories: `class`.

    There is no official split. Classes are drawn by seed 0, 60, 15 and 25 in 100; Faces_easy shows the
    photographs of Faces once more, and gets the split of Faces. With `background` BACKGROUND_Google is one
    more class.
    """
    left_out = Counter[str]()
    every = classes_in("caltech101", part("caltech101", root, "101_ObjectCategories"), left_out)
    found = [(path, name) for path, name in every if background or name != _BACKGROUND]
    left_out[f"images of the class {_BACKGROUND}"] = len(every) - len(found)
    splits = class_splits(["Faces" if name == "Faces_easy" else name for _, name in found])
    rows = ((*each, split) for each, split in zip(found, splits, strict=True))
    return _assemble("caltech101", rows, left_out, size, channels, skip_unreadable)


def miniimagenet(
    root: Root, *, size: int = DEFAULT_SIZE, channels: int = 3, skip_unreadable: Skip = None
) -> LabelledImages:
    """Reads MiniImageNet (Vinyals et al. 2016) with the split of Ravi & Larochelle 2017.

    There are 64, 16 and 20 classes of 600 images each; fewer are accepted. `class` is the WordNet id. `root`
    has train.csv, val.csv and test.csv (columns filename and label) and the images in images; or, without
    train.csv, the folders train, val and test, each with a folder per class.
    """
    by_list = part("miniimagenet", root, "train.csv", "train").suffix == ".csv"
    found, left_out, split_of = [], Counter[str](), dict[str, str]()
    for name in ("train", "val", "test"):
        where = part("miniimagenet", root, f"{name}.csv" if by_list else name)
        rows = _read_list(root, where) if by_list else classes_in("miniimagenet", where, left_out)
        found += [(path, wordnet, SPLITS[name]) for path, wordnet in rows]
    for _, wordnet, split in found:
        if split_of.setdefault(wordnet, split) != split:
            raise DataError(
                f"{root}: the class {wordnet} is in {split_of[wordnet]} and in {split}: "
                "few-shot tests need classes that were never trained on, so take it out of one"
            )
    return _assemble("miniimagenet", found, left_out, size, channels, skip_unreadable)


def _read_list(root: Root, path: Path) -> list[tuple[Path, str]]:
    directory = part("miniimagenet", root, "images")
    rows = [(directory / filename, label) for _, (filename, label) in columns(path, "filename", "label")]
    if not rows:
        raise DataError(f"{path}: no rows under the header: download it again")
    check_files("miniimagenet", [file for file, _ in rows])
    return rows


def lfw(
    root: Root,
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    least_images: int = 1,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Reads LFW (Huang et al. 2007): as published, funneled, or deep-funneled. The label is `identity`.

    Splits are by person. If the folder has peopleDevTrain.txt and peopleDevTest.txt, they are those of
    View 1, train and test, without a validation; otherwise people are drawn by seed 0, 60, 15 and 25 in 100
    for train, validation and test.

    `root` has lfw, lfw-deepfunneled or lfw_funneled, each as Name/Name_0001.jpg. People with fewer than
    `least_images` are left out: 1,680 of the 5,749 have two or more, and 158 have ten, which 5-shot episodes
    with 5 queries need.
    """
    check_positive("lfw", least_images=least_images)
    left_out = Counter[str]()
    photographs = part("lfw", root, "lfw", "lfw-deepfunneled", "lfw_funneled", "lfw-funneled")
    found = classes_in("lfw", photographs, left_out)
    counts = Counter(name for _, name in found)
    found = [(path, name) for path, name in found if counts[name] >= least_images]
    left_out[f"images of people with fewer than {least_images}"] = counts.total() - len(found)
    if not found:
        most = max(counts.values())
        raise DataError(f"{root}: nobody has {least_images} images, the most is {most}: lower least_images")
    train, test = optional(root, "peopleDevTrain.txt"), optional(root, "peopleDevTest.txt")
    if train and test:
        split_of = dict.fromkeys(_people(train), "train") | dict.fromkeys(_people(test), "test")
        splits = [split_of.get(name, "") for _, name in found]
    else:
        splits = class_splits([name for _, name in found])
    rows = ((*each, split) for each, split in zip(found, splits, strict=True))
    return _assemble("lfw", rows, left_out, size, channels, skip_unreadable, label="identity")


def _people(path: Path) -> list[str]:
    """The names of a list of people: their number, then a name and how many images there are, a line each."""
    names = []
    for row, (number, fields) in enumerate(lines(path)):
        if not fields[-1].isdecimal() or len(fields) != (1 if row == 0 else 2):
            expected = "a name and a number of images" if row else "the number of people"
            raise bad_line(path, number, repr(" ".join(fields)), expected)
        names += fields[:-1]
    return names


def _assemble(
    name: str,
    rows: Iterable[tuple[Path, str, str]],
    left_out: Counter[str],
    size: int,
    channels: int,
    skip: Skip,
    label: str = "class",
) -> LabelledImages:
    files, values, splits = zip(*rows, strict=True)
    return assemble(name, files, {label: values}, splits, (size, channels, skip), left_out=left_out)
