"""`sfumato train few-shot`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of
from sfumato.cli.sources import SplitBy, Strict
from sfumato.cli.train.shared import (
    Device,
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


@app.command("few-shot")
def few_shot(
    data: Annotated[
        str, typer.Option(help="The images: faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")
    ],
    out: Out,
    spec: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="SPEC",
            help="The protection, such as blur:radius=3, or a range for one model, such as "
            "gaussian:sigma=40,80,160.",
        ),
    ],
    target: Target = "class",
    encoder: Encoder = None,
    size: Size = None,
    split_by: SplitBy = None,
    strict: Strict = False,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as way=20 or denoiser_depth=null.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.few_shot:FewShotConfig")] = False,
    printing: PrintConfig = False,
    way: Way = 5,
    shot: Shot = 5,
    queries: Queries = 15,
    episodes: Episodes = 600,
    seed: Annotated[int, typer.Option(help="Seed of weights, episodes and noise.")] = 0,
    device: Device = "cpu",
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Train FS-PIC: a denoiser and an encoder, jointly, for few-shot classification of protected images.

    If you stop it, run the same command again: it resumes after the last finished epoch.
    """
    overrides = with_encoder(encoder, overrides, denoiser_depth="null")
    if printing:
        from sfumato.learn.few_shot import FewShotConfig
        from sfumato.settings import configured

        print_config(configured(FewShotConfig, overrides))
        return
    check_new(out, force=force)
    from sfumato import protect
    from sfumato.episodes import Shape
    from sfumato.learn import few_shot as method
    from sfumato.networks import embedding_cache
    from sfumato.placement import named_device
    from sfumato.settings import configured

    protections = protect.expand(spec)
    config = configured(method.FewShotConfig, overrides)
    where = named_device(device)
    training, validation, test = splits(
        data, size, target=target, episodic=True, split_by=split_by, strict=strict
    )
    config, shape = fitted(
        config, training, validation, test, target, Shape(way=way, shot=shot, queries=queries)
    )
    with checkpointed(out, "episodes") as (checkpoint, progress):
        model = method.train(
            training,
            protections,
            config,
            target=target,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(out)
    with embedding_cache.kept():
        tested = method.evaluate(
            model,
            test,
            way=shape.way,
            shot=shape.shot,
            queries=shape.queries,
            episodes=episodes,
            target=target,
            seed=seed,
        )
    channels, height, width = test.images.shape[1:]
    proved = {
        each.spec: str(each.guarantee((channels, height, width)) or "nothing is proved")
        for each in protections
    }
    lines = [str(tested), beside_guessing(tested), *(f"{spec}: {words}" for spec, words in proved.items())]
    stated(out, licence, tested)
    tell(out, model.card, lines, as_json=as_json, test=asdict(tested), proved=proved)
