"""What the commands of `sfumato train` share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.data import LabelledImages
    from sfumato.learn.devices import Devices

Out = Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a file that is there.")]
Target = Annotated[str, typer.Option(help="The label to classify.")]
Size = Annotated[int | None, typer.Option(help="Side of the images (default: the source's own).")]
Processes = Annotated[
    int | None,
    typer.Option("--devices", min=1, help="Share the training among so many processes, each with a device."),
]
Accelerator = Annotated[
    str | None, typer.Option(help="What these devices are: cpu, gpu, or auto, gpu where there is any.")
]

app = typer.Typer(help="Train a model and save it as an artefact.", no_args_is_help=True)


@app.callback()
def _methods() -> None:
    pass


def on_devices(
    train: Callable[..., None], processes: int | None, accelerator: str | None, **given: Any
) -> None:
    """Call train(devices, **given) in each of so many processes; in this one where none are asked for."""
    if processes is None and accelerator is None:
        train(None, **given)
        return
    from sfumato.learn import devices

    devices.launch(train, processes=processes or 1, accelerator=accelerator or "auto", **given)


def splits(
    data: str, size: int | None, *, target: str, sensitive: str | None = None, episodic: bool = False
) -> "tuple[LabelledImages, LabelledImages | None, LabelledImages]":
    """Training, validation (where there are any) and test images; says what was done where none are named.

    Args:
        data, size: of the source.
        target, sensitive, episodic: what the splits are for; see data.splitting.
    """
    from sfumato.data import load
    from sfumato.data.splitting import suited

    loaded = load(data, **({} if size is None else {"size": size}))
    source, words = suited(loaded, target=target, sensitive=sensitive, episodic=episodic)
    if words:
        typer.echo(words, err=True)
    validation = source.split("validation") if "validation" in source.splits else None
    return source.split("train"), validation, source.split("test")


@contextmanager
def checkpointed(
    out: Path, unit: str, console: "Console | None" = None, *, devices: "Devices | None" = None
) -> Iterator[tuple[Path, Callable[[int, int], None] | None]]:
    """A checkpoint beside the artefact, removed once that is written, and what moves a progress bar.

    Of several processes, the first alone shows the bar and removes the checkpoint.
    """
    from rich.console import Console

    from sfumato.cli.show import bars

    checkpoint = out.with_suffix(".checkpoint")
    if devices is not None and not devices.first:
        yield checkpoint, None
        return
    with bars(console or Console(stderr=True, soft_wrap=True)) as progress:
        task = progress.add_task(unit)
        yield checkpoint, lambda done, total: progress.update(task, completed=done, total=total)
    checkpoint.unlink(missing_ok=True)
