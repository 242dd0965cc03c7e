"""`sfumato assess`: how alike images are, whether measures agree with people, and how private numbers are."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from sfumato.base.files import check_writable, printable
from sfumato.cli.options import Split
from sfumato.cli.show import AsJson, bar, bars, print_json, print_table
from sfumato.cli.sources import SplitBy, Strict, of_split
from sfumato.errors import ConfigError, DataError, require

if TYPE_CHECKING:
    from sfumato.assess.agreement import Ranking
    from sfumato.assess.pairs import Measure, Scores
    from sfumato.study.measure.log_rank import Ranked

SqueezeNet = Annotated[
    Path | None, typer.Option(help="Weights of SqueezeNet 1.0, for a perceptual and a Fréchet distance.")
]
Resize = Annotated[bool, typer.Option("--resize", help="Resize guesses to the size of their originals.")]

app = typer.Typer(help="Measure how alike originals and guesses are; attack nothing.", no_args_is_help=True)


@app.command("images")
def images(
    originals: Annotated[Path, typer.Argument(help="A folder of any depth.")],
    others: Annotated[
        Path, typer.Argument(help="A folder with images of the same names, released or reconstructed.")
    ],
    squeezenet: SqueezeNet = None,
    lpips: Annotated[
        str | None, typer.Option(help="Measure LPIPS by alex, vgg or squeeze, with --backbone and --heads.")
    ] = None,
    backbone: Annotated[
        Path | None, typer.Option(help="Weights of the network of LPIPS, as torchvision publishes them.")
    ] = None,
    heads: Annotated[Path | None, typer.Option(help="The trained heads of LPIPS v0.1.")] = None,
    faces: Annotated[
        Path | None, typer.Option(help="Weights of MobileFaceNet, to measure the similarity of faces.")
    ] = None,
    detector: Annotated[
        Path | None, typer.Option(help="Weights of MTCNN, if the images are more than cropped faces.")
    ] = None,
    semsim: Annotated[
        Path | None,
        typer.Option(
            help="An artefact of `sfumato train semsim` or `sfumato train semsim-perceptual`. The second "
            "also gives the probability that people recognise each image."
        ),
    ] = None,
    resize: Resize = False,
    common: Annotated[
        bool, typer.Option("--common", help="Leave out images without a partner of the same name.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder to write pairs.csv to, a line a pair.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how alike two folders of images are, pair by pair: how much was hidden, or rebuilt.

    Images are paired by name, without the suffix. If a pair cannot be read, the exit code is 1.

    Example: sfumato assess images photos released --out leaks
    """
    from sfumato.assess import pairs
    from sfumato.assess import semsim as learned
    from sfumato.assess.frechet import OF_SQUEEZENET
    from sfumato.assess.perceptual import Perceptual
    from sfumato.networks import MTCNN, MobileFaceNet

    for folder in (originals, others):
        if out is not None and out.resolve().is_relative_to(folder.resolve()):
            raise DataError(f"{out}: lies in {folder}, among the images: name another folder")
    require("an interval over pairs", "study", "scipy.stats")
    if out is not None:
        check_writable(out, folder=True)
    of_squeezenet = None if squeezenet is None else pairs.OfSqueezeNet(squeezenet)
    measures = list(pairs.PIXELS)
    if of_squeezenet is not None:
        measures.append(of_squeezenet.measure())
    if lpips is not None and backbone is not None and heads is not None:
        loaded = Perceptual.load(network=lpips, backbone=backbone, heads=heads)
        measures.append(pairs.Measure("lpips", loaded.name, loaded.distance, -1))
    elif (lpips, backbone, heads) != (None, None, None):
        raise ConfigError("LPIPS needs a network, weights and heads: give --lpips, --backbone and --heads")
    if faces is not None:
        finder = None if detector is None else MTCNN.load(detector)
        measures.append(pairs.face_similarity(MobileFaceNet.load(faces), finder))
    elif detector is not None:
        raise ConfigError("a detector cuts faces for a recogniser: name its weights with --faces")
    if semsim is not None:
        trained = learned.load(semsim)
        measures.append(pairs.Measure("semsim", "SemSim", trained.distance, -1))
        if isinstance(trained, learned.PerceptualSemSim):
            title = "probability that a person recognises it (semsim-perceptual)"
            measures.append(pairs.Measure("recognised", title, trained.probability, 1))
    found = pairs.find(originals, others, common=common)
    with bar("pairs") as progress:
        scores = pairs.measure(
            found, measures, resize=resize, report=lambda done: progress(done, len(found.rows))
        )
    frechet = of_squeezenet.frechet() if of_squeezenet is not None and len(scores.pairs) > 1 else None
    if out is not None:
        pairs.write_table(out / "pairs.csv", scores)
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
    _print_measures(scores, measures)
    if of_squeezenet is not None:
        print(f"{OF_SQUEEZENET}: {'of two pairs or more' if frechet is None else frechet}")
    if out is not None:
        print(f"every pair: {out / 'pairs.csv'}")
    if scores.failures:
        first = printable(scores.failures[0])
        print(f"could not be read: {len(scores.failures):,} of {len(found.rows):,} pairs, such as {first}")
        raise typer.Exit(1)


