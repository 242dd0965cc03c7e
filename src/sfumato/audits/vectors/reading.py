"""Read vectors of any model, the people behind them and their attributes; nothing is unpickled.

A file has rows of equal length: an array of .npy, or of .npz with others that have an entry for each row,
a list column or columns of numbers of .parquet or .csv.
"""

import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sfumato.attack.sets import even
from sfumato.base.files import open_regular, read_table
from sfumato.base.parquet import BATCH, batches, check_expanded, open_parquet
from sfumato.errors import ConfigError, DataError, did_you_mean, shorten

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
_MOST_ROWS = 1_000_000  # of which people are held at once
_BATCH_BYTES = 32_000_000  # of a batch of vectors
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


@dataclass(frozen=True)
class _Stored:
    """A column of a Parquet file, whose rows are read when they are taken: (N,) entries or (N, D) vectors."""

    path: Path
    name: str
    shape: tuple[int, ...]
    dtype: Any = object

    @property
    def ndim(self) -> int:
        """As of an array."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Reads (n,) ascending rows."""
        found, start = [], 0
        for part in self.parts():
            inside = rows[slice(*np.searchsorted(rows, (start, start + len(part))))]
            found.append(part[inside - start])
            start += len(part)
        return np.concatenate(found)

    def parts(self) -> Iterator[np.ndarray]:
        """Reads all rows, some at a time."""
        width = self.shape[1] if self.ndim > 1 else 1
        with open_parquet(self.path, [self.name]) as file:
            for batch in batches(file, max(1, min(BATCH, _BATCH_BYTES // (8 * max(1, width)))), [self.name]):
                yield _array(batch.column(0)) if self.ndim == 1 else _flat(batch.column(0)).reshape(-1, width)


_Array = np.ndarray | _Stored


@dataclass
class _Read:
    """The content of a file: arrays of vectors, and columns with an entry for each row."""

    matrices: dict[str, _Array] = field(default_factory=dict)
    columns: dict[str, _Array] = field(default_factory=dict)


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
    take, total, words = _matrix(path, content, vectors, chosen)
    for name in chosen:
        if len(content.columns[name]) != total:
            raise DataError(
                f"{path}: {name} has {len(content.columns[name]):,} entries for {total:,} vectors: give each "
                "vector one"
            )
    draw, drawn, owners = np.random.default_rng(seed), None, None
    if people is not None:
        drawn = _draw_people(content.columns[people], rows, draw)
        owners = _people(path, people, content.columns[people][drawn])
    kept = _sample(owners, total if drawn is None else len(drawn), rows, draw)
    owners, kept = owners if owners is None else owners[kept], kept if drawn is None else drawn[kept]
    matrix, names = take(kept)
    values, unit = _check(path, matrix, kept)
    others = [name for name in content.columns if name not in {*chosen, *names}]
    by_name = (name for name in others if _WHO.fullmatch(name) and len(content.columns[name]) == total)
    group_name = "" if people is not None or not labels else next(by_name, "")
    return Vectors(
        values=values,
        people=owners,
        labels={name: _classes(path, name, content.columns[name][kept]) for name in labels},
        rows=kept,
        total=total,
        words=words if not names else f"{len(names):,} columns, {names[0]} to {names[-1]}",
        unit=unit,
        names=names,
        left_out=tuple(others) if names else (),
        groups=_people(path, group_name, content.columns[group_name][kept]) if group_name else None,
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
                with zipfile.ZipFile(file) as packed:
                    becomes = sum(each.file_size for each in packed.infolist())
                    check_expanded(str(path), becomes, path.stat().st_size)
                with np.load(path, allow_pickle=False) as arrays:
                    read = {name: arrays[name] for name in arrays}
                wide = {name: array for name, array in read.items() if array.ndim > 1}
                return _Read(wide, {name: array for name, array in read.items() if array.ndim == 1})
            return _parquet(path) if path.suffix == ".parquet" else _csv(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except DataError:
        raise
    except MemoryError as error:
        raise DataError(
            f"{path}: does not fit memory: leave out arrays or rows that are no vectors"
        ) from error
    except _DAMAGES as error:
        if "Object arrays" in str(error):
            raise DataError(
                f"{path}: holds Python objects, and reading them could run code: write plain numbers of one "
                "length a row, such as np.stack(vectors)"
            ) from error
        raise DataError(f"{path}: damaged, or not a {path.suffix} file ({shorten(str(error))})") from error


def _parquet(path: Path) -> _Read:
    read = _Read()
    with open_parquet(path) as file:
        from pyarrow import types

        total = file.metadata.num_rows
        for each in file.schema_arrow:
            if not (
                types.is_list(each.type)
                or types.is_large_list(each.type)
                or types.is_fixed_size_list(each.type)
            ):
                read.columns[each.name] = _Stored(path, each.name, (total,))
                continue
            values = sum(
                part.num_values
                for group in range(file.metadata.num_row_groups)
                for part in map(file.metadata.row_group(group).column, range(file.metadata.num_columns))
                if part.path_in_schema.partition(".")[0] == each.name
            )
            lengths, kind = np.empty(total, np.int32), np.dtype(object)
            start, rows = 0, max(1, min(BATCH, _BATCH_BYTES * total // max(1, 8 * values)))
            for batch in batches(file, rows, [each.name]):
                cells = batch.column(0)
                lengths[start : start + len(cells)] = cells.value_lengths().fill_null(-1).to_numpy()
                start += len(cells)
                kind = _flat(cells[:1]).dtype if start == len(cells) else kind
            if kind.kind in "fiu":  # others are not vectors
                _check_lengths(path, each.name, lengths)
                read.matrices[each.name] = _Stored(path, each.name, (total, int(lengths[0])), kind)
    return read


def _flat(cells: Any) -> np.ndarray:
    """The numbers of lists, one after the other."""
    numbers: np.ndarray = cells.flatten().to_numpy(zero_copy_only=False)
    return numbers


def _array(cells: Any) -> np.ndarray:
    """The entries of a column; equal texts are one object, and missing ones None."""
    entries: np.ndarray
    if not hasattr(cells, "dictionary"):
        entries = cells.to_numpy(zero_copy_only=False)
        return entries
    different = np.array([*cells.dictionary.to_pylist(), None], dtype=object)
    entries = different[cells.indices.fill_null(len(different) - 1).to_numpy()]
    return entries


# A list as JSON, as numpy prints it, and as pandas prints an array or a tensor.
_LIST = re.compile(r"\s*(?:array\(|tensor\()?\[(.*)\](?:,[^\]]*)?\)?\s*", re.DOTALL)


def _csv(path: Path) -> _Read:
    header, lines = read_table(path)
    read = _Read()
    for name in header:
        texts = [row[name] for _, row in lines]
        if not texts or not _LIST.fullmatch(texts[0]):
            read.columns[name] = np.array(texts)
            continue
        lists = [_list(line, name, row[name]) for line, row in lines]
        _check_lengths(path, name, np.array(list(map(len, lists))))
        read.matrices[name] = np.array(lists, np.float64)
    return read


def _list(line: str, name: str, text: str) -> list[float]:
    """The numbers of a list in a cell: between commas, or between spaces, as numpy prints them."""
    found = _LIST.fullmatch(text)
    inside = found[1] if found else text
    if "..." in inside:
        raise DataError(
            f"{line}: {name} holds {shorten(text, 60)}: numpy leaves out the middle of long vectors when it "
            "prints them: write the vectors with np.save, or with .tolist()"
        )
    try:
        return [float(number) for number in (inside.split(",") if "," in inside else inside.split())]
    except ValueError as error:
        raise DataError(
            f"{line}: {name} holds {shorten(text, 60)}: a vector has numbers between commas, as "
            "[0.1, 0.2], or between spaces, as numpy prints it"
        ) from error


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
) -> tuple[Callable[[np.ndarray], tuple[np.ndarray, tuple[str, ...]]], int, str]:
    """A function that takes rows of the vectors, the number of all, and their origin in words.

    It also returns the columns of the vectors, unless they are an array. Without `vectors`, columns belong
    to a vector if they are called alike, a word and a number, if many are; else if they hold fractions, as
    most do, and vary as they do.
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
        words = f"{name or 'the array'}, {len(matrix):,} x {matrix.shape[1]:,} {matrix.dtype}"
        return lambda kept, matrix=matrix: (np.asarray(matrix[kept]), ()), len(matrix), words
    names = [name for name in content.columns if name not in chosen and name.startswith(vectors or "")]
    if path.suffix in (".npy", ".npz") or not names:
        wanted = "" if vectors is None else f" called {vectors}"
        raise DataError(f"{path}: has no array of vectors{wanted}, (N, D); it has {_shapes(content)}")
    series = Counter(name.rstrip("0123456789") for name in names if name[-1:].isdigit()).most_common(2)
    usual, most = series[0] if series else ("", 0)
    alike = most >= max(_SERIES, len(names) / 3, *(2 * count for _, count in series[1:]))
    if alike and vectors is None:
        names = [name for name in names if name.rstrip("0123456789") == usual != name]

    def take(kept: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        matrix = np.stack(_numbers(path, {name: content.columns[name][kept] for name in names}), 1)
        part = np.ones(len(names), bool)
        if not alike and vectors is None:
            finite = np.nan_to_num(matrix, posinf=0, neginf=0)  # others are refused, once columns are chosen
            fractions, spread = (finite % 1 != 0).any(0), finite.std(0)
            part = spread <= _SPREAD * np.median(spread)
            part &= fractions | (2 * fractions.sum() <= len(names))
        matrix, own = matrix[:, part], tuple(name for name, each in zip(names, part, strict=True) if each)
        counting = np.flatnonzero((np.diff(matrix, axis=0) == np.diff(kept)[:, None]).all(0))
        if len(counting) and len(matrix) > 2:
            raise DataError(
                f"{path}: {own[counting[0]]} counts the rows and does not belong to a vector: remove it, "
                "or name the beginning of the vectors' columns with --vectors"
            )
        return matrix, own

    return take, len(content.columns[names[0]]), ""


_FIGURES = re.compile(r"[-+\d.,eE' ]+")
_DECIMAL = re.compile(r"\s*[-+]?\d*,\d+(?:[eE][-+]?\d+)?\s*")
_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2}(?:,\d{3})+\s*")


def _numbers(path: Path, columns: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Columns as numbers. Commas are decimal if all can be, and not all could be of thousands."""
    texts = [name for name, column in columns.items() if column.dtype.kind == "U"]
    commas = [
        text for name in texts for text in columns[name].tolist() if "," in text and _FIGURES.fullmatch(text)
    ]
    odd = next((text for text in commas if not _DECIMAL.fullmatch(text)), None)
    if commas and (odd or all(map(_THOUSANDS.fullmatch, commas))):
        raise DataError(
            f"{path}: is the comma in {odd or commas[0]!r} one of decimals or of thousands? Write numbers "
            "with a point for decimals, and without separators of thousands"
        )
    changed = {name: np.char.replace(columns[name], ",", ".") for name in (texts if commas else ())}
    return [_floats(path, name, column) for name, column in {**columns, **changed}.items()]


def _floats(path: Path, name: str, column: np.ndarray) -> np.ndarray:
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
    texts = [
        "" if value is None or value != value else str(_whole(value)).strip() for value in values.tolist()
    ]
    classes, codes = np.unique(np.array(texts), return_inverse=True)
    return (classes[1:], codes - 1) if classes[0] == "" else (classes, codes)


def _whole(value: Any) -> Any:
    """A whole number for one that is a float, since others of its column are missing."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


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


def _draw_people(column: _Array, most: int, draw: np.random.Generator) -> np.ndarray:
    """All rows; or if there are many, rows of some people, up to a few times `most`, ascending.

    They are found part by part: entries of all rows need not fit memory.
    """
    if len(column) <= _MOST_ROWS:
        return np.arange(len(column))
    counts: Counter[Any] = Counter()
    for part in _parts(column):
        counts.update(dict(zip(*_different(part), strict=True)))
    order = draw.permutation(len(counts)).tolist()
    names, chosen, left = list(counts), dict[Any, float](), most
    while order and left > 0:
        name = names[order.pop()]
        chosen[name] = min(1.0, 4 * _MOST_OF_ONE / counts[name])  # of each person's rows, more than are used
        left -= min(_MOST_OF_ONE, counts[name])
    rows, start = [], 0
    for part in _parts(column):
        different, inverse = _different(part, inverse=True)
        shares = np.array([chosen.get(name, 0.0) for name in different])
        rows.append(start + np.flatnonzero(draw.random(len(part)) < shares[inverse]))
        start += len(part)
    return np.concatenate(rows)


def _parts(column: _Array) -> Iterator[np.ndarray]:
    if isinstance(column, _Stored):
        return column.parts()
    return (column[start : start + BATCH] for start in range(0, len(column), BATCH))


def _different(part: np.ndarray, *, inverse: bool = False) -> tuple[list[Any], np.ndarray]:
    """The different entries, as texts, of a part of a column; and how many of each, or each row's place."""
    kind = part if part.dtype.kind in "iub" else part.astype(str)
    found, places, counts = np.unique(kind, return_inverse=True, return_counts=True)
    return list(map(str, found.tolist())), places if inverse else counts
