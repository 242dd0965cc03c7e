"""Images with a table of named labels and named splits: the result of every data source."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from sfumato.base.files import printable
from sfumato.errors import DataError, did_you_mean
from sfumato.images import check_batch

_DIGESTED = 1 << 24  # bytes at a time
_LOOKED = 256  # images at a time
_NAMED = 3  # files that were left out


@dataclass(frozen=True)
class Label:
    """One column of the table: a code for every image, and the name behind each code."""

    codes: Tensor  # (N,) int64, from 0 to len(names) - 1
    names: tuple[str, ...]  # a split keeps them all, also unused ones


@dataclass(frozen=True)
class LabelledImages:
    """N images of one size, a table of named labels, and splits as lists of rows.

    Attributes:
        name: of their source, for reports: "faces", "folder:photos".
        images: (N, C, H, W) uint8; if they do not fit memory, a tensor that reads rows from a file
            (sfumato.data.readers.stored): take rows of it, never the whole.
        labels: label name -> Label; "class" for a single one. Images with equal values of a label "original"
            are copies of one another, for example turned: guarantees count copies as one image.
        splits: split name -> (n,) int64 rows: "train", "validation", "test"; "distractors", people whom an
            adversary must distinguish from those of the test; "further" pictures of the people of the test,
            by which many releases of one are measured.
        split_by: the label whose whole classes were given to splits, since nobody named any; see
            data.splitting. None if the source or the user named splits.
        files: the name of each image's file, below the folder that all lie in; () without files.
        skipped: the problem of each file that was left out, since it cannot be read.
        left_out: what else the source holds and these images do not: a reason, and how many. Behind a colon
            in a reason are names of the user's own.
    """

    name: str
    images: Tensor
    labels: Mapping[str, Label]
    splits: Mapping[str, Tensor] = field(default_factory=dict)
    split_by: str | None = None
    files: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_batch(self.images)
        for name, label in self.labels.items():
            if label.codes.shape != (len(self),):
                raise DataError(
                    f"{self.name}: label {name!r} has {label.codes.numel()} codes for {len(self)} images"
                )

    def __len__(self) -> int:
        return self.images.shape[0]

    def label(self, name: str) -> Label:
        """The label of that name."""
        if name not in self.labels:
            raise DataError(
                f"{self.name}: no label {name!r}: {did_you_mean(name, self.labels)}; commands take one as "
                "--target, --sensitive or --label"
            )
        return self.labels[name]

    def classes(self, label: str) -> Tensor:
        """(M,) the codes of `label` that occur, ascending."""
        values: Tensor = self.label(label).codes.unique()
        return values

    def are_one(self, label: str, other: str) -> bool:
        """Whether two labels divide the images alike: one thing under two names."""
        both = torch.stack([self.label(label).codes, self.label(other).codes])
        kinds = {len(self.classes(label)), len(self.classes(other)), both.unique(dim=1).shape[1]}
        return len(kinds) == 1

    def split(self, name: str) -> "LabelledImages":
        """The images of one split."""
        if name not in self.splits:
            raise DataError(f"{self.name}: no split {name!r}: {did_you_mean(name, self.splits)}")
        return self.rows(self.splits[name])

    def describe_left_out(self, *, names: bool = True) -> str:
        """One sentence on all that was left out, with some names if `names`; "" for nothing."""
        reasons = self.left_out if names else {key.partition(":")[0]: n for key, n in self.left_out.items()}
        parts = [", ".join(f"{number:,} ({printable(reason)})" for reason, number in reasons.items())]
        if self.skipped:
            files = f"{len(self.skipped):,} of {len(self) + len(self.skipped):,} files, which cannot be read"
            parts.insert(0, f"{files}: {name_some(self.skipped, separator='; ')}" if names else files)
        words = "; and ".join(filter(None, parts))
        return words and f"left out: {words}"

    @cached_property
    def are_grey(self) -> bool:
        """Whether all images have three equal channels."""
        parts = (self.images[start : start + _LOOKED] for start in range(0, len(self), _LOOKED))
        equal = (part.shape[1] == 3 and bool((part == part[:, :1]).all()) for part in parts)
        return len(self) > 0 and all(equal)

    def rows(self, rows: Tensor) -> "LabelledImages":
        """The images at (n,) int64 `rows`, with their labels and without splits."""
        labels = {k: Label(v.codes[rows], v.names) for k, v in self.labels.items()}
        return LabelledImages(self.name, self.images[rows], labels)

    @cached_property
    def same_as(self) -> Tensor:
        """(N,) int64, the first row whose pixels are all equal to those of each image."""
        first: dict[bytes, int] = {}
        step = max(1, _DIGESTED // max(1, self.images[:1].numel()))
        rows = [
            first.setdefault(hashlib.blake2b(image.tobytes(), digest_size=16).digest(), start + number)
            for start in range(0, len(self), step)
            for number, image in enumerate(self.images[start : start + step].numpy())
        ]
        return torch.tensor(rows, dtype=torch.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of pixels, labels and splits: the same data has the same digest on every machine."""
        sha = hashlib.sha256(repr(tuple(self.images.shape)).encode())
        step = max(1, _DIGESTED // max(1, self.images[:1].numel()))
        for start in range(0, len(self), step):  # in parts: they may be more than fit memory
            sha.update(self.images[start : start + step].contiguous().numpy().data)
        for name, label in sorted(self.labels.items()):
            sha.update(repr((name, label.names)).encode())
            sha.update(label.codes.contiguous().numpy().data)
        for name, rows in sorted(self.splits.items()):
            sha.update(repr((name, len(rows))).encode())
            sha.update(rows.contiguous().numpy().data)
        return sha.hexdigest()


def name_some(names: Sequence[str], *, separator: str = ", ") -> str:
    """The first of some names, and how many more there are."""
    more = f"{separator}and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return separator.join(printable(each) for each in names[:_NAMED]) + more


def without_pixels(count: int, channels: int, size: int) -> Tensor:
    """(count, channels, size, size) uint8 images with a shape and no pixels, which take no memory."""
    return torch.empty(count, channels, size, size, dtype=torch.uint8, device="meta")


def draw_rows(codes: Tensor, most: int, *, seed: int) -> Tensor:
    """At most `most` rows, drawn by a seed, ascending; all if there are no more.

    Data is sorted by class, and often by person: the first rows are of a few of them. Here each class
    keeps its share of the rows, and at least one while there is room.

    `codes`: (N,) int64 class, or person, of each row.
    """
    if len(codes) <= most:
        return torch.arange(len(codes))
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(codes), generator=draw)
    order = order[codes[order].argsort(stable=True)]  # class after class
    counts = codes.unique(return_counts=True)[1]
    places = torch.cat([torch.arange(count) for count in counts.tolist()])
    shares = torch.where(places > 0, places / counts.repeat_interleave(counts), -1.0)
    # Among equal shares, the order of classes must not decide.
    shares += 1e-6 * torch.rand(len(codes), generator=draw)
    return order[shares.argsort()[:most]].sort().values


