"""The options and steps that all commands of `sfumato train` share."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sfumato.base.files import check_new
from sfumato.cli.options import Force, Size, setting
from sfumato.cli.show import (
    AsJson,
    PrintConfig,
    bars,
    keeping_work,
    note,
    print_config,
    print_json,
    settings_of,
    stderr,
)
from sfumato.cli.sources import SplitBy, Strict

_LICENCE = r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*"  # without its parentheses: nobody needs them

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.data import LabelledImages
    from sfumato.episodes import Settings, Shape

_Config = TypeVar("_Config")

Out = Annotated[Path, typer.Option(help="The artefact to write, a .safetensors file.")]


def _spdx(licence: str | None) -> str | None:
    if licence is not None and not re.fullmatch(_LICENCE, licence):
        from sfumato.errors import ConfigError

        raise ConfigError(
            f"--licence {licence!r}: write an SPDX expression, such as CC-BY-4.0, 'MIT OR Apache-2.0' or "
            "LicenseRef-ours"
        )
    return licence


Licence = Annotated[
    str | None,
    typer.Option(
        callback=_spdx,
        help="The licence of the artefact, in SPDX, such as CC-BY-4.0. Its card states it.",
    ),
]
Target = Annotated[str, typer.Option(help="The label to classify.")]
Way = Annotated[int, typer.Option(help="Classes in a test episode.")]
Shot = Annotated[int, typer.Option(help="Support images per class in a test episode.")]
Queries = Annotated[int, typer.Option(help="Query images per class in a test episode.")]
Episodes = Annotated[int, typer.Option(min=2, help="How many test episodes.")]
Encoder = Annotated[
    str | None,
    typer.Option(
        help="An encoder that is not trained: efficientnet-lite0 or -lite2 (for photographs; the extra "
        "encoders), drawn, squeeze-net:FILE, mobile-face-net:FILE or "
        "onnx:FILE,size=224,mean=0.485/0.456/0.406,std=0.229/0.224/0.225."
    ),
]
Device = Annotated[
    str, typer.Option(help="Where to train: cpu, cuda, or auto, which takes a GPU if there is one.")
]

app = typer.Typer(help="Train a model and save it as an artefact.", no_args_is_help=True)


@app.callback()
def _methods() -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Given:
    """The shared options of `sfumato train METHOD`, see `method`. State: findings about the data."""

    out: Path
    overrides: list[str] | None
    printing: bool
    seed: int
    force: bool
    as_json: bool
    data: str = ""
    size: int | None = None
    split_by: str | None = None
    strict: bool = False
    licence: str | None = None
    shared: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def config(self, kind: type[_Config], chosen: Sequence[str] = (), *, replaces: bool = True) -> _Config:
        """Return the settings of a training: those of other options, then those of --set.

        With --print-config it prints them, and ends the command.

        Args:
            kind: the configuration.
            chosen: "KEY=VALUE", by other options.
            replaces: whether --force replaces an artefact; else the caller decides.
        """
        from sfumato.base.settings import configure

        if not self.printing:
            check_new(self.out, force=self.force or not replaces, suffix=".safetensors")
        config: _Config = configure(kind, [*chosen, *(self.overrides or [])])
        if self.printing:
            print_config(config)
            raise typer.Exit
        return config

    def images(
        self,
        target: str,
        *,
        sensitive: str | None = None,
        episodic: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> "tuple[LabelledImages, LabelledImages | None, LabelledImages]":
        """Read training, validation (if there are any) and test images.

        It says how it made missing splits, and which pictures and people several splits have.

        Args:
            target, sensitive, episodic: the purpose of the splits; see data.splitting.
            settings: of the source; see sources.read.
        """
        from sfumato.cli.sources import read
        from sfumato.data.copies import find_shared
        from sfumato.data.splitting import split_for_task

        source, words = split_for_task(
            read(self.data, size=self.size, strict=self.strict, **(settings or {})),
            target=target,
            sensitive=sensitive,
            episodic=episodic,
            split_by=self.split_by,
        )
        note(words)
        self.left_out.extend(filter(None, [source.describe_left_out(names=False)]))
        for finding in find_shared(source, target=target, secret=sensitive):
            note(str(finding))
            self.shared.append(finding.words)
        validation = source.split("validation") if "validation" in source.splits else None
        return source.split("train"), validation, source.split("test")

    @contextmanager
    def checkpoint(
        self, unit: str, console: "Console | None" = None
    ) -> Iterator[tuple[Path, Callable[[int, int], None]]]:
        """Yield a checkpoint next to the artefact, removed in the end, and the report to a progress bar."""
        from sfumato.networks.encoders import embedding_cache

        checkpoint = self.out.with_suffix(".checkpoint")
        with bars(console or stderr()) as progress, embedding_cache.store(), keeping_work():
            task = progress.add_task(unit)
            yield checkpoint, lambda done, total: progress.update(task, completed=done, total=total)
        checkpoint.unlink(missing_ok=True)

    def tell(
        self, card: Mapping[str, Any], lines: Sequence[str], *, tested: Any = None, **figures: Any
    ) -> None:
        """Add licence, test, shared and left-out images to the card, and print the results.

        Args:
            card: of the model.
            lines: in words; with --json it prints the card and the figures instead.
            tested: an Accuracy of test images, with low and high, or of test episodes, with half_width.
            figures: by name, fit for JSON.
        """
        from sfumato import artefacts

        more: dict[str, Any] = {} if self.licence is None else {"licence": self.licence}
        said = {"shared": self.shared, "left_out": self.left_out}
        more |= {key: words for key, words in said.items() if words}
        if tested is not None:
            over = "images" if hasattr(tested, "images") else "episodes"
            low, high, chance = _ends_and_chance(tested)
            ends = {"mean": tested.mean, "low": low, "high": high, "chance": chance}
            more["test"] = {**ends, "over": over, "number": getattr(tested, over)}
        if more:
            artefacts.amend(self.out, **more)
        if self.as_json:
            print_json({"artefact": str(self.out), **figures, "card": dict(card)})
            return
        for line in [*lines, f"artefact: {self.out}"]:
            print(line)


def method(
    name: str, *, config: str, such_as: str, seeds: str, data: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function the command `sfumato train NAME`, with the options of all methods.

    The function is called with a Given, and with its own options by name.

    Args:
        name: of the command.
        config: whose keys --set takes, as "module:Class".
        such_as: two of these, for the help.
        seeds: the random choices that --seed decides.
        data: examples of --data; None for a method without images.
    """
    last: dict[str, tuple[Any, Any]] = {
        "overrides": (list[str] | None, setting(f"A training setting, such as {such_as}.")),
        "listing": (bool, settings_of(config)),
        "printing": (PrintConfig, None),
        "seed": (int, typer.Option(help=f"Seed of {seeds}.")),
        "force": (Force, None),
        "as_json": (AsJson, None),
    }
    first: dict[str, tuple[Any, Any]] = {"out": (Out, None)}
    if data is not None:
        first = {"data": (str, typer.Option(help=f"The images: {data}.")), **first}
        last = {"size": (Size, None), "split_by": (SplitBy, None), "strict": (Strict, None), **last}
        last["licence"] = (Licence, None)
    defaults = {"overrides": None, "size": None, "split_by": None, "licence": None, "seed": 0}

    def parameter(key: str, kind: Any, option: Any) -> inspect.Parameter:
        annotation = kind if option is None else Annotated[kind, option]
        needed = key in ("out", "data")
        default = inspect.Parameter.empty if needed else defaults.get(key, False)
        return inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    def register(train: Callable[..., None]) -> Callable[..., None]:
        @wraps(train)
        def command(**options: Any) -> None:
            options.pop("listing")
            shared = {key: options.pop(key) for key in (*first, *last) if key in options}
            train(Given(**shared), **options)

        own = list(inspect.signature(train, eval_str=True).parameters.values())[1:]
        parameters = [
            *(parameter(key, *each) for key, each in first.items()),
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own),
            *(parameter(key, *each) for key, each in last.items()),
        ]
        command.__dict__["__signature__"] = inspect.Signature(parameters)
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        app.command(name)(command)
        return train

    return register


