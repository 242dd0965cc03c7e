"""CelebA in its official layout, and in the CSV form of its copies on Kaggle."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from sfumato.data.labelled import LabelledImages
from sfumato.data.readers import official
from sfumato.data.readers.folder import DEFAULT_SIZE, Root, Skip, assemble
from sfumato.errors import DataError

# Parnami et al. 2022, Sec. IV: the numbers of people in train, validation and test.
PEOPLE = (1510, 378, 427)
SHARES = (PEOPLE[0] / sum(PEOPLE), PEOPLE[1] / sum(PEOPLE), PEOPLE[2] / sum(PEOPLE))

HAIR_COLORS = ("black", "blond", "brown", "gray")

_PARTITION = {"0": "train", "1": "validation", "2": "test"}
_ANSWERS = {"1": "yes", "-1": "no"}


def celeba(
    root: Root,
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    crop: int | None = 176,
    split: Literal["identities", "attributes"] = "identities",
    least_images: int = 30,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Reads CelebA (Liu et al. 2015).

    Args:
        root: the folder with img_align_celeba (or img_celeba), list_attr_celeba, list_eval_partition and
            identity_CelebA, the lists as .txt or .csv, all side by side or in Img, Anno and Eval.
        size, channels, skip_unreadable: see `folder`.
        crop: the side of the centre square that is kept before resizing; 176 of the 178 x 218 aligned pixels
            is the choice of Parnami et al. 2022, Sec. IV. None keeps the largest, for img_celeba.
        split: "identities" gives whole people to train, validation and test, for few-shot tasks. Parnami
            et al. name no people, only counts: 1510, 378 and 427 (which make 2,315; they write 2,360), so
            people are drawn by seed 0 in these proportions. "attributes" is the official partition.
        least_images: with split="identities", people with fewer images are left out.

    Returns:
        Labels `identity` (if its list exists), the 40 attributes as "yes" or "no" by their names in
        lower case (`wearing_hat`), and `hair_color`: black, blond, brown or gray if exactly one of these
        four attributes is set, otherwise "other" (none of them, as for a bald head, or several).
    """
    official.check_positive("celeba", crop=crop, least_images=least_images)
    photographs = (f"{above}{name}" for name in ("img_align_celeba", "img_celeba") for above in ("", "Img/"))
    directory = official.part("celeba", root, *photographs)
    attributes, answers = _attributes(_list(root, "list_attr_celeba", "list_attr_celeba.txt"))
    files = list(answers)
    identities: dict[str, str] | None
    if split == "identities":
        what = "identity_CelebA.txt (or pass split='attributes', which does without it)"
        identities = _values(_list(root, "identity_CelebA", what), files)
        counts = Counter(identities.values())
        files = [file for file in files if counts[identities[file]] >= least_images]
        if not files:
            most = max(counts.values())
            raise DataError(
                f"{root}: nobody has {least_images} images, the most is {most}: lower least_images"
            )
        splits = official.class_splits([identities[file] for file in files], shares=SHARES)
    else:
        path = _optional_list(root, "identity_CelebA")
        identities = None if path is None else _values(path, files)
        what = "list_eval_partition.txt"
        partition = _values(_list(root, "list_eval_partition", what), files, _PARTITION)
        splits = [partition[file] for file in files]
    paths = [directory / file for file in files]
    official.check_files("celeba", paths)
    columns = {} if identities is None else {"identity": [identities[file] for file in files]}
    for place, name in enumerate(attributes):
        columns[name] = [answers[file][place] for file in files]
    hair = zip(*(columns[f"{color}_hair"] for color in HAIR_COLORS), strict=True)
    columns["hair_color"] = [
        HAIR_COLORS[marks.index("yes")] if marks.count("yes") == 1 else "other" for marks in hair
    ]
    return assemble("celeba", paths, columns, splits, (size, channels, skip_unreadable), crop=crop)


def _list(root: Root, name: str, what: str) -> Path:
    names = (f"{name}.txt", f"{name}.csv")
    return _optional_list(root, name) or official.part("celeba", root, *names, what=what)


def _optional_list(root: Root, name: str) -> Path | None:
    return official.optional(
        root, *(f"{above}{name}{suffix}" for suffix in (".txt", ".csv") for above in ("", "Anno/", "Eval/"))
    )


def _attributes(path: Path) -> tuple[list[str], dict[str, list[str]]]:
    """The names of the attributes, and file -> "yes" or "no" for each."""
    rows = official.lines(path)
    names: list[str] = []
    if path.suffix == ".csv":
        names = next(rows, (1, []))[1][1:]  # the first column is image_id
    else:
        next(rows, None)  # the number of images
        names = next(rows, (2, []))[1]
    if not {f"{color.title()}_Hair" for color in HAIR_COLORS} <= set(names):
        number = 1 if path.suffix == ".csv" else 2
        raise official.bad_line(path, number, "a line without Black_Hair", "40 attributes")
    answers = {}
    for number, (file, *marks) in rows:
        if len(marks) != len(names) or not set(marks) <= _ANSWERS.keys():
            raise official.bad_line(
                path, number, f"{len(marks)} values", f"{len(names)} values, each 1 or -1"
            )
        answers[file] = [_ANSWERS[mark] for mark in marks]
    if not answers:
        raise DataError(f"{path}: no images are listed: download the file again")
    return [name.lower() for name in names], answers


def _values(path: Path, files: Sequence[str], meaning: Mapping[str, str] | None = None) -> dict[str, str]:
    """File -> value in a list with two columns, for the wanted files."""
    values = {}
    rows = official.lines(path)
    if path.suffix == ".csv":
        next(rows, None)  # the header
    for number, fields in rows:
        if len(fields) != 2 or (meaning is not None and fields[1] not in meaning):
            expected = "a file and its " + ("person" if meaning is None else f"part, {', '.join(meaning)}")
            raise official.bad_line(path, number, repr(" ".join(fields)), expected)
        values[fields[0]] = fields[1] if meaning is None else meaning[fields[1]]
    for file in files:
        if file not in values:
            raise DataError(f"{path}: no line for {file}: download the file again")
    return values
