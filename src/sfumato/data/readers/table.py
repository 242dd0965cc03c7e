"""A table of images: a CSV with a `file` column, label columns, and a `split` column if there are splits."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

from sfumato import images
from sfumato.base.files import below, whole, write_rows
from sfumato.data.labelled import LabelledImages
from sfumato.data.readers.folder import DEFAULT_SIZE, SPLITS, Root, Skip, assemble
from sfumato.data.readers.listing import read_rows
from sfumato.errors import DataError, did_you_mean

_MISSING = frozenset({"", "nan", "NaN", "<NA>", "NaT"})


def table(
    path: Root,
    *,
    size: int = DEFAULT_SIZE,
    channels: int = 3,
    split_by: str | None = None,
    skip_unreadable: Skip = None,
) -> LabelledImages:
    """Reads the images that a CSV lists, with every other column as a label.

    Args:
        path: the CSV, with a header (forms: sfumato.base.files.parse_table); its `file` column names files
            below the folder of the CSV, or in folders of SFUMATO_OUTSIDE. `split` may be empty.
        split_by: without a `split` column, whole classes of this label, or of the first, are given to splits.
        size, channels, skip_unreadable: see `folder`.
    """
    path = Path(path)
    if path.is_dir():
        raise DataError(f"{path}: is a folder: write folder:{path}")
    header, rows = read_rows(path, columns=("file",), of="image")
    files = [below(path.parent, row["file"], line) for line, row in rows]

    def read(labels: dict[str, list[str]], splits: list[str] | None) -> LabelledImages:
        return assemble(f"table:{path}", files, labels, splits, (size, channels, skip_unreadable))

    columns = {name: [row[name] for _, row in rows] for name in header if name != "file"}
    return with_labels(path, columns, lambda row: rows[row][0], split_by, read)


def with_labels(
    path: Path,
    columns: dict[str, list[str]],
    line: Callable[[int], str],
    split_by: str | None,
    read: Callable[[dict[str, list[str]], list[str] | None], LabelledImages],
) -> LabelledImages:
    """Reads images with the columns of their table as labels and splits; see `table`.

    `columns`: name -> the value of each row; `split` may be empty, and is not a label. `line`: row -> its
    place in words. `read`: labels, and splits or None -> the images.
    """
    splits = columns.pop("split", None)
    if not columns:
        raise DataError(f"{path}: no label column: add one, such as 'class'")
    if split_by is not None and split_by not in columns:
        raise DataError(f"{path}: no column {split_by!r} to split by: {did_you_mean(split_by, columns)}")
    for name, values in columns.items():
        for missing in sorted(_MISSING.intersection(values)):
            said = f" but {missing!r}, pandas' word for none" if missing else ""
            raise DataError(
                f"{line(values.index(missing))}: no value for {name!r}{said}: fill it in or remove the row"
            )
    for row, split in enumerate(splits or ()):
        if split and split.lower() not in SPLITS:
            raise DataError(f"{line(row)}: no split {split!r}: {did_you_mean(split, set(SPLITS.values()))}")
    if split_by is not None:
        columns = {split_by: columns[split_by], **columns}
    data = read(columns, None if splits is None else [SPLITS.get(split.lower(), "") for split in splits])
    return data if split_by is None else replace(data, split_by=None)  # the user named these splits


def write(data: LabelledImages, directory: Root) -> Path:
    """Writes images as PNG and their labels and splits as table.csv, which `table` reads back.

    Images of files keep their names without the suffix; others are numbered. Splits that nobody named are
    not written: a reader of the table makes those of its task. An existing folder is refused, untouched.
    """
    directory = Path(directory)
    if directory.exists():
        raise DataError(f"{directory}: exists already: name a new folder")
    split_of = [""] * len(data) if data.splits else []
    for split, rows in data.splits.items():
        for row in rows.tolist():
            split_of[row] = split
    split_of = split_of if data.split_by is None else []
    names = names_of(data)

    def lines(folder: Path) -> Iterator[list[str]]:
        yield ["file", *data.labels, *(["split"] if split_of else [])]
        for row, image in enumerate(data.images):
            name = f"images/{names[row]}.png"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            images.write(folder / name, image)
            values = [label.names[label.codes[row]] for label in data.labels.values()]
            yield [name, *values, *([split_of[row]] if split_of else [])]

    with whole(directory) as folder:
        (folder / "images").mkdir(parents=True)
        with (folder / "table.csv").open("w", newline="", encoding="utf-8") as opened:
            write_rows(opened, lines(folder))
    return directory / "table.csv"


def names_of(data: LabelledImages) -> list[str]:
    """The names of the images that `write` writes, without their suffix."""
    numbers = [f"{row:06d}" for row in range(len(data))]
    names = [PurePosixPath(file).with_suffix("").as_posix() for file in data.files] or numbers
    if len({name.casefold() for name in names}) < len(names):  # as of a.jpg and a.png
        names = [f"{name}-{number}" for name, number in zip(names, numbers, strict=True)]
    return names
