"""Rows of an image and its labels: Parquet files as of Hugging Face, and data sets of other libraries."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sfumato import images
from sfumato.base.parquet import BATCH, batches, open_parquet
from sfumato.data.labelled import LabelledImages, name_some
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, Decoded, Root, Skip, gather
from sfumato.data.readers.stored import memory
from sfumato.data.readers.table import with_labels
from sfumato.errors import DataError, ImageError, did_you_mean

_AT_ONCE, _AT_ONCE_BYTES = 64, 64_000_000  # encoded images in memory
# A file of more rows needs this many bytes for each: no image is smaller.
_FEW_ROWS, _LEAST_BYTES = 100_000, 16


def parquet(
    path: Root,
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    image: str | None = None,
    split_by: str | None = None,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Reads a Parquet file, or all below a folder, with every column of words or whole numbers as a label.

    Numbers of classes become their names, if Hugging Face's description of the columns has them. Without a
    column `split`, files or folders called train, test ... (train-00000-of-00002.parquet, test/0.parquet) are
    those splits. Folders called name=value are a column. Other columns are left out and counted.

    `image` is the column of image files, as bytes or as {bytes, path}; None for the only one. `split_by`: see
    `table`; the others: see `folder`.
    """
    path = Path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .parquet file in it: name a Parquet file, or the folder of some")
    parts = [_read_part(file) for file in files]
    first, alike = parts[0], [part.kinds == parts[0].kinds for part in parts]
    if not all(alike):
        other = parts[alike.index(False)]
        names = sorted(name for name, _ in first.kinds.items() ^ other.kinds.items())
        raise DataError(
            f"{path}: {other.file.name} and {first.file.name} have different columns "
            f"({name_some(list(dict.fromkeys(names)))}): name one of them, or write both with the same"
        )
    pictures = [name for name, kind in first.kinds.items() if kind == "images"]
    if image is None and len(pictures) != 1:
        cure = (
            f"name one, as image={pictures[0]}" if pictures else "one has bytes, or {bytes, path}, of files"
        )
        raise DataError(f"{path}: {len(pictures)} columns of images: {cure}")
    column = image or pictures[0]
    if column not in pictures:
        raise DataError(f"{path}: no column of images {column!r}: {did_you_mean(column, pictures)}")
    described = next((part.classes for part in parts if part.classes), {})
    named = [name for name in first.values if all(name in part.values for part in parts)]
    columns = {
        name: [text for part in parts for text in part.texts(name, described.get(name))] for name in named
    }
    for name, words in _of_names(path, files).items():
        rows = (part.rows for part in parts)
        columns.setdefault(name, [word for word, n in zip(words, rows, strict=True) for _ in range(n)])
    dropped = sorted(first.kinds.keys() - {column, *columns})
    if not columns.keys() - {"split"}:
        why = f", since {name_some(dropped)} hold no words or whole numbers" if dropped else ""
        raise DataError(f"{path}: no label column{why}: add one, such as 'class'")
    left_out = {f"columns that are no labels: {name_some(dropped)}": len(dropped)}

    def read(labels: dict[str, list[str]], splits: list[str] | None) -> LabelledImages:
        def decode() -> Iterator[Decoded | ImageError]:
            return _decode(path, files, column, channels=channels, size=size)

        form, settings = (size, channels, skip_unreadable), {"column": column}
        return gather(f"parquet:{path}", decode, labels, splits, form, (), files, settings, left_out)

    return with_labels(path, columns, lambda row: f"{path}, row {row}", split_by, read)


@dataclass(frozen=True)
class _Part:
    file: Path
    kinds: dict[str, str]  # of columns: "images", "words", "numbers", "truths", or pyarrow's word for another
    classes: dict[str, Sequence[str]]  # the names behind the numbers of a label, by Hugging Face
    values: dict[str, list[Any]]  # of each column of words, whole numbers or truths; missing ones are None
    rows: int

    def texts(self, name: str, names: Sequence[str] | None) -> list[str]:
        """Values as words: names of classes for their numbers, and "" for none."""
        names = self.classes.get(name) or names
        words: dict[Any, str] = {None: ""}
        for value in set(self.values[name]) - {None}:
            words[value] = str(value)
            if names and isinstance(value, int) and value >= 0:
                if value >= len(names):
                    raise DataError(
                        f"{self.file}: {name} holds {value}, and its description names {len(names)} classes: "
                        "correct one of them"
                    )
                words[value] = names[value]
        return [words[value] for value in self.values[name]]


