"""`sfumato show`: the card of an artefact."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.base.files import check_new, whole
from sfumato.cli.options import Force
from sfumato.cli.show import AsJson, print_json


def show(
    artefact: Annotated[Path, typer.Argument(help="A .safetensors file of sfumato.")],
    html: Annotated[Path | None, typer.Option(help="Write the card as a self-contained page.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the card as Markdown.")] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the card of an artefact: its data and task, its guarantee, its accuracy and its limits.

    For an artefact in the folder of a study, the card also states the results of its adversaries.

    Example: sfumato show code.safetensors --html card.html
    """
    from sfumato.learn.model_card import describe
    from sfumato.study.choose.use import describe_measurements

    files = [path for path in (html, markdown) if path is not None]
    for path in files:
        check_new(path, force=force, suffix=".html" if path == html else ".md")
    card = describe(artefact, measured=describe_measurements(artefact))
    for path in files:
        with whole(path) as temporary:
            temporary.write_text(card.as_html() if path == html else card.as_markdown(), encoding="utf-8")
    if as_json:
        print_json(card.as_json())
    elif not files:
        print(card.as_text(), end="")
    else:
        for path in files:
            print(f"card: {path}")
