"""Options that describe a client's update, its model and its training, and the values behind them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.show import note

if TYPE_CHECKING:
    from torch import Tensor, nn

    from sfumato.attack.updates import LocalTraining, Noise
    from sfumato.audits.update import Truth

Model = Annotated[
    str,
    typer.Option(
        help="A classifier of sfumato (FILE.safetensors), a network by its name (lenet, with --classes), or "
        "your own function that returns an nn.Module, such as net.py:make. Your file is then run."
    ),
]
Sent = Annotated[
    Path,
    typer.Option(
        "--update",
        help="The client's update, as .safetensors or .npz: its gradient, or its parameters before "
        "training minus those after. With --before: its parameters after training.",
    ),
]
Shape = Annotated[str, typer.Option(metavar="CxHxW", help="The shape of an image, such as 3x32x32.")]
Weights = Annotated[
    Path | None, typer.Option(help="The weights of --model before training (default: those in --update).")
]
Classes = Annotated[int | None, typer.Option(min=1, help="The number of classes, for a network by its name.")]
Before = Annotated[
    Path | None, typer.Option(help="A file with the parameters before training, if --update has those after.")
]
Images = Annotated[
    int | None,
    typer.Option(min=1, help="How many images the client has (default: as the file says, or --batch)."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the client's SGD (default: 1).")]
Rate = Annotated[
    float | None,
    typer.Option(help="The learning rate of the client's SGD (default: 1, which sends a gradient)."),
]
Batch = Annotated[int | None, typer.Option(min=1, help="Images per step of the client's SGD (default: all).")]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="The noise multiplier of DP-SGD, in units of the clipping norm.")
]
ClippingNorm = Annotated[float | None, typer.Option(help="The clipping norm of DP-SGD.")]
Labels = Annotated[
    str | None, typer.Option(metavar="0,3,...", help="The true classes of the images, in their order.")
]
Originals = Annotated[
    Path | None,
    typer.Option(
        "--truth", help="The client's images, a file or a folder, to measure how near the attack gets."
    ),
]


def image_shape(text: str) -> tuple[int, int, int]:
    """Parse (C, H, W) from --shape. Raises ConfigError."""
    from sfumato.errors import ConfigError

    try:
        channels, height, width = map(int, text.split("x"))
        if min(channels, height, width) < 1:
            raise ValueError
    except ValueError:
        raise ConfigError(f"--shape {text}: write channels x height x width, as 3x28x28") from None
    return channels, height, width


def open_named(
    model: str, shape: tuple[int, int, int], weights: Path | None = None, classes: int | None = None
) -> "nn.Module":
    """Open the model of --model; says so if it runs the user's code."""
    from sfumato.audits.models import open_model, runs_code
    from sfumato.errors import DataError

    if runs_code(model):
        source = Path(model.rpartition(":")[0])
        if source.suffix == ".py" and not source.is_file():
            raise DataError(f"--model {model}: there is no file {source}: write FILE.py:FUNCTION")
        note(f"{model} is your code, and runs now")
    return open_model(model, shape, weights=weights, classes=classes)


def training_of(
    images: int | None, steps: int | None, rate: float | None, batch: int | None
) -> "LocalTraining | None":
    """Return the training that the options describe; None if they say nothing."""
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


def noise_of(noise_multiplier: float | None, clipping_norm: float | None) -> "Noise | None":
    """Return the DP-SGD that the options describe; None if they say nothing."""
    from sfumato.attack.updates import Noise
    from sfumato.errors import ConfigError

    if noise_multiplier is None and clipping_norm is None:
        return None
    if noise_multiplier is None or clipping_norm is None:
        raise ConfigError("--noise-multiplier and --clipping-norm go together: give both, for DP-SGD")
    return Noise(noise_multiplier=noise_multiplier, clipping_norm=clipping_norm)


def truth_of(path: Path | None, labels: str | None, shape: tuple[int, int, int]) -> "Truth":
    """Return the images and labels that the auditor knows."""
    import torch

    from sfumato.audits.update import Truth
    from sfumato.errors import ConfigError

    try:
        numbers = None if labels is None else torch.tensor([int(label) for label in labels.split(",")])
    except ValueError:
        raise ConfigError(f"--labels {labels}: write the numbers of the classes, as 0,3,3") from None
    return Truth(None if path is None else images_of(path, shape), numbers)


def images_of(path: Path, shape: tuple[int, int, int]) -> "Tensor":
    """Read the images of a file or a folder, in the order of their names. (N, C, H, W) float."""
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
                f"{file}: is {'x'.join(map(str, image.shape))} and --shape is {'x'.join(map(str, shape))}: "
                "give the images as the model saw them"
            )
    return to_float(torch.stack(batch))
