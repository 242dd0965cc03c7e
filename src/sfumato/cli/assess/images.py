"""`sfumato assess images`: how much images have in common with their originals."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.assess.family import app
from sfumato.cli.show import AsJson, bars, print_json, print_table, stderr

if TYPE_CHECKING:
    from sfumato.assess.pairs import Measure, OfSqueezeNet, Scores


@app.command("images")
def images(
    originals: Annotated[Path, typer.Argument(help="A folder of any depth.")],
    others: Annotated[
        Path,
        typer.Argument(help="A folder with images of the same names, such as a release or reconstructions."),
    ],
    squeezenet: Annotated[
        Path | None,
        typer.Option(help="Weights of SqueezeNet 1.0, for a perceptual distance and a Fréchet distance."),
    ] = None,
    lpips: Annotated[
        str | None,
        typer.Option(
            help="Measure LPIPS with this network: alex, vgg or squeeze. Needs --backbone and --heads."
        ),
    ] = None,
    backbone: Annotated[
        Path | None, typer.Option(help="Weights of the network of LPIPS, as torchvision publishes them.")
    ] = None,
    heads: Annotated[Path | None, typer.Option(help="The trained heads of LPIPS v0.1.")] = None,
    faces: Annotated[
        Path | None, typer.Option(help="Weights of MobileFaceNet, to measure the similarity of faces.")
    ] = None,
    detector: Annotated[
        Path | None,
        typer.Option(
            help="Weights of MTCNN, which finds the faces. Without it, each image must be a cropped face."
        ),
    ] = None,
    semsim: Annotated[
        Path | None,
        typer.Option(
            help="An artefact of `sfumato train semsim` or `sfumato train semsim-perceptual`. The second "
            "also gives the probability that people recognise each image."
        ),
    ] = None,
    resize: Annotated[
        bool,
        typer.Option("--resize", help="Resize the second image of each pair to the size of its original."),
    ] = False,
    common: Annotated[
        bool, typer.Option("--common", help="Leave out images without a partner of the same name.")
    ] = False,
    sort_by: Annotated[
        str,
        typer.Option(
            metavar="MEASURE", help="The measure that chooses the pairs of worst.png, as named in the table."
        ),
    ] = "ssim",
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder to write pairs.csv and worst.png to.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how alike two folders of images are, pair by pair: how much was hidden, or rebuilt.

    Images are paired by name, without the suffix. A pair that cannot be read is left out, and the exit code
    is 1.

    Example: sfumato assess images photos released --out leaks
    """
    from sfumato.assess import pairs
    from sfumato.assess.frechet import OF_SQUEEZENET
    from sfumato.base.files import check_writable, printable
    from sfumato.errors import ConfigError, DataError, did_you_mean, require

    for folder in (originals, others):
        if out is not None and out.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{out}: lies in {folder}, among the images: name another folder")
    require("an interval over pairs", "study", "scipy.stats")
    if out is not None:
        check_writable(out, folder=True)
        require("the picture of the worst pairs", "study", "matplotlib")
    of_squeezenet = None if squeezenet is None else pairs.OfSqueezeNet(squeezenet)
    measures = _measures(of_squeezenet, lpips, backbone, heads, faces, detector, semsim)
    if sort_by not in (known := {each.name: each for each in measures}):
        raise ConfigError(f"--sort-by {sort_by}: {did_you_mean(sort_by, known)}")
    found = pairs.find(originals, others, common=common)
    with bars(stderr()) as progress:
        task = progress.add_task("pairs", total=len(found.rows))
        scores = pairs.measure(
            found, measures, resize=resize, report=lambda done: progress.update(task, completed=done)
        )
    frechet = None
    if of_squeezenet is not None and len(scores.pairs) > 1:
        frechet = of_squeezenet.frechet()
    if out is not None:
        pairs.write_table(out / "pairs.csv", scores)
        pairs.draw(out / "worst.png", scores, known[sort_by], cell=found.cell, resize=resize)
    if as_json:
        print_json(
            {
                "originals": str(originals),
                "others": str(others),
                "spec": found.spec,
                "pairs": len(scores.pairs),
                "alone": found.alone,
                "failed": list(scores.failures),
                "measures": [_in_numbers(scores, each) for each in measures],
                "frechet": None if frechet is None else str(frechet),
            }
        )
        raise typer.Exit(1 if scores.failures else 0)
    of = "" if found.spec is None else f", a release of {found.spec}"
    left_out = f"; without a partner, and left out: {found.alone:,}" if found.alone else ""
    print(f"{len(scores.pairs):,} pairs of {originals} and {others}{of}{left_out}")
    _print_table(scores, measures)
    if of_squeezenet is not None:
        print(f"{OF_SQUEEZENET}: {'of two pairs or more' if frechet is None else frechet}")
    if out is not None:
        print(f"every pair: {out / 'pairs.csv'}")
        print(f"most alike by {sort_by}: {out / 'worst.png'}")
    if scores.failures:
        first = printable(scores.failures[0])
        print(f"could not be read: {len(scores.failures):,} of {len(found.rows):,} pairs, such as {first}")
        raise typer.Exit(1)


