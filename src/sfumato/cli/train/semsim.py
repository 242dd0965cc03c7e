"""`sfumato train semsim` and `sfumato train semsim-perceptual`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Force, setting
from sfumato.cli.show import AsJson, PrintConfig, bars, print_config, settings_of, stderr
from sfumato.cli.train.shared import Out, app, checkpointed, tell
from sfumato.files import check_new

if TYPE_CHECKING:
    from sfumato.learn.semsim import Judgements

Judged = Annotated[
    list[Path],
    typer.Option(
        "--judgements", help="A CSV that `sfumato annotate export` wrote. Repeat the option for more."
    ),
]


@app.command("semsim")
def semsim(
    judgements: Judged,
    out: Out,
    overrides: Annotated[list[str] | None, setting("A training setting, such as network=resnet18.")] = None,
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
    both = _read(judgements, config.size)
    with checkpointed(out, "steps") as (checkpoint, progress):
        model = method.train(both, config, seed=seed, checkpoint=checkpoint, progress=progress)
        model.save(out)
    tell(out, model.card, [_words(model.card)], as_json=as_json)


@app.command("semsim-perceptual")
def semsim_perceptual(
    judgements: Judged,
    out: Out,
    squeezenet: Annotated[
        Path,
        typer.Option(help="Weights of SqueezeNet 1.0, whose stages are weighed. The artefact holds them."),
    ],
    overrides: Annotated[list[str] | None, setting("A training setting, such as terms=both.")] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.semsim.perceptual:PerceptualConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of held-out originals, order, and triplets.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Learn which stages of SqueezeNet see what people see, and how likely people recognise an image.

    It needs few judgements, and seconds. `sfumato assess A B --semsim OUT` gives the probability of each
    pair.
    """
    check_new(out, force=force or printing)
    from sfumato.learn.semsim import perceptual as method
    from sfumato.settings import configured

    config = configured(method.PerceptualConfig, overrides or [])
    if printing:
        print_config(config)
        return
    both = _read(judgements, config.size)
    with bars(stderr()) as progress:
        task = progress.add_task("epochs")
        model = method.train(
            both,
            config,
            backbone=squeezenet,
            seed=seed,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    model.save(out)
    foretold = model.card["held_out"]
    held_out = (
        f"on {foretold['originals']:,} originals that no weight was learned from: Brier score "
        f"{foretold['brier']:.3f} (0 is best; {foretold['brier_of_share']:.3f} says the same of every image)"
    )
    tell(out, model.card, [_words(model.card), held_out], as_json=as_json)


def _read(judgements: list[Path], size: int) -> "Judgements":
    from sfumato.learn import semsim as method

    sets = [each for path in judgements for each in method.read(path, size=size).values()]
    return method.combine(sets, size=size)


def _words(card: dict[str, Any]) -> str:
    """What it was trained on."""
    data = card["data"]
    return (
        f"{data['name']}: {data['reconstructions']:,} reconstructions of {data['originals']:,} originals, "
        f"{data['recognised']:,} recognised"
    )
