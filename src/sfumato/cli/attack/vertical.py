"""`sfumato attack vertical`: rebuild images from the gradients of vertical federated learning."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli import updates
from sfumato.cli.attack.family import Force, Out, app, check_out, show
from sfumato.cli.options import setting
from sfumato.cli.show import AsJson, bars, settings_of, stderr

if TYPE_CHECKING:
    from sfumato.attack.vertical import Observation, Part


@app.command("vertical")
def vertical(
    part: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL=CxHxW",
            help="The network of a worker, and the shape of the part of an image that it holds, such as "
            "net.py:left=1x28x14. Repeat the option for each worker, in the order of the server.",
        ),
    ],
    head: Annotated[
        str,
        typer.Option(
            metavar="MODEL", help="The network that the server puts behind them, such as net.py:head."
        ),
    ],
    observed: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="A folder with one .safetensors or .npz file per batch. It has the gradients of the head, "
            "by the names of its parameters, and `indices`: which images were in the batch.",
        ),
    ],
    out: Out,
    part_weights: Annotated[
        list[Path] | None, typer.Option(help="The weights of each --part, in their order.")
    ] = None,
    head_weights: Annotated[Path | None, typer.Option(help="The weights of --head.")] = None,
    overrides: Annotated[list[str] | None, setting("A setting of the search, such as steps=500.")] = None,
    listing: Annotated[bool, settings_of("sfumato.attack.vertical:VerticalConfig")] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the parts of images at workers, from gradients that a vertical-learning server sees (CAFE).

    The folder of --out gets one folder per worker.

    Example: sfumato attack vertical --part net.py:part --head net.py:head --observed o.pt --out back
    """
    from sfumato.attack import vertical as method
    from sfumato.base.settings import configure

    config = configure(method.VerticalConfig, overrides or [])
    for number in range(len(part)):
        check_out(out / f"part-{number + 1}", force=force)
    parts = _parts(part, part_weights or [])
    joined = updates.open_named(head, (1, 1, 1), head_weights).eval()
    batches = _observations(observed)
    with bars(stderr()) as progress:
        task = progress.add_task("searching")
        found = method.recover(
            parts,
            joined,
            batches,
            config,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    for number, images in enumerate(found):
        words = f"worker {number + 1}: its part of {len(images)} images."
        show(images, out / f"part-{number + 1}", words=words, as_json=as_json, worker=number + 1)


def _parts(specs: list[str], weights: list[Path]) -> "list[Part]":
    from sfumato.attack.vertical import Part
    from sfumato.audits.models import check_takes
    from sfumato.errors import ConfigError

    if weights and len(weights) != len(specs):
        raise ConfigError(
            f"{len(weights)} of --part-weights for {len(specs)} of --part: give one for each, or none"
        )
    parts = []
    for number, spec in enumerate(specs):
        model, separator, shape = spec.rpartition("=")
        if not separator:
            raise ConfigError(f"--part {spec}: write the network and the shape, as net.py:left=1x28x14")
        sizes = updates.image_shape(shape)
        network = updates.open_named(model, sizes, weights[number] if weights else None)
        check_takes(network, sizes, logits=False)
        parts.append(Part(network.eval(), sizes))
    return parts


def _observations(folder: Path) -> "list[Observation]":
    """Read the batches that a server saw, in the order of their files."""
    from sfumato.attack.updates import read
    from sfumato.attack.vertical import Observation
    from sfumato.errors import DataError

    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder: give the one with a file for each batch")
    files = sorted(file for file in folder.iterdir() if file.suffix in (".safetensors", ".npz"))
    batches = []
    for file in files:
        tensors, _ = read(file)
        if "indices" not in tensors:
            raise DataError(f"{file}: has no `indices`: write which images the batch had, counted from 0")
        indices = tensors.pop("indices").long()
        batches.append(Observation(indices, tensors))
    return batches
