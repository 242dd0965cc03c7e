"""`sfumato classify`: let a service classify images that are protected before they leave."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.enrol import INSECURE, KEY_FILE, SPEC, URL, connect, report_miss
from sfumato.cli.options import LedgerFile

if TYPE_CHECKING:
    from sfumato.device.client import Guess
    from sfumato.protect.code import Code
    from sfumato.wire.tables import AnswerTable

_TOGETHER = 32  # images of a request


def classify(
    url: Annotated[str, URL],
    classifier: Annotated[str, typer.Argument(help="The name of the classifier.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Image files.")],
    spec: Annotated[str | None, SPEC] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="How many classes to name for each image.")] = 1,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the classifier's answers to all codes in this file, and look them up: nothing of the "
            "images is sent. For codes of at most 16 bits. Without the file, it is asked for first.",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask whether the service has a newer table than the file.")
    ] = False,
    gather: Annotated[
        bool,
        typer.Option("--gather", help="Keep the answers for `sfumato share`, each image once."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per image, with distances.")
    ] = False,
    key_file: Annotated[Path | None, KEY_FILE] = None,
    ledger: LedgerFile = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Classify images: protect them here, charge the ledger, and send the releases.

    Prints the likeliest classes of each image, after "none of these" if it belongs to none of them, and at
    the end how often that answer is right. Files that fail are named, and the exit code is 1. With --table
    nothing is charged and nothing is sent: the answer is the nearest class alone.

    Example: sfumato classify http://127.0.0.1:8000 people new.png --with blur:radius=4
    """
    import json
    import sys
    from contextlib import ExitStack
    from dataclasses import asdict
    from functools import partial

    from sfumato.base.files import printable
    from sfumato.device.client.client import NONE, look_up
    from sfumato.device.ledger import Ledger, default_path
    from sfumato.errors import ConfigError

    if refresh and table is None:
        raise ConfigError("--refresh is about a table: name its file with --table, or leave it out")
    if gather and table is None:
        raise ConfigError("--gather keeps answers that were looked up here: name their table with --table")
    missed, refused, refusal = list[object](), False, None
    gathered: dict[bytes, str | None] = {}

    def miss(source: object, error: Exception) -> None:
        missed.append(source)
        report_miss(source, error)

    with ExitStack() as opened:
        if table is None:
            cloud = opened.enter_context(connect(url, key_file, spec, ledger, insecure=insecure))
            ask = partial(cloud.classify_many, top=top, classifier=classifier, failed=miss)
        else:
            found = _read_table(url, classifier, table, spec, key_file, ledger, refresh, insecure)
            ask = partial(look_up, *found, failed=miss, gathered=gathered)
        for start in range(0, len(images), _TOGETHER):
            part = images[start : start + _TOGETHER]
            answers = ask(part)
            if gather:
                with Ledger(ledger or default_path()) as kept:
                    kept.gather(url, classifier, gathered)
                gathered.clear()
            for path, guesses in zip(part, answers, strict=True):
                if not guesses:  # named by `miss`
                    continue
                refused = refused or guesses[0] == NONE
                line = f"{printable(str(path))}: {', '.join(map(_words, guesses))}"
                if as_json:
                    line = json.dumps({"file": str(path), "guesses": [asdict(guess) for guess in guesses]})
                print(line, flush=True)
        if refused and table is None and (info := cloud.find(classifier)) is not None:
            refusal = info.model.refusal
    if refusal is not None:
        print(f'"none of these": {printable(refusal)}', file=sys.stderr)
    if missed:
        print(f"in all: {len(images):,} files: {len(missed):,} failed", file=sys.stderr)
        raise typer.Exit(1)


def _words(guess: "Guess") -> str:
    from sfumato.base.files import printable

    if guess.label is None:
        return "none of these"
    label = printable(guess.label)
    return label if guess.probability is None else f"{label} {guess.probability:.1%}"


def read_own_table(path: Path, classifier: str) -> "AnswerTable":
    """Read the answer table of a classifier. Raises ConfigError if the file has that of another."""
    from sfumato.device.client import read_table
    from sfumato.errors import ConfigError

    found = read_table(path)
    if found.header.name == classifier:
        return found
    raise ConfigError(f"{path}: a table of the classifier {found.header.name!r}: name that, or another file")


def _read_table(
    url: str,
    classifier: str,
    path: Path,
    spec: str | None,
    key_file: Path | None,
    ledger: Path | None,
    refresh: bool,
    insecure: bool,
) -> "tuple[AnswerTable, Code]":
    """Read the table of a file; ask the service for it if the file is missing, or to refresh it."""
    from sfumato.base.files import printable, whole
    from sfumato.device.client.connection import check_url
    from sfumato.device.client.demands import check_signer, parse_protection
    from sfumato.device.ledger import Ledger, default_path
    from sfumato.errors import ConfigError
    from sfumato.protect.code import Code

    code = None if spec is None else parse_protection(spec)
    if not isinstance(code, Code):
        raise ConfigError(
            "a table is for a code, whose encoder is on this device: name it by --with code:artefact=FILE. "
            "Others run on the service alone: leave out --table"
        )
    found = read_own_table(path, classifier) if path.exists() and not refresh else None
    if found is None:
        with connect(url, key_file, None, ledger, insecure=insecure) as cloud:
            found = cloud.answer_table(classifier=classifier)
        with whole(path) as temporary:
            temporary.write_bytes(found.content)
    else:
        address = check_url(url, insecure=True)  # nothing is sent there
        with Ledger(ledger or default_path()) as opened:
            check_signer(opened, address, found.header.signer, first=False)
    said, plural = found.header, "es" * (len(found.header.labels) > 1)
    words = f"{path}: the answers of {said.name} to all {2**said.bits:,} codes, of {len(said.labels):,} class"
    words += f"{plural} (version {said.version}): nothing of an image is sent"
    typer.echo(printable(words), err=True)
    return found, code
