"""`sfumato audit vectors`: find whom the embeddings of a model name, and their other leaks."""

from pathlib import Path
from typing import Annotated

import typer

from sfumato.cli.audit.family import For, Html, Pdf, Threshold, app, say
from sfumato.cli.show import AsJson, bars, stderr


@app.command("vectors")
def vectors(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Embeddings of any model, a row each: .npy, .npz, .parquet or .csv."
        ),
    ],
    people: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="The column or array with the person of each vector, or * if each array of an .npz is one "
            "person's.",
        ),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN,...",
            help="Attributes that an adversary infers. Remedies are to keep the first. Empty and negative "
            "values are unknown.",
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The array or column of the vectors, or how their columns begin (default: the only one).",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows are used; of more, a random sample.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample, the halves of people and the panels.")] = 0,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Say how often a stranger names, links and verifies people by vectors, and what hides them.

    Half of the people teach the adversaries and the remedies, the other half is attacked. PyTorch is not
    needed.

    The exit code is 1 if something leaks.

    Example: sfumato audit vectors faces.npz --people person --labels gender --html vectors.html
    """
    from sfumato.audits.vectors import audit_vectors, read

    names = [] if labels is None else [name.strip() for name in labels.split(",")]
    given = read(file, vectors=vectors, people=people, labels=names, rows=rows, seed=seed)
    with bars(stderr()) as progress:
        task = progress.add_task("forms")
        report = audit_vectors(
            given,
            subject=f"{file.name} ({given.words})",
            seed=seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    say(report, html=html, as_json=as_json, audience=audience, threshold=threshold, pdf=pdf)
