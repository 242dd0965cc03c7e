"""What two splits share, pictures or people: a test on it asks for what was learned."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from sfumato.base.files import printable
from sfumato.data.labelled import Label, LabelledImages

_SPLITS = ("train", "validation", "test", "distractors")  # those whose images are not meant to be alike


class Shared(NamedTuple):
    """One finding."""

    finding: str  # in words without names of files or people, as its effect
    effect: str
    example: str  # two files or a person, for the owner of the data

    @property
    def words(self) -> str:
        """The finding for a card or a report, which travel."""
        return f"{self.finding}: {self.effect}"

    def __str__(self) -> str:
        return f"{self.finding} (such as {printable(self.example)}): {self.effect}"


def find_shared(
    data: LabelledImages, *, target: str | None = None, secret: str | None = None
) -> list[Shared]:
    """What two splits share, and pictures with two values of one label.

    Two pictures are the same if all their pixels are equal, at the size at which the data was read. Without
    `target` the values of every label are looked at; the `secret` is the label of the person.
    """
    found = []
    names = [name for name in data.labels if name in (target, secret)] or list(data.labels)
    splits = {name: data.splits[name] for name in _SPLITS if name in data.splits}
    if data.images.device.type != "meta":  # a world that was not drawn
        found += [*_pictures(data, splits), *_two_values(data, names)]
    task = secret is None or (target is not None and data.are_one(secret, target))
    if secret is not None and not task and (both := in_two_splits(data.label(secret), splits)):
        people = len(data.classes(secret))
        found.append(
            Shared(
                f"{len(both):,} of {people:,} people ({secret!r}) are in more than one split",
                "adversaries are meant to learn from other people than those of the test",
                repr(both[0]),
            )
        )
    return found


def in_two_splits(label: Label, splits: Mapping[str, Tensor]) -> list[str]:
    """The values of a label that are in more than one split."""
    times = torch.zeros(len(label.names), dtype=torch.int64)
    for rows in splits.values():
        times[label.codes[rows].unique()] += 1
    return [label.names[code] for code in (times > 1).nonzero()[:, 0].tolist()]


def originals(data: LabelledImages) -> Label:
    """The picture behind each image: the same for equal pixels, and for copies by the label `original`."""
    codes, groups = data.same_as, [data.same_as]
    if "original" in data.labels:
        groups.append(data.labels["original"].codes)
    before = None
    while before is None or not torch.equal(codes, before):
        before = codes
        for group in groups:
            least = torch.full((int(group.max()) + 1,), len(data)).scatter_reduce(0, group, codes, "amin")
            codes = least[group]
    return Label(codes, tuple(map(str, range(len(data)))))


def _pictures(data: LabelledImages, splits: Mapping[str, Tensor]) -> Iterable[Shared]:
    for number, (split, rows) in enumerate(splits.items()):
        for other, others in list(splits.items())[:number]:
            both = torch.isin(data.same_as[rows], data.same_as[others])
            if both.any():
                row = int(rows[both][0])
                like = int(others[data.same_as[others] == data.same_as[row]][0])
                yield Shared(
                    f"{int(both.sum()):,} of {len(rows):,} images of {split} are the same pictures as in "
                    f"{other}",
                    f"what is measured on {split} is too high by it; remove them from one",
                    f"{_name(data, row)} and {_name(data, like)}",
                )


def _two_values(data: LabelledImages, names: Iterable[str]) -> Iterable[Shared]:
    for name in dict.fromkeys(names):
        label = data.label(name)
        wrong = (label.codes != label.codes[data.same_as]).nonzero()[:, 0]
        if name != "original" and len(wrong):
            row, like = int(wrong[0]), int(data.same_as[wrong[0]])
            values = [label.names[code] for code in label.codes[[row, like]].tolist()]
            count = len(data.same_as[wrong].unique())
            occur = "picture occurs" if count == 1 else "pictures occur"
            yield Shared(
                f"{count:,} {occur} under two values of {name!r}",
                "one of them is wrong, or nobody can tell them apart; remove or correct it",
                f"{_name(data, row)} ({values[0]!r}) and {_name(data, like)} ({values[1]!r})",
            )


def _name(data: LabelledImages, row: int) -> str:
    return data.files[row] if data.files else f"image {row + 1}"
