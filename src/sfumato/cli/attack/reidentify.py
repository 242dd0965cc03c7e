"""`sfumato attack reidentify`: name the people on released images from known photographs."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.attack.family import app
from sfumato.cli.audit.family import For, Html, Pdf, Threshold, say
from sfumato.cli.options import naming_config, setting
from sfumato.cli.show import AsJson, bars, settings_of, stderr

Known = Annotated[
    Path,
    typer.Option(
        "--known",
        metavar="PHOTOS",
        help="Known photographs: a sub-folder per person, or a CSV of file,person.",
    ),
]
People = Annotated[
    Path | None,
    typer.Option(
        metavar="CSV",
        help="Who is on each release, as file,person (default: the sub-folder of a release). It counts right "
        "guesses, and no adversary sees it.",
    ),
]


@app.command("reidentify")
def reidentify(
    released: Annotated[
        Path, typer.Argument(metavar="RELEASED", help="A folder of released images, or a CSV of file,person.")
    ],
    known: Known,
    people: People = None,
    protection: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="The protection, such as pixelize:cell=8: adversaries protect the known photographs in the "
            "same way (default: they do not know it).",
        ),
    ] = "none",
    releases: Annotated[
        str, typer.Option(metavar="N,...", help="Name people by these numbers of their releases, too.")
    ] = "1,10,100",
    weights: Annotated[
        Path | None,
        typer.Option(help="The weights of MobileFaceNet, for an adversary with a public face network."),
    ] = None,
    detector: Annotated[
        Path | None, typer.Option(help="The weights of MTCNN, which finds the faces for it.")
    ] = None,
    overrides: Annotated[
        list[str] | None, setting("A setting of the adversaries, such as steps=1000 or size=112.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.audits.folder:NamingConfig")] = False,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Name the people on released images, by all adversaries that fit, and say how often they are right.

    Static adversaries have the known photographs in clear. With --protection, adaptive ones protect them in
    the same way, and others undo the protection first. One half of the people chooses the adversary whose
    success on the other half is stated.

    Example: sfumato attack reidentify out --known photos --protection pixelize:cell=8 --html report.html
    """
    from sfumato.audits import folder
    from sfumato.errors import require

    require("re-identification", "study", "sklearn")
    config = naming_config(overrides, releases, weights, detector)
    with bars(stderr()) as progress:
        task = progress.add_task("adversaries")
        report = folder.audit_names(
            released,
            known,
            people=people,
            spec=protection,
            config=config,
            progress=lambda words, done, total: progress.update(
                task, description=words, completed=done, total=total
            ),
        )
    say(report, html=html, as_json=as_json, audience=audience, threshold=threshold, pdf=pdf)
