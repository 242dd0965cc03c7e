"""`sfumato export`: write one side of an artefact, or a model for a service, as ONNX."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.base.files import check_new
from sfumato.cli.options import Force, Reference
from sfumato.cli.show import AsJson, print_json
from sfumato.cli.sources import read
from sfumato.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

_MOST = 256  # images of a data source
_NOISE = 64  # images that are drawn


def export(
    artefact: Annotated[
        Path,
        typer.Argument(help="A mask, a private feature, a code, or a few-shot or meta model for a service."),
    ],
    destination: Annotated[
        Path | None,
        typer.Argument(metavar="[DST]", help="The .onnx file to write (default: next to the artefact)."),
    ] = None,
    side: Annotated[
        str | None,
        typer.Option(
            help="device, or cloud for the network that reads a private feature (default: device, or cloud "
            "for a few-shot or meta model)."
        ),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="DATA", help="Check on the test split of this data, such as faces or folder:DIR."
        ),
    ] = None,
    reference: Reference = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Export an artefact as ONNX, checked number by number against PyTorch.

    A few-shot or meta model is exported for `sfumato serve`, which runs the file without PyTorch.

    A feature or a code is exported WITHOUT its noise: the program that runs the file adds it on the device.
    The file of a code computes the numbers whose signs are its bits. If the file computes anything other than
    PyTorch does, it is not written. Without --check, it is checked on random images.

    Example: sfumato export code.safetensors code.onnx
    """
    from sfumato.artefacts import read_card
    from sfumato.export import sides
    from sfumato.export.export import export as export_side

    if read_card(artefact).get("kind") in ("few-shot", "meta"):
        from sfumato.serve import exported as service
        from sfumato.serve import models

        if side == "device":
            raise ConfigError(f"{artefact}: a model for a service: leave --side device out")
        source = service.side(models.load(artefact, reference=reference))
    else:
        if reference is not None:
            raise ConfigError("--reference is for meta models: leave it out")
        source = sides.read(str(artefact), side or "device")
    # Clients know a model by the file's name without suffix: it stays the artefact's.
    suffix = "-cloud.onnx" if source.side == "cloud" else ".onnx"
    destination = destination or artefact.with_name(artefact.stem + suffix)
    if not (destination.exists() and destination.samefile(artefact)):  # export_side refuses that
        check_new(destination, force=force)
    images = _images(check, source.shape)
    exported = export_side(artefact, destination, check=images, side=source)
    if as_json:
        print_json({**asdict(exported), "path": str(exported.path)})
        return
    of = "random noise (name data with --check)" if check is None else f"{check}, test split"
    print(f"checked on {exported.images} images of {of}")
    difference = exported.difference
    print(f"largest difference of a {source.unit} from PyTorch: {difference.largest:.2g}")
    if difference.pixels is not None:
        print(f"pixels chosen otherwise: {100 * difference.pixels:.3g}% of all")
    if difference.bits is not None:
        print(f"bits that differ: {100 * difference.bits:.3g}% of all")
    if difference.decisions is not None:
        print(f"class decisions that stay: {100 * difference.decisions:.1f}%")
    for key in ("release", "noise"):
        if key in exported.card:
            print(f"{key}: {exported.card[key]}")
    print(f"exported: {exported.path} ({exported.bytes:,} bytes, float32)")
    if source.side == "service":
        print(f"serve it: sfumato serve {exported.path}")


def _images(source: str | None, shape: tuple[int, int, int]) -> "Tensor":
    """Read at most _MOST test images, spread over the split, at the artefact's size; or draw noise."""
    import torch

    if source is None:
        draw = torch.Generator().manual_seed(0)
        return torch.randint(0, 256, (_NOISE, *shape), generator=draw).to(torch.uint8)
    images = read(source, size=shape[1]).split("test").images
    count = min(_MOST, len(images))
    return images[torch.linspace(0, len(images) - 1, count).long()]
