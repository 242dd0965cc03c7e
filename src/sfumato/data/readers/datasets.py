"""Data sets of other libraries, by their rows: torch.utils.data, torchvision, Hugging Face's datasets."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sfumato import images
from sfumato.base.files import check_alike
from sfumato.data.labelled import LabelledImages, label_of, split_by_class
from sfumato.data.readers.folder import DEFAULT_SIZE
from sfumato.data.readers.parquet import read_encoded
from sfumato.data.readers.stored import memory
from sfumato.data.splitting import SHARES
from sfumato.errors import DataError, ImageError


class Rows(Protocol):
    """A data set of known length, whose rows have numbers; a row is a tuple or a dictionary."""

    def __len__(self) -> int:
        """The number of rows."""

    def __getitem__(self, row: int) -> Any:
        """A row."""


def from_dataset(
    dataset: Rows,
    *,
    name: str = "dataset",
    image: str | int | None = None,
    labels: Mapping[str, str | int] | None = None,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
) -> LabelledImages:
    """Reads all rows of a data set into memory; whole classes of the first label become the splits.

    Args:
        dataset: its images are of a kind that images.take takes, encoded bytes, or {bytes, path}. Numbers
            of classes become names, if it has those in `classes` or `features`.
        name: for reports.
        image: the part of a row with the image; None for 0 of a tuple, and "image" of a dictionary.
        labels: label name -> part of a row; None for {"class": 1} of a tuple, and for all words and whole
            numbers of a dictionary.
        size: every image becomes a centre square of this side, in pixels.
        channels: 3 for RGB, 1 for grey.

    Raises:
        DataError: no rows, no labels, a part that no row has, or more images than fit SFUMATO_MEMORY.
        ImageError: a row whose image is none.
    """
    count, shape = len(dataset), (channels, size, size)
    if count * math.prod(shape) > memory():
        raise DataError(
            f"{name}: {count * math.prod(shape):,} bytes of images, more than the {memory():,} of "
            "SFUMATO_MEMORY: raise it, choose a smaller size, or write files and read folder:DIR"
        )
    if not count:
        raise DataError(f"{name}: no rows: give at least one")
    first = dataset[0]
    by_name = isinstance(first, Mapping)
    image = image if image is not None else ("image" if by_name else 0)
    labels = labels or (_labels_of(first, image) if by_name else {"class": 1})
    pixels = torch.empty(count, *shape, dtype=torch.uint8)
    values: dict[str, list[str]] = {key: [] for key in labels}
    for number in range(count):
        row = first if number == 0 else dataset[number]
        try:
            pixels[number] = _pixels(row[image], channels=channels, size=size)
            for key, part in labels.items():
                values[key].append(_name(dataset, part, row[part]))
        except ImageError as error:
            raise ImageError(f"{name}, row {number}: {error}", cause=error.cause) from error
        except (KeyError, IndexError) as error:
            raise DataError(f"{name}, row {number}: has no part {error}: name image and labels") from error
    for key, each in values.items():
        check_alike(name, f"values of the label {key!r} are", sorted(set(each)))
    table = {key: label_of(each) for key, each in values.items()}
    by = next(iter(table))
    return LabelledImages(
        name, pixels, table, split_by_class(table[by].codes, shares=SHARES, seed=0), split_by=by
    )


def _labels_of(row: Mapping[str, Any], image: str | int) -> dict[str, str | int]:
    found = {key: key for key, value in row.items() if key != image and isinstance(value, int | str)}
    if not found:
        raise DataError(f"a row of {', '.join(row)}: no words or whole numbers to be labels: name them")
    return dict(found)


def _name(dataset: Any, part: str | int, value: Any) -> str:
    """The name of a label's value: of torchvision's classes, or of Hugging Face's features."""
    features = getattr(dataset, "features", None)
    names: Sequence[str] | None = getattr(dataset, "classes", None) if part == 1 else None
    if isinstance(features, Mapping):
        names = getattr(features.get(part), "names", None)
    value = value.item() if isinstance(value, Tensor | np.generic) else value
    return names[value] if names and isinstance(value, int) else str(value)


def _pixels(picture: Any, *, channels: int, size: int) -> Tensor:
    if isinstance(picture, bytes | dict):
        return read_encoded(picture, channels=channels, size=size)
    planes = images.take(picture).pixels
    if len(planes) != 1:
        raise ImageError(f"{len(planes)} pictures in a row: give one")
    if planes.shape[1] != channels:
        levels = planes[0, 0] if planes.shape[1] == 1 else planes[0].transpose(1, 2, 0)
        planes = images.take(Image.fromarray(levels).convert("L" if channels == 1 else "RGB")).pixels
    return torch.from_numpy(images.resize(planes[0], size))
