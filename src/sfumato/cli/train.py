"""`sfumato train`: train a model, save it as an artefact, and say how good it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.data import LabelledImages
    from sfumato.learn.devices import Devices

_Out = Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")]
_Target = Annotated[str, typer.Option(help="The label to classify.")]
_Size = Annotated[int | None, typer.Option(help="Side of the images (default: the source's own).")]
_Processes = Annotated[
    int | None,
    typer.Option("--devices", min=1, help="Share the training among so many processes, each with a device."),
]
_Accelerator = Annotated[
    str | None, typer.Option(help="What these devices are: cpu, gpu, or auto, gpu where there is any.")
]

app = typer.Typer(help="Train a model and save it as an artefact.", no_args_is_help=True)


@app.callback()
def _methods() -> None:
    pass


@app.command("few-shot")
def few_shot(
    data: Annotated[str, typer.Option(help="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")],
    out: _Out,
    spec: Annotated[
        str,
        typer.Option(
            "--with",
            metavar="SPEC",
            help="The protection, as blur:radius=3; or a range for one model, as gaussian:sigma=40,80,160.",
        ),
    ],
    target: _Target = "class",
    size: _Size = None,
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
    processes: _Processes = None,
    accelerator: _Accelerator = None,
) -> None:
    """Train FS-PIC: a denoiser and an encoder, jointly, for few-shot classification of protected images.

    Stopped, the same command goes on from the last finished epoch.
    """
    _run(
        _few_shot,
        processes,
        accelerator,
        data=data,
        out=out,
        spec=spec,
        target=target,
        size=size,
        overrides=overrides,
        way=way,
        shot=shot,
        queries=queries,
        episodes=episodes,
        seed=seed,
    )


def _few_shot(
    devices: "Devices | None",
    *,
    data: str,
    out: Path,
    spec: str,
    target: str,
    size: int | None,
    overrides: list[str] | None,
    way: int,
    shot: int,
    queries: int,
    episodes: int,
    seed: int,
) -> None:
    from sfumato import protect
    from sfumato.episodes import Sampler, Shape
    from sfumato.learn import few_shot as method
    from sfumato.settings import configured

    protections = protect.expand(spec)
    config = configured(method.FewShotConfig, overrides or [])
    training, validation, test = _splits(data, size)
    Sampler(test.label(target), Shape(way=way, shot=shot, queries=queries))  # fails now, not after training
    with _training(out, "episodes", devices=devices) as (checkpoint, progress):
        model = method.train(
            training,
            protections,
            config,
            target=target,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            devices=devices,
        )
        if devices is not None and not devices.first:
            return
        model.save(out)
    tested = method.evaluate(
        model, test, way=way, shot=shot, queries=queries, episodes=episodes, target=target, seed=seed
    )
    print(tested)
    channels, height, width = test.images.shape[1:]
    for protection in protections:
        print(f"{protection.spec}: {protection.guarantee((channels, height, width)) or 'nothing is proved'}")
    print(f"artefact: {out}")


@app.command("meta")
def meta(
    data: Annotated[str, typer.Option(help="faces, glyphs, omniglot:DIR, folder:DIR or table:FILE.")],
    out: _Out,
    spec: Annotated[
        str, typer.Option("--with", metavar="SPEC", help="The protection, as blur:radius=3.")
    ] = "none",
    target: _Target = "class",
    size: _Size = None,
    algorithm: Annotated[str, typer.Option(help="maml, fomaml, reptile or meta-sgd.")] = "maml",
    clipping: Annotated[
        str | None,
        typer.Option(help="fixed, automatic, quantile, adaclip, meta-clip or meta-clip-published."),
    ] = None,
    clipping_settings: Annotated[
        list[str] | None,
        typer.Option("--clip", metavar="KEY=VALUE", help="A setting of the clipping, as start=1."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget of the training, for one task.")] = None,
    delta: Annotated[float, typer.Option(help="Of the budget; below 1 / tasks of the pool.")] = 1e-5,
    source_settings: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="KEY=VALUE", help="A setting of the data, as rotations=false."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, as shot=5 or steps=1000."),
    ] = None,
    queries: Annotated[int, typer.Option(help="Query images of each class of a test task.")] = 15,
    episodes: Annotated[int, typer.Option(min=2, help="Test tasks.")] = 600,
    seed: Annotated[int, typer.Option(help="Of weights, tasks and test.")] = 0,
) -> None:
    """Meta-learn where to start from, by MAML, Reptile or Meta-SGD; with a budget, privately.

    With --epsilon, the promise is to each task of a pool whose tasks share no class, and --clipping says how
    contributions are bounded. Without, nothing is promised. Stopped, the same command goes on; a private
    artefact that is there is never made again, which would spend anew.
    """
    from rich.console import Console

    from sfumato import protect
    from sfumato.data import load
    from sfumato.episodes import Sampler, Shape
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
    if epsilon is not None and out.exists():
        raise ConfigError(
            f"{out} is there already, and to train it again would spend its budget once more: name another "
            "file, or delete it to spend anew"
        )
    given = parsed(source_settings or []) | ({} if size is None else {"size": size})
    source = load(data, **given)
    test = source.split("test")
    shape = Shape(way=config.way, shot=config.shot, queries=queries)
    Sampler(test.label(target), shape)  # fails now, not after training
    console = Console(stderr=True, soft_wrap=True)
    with _training(out, "meta-steps", console) as (checkpoint, progress):
        model = method.train(
            source.split("train"),
            protection,
            config,
            target=target,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            note=console.print,
        )
        model.save(out)
    print(method.evaluate(model, test, queries=queries, episodes=episodes, target=target, seed=seed))
    print(method.promise(model.card))
    print(f"computed: {model.card['computed']}, {model.card['precision']}")
    print(f"artefact: {out}")


@app.command("mask")
def mask(
    data: Annotated[str, typer.Option(help="faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE.")],
    target: Annotated[str, typer.Option(help="The label that the task needs.")],
    out: _Out,
    size: _Size = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, as keep=0.25 or epochs=40."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 0,
    processes: _Processes = None,
    accelerator: _Accelerator = None,
) -> None:
    """Train a mask: which pixels a task needs, so that a device shows no others.

    The splits of the data must have the same classes. `sfumato protect --with mask:artefact=OUT` applies the
    mask, to images of the size it was trained on. Stopped, the same command goes on.
    """
    _run(
        _mask,
        processes,
        accelerator,
        data=data,
        target=target,
        out=out,
        size=size,
        overrides=overrides,
        seed=seed,
    )


def _mask(
    devices: "Devices | None",
    *,
    data: str,
    target: str,
    out: Path,
    size: int | None,
    overrides: list[str] | None,
    seed: int,
) -> None:
    from sfumato.learn import adversarial_mask as method
    from sfumato.protect.mask import Mask
    from sfumato.settings import configured

    config = configured(method.MaskConfig, overrides or [])
    protection = Mask(str(out))
    training, validation, test = _splits(data, size)
    method.codes_of(test, target, method.trainable(training, config, target))  # fails now, not after training
    with _training(out, "steps", devices=devices) as (checkpoint, progress):
        model = method.train(
            training,
            config,
            target=target,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            devices=devices,
        )
        if devices is not None and not devices.first:
            return
        model.save(out)
    shown = f"{100 * config.keep:g}% of the pixels shown"
    if model.card["validation_accuracy"] is not None:
        print(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target}, {shown})")
    print(f"test: {100 * method.evaluate(model, test):.1f}% ({target}, {shown}, {len(test):,} images)")
    print(f"{protection.spec}: nothing is proved")
    print(f"artefact: {out}")


@app.command("classifier")
def classifier(
    data: Annotated[str, typer.Option(help="faces, celeba:DIR, fer:FILE, folder:DIR or table:FILE.")],
    target: _Target,
    out: _Out,
    spec: Annotated[
        str, typer.Option("--with", metavar="SPEC", help="The protection, as mask:artefact=m.safetensors.")
    ] = "none",
    size: _Size = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, as epochs=40 or flips=true."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order and noise.")] = 0,
) -> None:
    """Train an ordinary classifier of protected images, and test it on others of the same classes.

    The splits of the data must have the same classes. Stopped, the same command goes on.
    """
    from sfumato import protect
    from sfumato.learn import classifier as method
    from sfumato.learn import epochs
    from sfumato.settings import configured

    config = configured(method.ClassifierConfig, overrides or [])
    protection = protect.parse(spec)
    training, validation, test = _splits(data, size)
    # Fails now, not after training.
    epochs.codes_of(test, target, method.trainable(training, target, config.network), "classifier")
    with _training(out, "steps") as (checkpoint, progress):
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
    if model.card["validation_accuracy"] is not None:
        print(f"validation: {100 * model.card['validation_accuracy']:.1f}% ({target})")
    print(f"test: {method.evaluate(model, test, target=target, protection=protection, seed=seed)}")
    channels, height, width = test.images.shape[1:]
    print(f"{protection.spec}: {protection.guarantee((channels, height, width)) or 'nothing is proved'}")
    print(f"artefact: {out}")


@app.command("feature")
def feature(
    data: Annotated[str, typer.Option(help="faces, celeba:DIR, folder:DIR or table:FILE.")],
    targets: Annotated[
        list[str], typer.Option("--target", help="A label to keep; give the option again for another.")
    ],
    sensitive: Annotated[str, typer.Option(help="The label to remove, as identity.")],
    out: _Out,
    size: _Size = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, as cut=conv6_1 or beta=0.3."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights and order.")] = 0,
    processes: _Processes = None,
    accelerator: _Accelerator = None,
) -> None:
    """Train a private feature: a few numbers that keep some labels of an image, and lose another.

    The splits of the data must have the same classes of what is kept. Stopped, the same command goes on.
    `sfumato export OUT` writes the device side, `sfumato export OUT --side cloud` what reads its numbers.
    """
    _run(
        _feature,
        processes,
        accelerator,
        data=data,
        targets=targets,
        sensitive=sensitive,
        out=out,
        size=size,
        overrides=overrides,
        seed=seed,
    )


def _feature(
    devices: "Devices | None",
    *,
    data: str,
    targets: list[str],
    sensitive: str,
    out: Path,
    size: int | None,
    overrides: list[str] | None,
    seed: int,
) -> None:
    from sfumato.learn import epochs
    from sfumato.learn import private_feature as method
    from sfumato.protect.feature import Feature
    from sfumato.settings import configured

    config = configured(method.FeatureConfig, overrides or [])
    protection = Feature(str(out), noise=0.0)
    training, validation, test = _splits(data, size)
    for target, names in method.trainable(training, config, targets, sensitive).items():
        epochs.codes_of(test, target, tuple(names), "private feature")  # fails now, not after training
    with _training(out, "epochs", devices=devices) as (checkpoint, progress):
        model = method.train(
            training,
            config,
            targets=targets,
            sensitive=sensitive,
            validation=validation,
            seed=seed,
            checkpoint=checkpoint,
            progress=progress,
            devices=devices,
        )
        if devices is not None and not devices.first:
            return
        model.save(out)
    for name, accuracies in (
        ("validation", model.card["accuracies"]),
        ("test", method.evaluate(model, test)),
    ):
        for target, accuracy in (accuracies or {}).items():
            print(f"{name}: {100 * accuracy:.1f}% ({target}, without noise)")
    if not model.is_network:
        print(f"{protection.spec}: {config.dimension} numbers an image; nothing is proved")
    print(f"artefact: {out}")


@app.command("semsim")
def semsim(
    judgements: Annotated[
        list[Path],
        typer.Option(help="A CSV as `sfumato annotate` exports it; give the option again for another."),
    ],
    out: _Out,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A training setting, as network=resnet18."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of weights, order and triplets.")] = 0,
) -> None:
    """Train SemSim, the distance to an original that follows what people recognise.

    Stopped, the same command goes on. `sfumato assess A B --semsim OUT` measures by it.
    """
    from sfumato.learn import semsim as method
    from sfumato.settings import configured

    config = configured(method.SemSimConfig, overrides or [])
    sets = [each for path in judgements for each in method.read(path, size=config.size).values()]
    both = method.combine(sets, size=config.size)
    with _training(out, "steps") as (checkpoint, progress):
        model = method.train(both, config, seed=seed, checkpoint=checkpoint, progress=progress)
        model.save(out)
    data = model.card["data"]
    print(
        f"{data['name']}: {data['reconstructions']:,} reconstructions of {data['originals']:,} originals, "
        f"{data['recognised']:,} recognised"
    )
    print(f"artefact: {out}")


def _run(train: Callable[..., None], processes: int | None, accelerator: str | None, **given: Any) -> None:
    """Call train(devices, **given) in each of so many processes; in this one where none are asked for."""
    if processes is None and accelerator is None:
        train(None, **given)
        return
    from sfumato.learn import devices

    devices.launch(train, processes=processes or 1, accelerator=accelerator or "auto", **given)


def _splits(data: str, size: int | None) -> "tuple[LabelledImages, LabelledImages | None, LabelledImages]":
    """Training, validation (where the source has it) and test images."""
    from sfumato.data import load

    source = load(data, **({} if size is None else {"size": size}))
    validation = source.split("validation") if "validation" in source.splits else None
    return source.split("train"), validation, source.split("test")


@contextmanager
def _training(
    out: Path, unit: str, console: "Console | None" = None, *, devices: "Devices | None" = None
) -> Iterator[tuple[Path, Callable[[int, int], None] | None]]:
    """A checkpoint beside the artefact, removed once that is written, and what moves a progress bar.

    Of several processes, the first alone shows the bar and removes the checkpoint.
    """
    from rich.console import Console

    from sfumato.cli.show import bars

    checkpoint = out.with_suffix(".checkpoint")
    if devices is not None and not devices.first:
        yield checkpoint, None
        return
    with bars(console or Console(stderr=True, soft_wrap=True)) as progress:
        task = progress.add_task(unit)
        yield checkpoint, lambda done, total: progress.update(task, completed=done, total=total)
    checkpoint.unlink(missing_ok=True)
