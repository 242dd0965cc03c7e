"""Assemble the commands."""

import logging
from typing import Annotated

import typer

import sfumato
from sfumato.cli import (
    annotate,
    assess,
    attack,
    audit,
    card,
    classify,
    convert,
    data,
    demo,
    edge,
    enrol,
    export,
    keys,
    ledger,
    protect,
    serve,
    show,
    study,
    train,
)

app = typer.Typer(
    help="Privacy for images in machine learning: protect, learn, attack, measure, report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command("demo")(demo.demo)
app.command("protect")(protect.protect)
app.command("export")(export.export)
app.command("show")(card.show)
app.command("convert")(convert.convert)
app.add_typer(assess.app, name="assess")
app.add_typer(audit.app, name="audit")
app.add_typer(attack.app, name="attack")
app.add_typer(study.app, name="study")
app.add_typer(train.app, name="train")
app.add_typer(data.app, name="data")
app.add_typer(edge.app, name="edge")
app.add_typer(annotate.app, name="annotate")
app.add_typer(ledger.app, name="ledger")
app.add_typer(keys.app, name="keys")
app.command("serve")(serve.serve)
app.command("enrol")(enrol.enrol)
app.command("enroll", hidden=True)(enrol.enrol)
app.command("classify")(classify.classify)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(sfumato.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Print results, warnings and errors only: no progress, no notes."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print tracebacks of errors, and the logs of libraries.")
    ] = False,
) -> None:
    show.VOLUME.quiet, show.VOLUME.verbose = quiet, verbose
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
