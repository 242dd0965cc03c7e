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

_SOURCE = "faces, glyphs, omniglot:DIR, folder:DIR or table:FILE"


def export(
    artefact: Annotated[
        Path,
        typer.Argument(
            help="A mask, a private feature or a code, or a few-shot or meta model for a service."
        ),
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
        str | None, typer.Option(metavar="DATA", help=f"Check on the test split of {_SOURCE}.")
    ] = None,
    reference: Reference = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Export an artefact as ONNX, checked number by number against PyTorch.

    A few-shot or meta model is exported for `sfumato serve`, which runs the file without PyTorch.

    A feature or a code is exported WITHOUT its noise: the program that runs the file adds it on the device.
    The file of a code computes the numbers whose signs are its bits. If the file computes anything
    other than PyTorch does, it is not written. Without --check, it is
    checked on random images.

    Example: sfumato export code.safetensors code.onnx
    """
    from sfumato.artefacts import read_card

    if read_card(artefact).get("kind") in ("few-shot", "meta"):
        if side == "device":
            raise ConfigError(f"{artefact}: a model for a service: leave --side device out")
        _for_service(artefact, destination, check, reference, force=force, as_json=as_json)
        return
    if reference is not None:
        raise ConfigError("--reference is for meta models: leave it out")
    side = side or "device"
    from sfumato.edge import sides
    from sfumato.edge.export import export as export_side

    shape = sides.read(str(artefact)).shape
    suffix = ".onnx" if side == "device" else f"-{side}.onnx"
    destination = destination or artefact.with_name(artefact.stem + suffix)
    if not (destination.exists() and destination.samefile(artefact)):  # export_side refuses that
        check_new(destination, force=force)
    exported = export_side(
        artefact,
        destination,
        check=_noise(shape) if check is None else _images(check, "test", shape),
        side=side,
    )
    if as_json:
        print_json({**asdict(exported), "path": str(exported.path), "card": dict(exported.card)})
        return
    of = "random noise (name data with --check)" if check is None else f"{check}, test split"
    print(f"checked on {exported.images} images of {of}")
    units = {"mask": "score", "private feature": "number of a feature", "code": "number of a code"}
    unit = "logit" if side == "cloud" else units[exported.card["kind"]]
    print(f"largest difference of a {unit} from PyTorch: {exported.difference:.2g}")
    if exported.pixels is not None:
        print(f"pixels chosen otherwise: {100 * exported.pixels:.3g}% of all")
    if exported.bits is not None:
        print(f"bits that differ: {100 * exported.bits:.3g}% of all")
    if exported.decisions is not None:
        print(f"class decisions that stay: {100 * exported.decisions:.1f}%")
    if "release" in exported.card:
        print(f"release: {exported.card['release']}")
    print(f"noise: {exported.card['noise']}")
    print(f"exported: {exported.path} ({exported.bytes:,} bytes, {exported.card['precision']})")


def _for_service(
    artefact: Path,
    destination: Path | None,
    check: str | None,
    reference: str | None,
    *,
    force: bool,
    as_json: bool,
) -> None:
    """Export a model that `sfumato serve` runs without PyTorch."""
    from sfumato.serve import exported, models
    from sfumato.serve.served import EXPORTED

    # Clients know the model by the file's name without suffix: it stays the artefact's.
    destination = destination or artefact.with_suffix(EXPORTED)
    check_new(destination, force=force)
    served = models.load(artefact, reference=reference)
    images = _noise(served.shape) if check is None else _images(check, "test", served.shape)
    written = exported.export(served, destination, check=images)
    if as_json:
        print_json({**asdict(written), "path": str(written.path)})
        return
    of = "random noise (name data with --check)" if check is None else f"{check}, test split"
    print(f"checked on {written.images} images of {of}")
    print(f"largest difference of an embedding from PyTorch: {written.difference:.2g} of its numbers")
    print(f"exported: {written.path} ({written.bytes:,} bytes)")
    print(f"serve it: sfumato serve {written.path}")


def _noise(shape: tuple[int, int, int]) -> "Tensor":
    import torch

    draw = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (_NOISE, *shape), generator=draw).to(torch.uint8)


def _images(source: str, split: str, shape: tuple[int, int, int]) -> "Tensor":
    """Read at most _MOST images, spread over a split, as squares of the artefact's size."""
    import torch

    images = read(source, size=shape[1]).split(split).images
    count = min(_MOST, len(images))
    return images[torch.linspace(0, len(images) - 1, count).long()]
