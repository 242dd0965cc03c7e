"""`sfumato train classifier`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.train.shared import Encoder, Given, Target, beside_guessing, method, of_encoder


@method(
    "classifier",
    config="sfumato.learn.classifier:ClassifierConfig",
    such_as="epochs=40 or flips=true",
    seeds="weights, order of images, and noise",
    data="faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE",
)
def classifier(
    given: Given,
    target: Target,
    spec: Annotated[
        str,
        typer.Option("--with", metavar="SPEC", help="The protection, such as mask:artefact=m.safetensors."),
    ] = "none",
    encoder: Encoder = None,
) -> None:
    """Train an ordinary classifier of protected images, and test it on others of the same classes.

    The splits of the data must have the same classes. If you stop it, run the same command again to resume.

    Example: sfumato train classifier --data table:photos.csv --target hat --out c.safetensors
    """
    from sfumato import protect
    from sfumato.learn import classes
    from sfumato.learn import classifier as learner
    from sfumato.networks.encoders import embedding_cache

    config = given.config(learner.ClassifierConfig, of_encoder(encoder, name="network"))
    protection = protect.parse(spec)
    training, validation, test = given.images(target)
    # Fails now, not after training.
    classes.codes_of(test, target, learner.trainable(training, target, config.network), "classifier")
    with given.checkpoint("steps") as (checkpoint, progress):
        model = learner.train(
            training,
            protection,
            config,
            target=target,
            validation=validation,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
        )
        model.save(given.out)
    lines = []
    if model.card["validation_accuracy"] is not None:
        lines.append(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target})")
    with embedding_cache.store():
        tested = learner.evaluate(model, test, target=target, protection=protection, seed=given.seed)
    channels, height, width = test.images.shape[1:]
    proved = str(protection.guarantee((channels, height, width)) or "nothing is proved")
    lines += [f"test: {tested}", beside_guessing(tested), f"{protection.spec}: {proved}"]
    given.tell(model.card, lines, tested=tested, test=asdict(tested), proved=proved)
