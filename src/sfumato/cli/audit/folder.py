"""`sfumato audit folder`: find the people and words left in a folder that somebody protected."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.audit.family import For, Html, Pdf, Threshold, app, say
from sfumato.cli.options import naming_config, setting
from sfumato.cli.show import AsJson, bars, settings_of, stderr


@app.command("folder")
def folder(
    released: Annotated[
        Path,
        typer.Argument(
            metavar="RELEASED", help="A folder that somebody protected: all of its files are looked at."
        ),
    ],
    known: Annotated[
        Path | None,
        typer.Option(
            "--known",
            metavar="PHOTOS",
            help="Known photographs, a sub-folder per person or a CSV of file,person, by which adversaries "
            "name people and undo the protection.",
        ),
    ] = None,
    originals: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The originals, under the same names, to count missed faces."),
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option(metavar="CSV", help="Who is on each file, as file,person, to count right guesses."),
    ] = None,
    detector: Annotated[
        Path | None,
        typer.Option(help="The weights of MTCNN, to find faces (default: CenterFace of the extra faces)."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="The weights of MobileFaceNet, for a public face network besides. Needs --detector."
        ),
    ] = None,
    releases: Annotated[
        str, typer.Option(metavar="N,...", help="Name people by these numbers of their files, too.")
    ] = "1,10,100",
    overrides: Annotated[
        list[str] | None, setting("A setting of the adversaries, such as steps=1000.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.audits.folder:NamingConfig")] = False,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Say how a folder looks protected, and which faces, metadata, near twins and names remain.

    It is judged from the files alone, and with known photographs or originals by them. The exit code is 0 if
    all was looked at and nothing leaks, else 1.

    Example: sfumato audit folder supplied --known photos --originals raw --html report.html
    """
    from sfumato.audits.folder import audit_folder
    from sfumato.errors import require

    require("the audit of a folder", "study", "sklearn", "scipy")
    config = naming_config(overrides, releases, weights, detector if weights else None)
    with bars(stderr()) as progress:
        task = progress.add_task("files")
        report = audit_folder(
            released,
            known=known,
            originals=originals,
            people=people,
            detector=detector,
            config=config,
            progress=lambda words, done, total: progress.update(
                task, description=words, completed=done, total=total or None
            ),
        )
    say(report, html=html, as_json=as_json, audience=audience, threshold=threshold, pdf=pdf)
    if any(finding.verdict in ("leaks", "not measured") for finding in report.findings):
        raise typer.Exit(1)