def of_encoder(encoder: str | None, *, name: str = "encoder", **others: str) -> list[str]:
    """Return the settings that --encoder asks for.

    Args:
        encoder: of --encoder.
        name: of the setting for it.
        others: settings that suit an encoder that is not trained.
    """
    if encoder is None:
        return []
    return [f"{name}={encoder}", *(f"{key}={value}" for key, value in others.items())]


def fit_to_data(
    settings: "Settings",
    training: "LabelledImages",
    validation: "LabelledImages | None",
    test: "LabelledImages",
    target: str,
    shape: "Shape",
) -> "tuple[Settings, Shape]":
    """Shrink the settings of a training and the shape of test episodes to the classes; says so.

    Args:
        settings: with the fields way, shot and queries, and those of validation if there is any.
        training, validation, test: the images.
        target: the label whose classes count.
        shape: of a test episode.

    Raises:
        DataError: there are not two classes with two images each to test on.
    """
    from sfumato import episodes

    def shape_of(prefix: str) -> "Shape":
        sides = {name: getattr(settings, f"{prefix}{name}") for name in ("way", "shot", "queries")}
        return episodes.Shape(**sides)

    for subject, part, prefix in (("training", training, ""), ("validation", validation, "validation_")):
        if part is not None and hasattr(settings, f"{prefix}way"):
            before = shape_of(prefix)
            settings = episodes.fit_episodes(settings, part.label(target).codes, prefix=prefix)
            note(episodes.describe_fit(subject, before, shape_of(prefix)))
    allowed = episodes.fit_episodes(shape, test.label(target).codes)
    note(episodes.describe_fit("test", shape, allowed))
    check_episodes(training, "training", target, shape_of(""))
    check_episodes(test, "test", target, allowed)
    return settings, allowed


def check_episodes(part: "LabelledImages", subject: str, target: str, shape: "Shape", keys: str = "") -> None:
    """Raise DataError now, not after the training, if classes are too small; names the split.

    Args:
        part: images of a split.
        subject: its name.
        target: the label whose classes count.
        shape: of its episodes.
        keys: the options of that shape if it is not fitted to the data; "" if it is.
    """
    from sfumato import episodes
    from sfumato.errors import DataError

    where = f" ({keys}; a private training is not fitted to its data)" if keys else ""
    try:
        episodes.Sampler(part.label(target), shape)
    except DataError as error:
        raise DataError(f"{part.name}, {subject} images: {error}{where}") from error


def beside_guessing(tested: Any) -> str:
    """State the accuracy of guessing in the same test, and whether the test beats it; see Given.tell."""
    low, _, chance = _ends_and_chance(tested)
    if low > chance:
        return f"guessing: {100 * chance:.1f}%"
    return (
        f"guessing: {100 * chance:.1f}%, which the interval of the test is not above: nothing was learned "
        "that more images like these would show for sure. Add images, or train for longer"
    )


def _ends_and_chance(tested: Any) -> tuple[float, float, float]:
    """Return the 95% interval of an Accuracy, of images or of episodes, and the accuracy of guessing."""
    if hasattr(tested, "images"):
        return tested.low, tested.high, tested.chance
    return tested.mean - tested.half_width, tested.mean + tested.half_width, 1 / tested.shape.way
