"""`sfumato annotate`: ask people or recognisers about reconstructions."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Ask people what they recognise in reconstructions.", no_args_is_help=True)

_STORE = typer.Argument(metavar="CAMPAIGN", help="The file of `sfumato annotate new`.")


@app.command()
def new(
    pairs: Annotated[
        Path, typer.Argument(help="A CSV with the columns original, reconstruction, class, model, source.")
    ],
    task: Annotated[
        str,
        typer.Option(help="choose: people pick a class. same: they say if it shows the original."),
    ],
    store: Annotated[Path, typer.Option(help="The campaign to write.")],
    annotators: Annotated[int, typer.Option(help="How many people answer. Each answers everything.")] = 5,
    options: Annotated[int, typer.Option(help="For choose: how many classes to choose from.")] = 20,
    decoys: Annotated[float, typer.Option(help="For same: the share of pairs of different images.")] = 0.2,
    seed: Annotated[int, typer.Option(help="Seed of pairs, options, decoys and orders.")] = 0,
    most: Annotated[
        int | None,
        typer.Option(help="How many pairs to ask about, as many of every source and model (default: all)."),
    ] = None,
) -> None:
    """Begin a campaign: read the images, draw the questions, make a link for each annotator.

    Example: sfumato annotate new pairs.csv --task same --store campaign.db
    """
    from sfumato.annotate import CampaignConfig, Store, create, draw_balanced, read_pairs

    config = CampaignConfig(task=task, annotators=annotators, options=options, decoys=decoys, seed=seed)
    asked = read_pairs(pairs)
    create(store, asked if most is None else draw_balanced(asked, most, seed=seed), config)
    with Store(store) as campaign:
        items = campaign.items().values()
    decoyed = sum(item.decoy for item in items)
    print(f"campaign: {store} ({len(items)} items, {decoyed} of them decoys; {annotators} annotators)")
    print(f"next: sfumato annotate serve {store}")


@app.command()
def serve(
    store: Annotated[Path, _STORE],
    port: Annotated[int, typer.Option(help="The port to listen on, or 0 for any free one.")] = 8000,
    host: Annotated[
        str,
        typer.Option(
            help="The address to listen on. 0.0.0.0 also takes requests from other machines, over plain "
            "HTTP: use it only in a network that you trust."
        ),
    ] = "127.0.0.1",
) -> None:
    """Serve the page until stopped, and print the links. No answer is lost, however it is stopped.

    Example: sfumato annotate serve campaign.db
    """
    from sfumato.annotate import Store
    from sfumato.annotate import app as page
    from sfumato.base.server import address_of, listen
    from sfumato.cli.serve import until_stopped

    application = page.create(store)
    with Store(store) as campaign, listen(host, port) as listener:
        address = address_of(listener)
        if campaign.kind == "proxy":
            print("answered by proxies, not by people: there is only the status page")
        for one in campaign.annotators():
            if one.token is not None:
                print(f"{one.name}: {address}/a/{one.token}")
        with until_stopped():
            print(f"status, for you alone: {address}/status/{campaign.token}", flush=True)
            page.run(application, listener)


@app.command()
def status(store: Annotated[Path, _STORE]) -> None:
    """Show how far each annotator is, how reliable on decoys, and how much is recognised of each model.

    Example: sfumato annotate status campaign.db
    """
    from sfumato.annotate import Store, results

    with Store(store) as campaign:
        proxy = campaign.kind == "proxy"
        for one in results.reliability(campaign):
            name = f"{one.annotator} (proxy)" if proxy else one.annotator
            decoys = f", {one.right} of {one.right + one.wrong} decoys recognised as such"
            judged = "" if one.share is None else decoys
            print(f"{name}: {one.answered} of {one.items} answered{judged}")
        alpha = results.agreement(campaign)
        print(f"agreement: {'none yet' if alpha is None else f'alpha = {alpha:.3f} (Krippendorff)'}")
        by = "proxies, not people" if proxy else "people"
        for share in results.shares(results.results(campaign)):
            print(f"recognised by {by}, {share.model}: {share}")
        _warn(results.doubts(campaign))


def _warn(doubts: list[str]) -> None:
    for doubt in doubts:
        typer.echo(f"warning: {doubt}", err=True)


@app.command()
def export(
    store: Annotated[Path, _STORE],
    out: Annotated[Path, typer.Argument(help="The file to write, .csv or .parquet.")],
    table: Annotated[
        str, typer.Option(help="results: a row per item. semsim: to train SemSim. answers: all of them.")
    ] = "results",
) -> None:
    """Write the results as a table, even while people are still answering.

    Example: sfumato annotate export campaign.db judged.csv
    """
    from sfumato.annotate import Store, results

    with Store(store) as campaign:
        rows = results.export(campaign, table, out)
        print(f"table: {out} ({rows} rows of {table}, annotators: {campaign.kind})")
        _warn(results.doubts(campaign))


@app.command()
def proxies(
    store: Annotated[Path, _STORE],
    models: Annotated[
        list[Path], typer.Argument(help="Artefacts: classifiers for choose, few-shot encoders for same.")
    ],
    threshold: Annotated[
        float, typer.Option(help="For choose: the least confidence in an answer. For same: the least cosine.")
    ] = 0.5,
) -> None:
    """Let recognisers answer a campaign instead of people. A campaign that people have begun is refused.

    Example: sfumato annotate proxies campaign.db mobilefacenet.safetensors
    """
    from sfumato.annotate import Store
    from sfumato.annotate.proxies import by_classifier, by_encoder, fill

    with Store(store) as campaign:
        if campaign.config.task == "choose":
            fill(campaign, [by_classifier(path, threshold=threshold) for path in models])
        else:
            fill(campaign, [by_encoder(path, threshold=threshold) for path in models])
        print(f"answered by {len(models)} proxies: {store}")
