"""Parquet files of images, as of Hugging Face: a column of encoded images, and columns of labels."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato import images
from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, gather
from sfumato.errors import DataError, ImageError, did_you_mean, needs_extra

_AT_ONCE = 64  # encoded images in memory


def parquet(
    path: str | os.PathLike[str],
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    image: str | None = None,
    split_by: str | None = None,
    skip_unreadable: Callable[[ImageError], None] | None = None,
) -> LabelledImages:
    """Reads a Parquet file, or all below a folder, with every column of words or whole numbers as a label.

    A number that Hugging Face's description of the columns names becomes that name. Files of a folder whose
    names begin with a split, such as train-00000-of-00002.parquet, are that split; so is the value of a
    column `split`.

    Args:
        path: the file, or the folder.
        size, channels, skip_unreadable: see `folder`.
        image: the column with the images: encoded files as bytes, or as {bytes, path}; None for the only one.
        split_by: see `table`.

    Raises:
        DataError: no such file, one that is no Parquet file, no column of images or labels, a missing value.
        ImageError: bytes that are not an image.
        MissingExtraError: pyarrow is not installed.
    """
    with needs_extra("reading Parquet files", "parquet"):
        import pyarrow
        from pyarrow import parquet as reader

    path = Path(path)
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: no .parquet file in it: name a Parquet file, or the folder of some")
    try:
        schema = reader.read_schema(files[0])
        image = _image_column(path, schema, image)
        names = [each.name for each in schema if each.name != image and _is_label(each.type)]
        tables = [reader.read_table(file, columns=names) for file in files]
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error
    lacking = [name for name in names if any(name not in table.column_names for table in tables)]
    if lacking:
        raise DataError(f"{path}: not every file has the column {lacking[0]!r}: write them alike")
    known = _names_of_numbers(schema)
    columns = {
        name: [
            _value(f"{file}, row {row}", name, value, known.get(name))
            for file, table in zip(files, tables, strict=True)
            for row, value in enumerate(table.column(name).to_pylist())
        ]
        for name in names
    }
    splits = columns.pop("split", None) or _splits(path, files, [len(table) for table in tables])
    if not columns:
        raise DataError(f"{path}: no label column besides {image}: add one of words or whole numbers")
    if split_by is not None:
        if split_by not in columns:
            raise DataError(f"{path}: no column {split_by!r} to split by: {did_you_mean(split_by, columns)}")
        columns = {split_by: columns.pop(split_by), **columns}
    if wrong := sorted({split for split in splits or () if split and split not in SPLITS}):
        raise DataError(f"{path}: no split {wrong[0]!r}: {did_you_mean(wrong[0], SPLITS)}")
    data = gather(
        f"parquet:{path}",
        lambda: _decode(files, image, channels=channels, size=size),
        columns,
        None if splits is None else [SPLITS.get(split, "") for split in splits],
        shape=(channels, size, size),
        stamped=files,
        settings={"column": image},
        skip_unreadable=skip_unreadable,
    )
    return data if split_by is None else replace(data, split_by=None)


def _image_column(path: Path, schema: Any, wanted: str | None) -> str:
    from pyarrow import types

    columns = [
        each.name
        for each in schema
        if types.is_binary(each.type)
        or types.is_large_binary(each.type)
        or (types.is_struct(each.type) and each.type.get_field_index("bytes") >= 0)
    ]
    if wanted is not None and wanted not in columns:
        raise DataError(f"{path}: no column of images {wanted!r}: {did_you_mean(wanted, columns)}")
    if wanted is None and len(columns) != 1:
        cure = (
            f"name one: image={columns[0]}" if columns else "it needs bytes, or {bytes, path}, of image files"
        )
        raise DataError(f"{path}: {len(columns)} columns of images: {cure}")
    return wanted or columns[0]


def _is_label(kind: Any) -> bool:
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(
        test(kind) for test in (types.is_integer, types.is_string, types.is_large_string, types.is_boolean)
    )


def _names_of_numbers(schema: Any) -> dict[str, list[str]]:
    """For each column of class numbers, the names of the classes, as Hugging Face describes them."""
    described = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = described.get("info", {}).get("features", {})
    return {name: about["names"] for name, about in features.items() if "names" in about}


def _value(row: str, name: str, value: Any, names: Sequence[str] | None) -> str:
    if value is None or value == "":
        if name == "split":
            return ""
        raise DataError(f"{row}: no value for {name!r}: fill it in or remove the row")
    return names[value] if names and 0 <= value < len(names) else str(value)


def _splits(path: Path, files: Sequence[Path], lengths: Sequence[int]) -> list[str] | None:
    """The split of each row by the names of the files; None if no name begins with a split."""
    begins = [file.stem.partition("-")[0] for file in files]
    named = [begin in SPLITS for begin in begins]
    if not any(named):
        return None
    if not all(named):
        odd = files[named.index(False)]
        raise DataError(f"{odd}: its name begins with no split, and others of {path} do: {', '.join(SPLITS)}")
    return [begin for begin, length in zip(begins, lengths, strict=True) for _ in range(length)]


def _decode(files: Sequence[Path], column: str, *, channels: int, size: int) -> Iterator[Tensor | ImageError]:
    """The image of each row, in order, or its error; on all of torch's threads."""
    from pyarrow import parquet as reader

    def read(row: tuple[str, Any]) -> Tensor | ImageError:
        line, value = row
        try:
            return read_encoded(value, channels=channels, size=size)
        except ImageError as error:
            return ImageError(f"{line}: {error}", cause=error.cause)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for path in files:
            with reader.ParquetFile(path) as file:
                done = 0
                for batch in file.iter_batches(_AT_ONCE, columns=[column]):
                    values = batch.column(0).to_pylist()
                    yield from pool.map(
                        read, ((f"{path}, row {done + i}", each) for i, each in enumerate(values))
                    )
                    done += len(values)


def read_encoded(value: Any, *, channels: int, size: int) -> Tensor:
    """The image of encoded bytes, or of {bytes, path}. Raises ImageError, also for a path without bytes."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not data:
        raise ImageError("no bytes of an image: a path alone is not followed: write the images into the file")
    return images.read(bytes(data), channels=channels, size=size)
