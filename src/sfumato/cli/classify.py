"""`sfumato classify`: let a service classify images that are protected before they leave."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sfumato.cli.enrol import INSECURE, KEY_FILE, SPEC, URL, connect, report_miss
from sfumato.cli.options import LedgerFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sfumato.device.client.client import Client
    from sfumato.device.client.conversation import Guess
    from sfumato.errors import SfumatoError


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
            "images is sent. For codes of at most 16 bits; for other codes and private features, its "
            "prototypes. Without the file, it is asked for first.",
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Ask whether the service has a newer table than the file.")
    ] = False,
    batch: Annotated[
        Literal["shuffled", "level"] | None,
        typer.Option(
            help="shuffled: send all releases in random order, so that the service sees how often each "
            "occurs, and not of which image. level: send every code of at most 12 bits once, and look the "
            "answers up here, so that nothing sent depends on the images; nothing is charged.",
        ),
    ] = None,
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
    nothing is charged and nothing is sent. For codes of at most 16 bits the answer is the nearest class,
    without a probability. How often "none of these" is right is not said then.

    Example: sfumato classify http://127.0.0.1:8000 people new.png --with blur:radius=4
    """
    import json
    import sys
    from dataclasses import asdict
    from functools import partial

    from sfumato.base.files import printable
    from sfumato.errors import ConfigError, SfumatoError

    if refresh and table is None:
        raise ConfigError("--refresh is about a table: name its file with --table, or leave it out")
    if batch is not None and table is not None:
        raise ConfigError("--table sends nothing: leave out --batch, which says how releases are sent")
    with ExitStack() as opened:
        if table is None:
            cloud = opened.enter_context(connect(url, key_file, spec, ledger, insecure=insecure))
            if batch is not None:
                answers = _in_batch(cloud, classifier, images, top, batch)
            else:
                ask: Callable[[Path], list[Guess]] = partial(cloud.classify, top=top, classifier=classifier)
                answers = _one_by_one(ask, images)
        else:
            answers = _one_by_one(
                _by_table(
                    *(url, classifier, table, spec, top, key_file, ledger), refresh=refresh, insecure=insecure
                ),
                images,
            )
        failed, refused = 0, False
        for path, guesses in answers:
            if isinstance(guesses, SfumatoError):
                report_miss(path, guesses)
                failed += 1
                continue
            refused = refused or guesses[0].label is None
            if as_json:
                guessed = [asdict(each) for each in guesses]
                print(json.dumps({"file": str(path), "guesses": guessed}), flush=True)
                continue
            words = [
                "none of these"
                if each.label is None
                else printable(each.label)
                if each.probability is None
                else f"{printable(each.label)} {each.probability:.1%}"
                for each in guesses
            ]
            print(f"{printable(str(path))}: {', '.join(words)}", flush=True)
        if refused and table is None:
            models = {each.model for each in cloud.classifiers() if each.name == classifier}
            for model in cloud.models():
                if model.name in models and model.refusal is not None:
                    print(f'"none of these": {printable(model.refusal)}', file=sys.stderr)
    if failed:
        print(f"in all: {len(images):,} files: {failed:,} failed", file=sys.stderr)
        raise typer.Exit(1)


def _one_by_one(
    ask: "Callable[[Path], list[Guess]]", images: list[Path]
) -> "Iterator[tuple[Path, list[Guess] | SfumatoError]]":
    """Yield the answer to each image, or the error."""
    from sfumato.errors import BudgetExceededError, ImageError

    for path in images:
        try:
            yield path, ask(path)
        except (ImageError, BudgetExceededError) as error:
            yield path, error


def _in_batch(
    cloud: "Client", classifier: str, images: list[Path], top: int, batch: Literal["shuffled", "level"]
) -> "Iterator[tuple[Path, list[Guess] | SfumatoError]]":
    """Yield as _one_by_one does, after all are answered."""
    errors: dict[object, SfumatoError] = {}
    rows = cloud.classify_many(images, top=top, classifier=classifier, batch=batch, failed=errors.__setitem__)
    for path, guesses in zip(images, rows, strict=True):
        yield path, guesses or errors[path]


def _by_table(
    url: str,
    classifier: str,
    path: Path,
    spec: str | None,
    top: int,
    key_file: Path | None,
    ledger: Path | None,
    *,
    refresh: bool,
    insecure: bool,
) -> "Callable[[Path], list[Guess]]":
    """Return a function that classifies an image by the table of a file.

    Asks the service for the table if the file is missing, or to refresh it.
    """
    from sfumato.base.files import printable
    from sfumato.device.client import look_up
    from sfumato.device.client.addresses import check_url
    from sfumato.device.client.demands import Policy, parse_protection
    from sfumato.device.ledger import default_path
    from sfumato.errors import ConfigError
    from sfumato.protect.code import Code
    from sfumato.protect.feature import Feature
    from sfumato.wire.tables import AnswerTable

    protection = None if spec is None else parse_protection(spec)
    if not isinstance(protection, Code | Feature):
        raise ConfigError(
            "a table is for a code or a private feature, whose encoder is on this device: name it by --with "
            "code:artefact=FILE or feature:artefact=FILE,noise=0. Others run on the service alone: leave "
            "out --table"
        )
    known = look_up.read(path) if path.exists() else None
    if known is None or refresh:
        with connect(url, key_file, None, ledger, insecure=insecure) as cloud:
            found = cloud.answer_table(classifier=classifier, known=known)
        if found is not known:
            look_up.save(found, path)
    else:
        found = known
        if found.header.name != classifier:
            raise ConfigError(
                f"{path}: a table of the classifier {found.header.name!r}: name that, or another file"
            )
        address = check_url(url, insecure=True)  # nothing is sent there
        Policy(address, None, None, ledger or default_path()).check_signer(found.header.signer, first=False)
    said, what = found.header, f"the prototypes of {found.header.name}"
    if isinstance(found, AnswerTable):
        what = f"the answers of {said.name} to all {2**found.header.bits:,} codes"
    typer.echo(
        printable(
            f"{path}: {what}, of {len(said.labels):,} class{'es' * (len(said.labels) > 1)} (version "
            f"{said.version}): nothing of an image is sent"
        ),
        err=True,
    )
    return look_up.answerer(found, protection, top=top)
