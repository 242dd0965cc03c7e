"""`sfumato train mask`."""

from typing import Annotated

import typer

from sfumato.cli.train.shared import Device, Given, method

_AGAINST = 3.0  # the weight of the adversary, with --sensitive and without --set against=


@method(
    "mask",
    config="sfumato.learn.adversarial_mask:MaskConfig",
    such_as="keep=0.25 or epochs=40",
    seeds="weights and order of images",
    data="faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE",
)
def mask(
    given: Given,
    target: Annotated[str, typer.Option(help="The label that must stay readable.")],
    sensitive: Annotated[
        str | None,
        typer.Option(
            help="The label that says who is shown, such as identity. The mask is trained to hide it."
        ),
    ] = None,
    device: Device = "cpu",
) -> None:
    """Train a mask that picks the pixels a task needs, so that a device shows no others.

    The splits of the data must have the same classes. `sfumato protect --with mask:artefact=OUT` applies the
    mask, to images of the size it was trained on. With --sensitive, an adversary learns who is shown, and the
    mask is trained against them. A study's adversaries measure how well that works. Nothing is proved.
    If you stop it, run the same command again to resume.

    Example: sfumato train mask --data faces --target hair_color --out mask.safetensors
    """
    from sfumato.base.placement import device_named
    from sfumato.learn import adversarial_mask as learner
    from sfumato.learn import classes
    from sfumato.protect.mask import Mask

    config = given.config(learner.MaskConfig, [] if sensitive is None else [f"against={_AGAINST:g}"])
    where, protection = device_named(device), Mask(str(given.out), values=config.values)
    training, validation, test = given.images(target, sensitive=sensitive)
    # Fails now, not after training.
    classes.codes_of(test, target, learner.trainable(training, config, target), "mask")
    with given.checkpoint("steps") as (checkpoint, progress):
        model = learner.train(
            training,
            config,
            target=target,
            sensitive=sensitive,
            validation=validation,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(given.out)
    shown = f"{100 * config.keep:g}% of the pixels shown"
    tested, lines = learner.evaluate(model, test), []
    if model.card["validation_accuracy"] is not None:
        lines.append(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target}, {shown})")
    lines.append(f"test: {100 * tested:.1f}% ({target}, {shown}, {len(test):,} images)")
    lines.append(f"{protection.spec}: nothing is proved")
    given.tell(model.card, lines, test=tested, spec=protection.spec)
