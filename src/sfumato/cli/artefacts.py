"""`sfumato show` and `sfumato convert`: the card of an artefact, and weights that others published."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.base.files import check_new, whole
from sfumato.cli.options import Force
from sfumato.cli.show import AsJson, print_json


def show(
    artefact: Annotated[Path, typer.Argument(help="A .safetensors file of sfumato.")],
    html: Annotated[Path | None, typer.Option(help="Write the card as a self-contained page.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the card of an artefact: its data and task, its guarantee, its accuracy and its limits.

    For an artefact in the folder of a study, the card also states the results of its adversaries.

    Example: sfumato show code.safetensors --html card.html
    """
    from sfumato.learn.model_card import describe
    from sfumato.study.choose.use import describe_measurements

    if html is not None:
        check_new(html, force=force, suffix=".html")
    card = describe(artefact, measured=describe_measurements(artefact))
    if html is not None:
        with whole(html) as temporary:
            temporary.write_text(card.as_html(), encoding="utf-8")
    if as_json:
        print_json(card.as_json())
    else:
        print(card.as_text() if html is None else f"card: {html}\n", end="")


def convert(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="The network: mtcnn, facenet, mobile-face-net, squeeze-net, lpips-alex, lpips-vgg, "
            "lpips-squeeze or lpips-heads.",
        ),
    ],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE... DST",
            help="A checkpoint (.pt, .pth, .ckpt, .bin, .safetensors or .npz), or the three of mtcnn: pnet, "
            "rnet and onet. Then the .safetensors file to write.",
        ),
    ],
    force: Force = False,
) -> None:
    """Convert weights of facenet-pytorch, torchvision or LPIPS into a file that sfumato reads.

    No code in the file is run, and the written file is read back as its network. Networks of
    timm and others are read as ONNX: see docs/guides/encoder.md.

    Example: sfumato convert mtcnn pnet.pt rnet.pt onet.pt mtcnn.safetensors
    """
    from sfumato.errors import ConfigError
    from sfumato.networks import conversion

    if len(files) < 2:
        raise ConfigError("name the file to convert, and then the .safetensors file to write")
    *originals, destination = files
    check_new(destination, force=force)
    note = conversion.convert(kind, originals, destination)
    print(f"written: {destination} ({destination.stat().st_size:,} bytes)")
    if note:
        print(f"note: {note}")
