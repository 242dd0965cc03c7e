"""`sfumato assess agreement`: whether measures rank attacked models as people do."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.assess.family import app
from sfumato.cli.show import AsJson, print_json, print_table

if TYPE_CHECKING:
    from sfumato.assess.beside_people import Ranking


@app.command("agreement")
def agreement(
    judgements: Annotated[
        Path, typer.Argument(help="A CSV that `sfumato annotate export` wrote, with the files that it names.")
    ],
    score: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of the CSV with scores of another measure: NAME if higher is more alike, -NAME if "
            "lower. Repeat the option for more."
        ),
    ] = None,
    squeezenet: Annotated[
        Path | None, typer.Option(help="Weights of SqueezeNet 1.0, for a perceptual distance.")
    ] = None,
    semsim: Annotated[
        list[Path] | None,
        typer.Option(
            help="An artefact of `sfumato train semsim` or `semsim-perceptual`. It is asked about data sets "
            "that it was not trained on. Repeat the option for more."
        ),
    ] = None,
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize each reconstruction to the size of its original.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare measures with people: do they rank attacked models alike?

    People rank a model by the share of its reconstructions that they recognise, a measure by its mean. The
    last line of a data set compares people with themselves: no measure can be expected to agree more.

    Example: sfumato assess agreement judged.csv --squeezenet squeezenet1_0.npz --score -lpips
    """
    from dataclasses import asdict

    from sfumato.assess import beside_people, pairs
    from sfumato.assess import semsim as learned

    columns = {name.removeprefix("-"): -1 if name.startswith("-") else 1 for name in score or []}
    judged, numbers = beside_people.read(judgements, list(columns))
    measures = list(pairs.PIXELS)
    if squeezenet is not None:
        measures.append(pairs.OfSqueezeNet(squeezenet).measure())
    trained = {str(path): learned.load(path) for path in semsim or []}
    measures += [pairs.Measure(path, "SemSim", each.distance, -1) for path, each in trained.items()]
    scores = beside_people.scores(judged, measures, resize=resize)
    for path, model in trained.items():
        own, seen = scores.pop(path), model.card["data"]["name"].split(" + ")
        others = scores.get("semsim", [float("nan")] * len(own))
        scores["semsim"] = [
            other if pair.source in seen else value
            for pair, value, other in zip(judged, own, others, strict=True)
        ]
    for (column, sign), values in zip(columns.items(), numbers, strict=True):
        scores[column] = [sign * value for value in values]
    ranked = beside_people.rank(judged, scores)
    if as_json:
        print_json({source: asdict(each) for source, each in ranked.items()})
    else:
        _print(ranked, asked_semsim=bool(semsim))


def _print(ranked: "dict[str, Ranking]", *, asked_semsim: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

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
