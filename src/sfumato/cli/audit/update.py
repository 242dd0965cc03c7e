"""`sfumato audit update`: what the update of a federated client gives away."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.audit.family import Html, app, image_shape, say
from sfumato.cli.show import AsJson, bars, note, stderr

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.attack.updates import LocalTraining, Noise
    from sfumato.audits.update import Truth


@app.command("update")
def update(
    model: Annotated[
        str,
        typer.Option(
            help="A classifier of sfumato (FILE.safetensors), a network by its name (lenet, with --classes), "
            "or a function of yours that returns an nn.Module, such as net.py:make, which runs your file."
        ),
    ],
    update: Annotated[
        Path,
        typer.Option(
            help="What the client sent, as .safetensors or .npz: its gradient, or its parameters before "
            "training minus those after; with --before, the parameters after training."
        ),
    ],
    shape: Annotated[str, typer.Option(metavar="CxHxW", help="Shape of an image, such as 3x32x32.")],
    weights: Annotated[
        Path | None, typer.Option(help="Weights of --model, before training (default: those in --update).")
    ] = None,
    classes: Annotated[
        int | None, typer.Option(min=1, help="Number of classes, for a network by its name.")
    ] = None,
    before: Annotated[
        Path | None, typer.Option(help="Parameters before training; then --update has those after.")
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many images the client trained on (default: as the file says, or --batch)."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the client's SGD (default: 1).")] = None,
    rate: Annotated[
        float | None, typer.Option(help="The client's learning rate (default: 1, for a gradient).")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images in each step (default: all).")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="The noise of DP-SGD, in units of the clipping norm.")
    ] = None,
    clipping_norm: Annotated[float | None, typer.Option(help="The clipping norm of DP-SGD.")] = None,
    labels: Annotated[
        str | None, typer.Option(metavar="0,3,...", help="The true classes of the images, in their order.")
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Option(help="The images themselves, a file or a folder, to measure how near the search comes."),
    ] = None,
    search_steps: Annotated[
        int, typer.Option(min=0, help="Steps of the search for images; 0 for none.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Say which labels and images a server reads from an update, what noise proves, and what to change.

    The exit code is 1 if something is read.
    """
    from sfumato.attack.updates import load
    from sfumato.audits.models import open_model, runs_code
    from sfumato.audits.update import UpdateAuditConfig, audit_update
    from sfumato.errors import require

    require("an audit of updates", "study", "scipy")
    sizes = image_shape(shape)
    if runs_code(model):
        note(f"{model} is code of yours, and is run")
    sent = load(
        update,
        training=_training(images, steps, rate, batch),
        noise=_noise(noise_multiplier, clipping_norm),
        before=before,
    )
    known = _truth(truth, labels, sizes)
    with bars(stderr()) as progress:
        task = progress.add_task("searching")

        def on_step(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        report = audit_update(
            open_model(model, sizes, weights=weights, classes=classes),
            sent,
            sizes,
            subject=f"The update {update.name}",
            truth=known,
            config=UpdateAuditConfig(search_steps=search_steps, seed=seed),
            progress=on_step,
        )
    say(report, html=html, as_json=as_json)
    if any(finding.verdict == "leaks" for finding in report.findings):
        raise typer.Exit(1)


def _training(
    images: int | None, steps: int | None, rate: float | None, batch: int | None
) -> "LocalTraining | None":
    """What the options say of the training; None where they say nothing."""
    from sfumato.attack.updates import LocalTraining
    from sfumato.errors import ConfigError

    if images is None and batch is None:
        if steps is not None or rate is not None:
            raise ConfigError("--steps and --rate need --images, how many images the client has, or --batch")
        return None
    images = images or batch or 1
    return LocalTraining(
        images=images,
        steps=steps or 1,
        rate=1.0 if rate is None else rate,
        batch=None if batch == images else batch,
    )


def _noise(noise_multiplier: float | None, clipping_norm: float | None) -> "Noise | None":
    from sfumato.attack.updates import Noise
    from sfumato.errors import ConfigError

    if noise_multiplier is None and clipping_norm is None:
        return None
    if noise_multiplier is None or clipping_norm is None:
        raise ConfigError("--noise-multiplier and --clipping-norm go together: give both, as DP-SGD has them")
    return Noise(noise_multiplier=noise_multiplier, clipping_norm=clipping_norm)


def _truth(path: Path | None, labels: str | None, shape: tuple[int, int, int]) -> "Truth":
    """The images and labels that the auditor knows."""
    import torch

    from sfumato.audits.update import Truth
    from sfumato.errors import ConfigError

    try:
        numbers = None if labels is None else torch.tensor([int(label) for label in labels.split(",")])
    except ValueError:
        raise ConfigError(f"--labels {labels}: write the numbers of the classes, as 0,3,3") from None
    return Truth(None if path is None else _images(path, shape), numbers)


def _images(path: Path, shape: tuple[int, int, int]) -> "Tensor":
    """The images of a file or a folder, in the order of their names. (N, C, H, W) float."""
    import torch

    from sfumato.errors import DataError
    from sfumato.images import read, to_float

    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: has no image")
    batch = [read(file, channels=shape[0]) for file in files]
    for file, image in zip(files, batch, strict=True):
        if tuple(image.shape) != shape:
            raise DataError(
                f"{file}: is {'x'.join(map(str, image.shape))} where --shape is {'x'.join(map(str, shape))}: "
                "give the images as the model saw them"
            )
    return to_float(torch.stack(batch))