def _in_numbers(scores: "Scores", measure: "Measure") -> dict[str, Any]:
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


def _print_measures(scores: "Scores", measures: "list[Measure]") -> None:
    from sfumato.assess.pairs import summarise

    table = Table("measure")
    for column in ("pairs", "mean", "95% interval"):
        table.add_column(column, justify="right")
    table.add_column("most alike")
    for each in measures:
        made = summarise(scores, each)
        interval = f"{made.low:.4g} to {made.high:.4g}" if math.isfinite(made.low) else "-"
        worst = f"{made.worst_value:.4g} {escape(printable(made.worst.name))}" if made.worst else "-"
        table.add_row(each.name, f"{made.pairs:,}", f"{made.mean:.4g}", interval, worst)
    print_table(table)
    for each in measures:
        print(f"{each.name}: {each.title}, {'higher' if each.alike > 0 else 'lower'} is more alike")


@app.command("agreement")
def agreement(
    judgements: Annotated[
        Path, typer.Argument(help="A CSV that `sfumato annotate export` wrote, with the files that it names.")
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(help="A column with another measure's scores, or -COLUMN if lower is more alike."),
    ] = None,
    squeezenet: SqueezeNet = None,
    semsim: Annotated[
        list[Path] | None,
        typer.Option(help="An artefact of `sfumato train semsim`, for data sets that it has not seen."),
    ] = None,
    resize: Resize = False,
    as_json: AsJson = False,
) -> None:
    """Compare measures with people: do they rank attacked models alike?

    People rank a model by the share of its reconstructions that they recognise, a measure by its mean. The
    last line of a data set compares people with themselves: no measure can be expected to agree more.

    Example: sfumato assess agreement judged.csv --squeezenet squeezenet1_0.npz --score -lpips
    """
    from sfumato.assess import agreement as people
    from sfumato.assess import pairs
    from sfumato.assess import semsim as learned

    columns = {name.removeprefix("-"): -1 if name.startswith("-") else 1 for name in score or []}
    judged, numbers = people.read(judgements, list(columns))
    measures = list(pairs.PIXELS)
    if squeezenet is not None:
        measures.append(pairs.OfSqueezeNet(squeezenet).measure())
    trained = {str(path): learned.load(path) for path in semsim or []}
    measures += [pairs.Measure(path, "SemSim", each.distance, -1) for path, each in trained.items()]
    scores = people.scores(judged, measures, resize=resize)
    for path, model in trained.items():
        own, seen = scores.pop(path), model.card["data"]["name"].split(" + ")
        others = scores.get("semsim", [float("nan")] * len(own))
        scores["semsim"] = [
            other if pair.source in seen else value
            for pair, value, other in zip(judged, own, others, strict=True)
        ]
    for (column, sign), values in zip(columns.items(), numbers, strict=True):
        scores[column] = [sign * value for value in values]
    ranked = people.rank(judged, scores)
    if as_json:
        print_json({source: asdict(each) for source, each in ranked.items()})
    else:
        _print_ranked(ranked, asked_semsim=bool(semsim))


def _print_ranked(ranked: "dict[str, Ranking]", *, asked_semsim: bool) -> None:
    table = Table("data set", "measure", "Kendall (95% interval)", "Spearman (95% interval)")
    for source, each in ranked.items():
        for name, found in [*each.measures.items(), ("judges again", each.reliability)]:
            words = [str(found.kendall), str(found.spearman)] if found else ["no order", ""]
            table.add_row(escape(source), escape(name), *words)
    print_table(table)
    for source, each in ranked.items():
        least, most = (100 * end(each.recognised.values()) for end in (min, max))
        models = f"{source}: {each.pairs:,} reconstructions of {len(each.recognised)} models"
        print(f"{models}, of which {least:.0f}% to {most:.0f}% are recognised")
        if asked_semsim and "semsim" not in each.measures:
            print(f"{source}: each SemSim was trained on it: train one with --leave-out")
    print("1 is the same order. judges again: by as many other judgements of the same kind, estimated")


