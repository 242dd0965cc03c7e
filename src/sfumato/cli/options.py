"""Options that several families of commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

Address = Annotated[
    str | None,
    typer.Option(help="Address of a Ray cluster (default: RAY_ADDRESS, or a new one on this machine)."),
]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="An encoder that is not trained: efficientnet-lite0 or -lite2 (for photographs; the extra "
        "encoders), drawn, squeeze-net:FILE, mobile-face-net:FILE or "
        "onnx:FILE,size=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
LedgerFile = Annotated[
    Path | None,
    typer.Option("--ledger", help="The ledger of this device (default: the one in your data folder)."),
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="DATA",
        help="For a meta model: public images, such as glyphs or folder:DIR, for its batch-norm statistics.",
    ),
]
Size = Annotated[
    int | None, typer.Option(help="Side of the images, in pixels (default: the size that the data has).")
]
Split = Annotated[
    str, typer.Option(help="The split of the data to use, or all. The model must not have seen it.")
]
StoreAddress = Annotated[
    str,
    typer.Option(
        envvar="SFUMATO_STORE",
        help="The store: sqlite:///FILE, or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE. Other users "
        "can see a password in a command, but not one in the environment.",
    ),
]


def setting(words: str, *, option: str = "--set") -> Any:
    """Make an option that sets one key of a configuration each time it is given."""
    return typer.Option(option, metavar="KEY=VALUE", help=words)
