"""`sfumato train meta`."""

from typing import TYPE_CHECKING, Annotated

import typer

from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import AsJson, PrintConfig, print_config, settings_of, stderr
from sfumato.cli.sources import SplitBy, Strict
from sfumato.cli.train.shared import (
    Episodes,
    Licence,
    Out,
    Queries,
    Target,
    app,
    beside_guessing,
    check_episodes,
    checkpointed,
    fitted,
    splits,
    stated,
    tell,
)
from sfumato.files import check_new

if TYPE_CHECKING:
    pass


@app.command("meta")
def meta(
    data: Annotated[
        str, typer.Option(help="The images: faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")
    ],
    out: Out,
    spec: Annotated[
        str, typer.Option("--with", metavar="SPEC", help="The protection, such as blur:radius=3.")
    ] = "none",
    target: Target = "class",
    size: Size = None,
    split_by: SplitBy = None,
    strict: Strict = False,
    algorithm: Annotated[str, typer.Option(help="The method: maml, fomaml, reptile or meta-sgd.")] = "maml",
    clipping: Annotated[
        str | None,
        typer.Option(help="How contributions are bounded: fixed, automatic, quantile, adaclip or meta-clip."),
    ] = None,
    clipping_settings: Annotated[
        list[str] | None, setting("A setting of the clipping, such as start=1.", option="--clip")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The privacy budget for each task: an epsilon.")
    ] = None,
    delta: Annotated[
        float, typer.Option(help="The delta of the budget: less than 1 / (tasks of the pool).")
    ] = 1e-5,
    source_settings: Annotated[
        list[str] | None, setting("A setting of the data, such as rotations=false.", option="--source")
    ] = None,
    overrides: Annotated[
        list[str] | None, setting("A training setting, such as shot=5 or steps=1000.")
    ] = None,
    listing: Annotated[bool, settings_of("sfumato.learn.meta:MetaConfig")] = False,
    printing: PrintConfig = False,
    queries: Queries = 15,
    episodes: Episodes = 600,
    seed: Annotated[int, typer.Option(help="Seed of weights, tasks and test.")] = 0,
    force: Force = False,
    licence: Licence = None,
    as_json: AsJson = False,
) -> None:
    """Meta-learn a start for learning new tasks, by MAML, Reptile or Meta-SGD. With --epsilon, privately.

    With --epsilon, the promise covers each task of a pool whose tasks share no class, and --clipping says
    how contributions are bounded. Without it, nothing is promised. If you stop it, run the same command
    again to resume. A private artefact that exists is never trained again, since that would spend the
    budget twice.
    """
    if epsilon is None:  # a private one is never replaced
        check_new(out, force=force or printing)
    from dataclasses import asdict, replace

    from sfumato import protect
    from sfumato.episodes import Shape
    from sfumato.errors import ConfigError
    from sfumato.learn import meta as method
    from sfumato.settings import configured, parsed

    protection = protect.parse(spec)
    settings = [f"algorithm={algorithm}", *(overrides or [])]
    if epsilon is not None:
        chosen = [f"private.settings.{each}" for each in clipping_settings or []]
        settings += [f"private.epsilon={epsilon}", f"private.delta={delta}", *chosen]
        settings.append(f"private.clipping={clipping or 'quantile'}")
    elif clipping is not None:
        raise ConfigError(
            f"--clipping {clipping} without --epsilon: only a private run clips; give its budget"
        )
    config = configured(method.MetaConfig, settings)
    if printing:
        print_config(config)
        return
    if epsilon is not None and out.exists():
        raise ConfigError(
            f"{out} already exists, and to train it again would spend its budget once more: name another "
            "file, or delete it to spend anew"
        )
    training, _, test = splits(
        data,
        size,
        target=target,
        episodic=True,
        split_by=split_by,
        strict=strict,
        settings=parsed(source_settings or []),
    )
    shape = Shape(way=config.way, shot=config.shot, queries=queries)
    if config.private is None:
        config, shape = fitted(config, training, None, test, target, shape)
        # What is meta-learned is tested as it was trained.
        config = replace(config, way=min(config.way, shape.way), shot=min(config.shot, shape.shot))
    else:  # its settings are public, and so are not chosen by the data
        own = Shape(way=config.way, shot=config.shot, queries=config.queries)
        check_episodes(training, "training", target, own, "--set way=, shot= and queries=")
        check_episodes(test, "test", target, shape, "--queries, and --set way= and shot=")
    console = stderr()
    with checkpointed(out, "meta-steps", console) as (checkpoint, progress):
        model = method.train(
            training,
            protection,
            config,
            target=target,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            note=console.print,
        )
        model.save(out)
    tested = method.evaluate(model, test, queries=shape.queries, episodes=episodes, target=target, seed=seed)
    promise = method.promise(model.card)
    lines = [
        str(tested),
        beside_guessing(tested),
        promise,
        f"computed: {model.card['computed']}, {model.card['precision']}",
    ]
    stated(out, licence, tested)
    tell(out, model.card, lines, as_json=as_json, test=asdict(tested), promise=promise)
