"""`sfumato classify`: what a service makes of images that are protected before they leave."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.enrol import INSECURE, KEY_FILE, SPEC, URL, connect
from sfumato.cli.options import LedgerFile


def classify(
    url: Annotated[str, URL],
    classifier: Annotated[str, typer.Argument(help="The name of the classifier.")],
    images: Annotated[list[Path], typer.Argument(metavar="IMAGES...", help="Image files.")],
    spec: Annotated[str | None, SPEC] = None,
    top: Annotated[int, typer.Option(min=1, max=100, help="How many classes to name for each image.")] = 1,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON per image, with distances.")
    ] = False,
    key_file: Annotated[Path | None, KEY_FILE] = None,
    ledger: LedgerFile = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Classify images: protect them here, charge the ledger, and send the releases.

    Prints the likeliest classes of each image, after "none of these" if it belongs to none of them. Files
    that fail are named, and the exit code is 1.
    """
    import json
    import sys
    from dataclasses import asdict

    from sfumato.errors import ImageError
    from sfumato.files import printable

    failed = False
    with connect(url, key_file, spec, ledger, insecure=insecure) as cloud:
        for path in images:
            try:
                guesses = cloud.classify(path, top=top, classifier=classifier)
            except ImageError as error:
                print(f"failed: {printable(str(error))}", file=sys.stderr)
                failed = True
                continue
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
    if failed:
        raise typer.Exit(1)
