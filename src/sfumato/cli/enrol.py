"""`sfumato enrol`: enrol a folder of images as classes of a service, protected before they leave."""

import os
from collections import Counter
from itertools import accumulate, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import LedgerFile
from sfumato.cli.show import keeping_work

if TYPE_CHECKING:
    from sfumato.device.client import Client, Demanded, Enrolled

_TOGETHER = 128  # images, four requests, between two lines of progress

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
    people: Annotated[
        bool, typer.Option("--people", help="Each class is a person, and has the budget of one.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="The model of a new classifier, if several models fit.")
    ] = None,
    key_file: Annotated[Path | None, KEY_FILE] = None,
    ledger: LedgerFile = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Enrol the images of a folder: protect them here, charge the ledger, and send the releases.

    Images enrolled before are neither charged nor enrolled again, so a stopped command resumes. Two files of
    the same pixels count once. The names of the sub-folders are sent as they are. Files that fail are named
    with the reason, and the exit code is 1. The bound on naming is an average, and says nothing about one
    class: see `sfumato assess log-rank`.

    Example: sfumato enrol http://127.0.0.1:8000 people photos --with blur:radius=4
    """
    from sfumato.base.files import printable
    from sfumato.device.client import Enrolled
    from sfumato.errors import DataError

    classes, left_out = _classes(folder)
    for reason, files in sorted((+left_out).items()):
        typer.echo(f"left out: {files:,} ({reason})", err=True)
    if not classes:
        raise DataError(f"{folder}: has no sub-folder with images: make one for each class")
    total = Enrolled()
    with connect(url, key_file, spec, ledger, insecure=insecure) as cloud, keeping_work():
        if model is not None and cloud.find(classifier) is None:
            cloud.create(classifier, model)
        ends = accumulate(len(paths) for paths in classes.values())
        for _, group in groupby(
            zip(classes, ends, strict=True), key=lambda label: (label[1] - 1) // _TOGETHER
        ):
            part = {label: classes[label] for label, _ in group}
            became = cloud.enrol_many(part, classifier=classifier, failed=report_miss, people=people)
            for label, enrolled in became.items():
                total = total.plus(enrolled.new, enrolled.known, enrolled.failed)
                has = "" if enrolled.total is None else f"; the class has {enrolled.total:,} example"
                plural = "s" * (enrolled.total not in (None, 1))
                print(f"{printable(label)}: {_outcome(enrolled)}{has}{plural}", flush=True)
    print(f"in all: {_outcome(total)}")
    if total.failed:
        raise typer.Exit(1)


def _outcome(enrolled: "Enrolled") -> str:
    files = enrolled.new + enrolled.known + enrolled.failed
    return (
        f"{files:,} file{'s' * (files != 1)}: {enrolled.new:,} enrolled now, {enrolled.known:,} before, "
        f"{enrolled.failed:,} failed"
    )


def report_miss(source: object, error: Exception) -> None:
    """Name a file that failed, with the reason."""
    from sfumato.base.files import printable

    name, reason = printable(str(source)), printable(str(error))
    typer.echo(f"failed: {'' if name in reason else f'{name}: '}{reason}", err=True)


def connect(
    url: str, key_file: Path | None, spec: str | None, ledger: Path | None, *, insecure: bool
) -> "Client":
    """Make a client with a key from a file or the environment, never from an argument, which others can see.

    At a terminal it asks about a protection that nobody agreed to. It states the bound of a code on naming.
    """
    import sys

    from sfumato.base.files import printable
    from sfumato.device.client import Client
    from sfumato.device.client.connection import check_url
    from sfumato.device.client.demands import parse_protection
    from sfumato.device.ledger import default_path
    from sfumato.errors import ConfigError

    def accept(demanded: "Demanded") -> bool:
        typer.echo(printable(str(demanded)), err=True)
        return typer.confirm("Send images to it this way from now on?", err=True)

    def notice(chosen: "Demanded") -> None:
        if chosen.spec.startswith("code:"):
            typer.echo(printable(f"{chosen.spec}: {chosen.naming}"), err=True)

    check_url(url, insecure=insecure)
    key = os.environ.get("SFUMATO_KEY") if key_file is None else key_file.read_text(errors="replace").strip()
    if key is None:
        raise ConfigError("there is no key: name its file with --key-file, or set the variable SFUMATO_KEY")
    return Client(
        url,
        key=key,
        protection=None if spec is None else parse_protection(spec),
        accept=accept if sys.stdin.isatty() and sys.stderr.isatty() else None,
        notice=notice,
        ledger=ledger or default_path(),
        insecure=insecure,
    )


def _classes(folder: Path) -> tuple[dict[str, list[Path]], Counter[str]]:
    """Find the images of each sub-folder, both sorted, and count other files by reason."""
    from sfumato.base.files import check_alike, leads_out
    from sfumato.device.jobs.worker import NO_IMAGES
    from sfumato.errors import DataError
    from sfumato.images import is_image

    if not folder.is_dir():
        bare = str(folder).removeprefix("folder:")
        cure = f"write {bare}" if Path(bare).is_dir() else "name one with a sub-folder for each class"
        raise DataError(f"{folder}: is not a folder: {cure}")
    found, left_out = dict[str, list[Path]](), Counter[str]()
    for below in sorted(folder.iterdir()):
        if below.name.startswith(".") or not below.is_dir():
            left_out["hidden" if below.name.startswith(".") else "in no sub-folder"] += 1
            continue
        for path in sorted(below.iterdir()):
            if path.name.startswith("."):
                left_out["hidden"] += 1
            elif path.is_dir() or not is_image(path):
                left_out["folders in a sub-folder" if path.is_dir() else NO_IMAGES] += 1
            elif leads_out(path, folder):
                left_out["links out of the folder"] += 1
            else:
                found.setdefault(below.name, []).append(path)
        left_out["sub-folders without an image"] += below.name not in found
    check_alike(str(folder), "classes are called", found)
    return found, left_out