@app.command("log-rank")
def log_rank(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="Photographs of people: folder:DIR, table:FILE or a data set."),
    ],
    specs: Annotated[
        list[str],
        typer.Option(
            "--with",
            metavar="SPEC",
            help="A protection that releases numbers or bits, such as feature:artefact=FILE,noise=0,0.3,1. "
            "Each value, and each further --with, has a line of its own.",
        ),
    ],
    label: Annotated[str, typer.Option(help="The label that says who is on a photograph.")] = "identity",
    known: Annotated[
        int, typer.Option(min=2, help="Photographs of each person that the adversary has.")
    ] = 10,
    asked: Annotated[int, typer.Option(min=1, help="How many others of each person they must name.")] = 10,
    least: Annotated[int, typer.Option(min=2, help="People with fewer known photographs are left out.")] = 4,
    releases: Annotated[
        int, typer.Option(min=1, help="Also state the bound after this many releases of one person.")
    ] = 100,
    split: Split = "test",
    split_by: SplitBy = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of known photographs, and of noise.")] = 0,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Measure how private features are, by the rank of the right person among an adversary's guesses (DPFE).

    Each line shows the strongest of three adversaries: a kernel density, a linear discriminant and a small
    network. If DATA has the attributes that a private feature keeps, each line shows their accuracies: with
    several noises, the curve of accuracy and privacy of one feature. For codes and noisy numbers it adds a
    bound that no adversary falls below. All are averages: nothing follows from them for one person. For codes
    of at most 12 bits it adds the person named most often.

    Example: sfumato assess log-rank folder:photos --with feature:artefact=f.safetensors
    """
    from sfumato import artefacts
    from sfumato.protect import expand
    from sfumato.study.measure.log_rank import attribute_accuracies, rank_privacy

    require("trained adversaries", "study", "sklearn")
    protections = [each for spec in specs for each in expand(spec, takes=("numbers", "bits"))]
    shape = tuple(artefacts.read_card(protections[0].artefact)["shape"])
    images = of_split(data, shape, label=label, split=split, split_by=split_by, strict=strict)
    people = images.label(label).codes
    found, kept = [], []
    counts = {"known": known, "asked": asked, "least": least, "releases": releases}
    with bars() as progress:
        for protection in progress.track(protections, description="protections"):
            found.append(rank_privacy(protection, images.images, people, **counts, seed=seed))
            kept.append(attribute_accuracies(protection, images, seed))
    if as_json:
        print_json({"data": data, "protections": list(map(_ranks_in_numbers, found, kept))})
    else:
        _print_ranks(found, kept, releases)


def _ranks_in_numbers(ranked: "Ranked", accuracies: dict[str, float]) -> dict[str, Any]:
    return {
        "spec": ranked.spec,
        "accuracies": accuracies,
        "strongest": ranked.strongest,
        "adversaries": {name: asdict(each) for name, each in ranked.adversaries.items()},
        "nearest_neighbour_chance": ranked.chance,
        "proved": ranked.proved,
        "proved_of_many": ranked.proved_of_many,
        "named": ranked.named and dict(zip(("on_average", "surest_hundredth"), ranked.named, strict=True)),
        "beyond_a_tenth_if_normal": ranked.if_normal,
    }


def _print_ranks(found: "list[Ranked]", kept: list[dict[str, float]], releases: int) -> None:
    from sfumato.dp.naming import ASSUMED
    from sfumato.study.measure.log_rank import DENSITY

    table = Table(
        *("protection", *(f"{name}, %" for name in kept[0]), "log-rank privacy", "by", "proved"),
        *("1-NN error, %", "mean rank (deviation)", "beyond a tenth, %", "named at best, %"),
    )
    for each, accuracies in zip(found, kept, strict=True):
        worst, nearest = each.adversaries[each.strongest], each.adversaries[DENSITY].nearest_neighbour_error
        assert nearest is not None
        table.add_row(
            escape(each.spec),
            *(f"{100 * accuracies[name]:.1f}" if name in accuracies else "–" for name in kept[0]),
            f"{worst.lrp:.3f} ({worst.low:.3f} to {worst.high:.3f})",
            each.strongest,
            _at_least(each.proved),
            f"{100 * nearest:.1f}",
            f"{worst.mean:.2f} ({worst.deviation:.2f})",
            f"{100 * worst.beyond_a_tenth:.1f}; if normal {100 * each.if_normal:.1f}",
            f"{100 * each.named[0]:.1f}; surest 1% {100 * each.named[1]:.1f}" if each.named else "–",
        )
    print_table(table)
    first = next(iter(found[0].adversaries.values()))
    print(
        f"{first.features:,} photographs of {first.identities:,} people. Blind guessing: log-rank privacy "
        f"{first.guessing:.3f}, 1-NN error {100 * found[0].chance:.1f}%, mean rank "
        f"{(first.identities + 1) / (2 * first.identities):.2f} (0.29)."
    )
    print(
        "beyond a tenth: how often the right one is not in the first tenth of the guesses; "
        "counted, and as the paper states it, from mean and deviation. Nothing is proved by either."
    )
    print("proved: no adversary falls below it after one release, on average over people and noise.")
    for each in found:
        for assuming, least in each.proved_of_many.items():
            if least:
                proved = f"{each.spec}, after {releases:,} releases: {_at_least(least)}"
                print(f"{proved} ({ASSUMED[assuming]}).")
    print(
        "named at best: by one release, to somebody who has all these photographs; on average over equally "
        "likely people, and the person who is named most often."
    )


def _at_least(proved: float) -> str:
    return f"at least {math.floor(1000 * proved) / 1000:.3f}" if proved >= 0.001 else "nothing"
