"""`sfumato assess log-rank`: how far down the list of guesses the right person stands."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.assess.family import app
from sfumato.cli.options import Split
from sfumato.cli.show import AsJson, bars, print_json, print_table, stderr
from sfumato.cli.sources import SplitBy, Strict, of_split

if TYPE_CHECKING:
    from sfumato.study.lab.ranks import Ranked


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
    known: Annotated[int, typer.Option(help="How many photographs of each person the adversary has.")] = 10,
    asked: Annotated[
        int, typer.Option(help="How many other photographs of each person the adversary must name.")
    ] = 10,
    least: Annotated[int, typer.Option(help="People with fewer known photographs are left out.")] = 4,
    releases: Annotated[
        int, typer.Option(help="Also state the bound after this many releases of one person.")
    ] = 100,
    split: Split = "test",
    split_by: SplitBy = None,
    seed: Annotated[int, typer.Option(help="Seed of the choice of known photographs, and of noise.")] = 0,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Measure how private features are, by the rank of the right person among an adversary's guesses (DPFE).

    Each line shows the strongest of three adversaries: a kernel density, a linear discriminant and a small
    network. If DATA has the attributes that a private feature keeps, their accuracies stand beside it: with
    several noises, the curve of accuracy and privacy of one feature. For codes and noisy numbers it adds a
    bound that no adversary falls below. All are averages: nothing follows from them for one person. For codes
    of at most 12 bits it adds the person named most often.

    Example: sfumato assess log-rank folder:photos --with feature:artefact=f.safetensors
    """
    from sfumato import artefacts
    from sfumato.errors import require
    from sfumato.protect import expand
    from sfumato.study.lab.ranks import RankConfig, attribute_accuracies, rank_privacy

    require("trained adversaries", "study", "sklearn")
    config = RankConfig(known=known, asked=asked, least=least, releases=releases, seed=seed)
    protections = [each for spec in specs for each in expand(spec, takes=("numbers", "bits"))]
    channels, height, width = artefacts.read_card(protections[0].artefact)["shape"]
    images = of_split(
        data, (channels, height, width), label=label, split=split, split_by=split_by, strict=strict
    )
    people = images.label(label).codes
    found, kept = [], []
    with bars(stderr()) as progress:
        for protection in progress.track(protections, description="protections"):
            found.append(rank_privacy(protection, images.images, people, config))
            kept.append(attribute_accuracies(protection, images, seed))
    if as_json:
        print_json({"data": data, "protections": list(map(_in_numbers, found, kept))})
    else:
        _print(found, kept, releases)


def _in_numbers(ranked: "Ranked", accuracies: dict[str, float]) -> dict[str, Any]:
    """Turn one protection into JSON."""
    return {
        "spec": ranked.spec,
        "accuracies": accuracies,
        "strongest": ranked.strongest,
        "adversaries": {name: asdict(each) for name, each in ranked.adversaries.items()},
        "nearest_neighbour_chance": ranked.chance,
        "proved": ranked.proved,
        "proved_of_many": ranked.proved_of_many,
        "named": ranked.named and dict(zip(("on_average", "worst_person"), ranked.named, strict=True)),
        "beyond_a_tenth_if_normal": ranked.if_normal,
    }


def _print(found: "list[Ranked]", kept: list[dict[str, float]], releases: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    from sfumato.dp.naming import ASSUMED
    from sfumato.study.lab.ranks import DENSITY

    table = Table()
    for column in (
        "protection",
        *(f"{name}, %" for name in kept[0]),
        "log-rank privacy",
        "by",
        "proved",
        "1-NN error, %",
        "mean rank (deviation)",
        "beyond a tenth, %",
        "named at best, %",
    ):
        table.add_column(column)
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
            f"{100 * each.named[0]:.1f}; worst person {100 * each.named[1]:.1f}" if each.named else "–",
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
    """Round a lower bound down, in words."""
    return f"at least {math.floor(1000 * proved) / 1000:.3f}" if proved >= 0.001 else "nothing"
