"""`sfumato train classifier`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.sources import SplitBy, Strict
from sfumato.cli.train.shared import (
    Encoder,
    Licence,
    Out,
    Target,
    app,
    beside_guessing,
    checkpointed,
    splits,
    stated,
    tell,
    with_encoder,
)
from sfumato.files import check_new


@app.command("classifier")
def classifier(
    data: Annotated[
        str, typer.Option(help="The images: faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE.")
    ],
    target: Target,
    out: Out,
    spec: Annotated[
        str,
        typer.Option("--with", metavar="SPEC", help="The protection, such as mask:artefact=m.safetensors."),
    ] = "none",
    encoder: Encoder = None,
    size: Size = None,
    split_by: SplitBy = None,
    strict: Strict = False,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as epochs=40 or flips=true.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.classifier:ClassifierConfig")] = False,
    printing: PrintConfig = False,
    seed: Annotated[int, typer.Option(help="Seed of weights, order of images, and noise.")] = 0,
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Train an ordinary classifier of protected images, and test it on others of the same classes.

    The splits of the data must have the same classes. If you stop it, run the same command again to resume.
    """
    check_new(out, force=force or printing)
    from sfumato import protect
    from sfumato.learn import classes
    from sfumato.learn import classifier as method
    from sfumato.networks import embedding_cache
    from sfumato.settings import configured

    config = configured(method.ClassifierConfig, with_encoder(encoder, overrides, name="network"))
    if printing:
        print_config(config)
        return
    protection = protect.parse(spec)
    training, validation, test = splits(data, size, target=target, split_by=split_by, strict=strict)
    # Fails now, not after training.
    classes.codes_of(test, target, method.trainable(training, target, config.network), "classifier")
    with checkpointed(out, "steps") as (checkpoint, progress):
        model = method.train(
            training,
            protection,
            config,
            target=target,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
        )
        model.save(out)
    lines = []
    if model.card["validation_accuracy"] is not None:
        lines.append(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target})")
    with embedding_cache.kept():
        accuracy = method.evaluate(model, test, target=target, protection=protection, seed=seed)
    channels, height, width = test.images.shape[1:]
    proved = str(protection.guarantee((channels, height, width)) or "nothing is proved")
    lines += [f"test: {accuracy}", beside_guessing(accuracy), f"{protection.spec}: {proved}"]
    stated(out, licence, accuracy)
    tell(out, model.card, lines, as_json=as_json, test=asdict(accuracy), proved=proved)
