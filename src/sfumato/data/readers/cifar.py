"""CIFAR-10 and CIFAR-100 as their official Python archives."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from sfumato.data.labelled import Label, LabelledImages, rows_by_split, split_by_class
from sfumato.data.readers import _pickles
from sfumato.data.readers.layout import cure_of, part
from sfumato.data.splitting import SHARES
from sfumato.errors import DataError

_SHAPE = (3, 32, 32)


def cifar10(
    root: str | os.PathLike[str], *, split: Literal["classes", "images"] = "classes"
) -> LabelledImages:
    """Reads CIFAR-10 (Krizhevsky 2009), the Python version.

    Args:
        root: the folder with cifar-10-batches-py.
        split: "classes" gives whole classes to train, validation and test (6, 2 and 2, by seed 0), for
            few-shot tasks; "images" is the official split, in which every class is in both parts and there
            is no validation.

    Returns:
        32 x 32 images with label `class`; the files are pickles, and none of their code runs.

    Raises:
        DataError: a part of the layout is missing, damaged, or asks for more than arrays of bytes.
    """
    archive = "the content of cifar-10-python.tar.gz"
    directory = part("cifar10", Path(root), "cifar-10-batches-py", what=archive)
    cure = cure_of("cifar10", archive)
    names = {"class": ("labels", _names(directory / "batches.meta", "label_names", cure))}
    train = [_batch(directory / f"data_batch_{n}", names, cure) for n in range(1, 6)]
    test = _batch(directory / "test_batch", names, cure)
    shares = None if split == "images" else ("class", SHARES)
    return _assemble("cifar10", train, test, names, shares)


def cifar100(
    root: str | os.PathLike[str], *, split: Literal["classes", "superclasses", "images"] = "classes"
) -> LabelledImages:
    """Reads CIFAR-100 (Krizhevsky 2009), the Python version.

    Args:
        root: the folder with cifar-100-python.
        split: "classes" gives whole classes to train, validation and test (64, 16 and 20, by seed 0), for
            few-shot tasks; "superclasses" whole superclasses (12, 4 and 4), so that no test class has kin
            among those trained on. These are the sizes of CIFAR-FS (Bertinetto et al. 2019) and of FC100
            (Oreshkin et al. 2018), but not their lists. "images" is the official split, in which every
            class is in both parts and there is no validation.

    Returns:
        32 x 32 images with labels `class` and `superclass`; the files are pickles, and none of their code
        runs.

    Raises:
        DataError: a part of the layout is missing, damaged, or asks for more than arrays of bytes.
    """
    archive = "the content of cifar-100-python.tar.gz"
    directory = part("cifar100", Path(root), "cifar-100-python", what=archive)
    cure = cure_of("cifar100", archive)
    names = {
        "class": ("fine_labels", _names(directory / "meta", "fine_label_names", cure)),
        "superclass": ("coarse_labels", _names(directory / "meta", "coarse_label_names", cure)),
    }
    train, test = (_batch(directory / name, names, cure) for name in ("train", "test"))
    shares = {
        "images": None,
        "classes": ("class", (0.64, 0.16, 0.2)),
        "superclasses": ("superclass", (0.6, 0.2, 0.2)),
    }
    return _assemble("cifar100", [train], test, names, shares[split])


_Batch = tuple[np.ndarray, dict[str, list[int]]]  # (n, 3, 32, 32) uint8, and the codes of each label

_Known = Mapping[str, tuple[str, tuple[str, ...]]]  # label -> the key of its codes, and their names

_Shares = tuple[str, tuple[float, float, float]]  # the label whose values go to splits, and the shares


def _assemble(
    name: str, train: Sequence[_Batch], test: _Batch, names: _Known, shares: _Shares | None
) -> LabelledImages:
    batches = [*train, test]
    pixels = torch.from_numpy(np.concatenate([values for values, _ in batches]))
    labels = {
        label: Label(torch.tensor([code for _, codes in batches for code in codes[label]]), known)
        for label, (_, known) in names.items()
    }
    if shares is None:
        splits = rows_by_split(["train"] * (len(pixels) - len(test[0])) + ["test"] * len(test[0]))
    else:
        splits = split_by_class(labels[shares[0]].codes, shares=shares[1], seed=0)
    return LabelledImages(name, pixels, labels, splits)


def _batch(path: Path, names: _Known, cure: str) -> _Batch:
    content = _content(path, cure)
    data = content.get("data")
    values = data.values if isinstance(data, _pickles.Array) else None
    if values is None or values.ndim != 2 or not len(values) or values.shape[1] != math.prod(_SHAPE):
        raise DataError(f"{path}: no array 'data' of n x {math.prod(_SHAPE)} pixels: {cure}")
    codes = {}
    for label, (key, known) in names.items():
        found = content.get(key)
        if not isinstance(found, list) or not all(type(code) is int for code in found):
            raise DataError(f"{path}: {key!r} is not a list of codes: {cure}")
        if len(found) != len(values):
            raise DataError(f"{path}: {len(found)} codes in {key!r} for {len(values)} images: {cure}")
        if min(found) < 0 or max(found) >= len(known):
            raise DataError(f"{path}: {key!r} has codes that are not 0 to {len(known) - 1}: {cure}")
        codes[label] = found
    return values.reshape(len(values), *_SHAPE), codes


def _names(path: Path, key: str, cure: str) -> tuple[str, ...]:
    found = _content(path, cure).get(key)
    if not isinstance(found, list) or not all(isinstance(name, bytes | str) for name in found):
        raise DataError(f"{path}: {key!r} is not a list of names: {cure}")
    return tuple(_text(name) for name in found)


def _content(path: Path, cure: str) -> dict[str, Any]:
    content = _pickles.read(path, cure=cure)
    if not isinstance(content, dict):
        raise DataError(f"{path}: a pickled {type(content).__name__} instead of a dict: {cure}")
    return {_text(key): value for key, value in content.items() if isinstance(key, bytes | str)}


def _text(value: bytes | str) -> str:
    """Python 2 wrote its text as bytes."""
    return value.decode("latin-1") if isinstance(value, bytes) else value
