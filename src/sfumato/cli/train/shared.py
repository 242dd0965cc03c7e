"""What the commands of `sfumato train` share."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.show import bars, note, print_json, stderr

_LICENCE = r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*"  # without its parentheses: nobody needs them

if TYPE_CHECKING:
    from rich.console import Console

    from sfumato.data import LabelledImages
    from sfumato.episodes import Settings, Shape

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


def with_encoder(
    encoder: str | None, overrides: Sequence[str] | None, *, name: str = "encoder", **others: str
) -> list[str]:
    """Settings as `--set` has them, with those that an encoder asks for; what `--set` says comes last.

    Args:
        encoder: of `--encoder`.
        overrides: of `--set`.
        name: of the setting that it is.
        others: settings that suit an encoder that is not trained.
    """
    if encoder is None:
        return list(overrides or [])
    return [f"{name}={encoder}", *(f"{key}={value}" for key, value in others.items()), *(overrides or [])]


def splits(
    data: str,
    size: int | None,
    *,
    target: str,
    sensitive: str | None = None,
    episodic: bool = False,
    split_by: str | None = None,
    strict: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> "tuple[LabelledImages, LabelledImages | None, LabelledImages]":
    """Training, validation (where there are any) and test images; says what was done where none are named.

    Args:
        data, size, strict, settings: of the source; see sources.read.
        target, sensitive, episodic, split_by: what the splits are for; see data.splitting.
    """
    from sfumato.cli.sources import read
    from sfumato.data.splitting import suited

    source, words = suited(
        read(data, size=size, strict=strict, **(settings or {})),
        target=target,
        sensitive=sensitive,
        episodic=episodic,
        split_by=split_by,
    )
    note(words)
    validation = source.split("validation") if "validation" in source.splits else None
    return source.split("train"), validation, source.split("test")


def fitted(
    settings: "Settings",
    training: "LabelledImages",
    validation: "LabelledImages | None",
    test: "LabelledImages",
    target: str,
    shape: "Shape",
) -> "tuple[Settings, Shape]":
    """Settings of a training, and the shape of test episodes, no larger than the classes allow; says so.

    Args:
        settings: with the fields way, shot and queries, and those of validation where there is any.
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
            settings = episodes.fitted(settings, part.label(target).codes, prefix=prefix)
            note(episodes.fitting(subject, before, shape_of(prefix)))
    allowed = episodes.fitted(shape, test.label(target).codes)
    note(episodes.fitting("test", shape, allowed))
    check_episodes(training, "training", target, shape_of(""))
    check_episodes(test, "test", target, allowed)
    return settings, allowed


def check_episodes(part: "LabelledImages", subject: str, target: str, shape: "Shape", keys: str = "") -> None:
    """Raise DataError now, not after the training, where classes are too small; names the split.

    Args:
        part: images of a split.
        subject: its name.
        target: the label whose classes count.
        shape: of its episodes.
        keys: where that is set, of a training that is not fitted to its data; "" for others.
    """
    from sfumato import episodes
    from sfumato.errors import DataError

    where = f" ({keys}; a private training is not fitted to its data)" if keys else ""
    try:
        episodes.Sampler(part.label(target), shape)
    except DataError as error:
        raise DataError(f"{part.name}, {subject} images: {error}{where}") from error


def stated(out: Path, licence: str | None, tested: Any = None) -> None:
    """Put into the card of an artefact what is known after its training, where anything is.

    Args:
        out: the artefact.
        licence: of `--licence`.
        tested: an Accuracy of test images, with low and high, or of test episodes, with half_width.
    """
    from sfumato import artefacts

    more: dict[str, Any] = {} if licence is None else {"licence": licence}
    if tested is not None:
        over = "images" if hasattr(tested, "images") else "episodes"
        low, high, chance = _ends_and_chance(tested)
        ends = {"mean": tested.mean, "low": low, "high": high, "chance": chance}
        more["test"] = {**ends, "over": over, "number": getattr(tested, over)}
    if more:
        artefacts.amend(out, **more)


def beside_guessing(tested: Any) -> str:
    """What guessing has in the same test, and whether the test is above it; see `stated`."""
    low, _, chance = _ends_and_chance(tested)
    if low > chance:
        return f"guessing: {100 * chance:.1f}%"
    return (
        f"guessing: {100 * chance:.1f}%, which the interval of the test is not above: nothing was learned "
        "that more images like these would show for sure. Add images, or train for longer"
    )


def _ends_and_chance(tested: Any) -> tuple[float, float, float]:
    """The 95% interval of an Accuracy, of images or of episodes, and what guessing has."""
    if hasattr(tested, "images"):
        return tested.low, tested.high, tested.chance
    return tested.mean - tested.half_width, tested.mean + tested.half_width, 1 / tested.shape.way


def tell(out: Path, card: Mapping[str, Any], lines: Sequence[str], *, as_json: bool, **figures: Any) -> None:
    """Print what became of a training: the lines, or as JSON its card and figures; and where it is.

    Args:
        out: the artefact.
        card: of the model.
        lines: in words.
        as_json: print the card and the figures in their place.
        figures: of the test, by name, fit for JSON.
    """
    if as_json:
        print_json({"artefact": str(out), **figures, "card": dict(card)})
        return
    for line in [*lines, f"artefact: {out}"]:
        print(line)


@contextmanager
def checkpointed(
    out: Path, unit: str, console: "Console | None" = None
) -> Iterator[tuple[Path, Callable[[int, int], None]]]:
    """A checkpoint beside the artefact, removed once that is written, and what moves a progress bar."""
    from sfumato.networks import embedding_cache

    checkpoint = out.with_suffix(".checkpoint")
    with bars(console or stderr()) as progress, embedding_cache.kept():
        task = progress.add_task(unit)
        yield checkpoint, lambda done, total: progress.update(task, completed=done, total=total)
    checkpoint.unlink(missing_ok=True)
