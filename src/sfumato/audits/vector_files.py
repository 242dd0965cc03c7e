"""Read vectors of any model, the people behind them and their attributes; nothing is unpickled.

A file has rows of equal length: an array of .npy, or of .npz with others that have an entry for each row, or
columns of numbers of .parquet or .csv.
"""

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.attack.sets import even
from sfumato.base.files import open_regular, read_table
from sfumato.base.parquet import BATCH, batches, check_expanded, open_parquet
from sfumato.errors import ConfigError, DataError, did_you_mean, shorten

SUFFIXES = (".npy", ".npz", ".parquet", ".csv")
_FEWEST, _MOST_CLASSES = 20, 20
_MOST_OF_ONE = 150  # vectors of a person in a sample: as many as name them from 100
_DAMAGES = (OSError, EOFError, ValueError, TypeError, NotImplementedError, zipfile.BadZipFile, MemoryError)


@dataclass(frozen=True)
class Vectors:
    """Vectors, or a sample of them, scaled so that the variance of their numbers is 1 on average."""

    values: np.ndarray  # (N, D) finite float32, divided by `unit`
    people: np.ndarray | None  # (N,) int64 codes of the people they belong to; None if unknown
    labels: Mapping[str, np.ndarray]  # attribute -> (N,) int64 codes of its classes; -1 if unknown
    rows: np.ndarray  # (N,) their positions in the file, from 0
    total: int  # rows in the file
    words: str = "an array"  # or columns that they come from
    unit: np.ndarray = field(default_factory=lambda: np.ones(1))  # (D,) one for all, unless one hides others
    names: tuple[str, ...] = ()  # columns of the D numbers; none if they are of one array
    left_out: tuple[str, ...] = ()  # columns that do not belong to the vectors, and were not looked at


@dataclass(frozen=True)
class _Column:
    """A column of a Parquet file, which is read when rows of it are taken."""

    path: Path
    name: str
    shape: tuple[int]

    def __getitem__(self, rows: Any) -> Any:
        parts = []
        with open_parquet(self.path, [self.name]) as file:
            for cells in (batch.column(0) for batch in batches(file, BATCH, [self.name])):
                if hasattr(cells, "dictionary"):  # equal texts are one object, and missing ones None
                    texts = np.array([*cells.dictionary.to_pylist(), None], dtype=object)
                    parts.append(texts[cells.indices.fill_null(len(texts) - 1).to_numpy()])
                else:
                    parts.append(cells.to_numpy(zero_copy_only=False))
        return np.concatenate(parts)[rows]


_Columns = Mapping[str, np.ndarray | _Column]


def read(
    path: Path,
    *,
    vectors: str | None = None,
    people: str | None = None,
    labels: Sequence[str] = (),
    rows: int = 10_000,
    seed: int = 0,
) -> Vectors:
    """Read a file; of one with more rows, a random sample of whole people.

    `vectors` names their array, or the common beginning of their columns; `people` says whose they are;
    `labels` are attributes, which need people. Raises ConfigError: no such array or column, or labels without
    people; DataError: a file that cannot be read, or holds no such vectors.
    """
    if rows < _FEWEST:
        raise ConfigError(f"--rows {rows}: at least {_FEWEST}")
    if labels and people is None:
        raise ConfigError(
            f"--labels {','.join(labels)}: an attribute is learned from some people and read from others: "
            "say with --people whose the vectors are"
        )
    matrices, columns = _open(path)
    chosen = [name for name in (people, *labels) if name is not None]
    for name in chosen:
        if name not in columns:
            known = did_you_mean(name, columns) if columns else "It has no other: write an .npz"
            raise ConfigError(f"{path}: has no column {name!r} with an entry for each vector. {known}")
    array, names, words = _find(path, matrices, columns, vectors, chosen)
    total = columns[names[0]].shape[0] if array is None else len(array)
    for name in chosen:
        if (entries := columns[name].shape[0]) != total:
            raise DataError(f"{path}: {name} has {entries:,} entries for {total:,} vectors: give each one")
    owners = None if people is None else _codes(columns[people][:])[1]
    if owners is not None and len(unknown := np.flatnonzero(owners < 0)):
        said = f"{people} is empty in row {unknown[0]}, as in {len(unknown):,} of {total:,}"
        raise DataError(f"{path}: {said}: leave out vectors of nobody, or give each its own name")
    kept = _sample(owners, total, rows, np.random.default_rng(seed))
    by_column = (_numbers(path, name, columns[name][kept]) for name in names)
    given = np.stack([*by_column], 1) if array is None else np.asarray(array[kept])
    values, unit = _check(path, given, kept)
    return Vectors(
        values=values,
        people=None if owners is None else owners[kept],
        labels={name: _classes(path, name, columns[name][kept]) for name in labels},
        rows=kept,
        total=total,
        words=words,
        unit=unit,
        names=names,
        left_out=tuple(name for name in columns if name not in {*chosen, *names}) if names else (),
    )