def label_of(values: Sequence[str]) -> Label:
    """The label with these values on its rows; names in alphabetical order."""
    names = sorted(set(values))
    code = {name: i for i, name in enumerate(names)}
    return Label(torch.tensor([code[value] for value in values], dtype=torch.int64), tuple(names))


def rows_by_split(split_of: Sequence[str]) -> dict[str, Tensor]:
    """Split name -> rows, from the split of each row; "" means no split, and empty splits are left out."""
    rows: dict[str, list[int]] = {"train": [], "validation": [], "test": [], "distractors": [], "": []}
    for row, split in enumerate(split_of):
        rows[split].append(row)
    return {split: torch.tensor(found) for split, found in rows.items() if split and found}


def split_by_class(codes: Tensor, *, shares: tuple[float, float, float], seed: int) -> dict[str, Tensor]:
    """Gives whole classes to train, validation and test. (N,) codes -> split name -> rows.

    Few-shot learning is tested on classes that were never trained on, so a class is in one split only.

    `shares` of the classes are fractions that sum to 1; the same seed and classes give the same splits.
    """
    classes = codes.unique()
    order = classes[torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))]
    # An episode needs two classes: a share above 0 gets two, if there are two for each.
    least = [2 * (share > 0) for share in shares]
    spare = len(order) - sum(least)
    if spare < 0:
        least, spare = [0, 0, 0], len(order)
    middle = min(max(round(shares[1] * len(order)) - least[1], 0), spare) + least[1]
    spare -= middle - least[1]
    last = min(max(round(shares[2] * len(order)) - least[2], 0), spare) + least[2]
    if not shares[0]:
        last = len(order) - middle
    first = len(order) - last - middle
    parts = zip(("train", "validation", "test"), order.split([first, middle, last]), strict=True)
    return {name: torch.isin(codes, part).nonzero().flatten() for name, part in parts}
