"""Parquet files of images, as of Hugging Face: a column of encoded images, and columns of labels."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch

from sfumato import images
from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, Decoded, gather
from sfumato.data.readers.table import with_labels
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

    Numbers of classes become their names, if Hugging Face's description of the columns has them. Without a
    column `split`, files called train-00000-of-00002.parquet, test-... are those splits.

    Args:
        path: the file, or the folder.
        size, channels, skip_unreadable: see `folder`.
        image: the column of image files, as bytes or as {bytes, path}; None for the only one.
        split_by: see `table`.

    Raises:
        DataError: no such file, one that is no Parquet file, no column of images; or see `table`.
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
        names = [each.name for each in schema if _is_label(each.type)]
        parts = [reader.read_table(file, columns=names) for file in files]
        values = pyarrow.concat_tables(parts).to_pydict()
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from error
    column = _column_of_images(path, schema, image)
    about = json.loads((schema.metadata or {}).get(b"huggingface", "{}")).get("info", {}).get("features", {})
    columns = {name: _texts(each, about.get(name, {}).get("names")) for name, each in values.items()}
    begins = [file.stem.partition("-")[0] for file in files]
    if "split" not in columns and not SPLITS.keys().isdisjoint(begins):
        columns["split"] = [
            begin for begin, part in zip(begins, parts, strict=True) for _ in range(len(part))
        ]

    def read(labels: dict[str, list[str]], splits: list[str] | None) -> LabelledImages:
        return gather(
            f"parquet:{path}",
            lambda: _decode(path, files, column, channels=channels, size=size),
            labels,
            splits,
            shape=(channels, size, size),
            stamped=files,
            settings={"column": column},
            skip_unreadable=skip_unreadable,
        )

    return with_labels(path, columns, lambda row: f"{path}, row {row}", split_by, read)


def _is_label(kind: Any) -> bool:
    from pyarrow import types

    tests = (types.is_integer, types.is_string, types.is_large_string, types.is_boolean, types.is_dictionary)
    return any(test(kind) for test in tests)


def _column_of_images(path: Path, schema: Any, wanted: str | None) -> str:
    from pyarrow import types

    columns = [
        each.name
        for each in schema
        if types.is_binary(each.type)
        or types.is_large_binary(each.type)
        or (types.is_struct(each.type) and each.type.get_field_index("bytes") >= 0)
    ]
    if wanted is None and len(columns) != 1:
        cure = f"name one, as image={columns[0]}" if columns else "one has bytes, or {bytes, path}, of files"
        raise DataError(f"{path}: {len(columns)} columns of images: {cure}")
    if wanted is not None and wanted not in columns:
        raise DataError(f"{path}: no column of images {wanted!r}: {did_you_mean(wanted, columns)}")
    return wanted or columns[0]


def _texts(values: Sequence[Any], names: Sequence[str] | None) -> list[str]:
    """Values as words: names of classes for their numbers, and "" for none."""
    if names:
        values = [value if value is None or value < 0 else names[value] for value in values]
    return ["" if value is None else str(value) for value in values]


def _decode(
    path: Path, files: Sequence[Path], column: str, *, channels: int, size: int
) -> Iterator[Decoded | ImageError]:
    """The image of each row of all files, in order, or its error; on all of torch's threads."""
    from pyarrow import parquet as reader

    def read(row: int, value: Any) -> Decoded | ImageError:
        try:
            return read_encoded(value, channels=channels, size=size)
        except ImageError as error:
            return ImageError(f"{path}, row {row}: {error}", cause=error.cause)

    rows = count()
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for name in files:
            with reader.ParquetFile(name) as file:
                for batch in file.iter_batches(_AT_ONCE, columns=[column]):
                    values = batch.column(0).to_pylist()
                    yield from pool.map(read, islice(rows, len(values)), values)


def read_encoded(value: Any, *, channels: int, size: int) -> Decoded:
    """The image of encoded bytes, or of {bytes, path}. Raises ImageError, also for a path without bytes."""
    data = value.get("bytes") if isinstance(value, dict) else value
    if not data:
        raise ImageError("no bytes of an image: a path alone is not followed: write the images into the file")
    pixels, further = images.read_first(bytes(data), channels=channels, size=size)
    return images.as_tensor(pixels), further
