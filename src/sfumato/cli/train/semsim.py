"""`sfumato train semsim`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.train.shared import Force, Out, app, checkpointed, tell
from sfumato.files import check_new

if TYPE_CHECKING:
    pass


@app.command("semsim")
def semsim(
    judgements: Annotated[
        list[Path],
        typer.Option(help="A CSV as `sfumato annotate` exports it; give the option again for another."),
    ],
    out: Out,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, such as network=resnet18."),
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.semsim:SemSimConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of weights, order of images, and triplets.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train SemSim, the distance to an original that follows what people recognise.

    If you stop it, run the same command again to resume. `sfumato assess A B --semsim OUT` measures by it.
    """
    check_new(out, force=force or printing)
    from sfumato.learn import semsim as method
    from sfumato.settings import configured

    config = configured(method.SemSimConfig, overrides or [])
    if printing:
        print_config(config)
        return
    sets = [each for path in judgements for each in method.read(path, size=config.size).values()]
    both = method.combine(sets, size=config.size)
    with checkpointed(out, "steps") as (checkpoint, progress):
        model = method.train(both, config, seed=seed, checkpoint=checkpoint, progress=progress)
        model.save(out)
    data = model.card["data"]
    words = (
        f"{data['name']}: {data['reconstructions']:,} reconstructions of {data['originals']:,} originals, "
        f"{data['recognised']:,} recognised"
    )
    tell(out, model.card, [words], as_json=as_json)
