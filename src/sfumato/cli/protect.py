"""`sfumato protect`: release a folder, a tar shard, or one image, by the ledger of this device.

Places are text, since a Path would turn the two slashes of a URL into one.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.base.files import check_writable, printable, whole, write_rows
from sfumato.cli.options import Address, LedgerFile
from sfumato.cli.show import AsJson, keeping_work, print_json, stderr
from sfumato.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sfumato.device.jobs.journal import Outcome, Shape

_STREAM = "-"
_FILES = ("png", "jpg", "jpeg", "webp", "bmp", "release", "txt", "tar")
_SHOWN = 3  # sizes of images whose guarantee is printed
_ANY_NAME: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}


def protect(
    source: Annotated[
        str,
        typer.Argument(help="A folder, a tar file, or the URL of one; an image, a video, or - for stdin."),
    ],
    target: Annotated[
        str,
        typer.Argument(help="A new folder or its URL; for one image or video a new file, or - for stdout."),
    ],
    spec: Annotated[
        str, typer.Option("--with", metavar="SPEC", help="The protection, such as dp-pix:cell=8,epsilon=3.")
    ],
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="png, webp or bmp (exact), jpeg (lossy), or release, the format that travels to a service "
            "(default: by the suffix, or png). Codes and features are written as release, answers as text.",
        ),
    ] = None,
    cells: Annotated[
        bool, typer.Option("--cells", help="Write one pixel per cell. The receiver enlarges the image.")
    ] = False,
    rename: Annotated[
        bool, typer.Option("--rename", help="Use new names that reveal nothing about the originals.")
    ] = False,
    size: Annotated[
        int | None, typer.Option(min=1, help="First resize each image's centre square to this many pixels.")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Protect only a part, and show the rest unchanged: faces, background (all but the faces), "
            "or box:FILE, a CSV with left,top,right,bottom. faces:missing=all protects all of an image in "
            "which no face is found; margin=0.5 widens faces, and file=FILE names weights of MTCNN.",
        ),
    ] = None,
    people: Annotated[
        bool, typer.Option("--people", help="Each sub-folder is one person: its images share a budget.")
    ] = False,
    engine: Annotated[
        str, typer.Option(help="Where files are protected: local, or ray for a cluster.")
    ] = "local",
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many tasks run at the same time (default: one per core).")
    ] = None,
    address: Address = None,
    ledger: LedgerFile = None,
    failures: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the failed files and causes to this CSV. Keep it here."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Protect images before they leave this device: one image, a video, or a folder of any size.

    Every image is charged in the ledger before its release is written. The same image and spec give the
    same release again, at no cost.

    In a folder, files that fail are counted by cause. Of a file of several pages or frames the first is
    released, and the others are counted. In both cases the exit code is 1.

    A video becomes an .mp4 without sound or metadata, and is charged as one image. --where faces finds
    faces down to 24 pixels wide in pictures of any size, and in every frame.

    A URL is anything that fsspec opens, such as s3://bucket/photos if s3fs is installed. Keys and passwords
    come from the environment. On a Ray cluster, source and target are URLs, or folders that all
    machines share.

    Example: sfumato protect photos released --with dp-pix:cell=8,epsilon=3
    """
    from sfumato import protect as protections
    from sfumato.base.engines import EngineConfig
    from sfumato.device.jobs import video, worker
    from sfumato.device.ledger import default_path
    from sfumato.device.storage import is_url
    from sfumato.protect.release import KINDS, kind_of

    if spec == "none":
        raise ConfigError(
            "none: protects nothing, so these images would leave in clear: choose a protection, such as "
            "dp-pix:cell=8,epsilon=3"
        )
    protection: Any = protections.parse(spec if where is None else _on_part(spec, where), takes=KINDS)
    ledger = ledger or default_path()
    if Path(source).suffix.lower() in video.SUFFIXES and not is_url(source):
        _clip(source, target, protection, ledger, as_json=as_json)
        return
    many = is_url(source) or Path(source).is_dir() or worker.is_shard(source)
    suffix = Path(target).suffix.lower().removeprefix(".")
    if many and suffix in _FILES and not Path(target).exists():
        raise DataError(f"{target}: {source} is many images, and this names one file: name a new folder")
    ending = "" if many or Path(target).is_dir() else suffix
    name = (format_name or ending or worker.USUAL.get(kind_of(protection), "PNG")).upper()
    name = {"JPG": "JPEG", "TXT": "TEXT"}.get(name, name)
    config = worker.FolderConfig(format_name=name, cells=cells, rename=rename, people=people, size=size)
    engines = EngineConfig(name=engine, workers=workers, address=address)
    if not many:
        outcome = _one(source, target, protection, ledger, config, as_json=as_json)
    else:
        if failures is not None and failures.exists():
            raise DataError(f"{failures}: already exists: name another file, or remove it")
        if failures is not None and failures.resolve().is_relative_to(Path(target).resolve()):
            raise DataError(
                f"{failures}: names originals, and lies in {target}, which leaves: name another file"
            )
        outcome = _many(source, target, protection, ledger, config, engines, as_json=as_json)
        if failures is not None:
            with whole(failures) as temporary, temporary.open("w", newline="", **_ANY_NAME) as out:
                write_rows(out, [("file", "cause", "images"), *sorted(outcome.failed)])
            count = len(outcome.failed)
            print(f"failures: {failures}, {count:,} files by name. Keep it here: it names originals")
        elif len(outcome.failed) > len(outcome.failures) and not as_json:
            print("each file that failed, by name: the same command with --failures FILE")
    if outcome.failures or outcome.left_out[worker.PAGES]:
        raise typer.Exit(1)
    if not outcome.shapes:
        raise DataError(f"{source}: has no images: name a folder or a tar file that holds some")


