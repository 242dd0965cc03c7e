"""`sfumato train code`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.exports import export_codes
from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.sources import SplitBy, Strict
from sfumato.cli.train.shared import (
    Encoder,
    Episodes,
    Licence,
    Out,
    Queries,
    Shot,
    Target,
    Way,
    app,
    beside_guessing,
    checkpointed,
    fitted,
    splits,
    stated,
    tell,
    with_encoder,
)
from sfumato.files import check_new

_CANDIDATES = (1_000, 1_000_000)


@app.command("code")
def code(
    data: Annotated[
        str, typer.Option(help="The images: faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")
    ],
    target: Target,
    out: Out,
    bits: Annotated[
        int | None, typer.Option(help="Bits of the code, 1 to 64. 16 are enough for most tasks.")
    ] = None,
    numbers: Annotated[int | None, typer.Option(help="Numbers of the code, instead of bits.")] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(help="A label that the code must not reveal. Repeat the option for more."),
    ] = None,
    encoder: Encoder = None,
    size: Size = None,
    split_by: SplitBy = None,
    known: Annotated[
        bool,
        typer.Option(
            "--known",
            help="The code is for the classes of these images: train and test on all of them (default: hold "
            "out whole classes, since a code is for new ones, if there are six or more).",
        ),
    ] = False,
    strict: Strict = False,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as epochs=100 or flip=0.1.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.code:CodeConfig")] = False,
    printing: PrintConfig = False,
    way: Way = 5,
    shot: Shot = 5,
    queries: Queries = 15,
    episodes: Episodes = 600,
    seed: Annotated[int, typer.Option(help="Seed of weights, episodes and noise.")] = 0,
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Train the encoder of a code: a few bits that keep a task, and prove how rarely they name the person.

    It learns from episodes of the training classes. The task has other classes of the same kind, or the same
    ones (--known).
    `sfumato enrol --with code:artefact=OUT` sends codes. If you stop the training, run the same command
    again to resume.
    """
    check_new(out, force=force or printing)
    from sfumato.episodes import Shape
    from sfumato.learn import code as method
    from sfumato.networks import embedding_cache
    from sfumato.protect.code import Code
    from sfumato.protect.naming import naming_words
    from sfumato.settings import configured

    size_of_code = f"bits={bits}" if numbers is None else f"numbers={numbers}"
    against = ["against=1.0"] if sensitive else []
    config = configured(method.CodeConfig, [size_of_code, *against, *with_encoder(encoder, overrides)])
    if printing:
        print_config(config)
        return
    train, validation, test = splits(
        data, size, target=target, episodic=not known, split_by=split_by, strict=strict
    )
    shape = Shape(way=way, shot=shot, queries=queries)
    config = method.filled(config, len(train.label(target).codes.unique()))
    config, shape = fitted(config, train, validation, test, target, shape)
    with checkpointed(out, "episodes") as (checkpoint, progress):
        model = method.train(
            train,
            config,
            target=target,
            sensitive=sensitive or (),
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
        )
        model.save(out)
    with embedding_cache.kept():
        accuracy = method.evaluate(model, test, shape, target=target, episodes=episodes, seed=seed)
    protection = Code(str(out), norm=config.norm, noise=config.noise, flip=config.flip)
    channels, height, width = test.images.shape[1:]
    proved = naming_words(protection, (channels, height, width), among=_CANDIDATES)
    lines = [f"test: {accuracy}", beside_guessing(accuracy), f"proved: {proved}", f"spec: {protection.spec}"]
    stated(out, licence, accuracy)
    export_codes([out])
    tell(out, model.card, lines, as_json=as_json, test=asdict(accuracy), proved=proved, spec=protection.spec)