def _open(path: Path) -> tuple[Mapping[str, np.ndarray], _Columns]:
    """The arrays that may be vectors, and the columns with an entry for each row."""
    if path.suffix not in SUFFIXES:
        raise DataError(
            f"{path}: vectors are read from {', '.join(SUFFIXES)}; a pickle is not, since it could run code: "
            "write them with np.savez(FILE, vectors=..., people=...)"
        )
    try:
        with open_regular(path) as file:
            if path.suffix == ".npy":
                return {"": np.load(path, mmap_mode="r", allow_pickle=False)}, {}
            if path.suffix == ".parquet":
                return {}, _parquet(path)
            if path.suffix == ".csv":
                header, lines = read_table(path)
                return {}, {name: np.array([row[name] for _, row in lines]) for name in header}
            with zipfile.ZipFile(file) as packed:
                becomes = sum(each.file_size for each in packed.infolist())
                check_expanded(str(path), becomes, path.stat().st_size)
            with np.load(path, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in arrays}
            columns = {name: array for name, array in found.items() if array.ndim == 1}
            return {name: array for name, array in found.items() if name not in columns}, columns
    except DataError:
        raise
    except _DAMAGES as error:
        words = f"damaged, or not a {path.suffix} file ({shorten(str(error))})"
        if isinstance(error, FileNotFoundError):
            words = "no such file"
        elif isinstance(error, MemoryError):
            words = "does not fit memory: leave out arrays or rows that are no vectors"
        elif "Object arrays" in str(error):
            words = "holds Python objects, and reading them could run code: "
            words += "write plain numbers of one length a row, such as np.stack(vectors)"
        raise DataError(f"{path}: {words}") from error


def _parquet(path: Path) -> _Columns:
    columns = {}
    with open_parquet(path) as file:
        from pyarrow import types

        for each in file.schema_arrow:
            if not types.is_nested(each.type):
                columns[each.name] = _Column(path, each.name, (file.metadata.num_rows,))
            elif each.type.num_fields == 1 and types.is_floating(each.type.field(0).type):
                raise DataError(
                    f"{path}: {each.name} holds lists of numbers, and columns of numbers are read: write the "
                    f"lists with np.savez(FILE, vectors=np.stack(table[{each.name!r}]), people=...)"
                )
    return columns


def _find(
    path: Path, matrices: Mapping[str, np.ndarray], columns: _Columns, vectors: str | None, chosen: list[str]
) -> tuple[np.ndarray | None, tuple[str, ...], str]:
    """The array of the vectors, or the columns that begin as `vectors` or are called alike; and words."""
    sizes = {name: " x ".join(map(str, array.shape)) for name, array in {**matrices, **columns}.items()}
    held = ", ".join(f"{name or 'an array'} of {size}" for name, size in sizes.items())
    it_has = shorten(held) or "no array"
    named = [name for name in matrices if vectors in (None, name)]
    if len(named) > 1:
        raise DataError(
            f"{path}: has several arrays of vectors ({it_has}): name one with --vectors; if each is of one "
            "person, join them by np.concatenate, and add an array that says whose each row is"
        )
    if named:
        array, said = matrices[named[0]], named[0] or "the array"
        if array.ndim != 2:
            raise DataError(
                f"{path}: {said} has the shape {array.shape}: vectors are rows of numbers, (N, D): reshape "
                "it with array.reshape(len(array), -1)"
            )
        return array, (), f"{said}, {len(array):,} x {array.shape[1]:,} {array.dtype}"
    names = [name for name in columns if name not in chosen and name.startswith(vectors or "")]
    if path.suffix in (".npy", ".npz") or not names:
        wanted = "" if vectors is None else f" called {vectors}"
        raise DataError(f"{path}: has no array of vectors{wanted}, (N, D); it has {it_has}")
    if vectors is None:  # many columns called by one word and a number
        series = Counter(name.rstrip("0123456789") for name in names if name[-1:].isdigit()).most_common(2)
        usual, most = series[0] if series else ("", 0)
        if most < max(2, len(names) / 3, *(2 * count for _, count in series[1:])):
            raise DataError(
                f"{path}: has {it_has}: name the beginning of the vectors' columns with --vectors, as e for "
                "e0 and e1; whole vectors in cells are written by NumPy: np.savez(FILE, vectors=, people=)"
            )
        names = [name for name in names if name.rstrip("0123456789") == usual != name]
    return None, tuple(names), f"{len(names):,} columns, {names[0]} to {names[-1]}"


