"""Read vectors of any model, the people behind them and their attributes; nothing is unpickled.

A file has rows of equal length: an array of .npy, or of .npz with others that have an entry for each row,
a list column or columns of numbers of .parquet or .csv.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.attack.sets import even
from sfumato.base.files import open_regular, parse_json, read_table
from sfumato.errors import ConfigError, DataError, did_you_mean, needs_extra, shorten

SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
EACH_ARRAY = "*"  # as people: each array of an .npz is of one person
_FEWEST, _MOST_CLASSES = 20, 20
_SERIES = 3  # columns that are called alike, at least
_SPREAD = 1000.0  # times as much as the median column: a column that varies more is left out
_WHO = re.compile(
    r"(the_)?(person|people|identity|subject|patient|user|individual|speaker|customer|owner|who)(_?(id|name))?",
    re.IGNORECASE,
)
_MOST_OF_ONE = 150  # vectors of a person in a sample: as many as name them from 100
_DAMAGES = (OSError, EOFError, ValueError, TypeError, NotImplementedError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Vectors:
    """Vectors, or a sample of them.

    Attributes:
        values: (N, D) finite float32, divided by `unit`: their variance is 1, on average over the D numbers.
        people: (N,) int64 codes of the people they belong to; None if unknown.
        labels: attribute -> (N,) int64 codes of its classes; -1 if unknown.
        rows: (N,) their positions in the file, from 0.
        total: the number of rows in the file.
        words: the array or columns that they come from.
        unit: (D,) what each number was divided by: one for all, unless one is so large that it hides others.
        names: of the D numbers: their columns; none if they are of one array.
        left_out: columns that do not belong to the vectors, and were not looked at.
        groups: as `people`, of a column that seems to say them, if they are not given; and its name.
    """

    values: np.ndarray
    people: np.ndarray | None
    labels: Mapping[str, np.ndarray]
    rows: np.ndarray
    total: int
    words: str = "an array"
    unit: np.ndarray = field(default_factory=lambda: np.ones(1))
    names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    group_name: str = ""


@dataclass
class _Read:
    """The content of a file: arrays of vectors, and columns with an entry for each row."""

    matrices: dict[str, np.ndarray] = field(default_factory=dict)
    columns: dict[str, np.ndarray] = field(default_factory=dict)


def read(
    path: Path,
    *,
    vectors: str | None = None,
    people: str | None = None,
    labels: Sequence[str] = (),
    rows: int = 10_000,
    seed: int = 0,
) -> Vectors:
    """Read a file; of a larger one, a random sample of whole people.

    Args:
        path: .npy, .npz, .parquet or .csv.
        vectors: the array or column of the vectors, or the common beginning of their columns.
        people: the array or column that says whose they are; EACH_ARRAY if each array is one person's.
        labels: those of attributes.
        rows: the most to read.
        seed: of the sample.

    Raises:
        ConfigError: no such array or column.
        DataError: a file that cannot be read, or holds no such vectors.
        MissingExtraError: pyarrow is not installed.
    """
    if rows < _FEWEST:
        raise ConfigError(f"--rows {rows}: at least {_FEWEST}")
    content = _open(path)
    if people == EACH_ARRAY:
        content = _stack(path, content)
        vectors = None
    chosen = {name for name in (people, *labels) if name is not None}
    for name in chosen - set(content.columns):
        known = did_you_mean(name, content.columns) if content.columns else "It has no other: write an .npz"
        raise ConfigError(f"{path}: has no column {name!r} with an entry for each vector. {known}")
    matrix, words, names = _matrix(path, content, vectors, chosen)
    total = len(matrix)
    others = [name for name in content.columns if name not in {*chosen, *names}]
    by_name = (name for name in others if _WHO.fullmatch(name) and len(content.columns[name]) == total)
    group_name = "" if people is not None or not labels else next(by_name, "")
    for name in chosen:
        if len(content.columns[name]) != total:
            raise DataError(
                f"{path}: {name} has {len(content.columns[name]):,} entries for {total:,} vectors: give each "
                "vector one"
            )
    owners = None if people is None else _people(path, people, content.columns[people])
    groups = _people(path, group_name, content.columns[group_name]) if group_name else None
    kept = _sample(owners, total, rows, np.random.default_rng(seed))
    values, unit = _check(path, np.asarray(matrix[kept]), kept)
    classes = {name: _classes(path, name, content.columns[name][kept]) for name in labels}
    return Vectors(
        values=values,
        people=None if owners is None else owners[kept],
        labels=classes,
        rows=kept,
        total=total,
        words=words,
        unit=unit,
        names=names,
        left_out=tuple(others) if names else (),
        groups=None if groups is None else groups[kept],
        group_name=group_name,
    )


def _open(path: Path) -> _Read:
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"{path}: vectors are read from {', '.join(SUFFIXES)}; a pickle is not, since it could run code: "
            "write them with np.savez(FILE, vectors=..., people=...)"
        )
    try:
        with open_regular(path) as file:
            if path.suffix == ".npy":
                return _Read({"": np.load(path, mmap_mode="r", allow_pickle=False)})
            if path.suffix == ".npz":
                with np.load(file, allow_pickle=False) as arrays:
                    read = {name: arrays[name] for name in arrays}
                wide = {name: array for name, array in read.items() if array.ndim > 1}
                return _Read(wide, {name: array for name, array in read.items() if array.ndim == 1})
            return _parquet(path, file) if path.suffix == ".parquet" else _csv(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError:
        raise
    except _DAMAGES as error:
        if "Object arrays" in str(error):
            raise DataError(
                f"{path}: holds Python objects, and reading them could run code: write plain numbers of one "
                "length a row, such as np.stack(vectors)"
            ) from error
        raise DataError(f"{path}: damaged, or not a {path.suffix} file ({shorten(str(error))})") from error


def _parquet(path: Path, file: Any) -> _Read:
    with needs_extra("a Parquet file", "parquet"):
        from pyarrow import compute, parquet, types

    table, read = parquet.read_table(file), _Read()
    for name in table.column_names:
        column = table.column(name)
        kind = column.type
        if not (types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)):
            read.columns[name] = column.to_numpy()
            continue
        lengths = compute.fill_null(compute.list_value_length(column), -1).to_numpy()
        flat = compute.list_flatten(column).to_numpy()
        if flat.dtype.kind in "fiu":  # others are no vectors
            _check_lengths(path, name, lengths)
            read.matrices[name] = flat.reshape(len(lengths), -1)
    return read


def _csv(path: Path) -> _Read:
    header, lines = read_table(path)
    read = _Read()
    for name in header:
        texts = [row[name] for _, row in lines]
        if not texts or not texts[0].lstrip().startswith("["):
            read.columns[name] = np.array(texts)
            continue
        lists = [parse_json(text) if text else [] for text in texts]
        _check_lengths(path, name, np.array(list(map(len, lists))))
        read.matrices[name] = np.array(lists)
    return read


def _check_lengths(path: Path, name: str, lengths: np.ndarray) -> None:
    sizes, counts = np.unique(lengths, return_counts=True)
    odd = np.flatnonzero(lengths != sizes[counts.argmax()])
    if len(odd):
        raise DataError(
            f"{path}: {name} has {max(0, lengths[odd[0]])} numbers in row {odd[0]}, and "
            f"{sizes[counts.argmax()]} in most: leave out the {len(odd):,} rows of another length"
        )


def _stack(path: Path, content: _Read) -> _Read:
    """Joins arrays of one person each."""
    arrays = {name: array for name, array in content.matrices.items() if array.ndim == 2}
    widths = {array.shape[1] for array in arrays.values()}
    if len(arrays) < 2 or len(widths) > 1:
        raise DataError(
            f"{path}: --people '{EACH_ARRAY}' needs an array for each person, all with rows of one length, "
            f"and it has {_shapes(content)}"
        )
    owners = np.repeat(list(arrays), [len(array) for array in arrays.values()])
    return _Read({"vectors": np.concatenate(list(arrays.values()))}, {EACH_ARRAY: owners})


def _shapes(content: _Read) -> str:
    arrays = {**content.matrices, **content.columns}
    shapes = [
        f"{name or 'an array'} of {' x '.join(map(str, array.shape))}" for name, array in arrays.items()
    ]
    return shorten(", ".join(shapes)) or "no array"


def _matrix(
    path: Path, content: _Read, vectors: str | None, chosen: set[str]
) -> tuple[np.ndarray, str, tuple[str, ...]]:
    """The vectors, their origin in words, and their columns, if they are not one array.

    Without `vectors`, columns belong to a vector if they are called alike, a word and a number, if many are;
    else if they hold fractions, as most do, and vary as they do.
    """
    matrices = {name: each for name, each in content.matrices.items() if vectors in (None, name)}
    if len(matrices) > 1:
        raise DataError(
            f"{path}: has several arrays of vectors ({_shapes(content)}): name one with --vectors; if each "
            f"is of one person, write --people '{EACH_ARRAY}'"
        )
    for name, matrix in matrices.items():
        if matrix.ndim != 2:
            raise DataError(
                f"{path}: {name or 'the array'} has the shape {matrix.shape}: vectors are rows of numbers, "
                "(N, D): reshape it with array.reshape(len(array), -1)"
            )
        return matrix, f"{name or 'the array'}, {len(matrix):,} x {matrix.shape[1]:,} {matrix.dtype}", ()
    names = [name for name in content.columns if name not in chosen and name.startswith(vectors or "")]
    if path.suffix in (".npy", ".npz") or not names:
        wanted = "" if vectors is None else f" called {vectors}"
        raise DataError(f"{path}: has no array of vectors{wanted}, (N, D); it has {_shapes(content)}")
    series = Counter(name.rstrip("0123456789") for name in names if name[-1:].isdigit()).most_common(2)
    usual, most = series[0] if series else ("", 0)
    alike = most >= max(_SERIES, len(names) / 3, *(2 * count for _, count in series[1:]))
    if alike and vectors is None:
        names = [name for name in names if name.rstrip("0123456789") == usual != name]
    matrix = np.stack([_numbers(path, name, content.columns[name]) for name in names], 1)
    if not alike and vectors is None:
        fractions, spread = (matrix % 1 != 0).any(0), np.nanstd(matrix, 0)
        part = (spread <= _SPREAD * np.nanmedian(spread)) & (fractions | (2 * fractions.sum() <= len(names)))
        names, matrix = [name for name, each in zip(names, part, strict=True) if each], matrix[:, part]
    counting = np.flatnonzero((np.diff(matrix, axis=0) == 1).all(0))
    if len(counting) and len(matrix) > 2:
        raise DataError(
            f"{path}: {names[counting[0]]} counts the rows and does not belong to a vector: remove it, or "
            "name the beginning of the vectors' columns with --vectors"
        )
    return matrix, f"{len(names):,} columns, {names[0]} to {names[-1]}", tuple(names)


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    try:
        return column.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path}: {name} does not hold numbers ({shorten(str(error))}): name this column with --people "
            "or --labels, remove it, or name the beginning of the vectors' columns with --vectors"
        ) from error


def _check(path: Path, values: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finite numbers, scaled, and what they were divided by; see Vectors."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path}: vectors of {values.dtype}: real numbers are expected, such as float32")
    if len(values) < _FEWEST or values.shape[1] < 2:
        raise DataError(
            f"{path}: {len(values)} vectors of {values.shape[1]} numbers: at least {_FEWEST} vectors of 2 "
            "numbers are needed"
        )
    numbers = values.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers).all(1))
    if len(bad):
        row = numbers[bad[0]]
        raise DataError(
            f"{path}: row {kept[bad[0]]} holds {row[~np.isfinite(row)][0]}, and {len(bad):,} of "
            f"{len(values):,} rows hold NaN or infinity: leave them out"
        )
    empty = np.flatnonzero(~numbers.any(1))
    if len(empty) and values.dtype.kind == "f":
        raise DataError(
            f"{path}: row {kept[empty[0]]} is all zeros, as {len(empty):,} of {len(values):,} rows are: the "
            "model embedded nothing there: leave them out"
        )
    if (numbers == numbers[0]).all():
        raise DataError(f"{path}: all {len(values):,} vectors are equal: no two people can be told apart")
    most = np.abs(numbers).max()  # before squares, which may be too large
    unit = even(numbers / most)
    unit = most * unit * np.sqrt((numbers / (most * unit)).var(0).mean())
    return (numbers / unit).astype(np.float32), unit


def _codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different texts of a column, and (N,) the number of each entry's; -1 if it is empty."""
    texts = ["" if value is None or value != value else str(value).strip() for value in values.tolist()]
    classes, codes = np.unique(np.array(texts), return_inverse=True)
    return (classes[1:], codes - 1) if classes[0] == "" else (classes, codes)


def _people(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    codes = _codes(values)[1]
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        raise DataError(
            f"{path}: {name} is empty in row {unknown[0]}, as in {len(unknown):,} of {len(values):,}: leave "
            "out vectors of nobody, or give each its own name"
        )
    return codes


def _classes(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "if":
        values = np.where(values < 0, np.nan, values)
    classes, codes = _codes(values)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        raise DataError(
            f"{path}: {name} has {len(classes)} different values: an attribute has 2 to {_MOST_CLASSES} "
            "classes: group its values; negative and empty ones are unknown"
        )
    return codes


def _sample(people: np.ndarray | None, total: int, most: int, draw: np.random.Generator) -> np.ndarray:
    """Rows of whole people, at random, up to a number; all if there are no more."""
    if total <= most:
        return np.arange(total)
    if people is None:
        return np.sort(draw.choice(total, most, replace=False))
    order = draw.permutation(total)
    place = draw.permutation(people.max() + 1)[people[order]]
    order = order[place.argsort(kind="stable")]  # person after person, each in random order
    starts = np.flatnonzero(np.diff(people[order], prepend=-1))
    nth = np.arange(total) - np.repeat(starts, np.diff(starts, append=total))
    return np.sort(order[nth < _MOST_OF_ONE][:most])
