"""`sfumato audit folder`, `protection` and `vectors`: leaks of releases, and their bounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.audit.family import For, Html, Pdf, Threshold, app, finish, image_shape
from sfumato.cli.options import setting
from sfumato.cli.show import AsJson, bar, settings_of
from sfumato.errors import ConfigError, require

if TYPE_CHECKING:
    from torch import Tensor

    from sfumato.protect import Protection

_CANDIDATES = (100, 1_000, 1_000_000)


@app.command("folder")
def folder(
    released: Annotated[
        Path, typer.Argument(metavar="RELEASED", help="A folder that somebody protected, with all its files.")
    ],
    known: Annotated[
        Path | None,
        typer.Option(help="Photographs of known people: a sub-folder each, or a CSV of file,person."),
    ] = None,
    protection: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Name people, and nothing else, by adversaries who know this protection: they protect the "
            "known photographs in the same way (default: as the files look). Or none: they do not know it.",
        ),
    ] = None,
    people: Annotated[
        Path | None,
        typer.Option(help="A CSV of file,person that no adversary sees (default: sub-folders name people)."),
    ] = None,
    detector: Annotated[
        Path | None, typer.Option(help="Weights of MTCNN (default: CenterFace of the extra faces).")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights of MobileFaceNet, which names people, too. Needs --detector.")
    ] = None,
    releases: Annotated[str, typer.Option(help="Name people by these numbers of files.")] = "1,10,100",
    overrides: Annotated[list[str] | None, setting("Settings of adversaries, as steps=1000.")] = None,
    listing: Annotated[bool, settings_of("sfumato.audits.folder:NamingConfig")] = False,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Say how a folder looks protected, and which faces, metadata and names remain.

    It is judged from the files alone, and with known photographs by them. One half of the people
    chooses the adversary whose success in naming the other half is stated. The exit code is 0 if all was
    looked at and nothing leaks, else 1.

    Example: sfumato audit folder supplied --known photos --html report.html
    """
    from sfumato.audits.folder import NamingConfig, audit_folder
    from sfumato.base.settings import check_settings, parse_overrides

    require("the audit of a folder", "study", "sklearn", "scipy")
    try:
        settings: dict[str, Any] = {"releases": [int(each) for each in releases.split(",")]}
    except ValueError:
        raise ConfigError(f"--releases {releases}: write whole numbers, as 1,10,100") from None
    if weights is not None:
        settings |= {"weights": str(weights), "detector": detector and str(detector)}
    config = check_settings(NamingConfig, settings | parse_overrides(overrides or []), "the adversaries")
    common: dict[str, Any] = {"people": people, "spec": protection, "detector": detector, "config": config}
    with bar("files") as progress:
        report = audit_folder(released, known=known, progress=progress, **common)
    finish(report, as_json, html, pdf, audience, threshold)


@app.command("protection")
def protection(
    spec: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="The protection, or several, as dp-pix:cell=4,epsilon=1,3."),
    ],
    shape: Annotated[
        str, typer.Option(help="CxHxW of the images: small ones are quick, and tell the same.")
    ] = "3x28x28",
    pixels: Annotated[
        int | None, typer.Option(help="How many pixels neighbours differ in (default: the spec's own).")
    ] = None,
    trials: Annotated[int, typer.Option(help="More give a tighter bound.")] = 100_000,
    confidence: Annotated[float, typer.Option(help="The bound holds with this probability.")] = 0.99,
    releases: Annotated[int, typer.Option(min=1, help="Of a person, for the bound on naming them.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the choice of neighbours. The noise is fresh.")] = 0,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Tell neighbouring images apart by their releases, and prove a lower bound of eps, mu or rho.

    It also states the guarantee against naming the person on the released images, if there is one. The exit
    code is 1 if a bound is above the stated value, or if neighbours are told apart and nothing is stated. An
    audit can convict a protection. It cannot acquit one.

    Example: sfumato audit protection dp-pix:cell=8,epsilon=3
    """
    from sfumato import protect
    from sfumato.audits.evidence import RELEASES
    from sfumato.audits.guarantees import PEOPLE, Audited, report_protections
    from sfumato.dp.audit import AuditConfig, audit
    from sfumato.dp.mechanisms import fresh_noise
    from sfumato.protect.naming import bound_naming, naming_words
    from sfumato.protect.spec import portable

    sizes = image_shape(shape)
    settings: dict[str, Any] = {"shape": sizes, "confidence": confidence, "seed": seed, "trials": trials}
    audited = []
    for each in protect.expand(spec):
        stated = each.guarantee(sizes, pixels)

        def release(images: "Tensor", protection: "Protection" = each) -> "Tensor":
            return protection.release(images, fresh_noise()).values

        settings["pixels"] = stated.pixels if stated else pixels or 1
        result = audit(release, stated, AuditConfig(**settings))
        naming, bounds = "", {}  # nothing follows from a guarantee that does not hold
        if not result.convicted:
            naming = naming_words(each, sizes, releases=releases, among=_CANDIDATES)
            proofs = {n: bound_naming(each, sizes, candidates=PEOPLE, releases=n) for n in RELEASES}
            bounds = {n: proof.chance for n, proof in proofs.items() if proof.proves}
        audited.append(Audited(portable(each.spec), result, naming, bounds))
    finish(report_protections(portable(spec), audited), as_json, html, pdf, audience, threshold)


@app.command("vectors")
def vectors(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Embeddings, a row each: .npy, .npz, .parquet or .csv.")
    ],
    people: Annotated[str | None, typer.Option(help="The array or column that says whose they are.")] = None,
    labels: Annotated[
        str | None,
        typer.Option(
            help="Attributes, as gender,age. Needs --people. Remedies keep the first; negative is unknown."
        ),
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(help="Their array or column, or how their columns begin (default: the only one)."),
    ] = None,
    rows: Annotated[int, typer.Option(help="How many rows are used; of more, a random sample.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Seed of the sample, the halves of people and the panels.")] = 0,
    audience: For = None,
    threshold: Threshold = None,
    html: Html = None,
    pdf: Pdf = None,
    as_json: AsJson = False,
) -> None:
    """Say how often a stranger names, links and verifies people by vectors, and how to hide them.

    Half of the people teach the adversaries and the remedies, the other half is attacked. PyTorch is not
    needed. The exit code is 1 if something leaks.

    Example: sfumato audit vectors faces.npz --people person --labels gender --html vectors.html
    """
    from sfumato.audits.vector_files import read
    from sfumato.audits.vectors import audit_vectors

    names = [] if labels is None else [name.strip() for name in labels.split(",")]
    given = read(file, vectors=vectors, people=people, labels=names, rows=rows, seed=seed)
    with bar("forms") as progress:
        report = audit_vectors(given, subject=f"{file.name} ({given.words})", seed=seed, progress=progress)
    finish(report, as_json, html, pdf, audience, threshold)
