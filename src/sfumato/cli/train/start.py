"""`sfumato train start`."""

from typing import Annotated

import typer

from sfumato.cli.options import Force, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.train.shared import Out, app, checkpointed, tell
from sfumato.files import check_new


@app.command("start")
def start(
    out: Out,
    overrides: Annotated[list[str] | None, setting("A training setting, such as epochs=10.")] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.drawn_start:StartConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of weights and order of images.")] = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train the weights that other trainings begin with, on drawn worlds: half an hour on two cores.

    The library ships such weights and begins with them. To begin with yours, write `--set start=OUT`. If
    you stop it, run the same command again to resume.
    """
    check_new(out, force=force or printing)
    from sfumato.learn import drawn_start as method
    from sfumato.settings import configured

    config = configured(method.StartConfig, overrides or [])
    if printing:
        print_config(config)
        return
    with checkpointed(out, "steps") as (checkpoint, progress):
        model = method.train(config, seed=seed, checkpoint=checkpoint, progress=progress)
        model.save(out)
    right = 100 * model.card["validation_accuracy"]
    words = (
        f"new drawn things told apart, 5-way 5-shot, before any is trained on: {right:.1f}% (guessing: 20%)"
    )
    tell(out, model.card, [words], as_json=as_json)
