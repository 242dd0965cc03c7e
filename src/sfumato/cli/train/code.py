"""`sfumato train code`."""

from dataclasses import asdict
from typing import Annotated

import typer

from sfumato.cli.exports import export_codes
from sfumato.cli.show import note
from sfumato.cli.train.shared import (
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

_CANDIDATES = (1_000, 1_000_000)


@method(
    "code",
    config="sfumato.learn.code:CodeConfig",
    such_as="epochs=100 or same_scenes=1",
    seeds="weights, episodes and noise",
    data="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE",
)
def code(
    given: Given,
    target: Target,
    bits: Annotated[
        int | None, typer.Option(help="Bits of the code, 1 to 64. 16 are enough for most tasks.")
    ] = None,
    numbers: Annotated[int | None, typer.Option(help="Numbers of the code, instead of bits.")] = None,
    sensitive: Annotated[
        list[str] | None,
        typer.Option(help="A label that the code must not reveal. Repeat the option for more."),
    ] = None,
    encoder: Encoder = None,
    known: Annotated[
        bool,
        typer.Option(
            "--known",
            help="The code is for the classes of these images: train and test on all of them (default: hold "
            "out whole classes, since a code is for new ones, if there are six or more).",
        ),
    ] = False,
    way: Way = 5,
    shot: Shot = 5,
    queries: Queries = 15,
    episodes: Episodes = 600,
) -> None:
    """Train the encoder of a code: a few bits that keep a task, and prove how rarely they name the person.

    It learns from episodes of the training classes. The task has other classes of the same kind, or the same
    ones (--known).
    --set same_scenes=1 makes the codes of drawn people alike if they only differ in the person. Then many
    releases of one person name them less often.
    `sfumato enrol --with code:artefact=OUT` sends codes. If you stop the training, run the same command
    again to resume.

    Example: sfumato train code --data faces --target headwear --bits 16 --out code.safetensors
    """
    from sfumato.data.worlds import same_scenes
    from sfumato.episodes import Shape
    from sfumato.learn import code as learner
    from sfumato.networks.encoders import embedding_cache
    from sfumato.protect.code import Code
    from sfumato.protect.naming import naming_words

    size = f"bits={bits}" if numbers is None else f"numbers={numbers}"
    against = ["against=1.0"] if sensitive else []
    config = given.config(learner.CodeConfig, [size, *against, *of_encoder(encoder)])
    train, validation, test = given.images(target, episodic=not known)
    shape = Shape(way=way, shot=shot, queries=queries)
    config = learner.fill_queries(config, len(train.label(target).codes.unique()))
    config, shape = fit_to_data(config, train, validation, test, target, shape)
    scenes = same_scenes.draw_sets(train) if config.same_scenes else None
    with given.checkpoint("episodes") as (checkpoint, progress):
        model = learner.train(
            train,
            config,
            target=target,
            sensitive=sensitive or (),
            validation=validation,
            same_scenes=scenes,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
        )
        model.save(given.out)
    with embedding_cache.store():
        tested = learner.evaluate(model, test, shape, target=target, episodes=episodes, seed=given.seed)
    protection = Code(str(given.out), norm=config.norm, noise=config.noise, flip=config.flip)
    channels, height, width = test.images.shape[1:]
    proved = naming_words(protection, (channels, height, width), among=_CANDIDATES)
    lines = [f"test: {tested}", beside_guessing(tested), f"proved: {proved}", f"spec: {protection.spec}"]
    given.tell(model.card, lines, tested=tested, test=asdict(tested), proved=proved, spec=protection.spec)
    for reason in export_codes([given.out]):  # the last write: the export has the digest of the artefact
        note(reason)
