"""`sfumato train few-shot`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.train.shared import (
    Device,
    Encoder,
    Episodes,
    Given,
    Queries,
    Shot,
    Target,
    Way,
    beside_guessing,
    fit_to_data,
    method,
    of_encoder,
)


@method(
    "few-shot",
    config="sfumato.learn.few_shot:FewShotConfig",
    such_as="way=20 or denoiser_depth=null",
    seeds="weights, episodes and noise",
    data="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE",
)
def few_shot(
    given: Given,
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
    way: Way = 5,
    shot: Shot = 5,
    queries: Queries = 15,
    episodes: Episodes = 600,
    device: Device = "cpu",
) -> None:
    """Train FS-PIC: a denoiser and an encoder, jointly, for few-shot classification of protected images.

    If you stop it, run the same command again: it resumes after the last finished epoch.

    Example: sfumato train few-shot --data folder:photos --with blur:radius=4 --out m.safetensors
    """
    from sfumato import protect
    from sfumato.base.placement import device_named
    from sfumato.episodes import Shape
    from sfumato.learn import few_shot as learner
    from sfumato.networks.encoders import embedding_cache

    config = given.config(learner.FewShotConfig, of_encoder(encoder, denoiser_depth="null"))
    where, protections = device_named(device), protect.expand(spec)
    training, validation, test = given.images(target, episodic=True)
    config, shape = fit_to_data(
        config, training, validation, test, target, Shape(way=way, shot=shot, queries=queries)
    )
    with given.checkpoint("episodes") as (checkpoint, progress):
        model = learner.train(
            training,
            protections,
            config,
            target=target,
            validation=validation,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
            device=where,
        )
        model.save(given.out)
    with embedding_cache.store():
        tested = learner.evaluate(
            model,
            test,
            way=shape.way,
            shot=shape.shot,
            queries=shape.queries,
            episodes=episodes,
            target=target,
            seed=given.seed,
        )
    channels, height, width = test.images.shape[1:]
    proved = {
        each.spec: str(each.guarantee((channels, height, width)) or "nothing is proved")
        for each in protections
    }
    lines = [str(tested), beside_guessing(tested), *(f"{spec}: {words}" for spec, words in proved.items())]
    given.tell(model.card, lines, tested=tested, test=asdict(tested), proved=proved)
