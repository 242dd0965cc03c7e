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
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the card of an artefact: its data and task, its guarantee, its accuracy and its limits.

    For an artefact in the folder of a study, the card also states the results of its adversaries.

    Example: sfumato show code.safetensors --html card.html
    """
    from sfumato.learn.model_card import describe
    from sfumato.study.choose.results import describe_measurements

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
