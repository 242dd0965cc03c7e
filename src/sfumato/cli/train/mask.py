"""`sfumato train mask`."""

from typing import Annotated

import typer

from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.sources import SplitBy, Strict
from sfumato.cli.train.shared import (
    Device,
    Licence,
    Out,
    app,
    checkpointed,
    splits,
    stated,
    tell,
)
from sfumato.files import check_new

_AGAINST = 3.0  # the weight of the adversary, where --sensitive is given and no --set against=


@app.command("mask")
def mask(
    data: Annotated[
        str, typer.Option(help="The images: faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE.")
    ],
    target: Annotated[str, typer.Option(help="The label that must stay readable.")],
    out: Out,
    sensitive: Annotated[
        str | None,
        typer.Option(
            help="The label that says who is shown, such as identity. The mask is trained to hide it."
        ),
    ] = None,
    size: Size = None,
    split_by: SplitBy = None,
    strict: Strict = False,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as keep=0.25 or epochs=40.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.adversarial_mask:MaskConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of weights and order of images.")] = 0,
    device: Device = "cpu",
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Train a mask: which pixels a task needs, so that a device shows no others.

    The splits of the data must have the same classes. `sfumato protect --with mask:artefact=OUT` applies the
    mask, to images of the size it was trained on. With --sensitive, an adversary learns who is shown, and the
    mask is trained against them. A study's adversaries measure what that hides. Nothing is proved. If you
    stop it, run the same command again to resume.
    """
    if printing:
        from sfumato.learn.adversarial_mask import MaskConfig
        from sfumato.settings import configured

        print_config(configured(MaskConfig, [*_against(sensitive), *(overrides or [])]))
        return
    check_new(out, force=force)
    from sfumato.learn import adversarial_mask as method
    from sfumato.learn import classes
    from sfumato.placement import named_device
    from sfumato.protect.mask import Mask
    from sfumato.settings import configured

    config = configured(method.MaskConfig, [*_against(sensitive), *(overrides or [])])
    where = named_device(device)
    protection = Mask(str(out), values=config.values)
    training, validation, test = splits(
        data, size, target=target, sensitive=sensitive, split_by=split_by, strict=strict
    )
    # Fails now, not after training.
    classes.codes_of(test, target, method.trainable(training, config, target), "mask")
    with checkpointed(out, "steps") as (checkpoint, progress):
        model = method.train(
            training,
            config,
            target=target,
            sensitive=sensitive,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(out)
    shown = f"{100 * config.keep:g}% of the pixels shown"
    tested, lines = method.evaluate(model, test), []
    if model.card["validation_accuracy"] is not None:
        lines.append(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target}, {shown})")
    lines.append(f"test: {100 * tested:.1f}% ({target}, {shown}, {len(test):,} images)")
    lines.append(f"{protection.spec}: nothing is proved")
    stated(out, licence)
    tell(out, model.card, lines, as_json=as_json, test=tested, spec=protection.spec)


def _against(sensitive: str | None) -> list[str]:
    return [] if sensitive is None else [f"against={_AGAINST:g}"]