def _numbers(path: Path, name: str, column: np.ndarray) -> np.ndarray:
    try:
        return column.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"{path}: {name} does not hold numbers ({shorten(str(error))}): name this column with --people "
            "or --labels, remove it, or name the beginning of the vectors' columns with --vectors. Numbers "
            "have a point for decimals; vectors that were printed into a cell are not read: write an .npz"
        ) from error


def _check(path: Path, values: np.ndarray, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Finite numbers, scaled, and their `unit`."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path}: vectors of {values.dtype}: real numbers are expected, such as float32")
    if len(values) < _FEWEST or values.shape[1] < 2:
        said = f"{len(values)} vectors of {values.shape[1]} numbers"
        raise DataError(f"{path}: {said}: at least {_FEWEST} vectors of 2 numbers are needed")
    numbers = values.astype(np.float64)
    bad, of = np.flatnonzero(~np.isfinite(numbers).all(1)), f"of {len(values):,} rows"
    if len(bad):
        said = f"row {kept[bad[0]]} holds {next(each for each in numbers[bad[0]] if not np.isfinite(each))}"
        raise DataError(f"{path}: {said}, and {len(bad):,} {of} hold NaN or infinity: leave them out")
    empty = np.flatnonzero(~numbers.any(1))
    if len(empty) and values.dtype.kind == "f":
        said = f"row {kept[empty[0]]} is all zeros, as {len(empty):,} {of} are"
        raise DataError(f"{path}: {said}: the model embedded nothing there: leave them out")
    if (numbers == numbers[0]).all():
        raise DataError(f"{path}: all {len(values):,} vectors are equal: no two people can be told apart")
    most = np.abs(numbers).max()  # before squares, which may be too large
    unit = even(numbers / most)
    unit = most * unit * np.sqrt((numbers / (most * unit)).var(0).mean())
    return (numbers / unit).astype(np.float32), unit


def _codes(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different texts of a column, and (N,) the number of each entry's; -1 if it is empty."""
    seen: dict[str, int] = {}
    first = np.array([seen.setdefault(_text(each), len(seen)) for each in values.tolist()])
    classes, codes = np.unique(np.array(list(seen)), return_inverse=True)
    return (classes[1:], codes[first] - 1) if classes[0] == "" else (classes, codes[first])


def _text(value: Any) -> str:
    """A whole number that is a float, since others of its column are missing, is written as one."""
    if value is None or value != value:
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()


def _classes(path: Path, name: str, values: np.ndarray) -> np.ndarray:
    if values.dtype.kind in "if":
        values = np.where(values < 0, np.nan, values)
    classes, codes = _codes(values)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        said = f"{name} has {len(classes)} different values: an attribute has 2 to {_MOST_CLASSES} classes"
        raise DataError(f"{path}: {said}: group its values; negative and empty ones are unknown")
    return codes


def _sample(people: np.ndarray | None, total: int, most: int, draw: np.random.Generator) -> np.ndarray:
    """Rows of whole people, at random, up to a number; all if there are no more."""
    if total <= most or people is None:
        return np.arange(total) if total <= most else np.sort(draw.choice(total, most, replace=False))
    order = draw.permutation(total)
    place = draw.permutation(people.max() + 1)[people[order]]
    order = order[place.argsort(kind="stable")]  # person after person, each in random order
    starts = np.flatnonzero(np.diff(people[order], prepend=-1))
    nth = np.arange(total) - np.repeat(starts, np.diff(starts, append=total))
    return np.sort(order[nth < _MOST_OF_ONE][:most])
