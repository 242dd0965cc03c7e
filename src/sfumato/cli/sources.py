"""Data as the commands read it: what cannot be read is left out and named, and splits suit the task."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.show import note

if TYPE_CHECKING:
    from sfumato.data import LabelledImages

Strict = Annotated[
    bool,
    typer.Option(
        "--strict", help="Stop at a file that cannot be read (default: leave it out, count it and name it)."
    ),
]
SplitBy = Annotated[
    str | None,
    typer.Option(
        metavar="LABEL",
        help="For data without splits: put each value of this label, such as a person, into one split only "
        "(default: as the task needs it).",
    ),
]


def read(source: str, *, size: int | None = None, strict: bool = False, **settings: Any) -> "LabelledImages":
    """The data of a source; says which files were left out, since they cannot be read.

    Args:
        source: see data.load.
        size: of the images; None for the source's own.
        strict: stop at such a file.
        settings: more of data.load.
    """
    from sfumato.data import load

    loaded = load(source, strict=strict, **({} if size is None else {"size": size}), **settings)
    note(loaded.skipped_in_words)
    return loaded
