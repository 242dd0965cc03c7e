"""`sfumato attack invert`: rebuild the images behind an update, by a search."""

from typing import Annotated

import typer

from sfumato.cli import updates
from sfumato.cli.attack.family import Force, Out, Seed, app, check_out, show
from sfumato.cli.options import setting
from sfumato.cli.show import AsJson, bars, settings_of, stderr


@app.command("invert")
def invert(
    model: updates.Model,
    update: updates.Sent,
    shape: updates.Shape,
    out: Out,
    attack: Annotated[
        str,
        typer.Option(
            help="The method, with the settings of its paper: dlg, idlg, inverting-gradients or grad-attack."
        ),
    ] = "inverting-gradients",
    overrides: Annotated[list[str] | None, setting("A setting of the search, such as steps=1000.")] = None,
    listing: Annotated[bool, settings_of("sfumato.attack.gradient_inversion:InversionConfig")] = False,
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
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild the images behind a gradient, or behind several local steps, by a published search.

    A search may end far from the images: without --truth, only the picture shows whether it found them.

    Example: sfumato attack invert --model net.py:make --update u.pt --shape 3x32x32 --out back
    """
    from dataclasses import asdict

    from sfumato.attack import gradient_inversion as method
    from sfumato.attack.updates import load
    from sfumato.audits.update import UpdateAuditConfig, make_case
    from sfumato.audits.update.search import rebuild
    from sfumato.base.settings import check_settings, parse_overrides
    from sfumato.errors import ConfigError, did_you_mean

    published = {
        "dlg": method.DLG,
        "idlg": method.IDLG,
        "inverting-gradients": method.INVERTING_GRADIENTS,
        "grad-attack": method.GRAD_ATTACK,
    }
    if attack not in published:
        raise ConfigError(f"--attack {attack}: {did_you_mean(attack, published)}")
    config = check_settings(
        method.InversionConfig,
        {**asdict(published[attack]), **parse_overrides(overrides or [])},
        "the search",
    )
    check_out(out, force=force)
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

        case = make_case(audited, sent, sizes, known, UpdateAuditConfig(seed=seed), on_step)
        found = rebuild(case, config)
    words = (
        f"{len(found.images)} images of classes {', '.join(map(str, found.labels.tolist()))}, whose "
        f"update lies {found.cost:.3g} from the sent one (0 is the same update)."
    )
    show(
        found.images,
        out,
        words=words,
        truth=known.images,
        as_json=as_json,
        labels=found.labels.tolist(),
        cost=found.cost,
    )
