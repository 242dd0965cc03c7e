"""`sfumato audit update`: find out how much the update of a federated client reveals."""

from typing import Annotated

import typer

from sfumato.cli import updates
from sfumato.cli.audit.family import Html, app, say
from sfumato.cli.show import AsJson, bars, stderr


@app.command("update")
def update(
    model: updates.Model,
    update: updates.Sent,
    shape: updates.Shape,
    weights: updates.Weights = None,
    classes: updates.Classes = None,
    before: updates.Before = None,
    images: updates.Images = None,
    steps: updates.Steps = None,
    rate: updates.Rate = None,
    batch: updates.Batch = None,
    noise_multiplier: updates.NoiseMultiplier = None,
    clipping_norm: updates.ClippingNorm = None,
    labels: updates.Labels = None,
    truth: updates.Originals = None,
    search_steps: Annotated[
        int, typer.Option(min=0, help="Steps of the search for images, or 0 for no search.")
    ] = 1000,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    html: Html = None,
    as_json: AsJson = False,
) -> None:
    """Say which labels and images a server reads from an update, what noise proves, and how to change it.

    The exit code is 1 if something is read.

    Example: sfumato audit update --model net.py:make --update u.pt --shape 3x32x32
    """
    from sfumato.attack.updates import load
    from sfumato.audits.update import UpdateAuditConfig, audit_update
    from sfumato.errors import require

    require("an audit of updates", "study", "scipy")
    sizes = updates.image_shape(shape)
    audited = updates.open_named(model, sizes, weights, classes)
    sent = load(
        update,
        training=updates.training_of(images, steps, rate, batch),
        noise=updates.noise_of(noise_multiplier, clipping_norm),
        before=before,
    )
    known = updates.truth_of(truth, labels, sizes)
    with bars(stderr()) as progress:
        task = progress.add_task("searching")

        def on_step(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        report = audit_update(
            audited,
            sent,
            sizes,
            subject=f"The update {update.name}",
            truth=known,
            config=UpdateAuditConfig(search_steps=search_steps, seed=seed),
            progress=on_step,
        )
    say(report, html=html, as_json=as_json)
