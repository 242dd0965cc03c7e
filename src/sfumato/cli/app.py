"""Assemble the commands."""

import logging
from typing import Annotated

import typer

import sfumato
from sfumato.cli import (
    annotate,
    artefacts,
    assess,
    audit,
    classify,
    data,
    demo,
    enrol,
    export,
    keys,
    ledger,
    protect,
    serve,
    share,
    show,
    study,
    train,
)

app = typer.Typer(
    help="Privacy for images in machine learning: protect, learn, attack, measure, report.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_START, _MODELS, _JUDGE, _SERVICE = "Start here", "Data and models", "Measures", "Device and service"

app.command("demo", rich_help_panel=_START)(demo.demo)
app.command("protect", rich_help_panel=_START)(protect.protect)
app.add_typer(audit.app, name="audit", rich_help_panel=_START)
app.add_typer(study.app, name="study", rich_help_panel=_START)
app.add_typer(assess.app, name="assess", rich_help_panel=_JUDGE)
app.add_typer(annotate.app, name="annotate", rich_help_panel=_JUDGE)
app.add_typer(data.app, name="data", rich_help_panel=_MODELS)
app.command("train", rich_help_panel=_MODELS, no_args_is_help=True)(train.Train)
app.command("show", rich_help_panel=_MODELS)(artefacts.show)
app.command("export", rich_help_panel=_MODELS)(export.export)
app.add_typer(ledger.app, name="ledger", rich_help_panel=_SERVICE)
app.command("enrol", rich_help_panel=_SERVICE)(enrol.enrol)
app.command("classify", rich_help_panel=_SERVICE)(classify.classify)
app.command("share", rich_help_panel=_SERVICE)(share.share)
app.command("serve", rich_help_panel=_SERVICE)(serve.serve)
app.add_typer(keys.app, name="keys", rich_help_panel=_SERVICE)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(sfumato.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no notes.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print tracebacks and logs.")] = False,
) -> None:
    show.VOLUME.quiet, show.VOLUME.verbose = quiet, verbose
    if verbose:
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
