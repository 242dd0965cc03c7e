"""Splits for a task and its secret, if the source names none."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from sfumato.data.labelled import Label, LabelledImages, split_by_class
from sfumato.errors import DataError

SHARES = (0.6, 0.15, 0.25)  # of classes, people or images, for training, validation and test

_FEWEST = 2  # people of a split
_FEWEST_CLASSES = 6  # of which each of three splits gets two, so that there are episodes
_TRIES = 50  # ways to give people to splits; the one that spreads the classes best is taken


def split_for_task(
    data: LabelledImages,
    *,
    target: str,
    sensitive: str | None,
    episodic: bool,
    split_by: str | None = None,
) -> tuple[LabelledImages, str]:
    """The data with splits that suit a task, and a sentence about them.

    With a secret other than the task: people are in one split only, so that adversaries train on others. Else
    whole classes for few-shot learning, if each split gets two; and for a classifier some images of each.

    Args:
        data: of any source; unchanged, and "" returned, if it names its splits.
        target: the label to classify.
        sensitive: the label that must stay hidden, or None.
        episodic: whether the task is learned in episodes.
        split_by: a label whose values are each in one split only, for any task; None for the above.
    """
    if data.split_by is None:
        if split_by is not None:
            raise DataError(
                f"{data.name}: names its splits, and is to be split by {split_by!r}: leave out --split-by, "
                "or remove the splits of the source"
            )
        return data, ""
    codes = data.label(target).codes
    by = split_by
    if by is None and sensitive is not None and not data.are_one(sensitive, target):
        by = sensitive
    classes = len(codes.unique())
    few = by is None and episodic and classes < _FEWEST_CLASSES
    if by is None and episodic and not few:
        by = target
    if by is None:
        splits = stratify(codes, seed=0)
        how = f"each class of {target!r} is in all of them"
        how += f", since {classes} classes are too few for a test of new ones" * few
    elif by == target:
        splits = split_by_class(codes, shares=SHARES, seed=0)
        how = f"no class of {target!r} is in two of them"
    else:
        splits = _of_people(data.label(by).codes, codes)
        how = f"nobody ({by!r}) is in two of them"
    counts = [f"{len(splits[name]):,}" for name in ("train", "validation", "test")]
    words = (
        f"splits: {data.name} names none, so {counts[0]} images are for training, {counts[1]} for validation "
        f"and {counts[2]} for the test; {how}"
    )
    if by != target and (missing := _missing(data.label(target), splits)):
        words += f". {missing}: add images of it"
        if by is not None:
            words += f" by others ({by!r}), or name another label to split by with --split-by"
    return replace(data, splits=splits), words


def in_turns(
    data: LabelledImages, *, target: str, sensitive: str | None, folds: int
) -> tuple[list[LabelledImages], str]:
    """The data once for each fold: everybody is a test person in one of them, and in one split of each fold.

    The other people of a fold are for its training and validation, so the training images of two folds are in
    part the same: results differ less from fold to fold than between studies of other people. Classes of the
    `target` are as even in all folds as possible. -> the data with the splits of each fold, and a sentence.
    """
    if data.split_by is None:
        raise DataError(
            f"{data.name}: names its splits, so that people cannot take turns: leave out folds, or remove "
            "the splits of the source"
        )
    if sensitive is None or data.are_one(sensitive, target):
        raise DataError(
            f"folds={folds}: people take turns only if they are the secret and not the task: name another "
            "label as the secret, or leave out folds"
        )
    people, classes = data.label(sensitive).codes, data.label(target).codes
    who = people.unique()
    if len(who) < _FEWEST * folds or len(who) - -(-len(who) // folds) < 2 * _FEWEST:
        raise DataError(
            f"{data.name}: {len(who)} people ({sensitive!r}) cannot take {folds} turns: {_FEWEST} are needed "
            "for each test, for training and for validation: ask for fewer folds, or add people"
        )
    orders = [
        who[torch.randperm(len(who), generator=torch.Generator().manual_seed(n))] for n in range(_TRIES)
    ]
    turns = list(reversed(range(folds)))
    ways = [[torch.isin(people, each[turn::folds]).nonzero().flatten() for turn in turns] for each in orders]
    tests = min(ways, key=lambda way: _unevenness(dict(enumerate(way)), classes))
    made = []
    for test in tests:
        rest = torch.ones(len(data), dtype=torch.bool).index_fill(0, test, False).nonzero().flatten()
        shares = SHARES[0] / (SHARES[0] + SHARES[1]), SHARES[1] / (SHARES[0] + SHARES[1]), 0.0
        parts = _of_people(people[rest], classes[rest], shares)
        splits = {"train": rest[parts["train"]], "validation": rest[parts["validation"]], "test": test}
        made.append(replace(data, splits=splits))
    each = sorted({len(people[test].unique()) for test in tests})
    words = (
        f"folds: {len(who):,} people ({sensitive!r}) take {folds} turns as the people of the test, "
        f"{' or '.join(map(str, each))} at a time; nobody is in two splits of a fold"
    )
    return made, words


def _missing(label: Label, splits: dict[str, Tensor]) -> str:
    """The class that is missing in training or test, in words, or ""."""
    for code in label.codes.unique().tolist():
        for split in ("train", "test"):
            if not bool((label.codes[splits[split]] == code).any()):
                return f"Class {label.names[code]!r} is missing in {split}"
    return ""


def stratify(codes: Tensor, *, seed: int) -> dict[str, Tensor]:
    """Gives some images of each class to every split: of two one to the test, of four one to validation."""
    generator = torch.Generator().manual_seed(seed)
    parts: dict[str, list[Tensor]] = {"train": [], "validation": [], "test": []}
    for code in codes.unique():
        rows = (codes == code).nonzero().flatten()
        rows = rows[torch.randperm(len(rows), generator=generator)]
        test = max(round(SHARES[2] * len(rows)), int(len(rows) > 1))
        validation = max(round(SHARES[1] * len(rows)), int(len(rows) > 3))
        parts["test"].append(rows[:test])
        parts["validation"].append(rows[test : test + validation])
        parts["train"].append(rows[test + validation :])
    return {name: torch.cat(rows).sort().values for name, rows in parts.items()}


def _of_people(
    people: Tensor, classes: Tensor, shares: tuple[float, float, float] = SHARES
) -> dict[str, Tensor]:
    """Gives whole people to splits, so that all have the classes of the task as evenly as possible."""
    ways = [split_by_class(people, shares=shares, seed=seed) for seed in range(_TRIES)]
    return min(ways, key=lambda splits: _unevenness(splits, classes))


def _unevenness(splits: Mapping[Any, Tensor], classes: Tensor) -> float:
    """The most by which the share of a class in a split differs from its share in all images."""
    names, codes = classes.unique(return_inverse=True)
    shares = codes.bincount(minlength=len(names)).double() / len(codes)
    differences = [
        codes[rows].bincount(minlength=len(names)) / len(rows) - shares
        for rows in splits.values()
        if len(rows)
    ]
    return torch.stack(differences).abs().max().item()
