"""`sfumato train feature`."""

from typing import Annotated

import typer

from sfumato.cli.train.shared import Device, Given, method


@method(
    "feature",
    config="sfumato.learn.private_feature:FeatureConfig",
    such_as="cut=conv6_1 or beta=0.3",
    seeds="weights and order of images",
    data="faces, celeba:DIR, folder:DIR or table:FILE",
)
def feature(
    given: Given,
    targets: Annotated[
        list[str], typer.Option("--target", help="A label to keep. Repeat the option for more.")
    ],
    sensitive: Annotated[str, typer.Option(help="The label to remove, such as identity.")],
    device: Device = "cpu",
) -> None:
    """Train a private feature: a few numbers that keep some labels of an image, and lose another.

    The splits of the data must have the same classes of the labels that are kept. If you stop it, run the
    same command again to resume. `sfumato export OUT` writes the device side, and `sfumato export OUT
    --side cloud` the network that reads its numbers.

    Example: sfumato train feature --data faces --target gender --sensitive identity --out f.safetensors
    """
    from sfumato.base.placement import device_named
    from sfumato.learn import classes
    from sfumato.learn import private_feature as learner
    from sfumato.protect.feature import Feature

    config = given.config(learner.FeatureConfig)
    where, protection = device_named(device), Feature(str(given.out), noise=0.0)
    training, validation, test = given.images(targets[0], sensitive=sensitive)
    for target, names in learner.trainable(training, config, targets, sensitive).items():
        classes.codes_of(test, target, tuple(names), "private feature")  # fails now, not after training
    with given.checkpoint("epochs") as (checkpoint, progress):
        model = learner.train(
            training,
            config,
            targets=targets,
            sensitive=sensitive,
            validation=validation,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(given.out)
    figures = {"validation": model.card["accuracies"] or {}, "test": dict(learner.evaluate(model, test))}
    lines = [
        f"{name}: {100 * accuracy:.1f}% ({target}, without noise)"
        for name, accuracies in figures.items()
        for target, accuracy in accuracies.items()
    ]
    if not model.is_network:
        lines.append(f"{protection.spec}: {config.dimension} numbers an image; nothing is proved")
    given.tell(model.card, lines, **figures)
