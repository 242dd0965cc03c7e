"""`sfumato train meta`."""

from typing import Annotated

import typer

from sfumato.cli.options import setting
from sfumato.cli.show import stderr
from sfumato.cli.train.shared import (
    Episodes,
    Given,
    Queries,
    Target,
    beside_guessing,
    check_episodes,
    fit_to_data,
    method,
)


@method(
    "meta",
    config="sfumato.learn.meta:MetaConfig",
    such_as="shot=5 or steps=1000",
    seeds="weights, tasks and test",
    data="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE",
)
def meta(
    given: Given,
    spec: Annotated[
        str, typer.Option("--with", metavar="SPEC", help="The protection, such as blur:radius=3.")
    ] = "none",
    target: Target = "class",
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
    queries: Queries = 15,
    episodes: Episodes = 600,
) -> None:
    """Meta-learn a start for learning new tasks, by MAML, Reptile or Meta-SGD. With --epsilon, privately.

    With --epsilon, the promise covers each task of a pool whose tasks share no class, and --clipping says
    how contributions are bounded. Without it, nothing is promised. If you stop it, run the same command
    again to resume. A private artefact that exists is never trained again, since that would spend the
    budget twice.

    Example: sfumato train meta --data glyphs --epsilon 8 --delta 1e-3 --out start.safetensors
    """
    from dataclasses import asdict, replace

    from sfumato import protect
    from sfumato.base.settings import parse_overrides
    from sfumato.episodes import Shape
    from sfumato.errors import ConfigError
    from sfumato.learn import meta as learner

    protection = protect.parse(spec)
    settings = [f"algorithm={algorithm}"]
    if epsilon is not None:
        chosen = [f"private.settings.{each}" for each in clipping_settings or []]
        settings += [f"private.epsilon={epsilon}", f"private.delta={delta}", *chosen]
        settings.append(f"private.clipping={clipping or 'quantile'}")
    elif clipping is not None:
        raise ConfigError(
            f"--clipping {clipping} without --epsilon: only a private run clips; give its budget"
        )
    config = given.config(learner.MetaConfig, settings, replaces=epsilon is None)
    if epsilon is not None and given.out.exists():
        raise ConfigError(
            f"{given.out} already exists, and to train it again would spend its budget once more: name "
            "another file, or delete it to spend anew"
        )
    training, _, test = given.images(target, episodic=True, settings=parse_overrides(source_settings or []))
    shape = Shape(way=config.way, shot=config.shot, queries=queries)
    if config.private is None:
        config, shape = fit_to_data(config, training, None, test, target, shape)
        # A meta-learned model is tested as it was trained.
        config = replace(config, way=min(config.way, shape.way), shot=min(config.shot, shape.shot))
    else:  # its settings are public, and so are not chosen by the data
        own = Shape(way=config.way, shot=config.shot, queries=config.queries)
        check_episodes(training, "training", target, own, "--set way=, shot= and queries=")
        check_episodes(test, "test", target, shape, "--queries, and --set way= and shot=")
    console = stderr()
    norms: list[float] = []
    with given.checkpoint("meta-steps", console) as (checkpoint, progress):
        model = learner.train(
            training,
            protection,
            config,
            target=target,
            seed=given.seed,
            checkpoint=checkpoint,
            progress=progress,
            observe=lambda _, norm: None if norm is None else norms.append(norm),
            note=console.print,
        )
        model.save(given.out)
    tested = learner.evaluate(
        model, test, queries=shape.queries, episodes=episodes, target=target, seed=given.seed
    )
    promise = learner.promise(model.card)
    lines = [
        str(tested),
        beside_guessing(tested),
        promise,
        f"computed: {model.card['computed']}, {model.card['precision']}",
    ]
    shown = norms[:: -(-len(norms) // 50)] if norms else []
    if norms:
        lines.append(f"clipping norm: {norms[0]:.3g} {_curve(shown)} {norms[-1]:.3g}, step by step")
    given.tell(model.card, lines, tested=tested, test=asdict(tested), promise=promise, norms=shown)


def _curve(norms: list[float]) -> str:
    """A character for each norm, as high as its logarithm."""
    from math import log

    low, high = log(min(norms)), log(max(norms))
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (log(norm) - low) / max(high - low, 1e-9))] for norm in norms)