def _measures(
    of_squeezenet: "OfSqueezeNet | None",
    lpips: str | None,
    backbone: Path | None,
    heads: Path | None,
    faces: Path | None,
    detector: Path | None,
    semsim: Path | None,
) -> "list[Measure]":
    from sfumato.assess import semsim as learned
    from sfumato.assess.pairs import PIXELS, Measure, face_similarity
    from sfumato.assess.perceptual import Perceptual
    from sfumato.errors import ConfigError
    from sfumato.networks import MTCNN, MobileFaceNet

    measures = list(PIXELS)
    if of_squeezenet is not None:
        measures.append(of_squeezenet.measure())
    if lpips is not None and backbone is not None and heads is not None:
        loaded = Perceptual.load(network=lpips, backbone=backbone, heads=heads)
        measures.append(Measure("lpips", loaded.name, loaded.distance, -1))
    elif (lpips, backbone, heads) != (None, None, None):
        raise ConfigError("LPIPS needs a network, weights and heads: give --lpips, --backbone and --heads")
    if faces is not None:
        finder = None if detector is None else MTCNN.load(detector)
        measures.append(face_similarity(MobileFaceNet.load(faces), finder))
    elif detector is not None:
        raise ConfigError("a detector cuts faces for a recogniser: name its weights with --faces")
    if semsim is not None:
        trained = learned.load(semsim)
        measures.append(Measure("semsim", "SemSim", trained.distance, -1))
        if isinstance(trained, learned.PerceptualSemSim):
            title = "probability that a person recognises it (semsim-perceptual)"
            measures.append(Measure("recognised", title, trained.probability, 1))
    return measures


def _in_numbers(scores: "Scores", measure: "Measure") -> dict[str, Any]:
    """Summarise one measure over all pairs, for JSON."""
    from sfumato.assess.pairs import summarise

    summary = summarise(scores, measure)
    return {
        "name": measure.name,
        "title": measure.title,
        "higher_is_more_alike": measure.alike > 0,
        "pairs": summary.pairs,
        "mean": summary.mean,
        "low": summary.low,
        "high": summary.high,
        "most_alike": None if summary.worst is None else summary.worst.name,
        "of_the_most_alike": summary.worst_value,
    }


def _print_table(scores: "Scores", measures: "list[Measure]") -> None:
    from rich.markup import escape
    from rich.table import Table

    from sfumato.assess.pairs import summarise
    from sfumato.base.files import printable

    table = Table()
    table.add_column("measure")
    for column in ("pairs", "mean", "95% interval"):
        table.add_column(column, justify="right")
    table.add_column("most alike")
    for each in measures:
        summary = summarise(scores, each)
        interval = f"{summary.low:.4g} to {summary.high:.4g}" if math.isfinite(summary.low) else "-"
        worst = (
            "-"
            if summary.worst is None
            else f"{summary.worst_value:.4g} {escape(printable(summary.worst.name))}"
        )
        table.add_row(each.name, f"{summary.pairs:,}", f"{summary.mean:.4g}", interval, worst)
    print_table(table)
    for each in measures:
        better = "higher" if each.alike > 0 else "lower"
        print(f"{each.name}: {each.title}, {better} is more alike")