def _read_part(file: Path) -> _Part:
    with open_parquet(file) as opened:
        rows, schema = opened.metadata.num_rows, opened.schema_arrow
        if rows > _FEW_ROWS and file.stat().st_size < _LEAST_BYTES * rows:
            raise DataError(
                f"{file}: {rows:,} rows in {file.stat().st_size:,} bytes, which cannot each hold an image: "
                "leave out rows that repeat others"
            )
        kinds = {each.name: _kind_of(each.type) for each in schema}
        wanted = [name for name, kind in kinds.items() if kind in ("words", "numbers", "truths")]
        values: dict[str, list[Any]] = {name: [] for name in wanted}
        for batch in batches(opened, BATCH, wanted) if wanted else ():
            for name in list(values):
                cells = batch.column(name)
                cells = cells if hasattr(cells, "dictionary") else cells.dictionary_encode()
                different = [_whole(value) for value in cells.dictionary.to_pylist()]
                if any(isinstance(value, float) for value in different):
                    del values[name]  # numbers with fractions
                    continue
                places = cells.indices.to_pylist()
                values[name] += (None if place is None else different[place] for place in places)
    about = json.loads((schema.metadata or {}).get(b"huggingface", "{}")).get("info", {}).get("features", {})
    classes = {name: each["names"] for name, each in about.items() if "names" in each}
    return _Part(file, kinds, classes, values, rows)


def _kind_of(kind: Any) -> str:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "images"
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return "images"
    if types.is_string(kind) or types.is_large_string(kind):
        return "words"
    if types.is_integer(kind) or types.is_floating(kind):
        return "numbers"
    return "truths" if types.is_boolean(kind) else str(kind)


def _whole(value: Any) -> Any:
    """A number of pandas, which writes whole ones as floats if some are missing (NaN, here None)."""
    if isinstance(value, float):
        return None if value != value else int(value) if value.is_integer() else value
    return value


def _of_names(path: Path, files: Sequence[Path]) -> dict[str, list[str]]:
    """Columns that the names of files and folders state: the split of each file, and those of name=value."""
    stated: list[dict[str, str]] = []
    rests: dict[tuple[str, ...], Path] = {}
    for file in files:
        folders = file.relative_to(path).parts[:-1] if path.is_dir() else ()
        columns = dict(name.split("=", 1) for name in folders if "=" in name)
        words = re.findall("[a-z]+", file.stem.lower())
        named = [name.lower() for name in folders] + (words if len(files) > 1 else words[:1])
        splits = {SPLITS[name] for name in named if name in SPLITS}
        if len(splits) > 1:
            raise DataError(f"{file}: names the splits {' and '.join(sorted(splits))}: rename it after one")
        stated.append(dict.fromkeys(("split",), *splits) if splits else {})
        stated[-1] |= columns
        rest = tuple(name for name in folders if "=" not in name and name.lower() not in SPLITS)
        rests.setdefault(rest, file)
        if stated[-1].keys() != stated[0].keys():
            one, other = sorted((stated[-1], stated[0]), key=len)
            raise DataError(
                f"{path}: the name of {(file if one is stated[-1] else files[0]).name} states no "
                f"{' and '.join(other.keys() - one.keys())}, as others do: rename it, or move it elsewhere"
            )
    if len(rests) > 1:
        names = ["/".join(rest) or "." for rest in rests]
        raise DataError(
            f"{path}: holds several data sets or configurations side by side ({name_some(names)}): name one, "
            f"as parquet:{path / names[-1]}; if they are one, move their files into one folder"
        )
    return {name: [each[name] for each in stated] for name in stated[0]}


def _decode(
    path: Path, files: Sequence[Path], column: str, *, channels: int, size: int
) -> Iterator[Decoded | ImageError]:
    """The image of each row of all files, in order, or its error; on all of torch's threads."""

    def read(row: int, value: Any) -> Decoded | ImageError:
        try:
            return read_encoded(value.as_py(), channels=channels, size=size)
        except ImageError as error:
            return ImageError(f"{path}, row {row}: {error}", cause=error.cause)

    rows = count()
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for name in files:
            with open_parquet(name, [column]) as file:
                bytes_each = name.stat().st_size // max(1, file.metadata.num_rows)
                at_once = max(1, min(_AT_ONCE, _AT_ONCE_BYTES // max(1, bytes_each)))
                for batch in batches(file, at_once, [column]):
                    # One value at a time: equal ones are one in the batch.
                    yield from pool.map(read, islice(rows, len(batch)), batch.column(0))


def read_encoded(value: Any, *, channels: int, size: int) -> Decoded:
    """The image of encoded bytes, or of {bytes, path}. Raises ImageError, also for a path without bytes."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not data:
        raise ImageError("no bytes of an image: a path alone is not followed: write the images into the file")
    pixels, further = images.read_first(bytes(data), channels=channels, size=size)
    return images.as_tensor(pixels), further


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
        size, channels: see `folder`.
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
