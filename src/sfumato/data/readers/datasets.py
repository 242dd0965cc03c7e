"""Data sets of other libraries, by their rows: torch.utils.data, torchvision, Hugging Face's datasets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sfumato import images
from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, Decoded, gather
from sfumato.data.readers.parquet import read_encoded
from sfumato.data.readers.stored import memory
from sfumato.errors import DataError, ImageError


def from_dataset(
    dataset: Any,
    *,
    name: str = "dataset",
    image: str | int | None = None,
    labels: Mapping[str, str | int] | None = None,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
) -> LabelledImages:
    """Reads all rows of a data set into memory; whole classes of the first label become the splits.

    Args:
        dataset: has a length and numbered rows. Its images are of a kind that images.take takes, encoded
            bytes, or {bytes, path}. Numbers of classes become their names in `classes` or `features`.
        name: for reports.
        image: the part of a row with the image; None for 0 of a tuple, and "image" of a dictionary.
        labels: label name -> part of a row; None for {"class": 1} of a tuple, and for all words and whole
            numbers of a dictionary.
        size: every image becomes a centre square of this side, in pixels.
        channels: 3 for RGB, 1 for grey.

    Raises:
        DataError: no rows, or more than fit SFUMATO_MEMORY; no labels; a part that a row lacks.
        ImageError: a row without a valid image.
    """
    needed = len(dataset) * channels * size**2
    if not 0 < needed <= memory():
        raise DataError(
            f"{name}: {len(dataset)} rows, {needed:,} bytes of images: from 1 to the {memory():,} of "
            "SFUMATO_MEMORY: raise it, choose a smaller size, or write files and read folder:DIR"
        )
    first = dataset[0]
    by_name = isinstance(first, Mapping)
    if image is None:
        image = "image" if by_name else 0
    if labels is None:
        words = first.items() if by_name else ()
        labels = {key: key for key, value in words if isinstance(value, int | str)} or {"class": 1}
    pixels: list[Decoded] = []
    columns: dict[str, list[str]] = {key: [] for key in labels}
    for number in range(len(dataset)):
        row = dataset[number] if number else first
        try:
            pixels.append(_pixels(row[image], channels=channels, size=size))
            for key, part in labels.items():
                columns[key].append(_name(dataset, part, row[part]))
        except ImageError as error:
            raise ImageError(f"{name}, row {number}: {error}", cause=error.cause) from error
        except (KeyError, IndexError) as error:
            raise DataError(f"{name}, row {number}: has no part {error}: name image and labels") from error
    return gather(name, lambda: iter(pixels), columns, None, (size, channels, None))


def _name(dataset: Any, part: str | int, value: Any) -> str:
    """The value of a label in words: by torchvision's classes, or Hugging Face's features."""
    features = getattr(dataset, "features", None)
    names = getattr(dataset, "classes", None) if part == 1 else None
    if isinstance(features, Mapping):
        names = getattr(features.get(part), "names", None)
    value = value.item() if isinstance(value, Tensor | np.generic) else value
    return names[value] if names and isinstance(value, int) else str(value)


def _pixels(picture: Any, *, channels: int, size: int) -> Decoded:
    if isinstance(picture, bytes | dict):
        return read_encoded(picture, channels=channels, size=size)
    ((planes,), _) = images.take(picture)
    if len(planes) != channels:
        levels = planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)
        ((planes,), _) = images.take(Image.fromarray(levels).convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(images.resize(planes, size)), getattr(picture, "n_frames", 1) - 1
