"""`sfumato data`: look at a data source, or write an embedded world to disk."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Size
from sfumato.cli.sources import read

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.data import LabelledImages

app = typer.Typer(help="Look at data: labels, a contact sheet, a copy, the cache.", no_args_is_help=True)

_SOURCE = typer.Argument(
    help="The images: faces, glyphs, folder:DIR, table:FILE, parquet:FILE, or a data set such as "
    "lfw:DIR. `sfumato data list` shows all."
)


@app.command("list")
def list_() -> None:
    """List all data sources: how to name each, its content, its address and its terms.

    Example: sfumato data list
    """
    from sfumato.data.readers.catalogue import sources

    for source in sources().values():
        print(f"{source.name}: write {source.write}")
        print(f"  holds   {source.holds}")
        print(f"  from    {source.url or 'nowhere, nothing is fetched'}")
        print(f"  terms   {source.terms}")
        for row, line in enumerate(source.layout):
            print(f"  {'' if row else 'layout':6}  {line}")


@app.command()
def info(source: Annotated[str, _SOURCE]) -> None:
    """Describe a source: images, labels, splits.

    Example: sfumato data info folder:photos
    """
    from sfumato.data import WORLDS
    from sfumato.data.copies import find_shared, in_two_splits

    drawn = source in WORLDS
    loaded = read(source, drawn=False) if drawn else read(source)
    words = "" if drawn else f"{', all grey' if loaded.are_grey else ''}, read as"  # files have own sizes
    size = " x ".join(map(str, loaded.images.shape[1:]))
    print(f"{loaded.name}: {len(loaded):,} images{words or ','} {size}")
    splits = {} if loaded.split_by is not None else loaded.splits
    for name, label in loaded.labels.items():
        values, several = len(loaded.classes(name)), len(in_two_splits(label, splits))
        more = f", {several:,} of them in more than one split" if several else ""
        print(f"label {name}: {values:,} value{'s' * (values != 1)}{more}")
    if loaded.split_by is not None:
        print("splits: none are named, so each training and study makes those that its task asks for")
    else:
        for name, rows in loaded.splits.items():
            print(f"split {name}: {len(rows):,} images")
    for finding in find_shared(replace(loaded, splits=splits)):
        print(finding)


@app.command()
def sheet(
    source: Annotated[str, _SOURCE],
    out: Annotated[Path, typer.Argument(help="The picture to write.")],
    label: Annotated[str | None, typer.Option(help="The label of the rows (default: the first).")] = None,
    rows: Annotated[int, typer.Option(min=1, help="How many rows.")] = 10,
    columns: Annotated[int, typer.Option(min=1, help="How many images per row.")] = 12,
    size: Size = None,
) -> None:
    """Draw a contact sheet: one row of images for each value of a label.

    Example: sfumato data sheet folder:photos sheet.png --rows 5
    """
    from sfumato.images import write

    loaded = read(source, size=size)
    write(out, contact_sheet(loaded, label or next(iter(loaded.labels)), rows=rows, columns=columns))
    print(f"sheet: {out}")


def contact_sheet(data: "LabelledImages", label: str, *, rows: int, columns: int) -> "Tensor":
    """One picture, (C, H', W') uint8: a row of images for each of the first values of a label."""
    import torch

    lines = []
    for code in data.classes(label)[:rows]:
        chosen = data.images[(data.label(label).codes == code).nonzero().flatten()[:columns]]
        blank = torch.full((columns - len(chosen), *data.images.shape[1:]), 255, dtype=torch.uint8)
        lines.append(torch.cat(list(torch.cat([chosen, blank])), dim=2))
    return torch.cat(lines, dim=1)


@app.command()
def write(
    source: Annotated[str, _SOURCE],
    out: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    size: Size = None,
) -> None:
    """Write a source as PNG files and a table.csv with all labels and splits, which `table:` reads.

    Example: sfumato data write faces drawn --size 32
    """
    from sfumato.data.readers.table import write as write_table

    print(f"table: {write_table(read(source, size=size), out)}")


@app.command()
def cache(clear: Annotated[bool, typer.Option("--clear", help="Delete all of it.")] = False) -> None:
    """List the cache on disk: images that do not fit in memory.

    Cached images are copies WITHOUT protection. Only you can read the files, which lie below SFUMATO_CACHE
    (default: your cache folder). Data is cached if its images take more than SFUMATO_MEMORY bytes (2 GiB).

    Example: sfumato data cache --clear
    """
    from sfumato.data.readers import stored

    found = stored.clear() if clear else stored.entries()
    for entry in found:
        what = "unfinished" if entry.name is None else f"{entry.name}, {' x '.join(map(str, entry.shape))}"
        print(f"{entry.bytes:>15,} bytes  {what}")
    done = "deleted from" if clear else "in"
    print(f"{sum(entry.bytes for entry in found):>15,} bytes  {done} {stored.place()}")