def _on_part(spec: str, where: str) -> str:
    """Write the spec of a protection on a part of the image, see sfumato.protect.region."""
    from sfumato.protect.parameters import PLACES

    place, _, rest = where.partition(":")
    if place not in PLACES or (place == "box" and not rest):
        raise ConfigError(
            f"--where {where}: faces, background, or box:FILE, a CSV with left,top,right,bottom"
        )
    return f"{spec}@{place}:file={rest}" if place == "box" and "=" not in rest else f"{spec}@{where}"


def _warn(words: str) -> None:
    typer.echo(f"warning: {words}", err=True)


def _many(
    source: str, target: str, protection: Any, ledger: Path, config: Any, engine: Any, *, as_json: bool
) -> "Outcome":
    """Release a folder under a progress bar, and print the outcome."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sfumato.device.jobs import folder, journal, worker
    from sfumato.protect.region import NO_FACE

    begun = not ledger.exists()
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=stderr()) as progress:
        task, start = progress.add_task("reading the folder", total=None), time.monotonic()

        def report(images: int, done: int, total: int) -> None:
            rate = images / (time.monotonic() - start + 1e-9)
            words = f"{images:,} images, {rate:,.0f} a second, left:"
            progress.update(task, completed=done, total=total, description=words)

        with keeping_work():
            outcome = folder.protect_folder(
                source, target, protection, ledger, config, engine=engine, report=report, warn=_warn
            )
    shapes: list[dict[str, Any]] = [
        {"shape": shape, "images": count, "proved": _state_guarantee(protection, shape, count)}
        for shape, count in outcome.shapes.most_common()
    ]
    faceless = [name for name, cause, _ in outcome.failed if cause == NO_FACE]
    if as_json:
        named = {"protected_whole": outcome.without, "without_face": faceless}
        failed = {
            cause: {"images": count, "first": first} for cause, (count, first) in outcome.failures.items()
        }
        print_json(
            {
                **{"spec": protection.spec, "images": outcome.shapes.total()},
                **{"shapes": shapes, "charged": outcome.charged, "ledger": str(ledger)},
                **{"earlier": outcome.earlier, "left_out": outcome.left_out},
                **journal.counts_by_word(protection, outcome.counts),
                **{key: names for key, names in named.items() if names},
                **{"failed": failed, "manifest": outcome.manifest and str(outcome.manifest)},
            }
        )
        return outcome
    print(
        f"protected {outcome.shapes.total():,} images with {protection.spec} "
        f"({time.monotonic() - start:.1f} s)"
    )
    for each in shapes[:_SHOWN]:
        print(f"{each['images']:,} of {'x'.join(map(str, each['shape']))}: {each['proved']}")
    if len(shapes) > _SHOWN:
        print(f"{len(shapes) - _SHOWN} more sizes: see the manifest")
    for line in _describe(outcome, protection, faceless):
        print(line)
    if not config.rename and any(cause.startswith(worker.SAME_NAME) for cause in outcome.failures):
        print("the same command with --rename, into a new folder, gives each release a name of its own")
    if not outcome.shapes:
        print("nothing was released, so there is no folder of releases and no manifest")
    if outcome.shapes or ledger.exists():
        print(f"charged {outcome.charged:,} new releases; ledger: {ledger}")
    manifest = [] if outcome.manifest is None else [f"manifest: {outcome.manifest}"]
    for line in (*_new_ledger(begun and ledger.exists()), *manifest):
        print(line)
    return outcome


def _describe(outcome: "Outcome", protection: Any, faceless: Sequence[str] = ()) -> Iterator[str]:
    from sfumato.artefacts import read_card
    from sfumato.device.jobs.journal import NAMED, counts_by_word

    for what, count in counts_by_word(protection, outcome.counts).items():
        yield f"{what.replace('_', ' ')}: {count:,}"
    if outcome.stills:
        named = ", ".join(f"{printable(name)} {boxes}" for name, boxes in outcome.stills)
        yield f"in each: {named}{', ...: see the manifest' if outcome.shapes.total() > NAMED else ''}"
    for names, fate in ((outcome.without, "all of which is protected"), (faceless, "which are not released")):
        if names:
            some = ", ".join(map(printable, names[:NAMED])) + ", ..." * (len(names) > NAMED)
            yield f"no face was found in {len(names):,} images, {fate}: {some}"
    if outcome.earlier:
        yield f"there already from an earlier run: {outcome.earlier:,} files"
    for reason, count in sorted(outcome.left_out.items()):
        yield f"left out: {count:,} ({reason})"
    for cause, (count, first) in sorted(outcome.failures.items()):
        yield f"failed: {count:,} ({cause}), such as {printable(first)}"
        if cause in outcome.words:
            yield printable(outcome.words[cause])
    if any(cause.endswith(" does not fit") for cause in outcome.failures):
        if (artefact := getattr(protection, "artefact", None)) is None:
            yield "smaller cells fit, or shares of the image, such as cell=1/8"
        else:
            channels, height, width = read_card(artefact)["shape"]
            cure = f"--size {height} makes such squares" if height == width else "resize"
            yield f"it is for images of {channels}x{height}x{width}: {cure}"
    if outcome.shapes and (searched := getattr(protection, "searched", None)):
        yield f"searched: {searched}"


def _one(source: str, target: str, protection: Any, ledger: Path, config: Any, *, as_json: bool) -> "Outcome":
    """Release one image; words go to standard error, since the release may go to standard output."""
    from sfumato.device.jobs import folder, journal
    from sfumato.device.ledger import Ledger
    from sfumato.device.storage import is_url, without_password
    from sfumato.images.reading import MAX_BYTES

    if as_json and target == _STREAM:
        raise DataError("--json and the image would both go to standard output: name a file for the image")
    if is_url(target):
        raise DataError(f"{without_password(target)}: one image needs a local file: release its folder")
    file = Path(target)
    if file.is_dir():
        stem = "image" if config.rename or source == _STREAM else Path(source).stem
        file = file / f"{stem}.{config.format_name.lower()}"
    if target != _STREAM:
        _check_new(file)
        check_writable(file)
    image = sys.stdin.buffer.read(MAX_BYTES + 1) if source == _STREAM else source
    with Ledger(ledger) as opened:
        outcome, content = folder.protect_image(image, protection, opened, config, warn=_warn)
    if target == _STREAM:
        sys.stdout.buffer.write(content)
    else:
        with whole(file) as temporary:
            temporary.write_bytes(content)
    (shape,) = outcome.shapes
    proved = _state_guarantee(protection, shape, 1)
    if as_json:
        result = {"spec": protection.spec, "shape": shape, "proved": proved, "charged": outcome.charged}
        result |= journal.counts_by_word(protection, outcome.counts)
        print_json(result | ({"left_out": outcome.left_out} if outcome.left_out else {}))
        return outcome
    charged = "charged" if outcome.charged else "released before, and given again at no cost"
    lines = [f"{protection.spec}: {proved}", *_describe(outcome, protection), f"{charged}; ledger: {ledger}"]
    print(*lines, *_new_ledger(opened.begun), sep="\n", file=sys.stderr)
    return outcome


def _check_new(target: Path) -> None:
    if target.exists():
        raise DataError(f"{target}: already exists, and might be an original: name a new file")


def _clip(source: str, target: str, protection: Any, ledger: Path, *, as_json: bool) -> None:
    from sfumato.device.jobs.video import protect_video
    from sfumato.device.ledger import Ledger

    _check_new(Path(target))
    with Ledger(ledger) as opened:
        clip = protect_video(source, target, protection, opened)
    height, width = clip.size
    proved = _state_guarantee(protection, (3, height, width), 1)
    if as_json:
        print_json({"spec": protection.spec, "proved": proved, **asdict(clip)})
        return
    print(f"{protection.spec}: {proved}")
    print(f"{clip.frames:,} frames of {width}x{height}, {clip.seconds:.1f} s, without sound and metadata")
    for kind, count in sorted(clip.left_out.items()):
        print(f"left out: {count:,} ({kind} track{'s' * (count > 1)})")
    if clip.faces:
        print(f"boxes: at most {clip.faces} at once; {clip.without:,} frames have none")
        if words := getattr(protection, "searched", None):
            print(f"every frame was searched: {words}")
    print(f"{'charged' if clip.charged else 'charged before'}, as one image; ledger: {ledger}")
    for line in _new_ledger(opened.begun):
        print(line)


def _state_guarantee(protection: Any, shape: "Shape", count: int) -> str:
    """State the guarantees for pixels, and for the person shown: of one release, or of all of one person."""
    from sfumato.protect.naming import PEOPLE, bound_naming, guarantee_words, naming_words

    words = f"{guarantee_words(protection, shape)}; {naming_words(protection, shape)}"
    if count > 1 and bound_naming(protection, shape, candidates=max(PEOPLE)).proves:
        words += f"; if all are of one person, {naming_words(protection, shape, releases=count)}"
    return words


def _new_ledger(begun: bool) -> Iterator[str]:
    """Say which limits a ledger begins with, if it is new."""
    from sfumato.device.ledger.tables import DEFAULT_BUDGETS, describe

    limits = "; ".join(f"{describe(scope)} may have {budget}" for scope, budget in DEFAULT_BUDGETS.items())
    if begun:
        yield f"the ledger is new: {limits} (change it with `sfumato ledger budget`)"
