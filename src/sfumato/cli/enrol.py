"""`sfumato enrol`: a folder of images becomes the classes of a service, protected before they leave."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import LedgerFile

if TYPE_CHECKING:
    from sfumato.device.client import Client, Demanded

_TOGETHER = 128  # images, four requests of them, between two lines of what was done

URL = typer.Argument(help="Address of the service, such as https://cloud.example.")
SPEC = typer.Option(
    "--with",
    metavar="SPEC",
    help="The protection, such as dp-pix:cell=8,epsilon=3 or code:artefact=FILE (default: the one that you "
    "accepted before, or are asked about on a terminal).",
)
KEY_FILE = typer.Option(help="A file with the key and nothing else (default: the variable SFUMATO_KEY).")
INSECURE = typer.Option(
    "--insecure", help="Allow an http address of another machine. The key is then sent unencrypted."
)


def enrol(
    url: Annotated[str, URL],
    classifier: Annotated[
        str, typer.Argument(help="The name of the classifier. It is created if it does not exist.")
    ],
    folder: Annotated[
        Path, typer.Argument(help="A folder with one sub-folder per class, named after the class.")
    ],
    spec: Annotated[str | None, SPEC] = None,
    average: Annotated[
        bool,
        typer.Option("--average", help="For codes: send one average per class, made on this device."),
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="The model of a new classifier, if several models fit.")
    ] = None,
    key_file: Annotated[Path | None, KEY_FILE] = None,
    ledger: LedgerFile = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Enrol the images of a folder: protect them here, charge the ledger, and send the releases.

    What was enrolled before is neither charged nor enrolled again, so a stopped command resumes. The names of
    the sub-folders are sent as they are. Files that fail are named, and the exit code is 1.
    """
    import sys

    from sfumato.errors import DataError
    from sfumato.files import printable

    classes = _classes(folder)
    if not classes:
        raise DataError(f"{folder}: has no sub-folder with images: make one for each class")
    failed: list[str] = []

    def missed(source: object, error: Exception) -> None:
        failed.append(str(error))

    with connect(url, key_file, spec, ledger, insecure=insecure) as cloud:
        if model is not None and classifier not in {each.name for each in cloud.classifiers()}:
            cloud.create(classifier, model)
        for part in _parts(classes, 1 if average else _TOGETHER):
            if average:
                told = {
                    label: cloud.enrol(label, paths, classifier=classifier, failed=missed, average=True)
                    for label, paths in part.items()
                }
            else:
                told = cloud.enrol_many(part, classifier=classifier, failed=missed)
            for label, enrolled in told.items():
                print(
                    f"{printable(label)}: {enrolled.new} enrolled, {enrolled.known} there already", flush=True
                )
    for message in failed:
        print(f"failed: {printable(message)}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)


def connect(
    url: str, key_file: Path | None, spec: str | None, ledger: Path | None, *, insecure: bool
) -> "Client":
    """A client with the key of a file or of the environment; never of an argument, which others can see.

    At a terminal a person is asked about a protection that nobody has agreed to. What a code proves of naming
    the person on an image is said before anything is sent.
    """
    import sys

    from sfumato.device.client import Client
    from sfumato.device.demands import parsed
    from sfumato.device.ledger import default_path
    from sfumato.errors import ConfigError
    from sfumato.files import printable
    from sfumato.protect.code import Code, load_encoder
    from sfumato.protect.naming import naming_words

    key = os.environ.get("SFUMATO_KEY") if key_file is None else key_file.read_text(errors="replace").strip()
    if key is None:
        raise ConfigError("there is no key: name its file with --key-file, or set the variable SFUMATO_KEY")
    protection = None if spec is None else parsed(spec)
    if isinstance(protection, Code):
        naming = naming_words(protection, load_encoder(protection.artefact).shape)
        typer.echo(printable(f"{protection.spec}: {naming}"), err=True)
    return Client(
        url,
        key=key,
        protection=protection,
        accept=_accept if sys.stdin.isatty() and sys.stderr.isatty() else None,
        ledger=ledger or default_path(),
        insecure=insecure,
    )


def _accept(demanded: "Demanded") -> bool:
    from sfumato.files import printable

    typer.echo(printable(str(demanded)), err=True)
    return typer.confirm("Send images to it this way from now on?", err=True)


def _parts(classes: dict[str, list[Path]], images: int) -> Iterator[dict[str, list[Path]]]:
    """Classes in parts of at least so many images, as far as there are any."""
    part: dict[str, list[Path]] = {}
    for label, paths in classes.items():
        part[label] = paths
        if sum(map(len, part.values())) >= images:
            yield part
            part = {}
    if part:
        yield part


def _classes(folder: Path) -> dict[str, list[Path]]:
    """The images of each sub-folder, both in order; hidden files and folders are left out."""
    from sfumato.images import SUFFIXES

    found = {}
    for below in sorted(folder.iterdir()):
        if below.is_dir() and not below.name.startswith("."):
            files = sorted(path for path in below.iterdir() if not path.name.startswith("."))
            if images := [path for path in files if path.suffix.lower() in SUFFIXES]:
                found[below.name] = images
    return found
