"""`sfumato train feature`."""

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


@app.command("feature")
def feature(
    data: Annotated[str, typer.Option(help="The images: faces, celeba:DIR, folder:DIR or table:FILE.")],
    targets: Annotated[
        list[str], typer.Option("--target", help="A label to keep. Repeat the option for more.")
    ],
    sensitive: Annotated[str, typer.Option(help="The label to remove, such as identity.")],
    out: Out,
    size: Size = None,
    split_by: SplitBy = None,
    strict: Strict = False,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as cut=conv6_1 or beta=0.3.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.private_feature:FeatureConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of weights and order of images.")] = 0,
    device: Device = "cpu",
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Train a private feature: a few numbers that keep some labels of an image, and lose another.

    The splits of the data must have the same classes of the labels that are kept. If you stop it, run the
    same command again to resume. `sfumato export OUT` writes the device side, and `sfumato export OUT
    --side cloud` the network that reads its numbers.
    """
    if printing:
        from sfumato.learn.private_feature import FeatureConfig
        from sfumato.settings import configured

        print_config(configured(FeatureConfig, overrides or []))
        return
    check_new(out, force=force)
    from sfumato.learn import classes
    from sfumato.learn import private_feature as method
    from sfumato.placement import named_device
    from sfumato.protect.feature import Feature
    from sfumato.settings import configured

    config = configured(method.FeatureConfig, overrides or [])
    where = named_device(device)
    protection = Feature(str(out), noise=0.0)
    training, validation, test = splits(
        data, size, target=targets[0], sensitive=sensitive, split_by=split_by, strict=strict
    )
    for target, names in method.trainable(training, config, targets, sensitive).items():
        classes.codes_of(test, target, tuple(names), "private feature")  # fails now, not after training
    with checkpointed(out, "epochs") as (checkpoint, progress):
        model = method.train(
            training,
            config,
            targets=targets,
            sensitive=sensitive,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(out)
    figures = {"validation": model.card["accuracies"] or {}, "test": dict(method.evaluate(model, test))}
    lines = [
        f"{name}: {100 * accuracy:.1f}% ({target}, without noise)"
        for name, accuracies in figures.items()
        for target, accuracy in accuracies.items()
    ]
    if not model.is_network:
        lines.append(f"{protection.spec}: {config.dimension} numbers an image; nothing is proved")
    stated(out, licence)
    tell(out, model.card, lines, as_json=as_json, **figures)
