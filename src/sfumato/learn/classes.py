"""The classes of a task that are all known in training: their names, and the number of each image's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sfumato.data.labelled import LabelledImages
from sfumato.errors import DataError


def count_in_words(classes: int) -> str:
    """A number of classes in words."""
    return "1 class" if classes == 1 else f"{classes} classes"


def check_apart(data: LabelledImages, targets: Sequence[str], sensitive: Sequence[str], learner: str) -> None:
    """Raises DataError for a label to keep and to remove, under one name or two."""
    for target, name in ((target, name) for target in targets for name in sensitive):
        if data.are_one(target, name):
            alias = "" if name == target else f" under the name {name!r}"
            raise DataError(
                f"{target!r} is a target and sensitive{alias}: a {learner} cannot both keep and remove it"
            )


def classes_of(data: LabelledImages, target: str, learner: str) -> tuple[str, ...]:
    """The names of the classes to learn, ascending by code. Raises DataError for fewer than two."""
    label = data.label(target)
    classes = tuple(label.names[code] for code in data.classes(target).tolist())
    if len(classes) < 2:
        raise DataError(
            f"{data.name}: label {target!r} has {count_in_words(len(classes))} in {len(data)} training "
            f"images, and a {learner} needs at least 2: choose another label, or add images"
        )
    return classes


def codes_of(data: LabelledImages, target: str, classes: Sequence[str], learner: str) -> Tensor:
    """(N,) int64, the number in `classes` of the class of each image. Raises DataError for other classes."""
    label = data.label(target)
    number = {name: i for i, name in enumerate(classes)}
    present = [label.names[code] for code in data.classes(target).tolist()]
    foreign = [name for name in present if name not in number]
    if foreign:
        raise DataError(
            f"{data.name}: {len(foreign)} classes of {target!r}, such as {foreign[0]!r}, are in no training "
            f"image: a {learner} is tested on new images of the same classes, so split the data by another "
            "label"
        )
    return torch.tensor([number.get(name, -1) for name in label.names])[label.codes]
