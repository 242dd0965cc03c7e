"""`sfumato train`: train a model, save it as an artefact, and say how good it is."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Train a model and save it as an artefact.", no_args_is_help=True)


@app.callback()
def _methods() -> None:
    pass


@app.command("few-shot")
def few_shot(
    data: Annotated[str, typer.Option(help="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")],
    out: Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")],
    spec: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="SPEC",
            help="The protection, as blur:radius=3; or a range for one model, as gaussian:sigma=40,80,160.",
        ),
    ],
    target: Annotated[str, typer.Option(help="The label to classify.")] = "class",
    size: Annotated[int | None, typer.Option(help="Side of the images (default: the source's own).")] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A training setting, as way=20 or denoiser_depth=null."
        ),
    ] = None,
    way: Annotated[int, typer.Option(help="Classes of a test episode.")] = 5,
    shot: Annotated[int, typer.Option(help="Support images of each.")] = 5,
    queries: Annotated[int, typer.Option(help="Query images of each.")] = 15,
    episodes: Annotated[int, typer.Option(min=2, help="Test episodes.")] = 600,
    seed: Annotated[int, typer.Option(help="Of weights, episodes and noise.")] = 0,
) -> None:
    """Train FS-PIC: a denoiser and an encoder, jointly, for few-shot classification of protected images.

    Stopped, the same command goes on from the last finished epoch.
    """
    from rich.console import Console

    from sfumato import protect
    from sfumato.cli.show import bars
    from sfumato.data import load
    from sfumato.episodes import Sampler, Shape
    from sfumato.learn import few_shot as method
    from sfumato.study import grid

    protections = protect.expand(spec)
    config = grid.training(overrides or [])
    source = load(data, **({} if size is None else {"size": size}))
    test = source.split("test")
    Sampler(test.label(target), Shape(way=way, shot=shot, queries=queries))  # fails now, not after training
    checkpoint = out.with_suffix(".checkpoint")
    with bars(Console(stderr=True, soft_wrap=True)) as progress:
        task = progress.add_task("episodes")
        model = method.train(
            source.split("train"),
            protections,
            config,
            target=target,
            validation=source.split("validation") if "validation" in source.splits else None,
            seed=seed,
            checkpoint=checkpoint,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    model.save(out)
    checkpoint.unlink(missing_ok=True)
    tested = method.evaluate(
        model, test, way=way, shot=shot, queries=queries, episodes=episodes, target=target, seed=seed
    )
    print(tested)
    channels, height, width = source.images.shape[1:]
    for protection in protections:
        print(f"{protection.spec}: {protection.guarantee((channels, height, width)) or 'nothing is proved'}")
    print(f"artefact: {out}")
