"""`sfumato annotate`: ask people or recognisers about reconstructions."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Ask people what they recognise in reconstructions.", no_args_is_help=True)

_CAMPAIGN = typer.Argument(metavar="CAMPAIGN", help="The folder of `sfumato annotate new`.")


@app.command()
def new(
    pairs: Annotated[
        Path, typer.Argument(help="A CSV with the columns original, reconstruction, class, model, source.")
    ],
    task: Annotated[
        str,
        typer.Option(help="choose: people pick a class. same: they say if it shows the original."),
    ],
    out: Annotated[Path, typer.Option(help="The folder of the campaign to write.")],
    annotators: Annotated[int, typer.Option(help="How many people answer. Each answers everything.")] = 5,
    options: Annotated[int, typer.Option(help="For choose: how many classes to choose from.")] = 20,
    decoys: Annotated[float, typer.Option(help="For same: the share of pairs of different images.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of pairs, options, decoys and orders.")] = 0,
    most: Annotated[
        int | None,
        typer.Option(help="How many pairs to ask about, as many of every source and model (default: all)."),
    ] = None,
) -> None:
    """Begin a campaign: read the images, draw the questions, write a page for each annotator.

    Each page is one file that shows its images and loads nothing. Send annotator-N.html to one person each,
    and put the files that they save and send back into the folder answers.

    Example: sfumato annotate new pairs.csv --task same --out campaign
    """
    from sfumato.annotate import Campaign, CampaignConfig, create, draw_balanced, read_pairs

    config = CampaignConfig(task=task, annotators=annotators, options=options, decoys=decoys, seed=seed)
    asked = read_pairs(pairs)
    create(out, asked if most is None else draw_balanced(asked, most, seed=seed), config)
    items = Campaign(out).items.values()
    decoyed = sum(item.decoy for item in items)
    print(f"campaign: {out} ({len(items)} items, {decoyed} of them decoys; {annotators} annotators)")
    print(f"next: send each person one of {out}/annotator-*.html, and put what they save into {out}/answers")


@app.command()
def status(folder: Annotated[Path, _CAMPAIGN]) -> None:
    """Show how far each annotator is, how reliable on decoys, and how much is recognised of each model.

    Example: sfumato annotate status campaign
    """
    from sfumato.annotate import Campaign, results
    from sfumato.base.proportions import wilson

    campaign = Campaign(folder)
    proxy = campaign.kind != "people"
    for one in results.reliability(campaign):
        name = f"{one.annotator} (proxy)" if proxy else one.annotator
        judged = one.right + one.wrong
        decoys = f", {one.right} of {judged} decoys recognised as such" if judged else ""
        print(f"{name}: {one.answered} of {one.items} answered{decoys}")
    alpha = results.agreement(campaign)
    print(f"agreement: {'none yet' if alpha is None else f'alpha = {alpha:.3f} (Krippendorff)'}")
    by = "proxies, not people" if proxy else "people"
    for model, (right, count) in results.shares(results.results(campaign)).items():
        low, high = wilson(right, count)
        interval = f"{100 * low:.1f} to {100 * high:.1f}; {right:,} of {count:,}"
        print(f"recognised by {by}, {model}: {right / count:.1%} ({interval})")
    _warn(results.doubts(campaign))


def _warn(doubts: list[str]) -> None:
    for doubt in doubts:
        typer.echo(f"warning: {doubt}", err=True)


@app.command()
def export(
    folder: Annotated[Path, _CAMPAIGN],
    out: Annotated[Path, typer.Argument(help="The file to write, .csv or .parquet.")],
    table: Annotated[
        str, typer.Option(help="results: a row per item. semsim: to train SemSim. answers: all of them.")
    ] = "results",
) -> None:
    """Write the results as a table, also of the answers that came back so far.

    Example: sfumato annotate export campaign judged.csv
    """
    from sfumato.annotate import Campaign, results

    campaign = Campaign(folder)
    rows = results.export(campaign, table, out)
    print(f"table: {out} ({rows} rows of {table}, annotators: {campaign.kind})")
    _warn(results.doubts(campaign))


@app.command()
def proxies(
    folder: Annotated[Path, _CAMPAIGN],
    models: Annotated[
        list[Path], typer.Argument(help="Artefacts: classifiers for choose, few-shot encoders for same.")
    ],
    threshold: Annotated[
        float, typer.Option(help="For choose: the least confidence in an answer. For same: the least cosine.")
    ] = 0.5,
) -> None:
    """Let recognisers answer a campaign instead of people. A campaign that people have begun is refused.

    Example: sfumato annotate proxies campaign mobilefacenet.safetensors
    """
    from sfumato.annotate import Campaign
    from sfumato.annotate.proxies import by_classifier, by_encoder, fill

    campaign = Campaign(folder)
    make = by_classifier if campaign.config.task == "choose" else by_encoder
    fill(campaign, [make(path, threshold=threshold) for path in models])
    print(f"answered by {len(models)} proxies: {folder}")
