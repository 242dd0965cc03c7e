"""Read data for commands: unreadable files are left out and named, and splits suit the task."""

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
    """Read a source as data.load does, or that of a study file or `board`; say which files were left out."""
    from sfumato.data import load

    if size is not None:
        settings["size"] = size
    if source == "board" or source.endswith((".yaml", ".yml")):
        from sfumato.study import grid

        settings = {**grid.load(source).data, **settings}
        source = settings.pop("source")
    loaded = load(source, strict=strict, **settings)
    note(loaded.describe_left_out())
    return loaded


def of_shape(source: str, shape: tuple[int, ...], *, strict: bool) -> "LabelledImages":
    """Read a source at a model's (C, H, W). Raises ConfigError if it has another shape."""
    from sfumato.errors import ConfigError

    images = read(source, size=shape[1], strict=strict)
    if tuple(images.images.shape[1:]) != tuple(shape):
        raise ConfigError(
            f"{source}: images of {'x'.join(map(str, images.images.shape[1:]))}, and the model takes "
            f"{'x'.join(map(str, shape))}: name others"
        )
    return images


def of_split(
    source: str, shape: tuple[int, int, int], *, label: str, split: str, split_by: str | None, strict: bool
) -> "LabelledImages":
    """Read the images of one split, or of all if it is "all", at a model's (C, H, W)."""
    from sfumato.data.splitting import split_for_task

    images = of_shape(source, shape, strict=strict)
    if split == "all":
        return images
    images, words = split_for_task(images, target=label, sensitive=None, episodic=True, split_by=split_by)
    note(words)
    return images.split(split)
