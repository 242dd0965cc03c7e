"""`sfumato convert`: turn published weights into files that sfumato reads."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.base.files import check_new
from sfumato.cli.options import Force


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
