"""`sfumato protect`: release a folder, a tar shard, or one image, by the ledger of this device.

Places are text, since a Path would turn the two slashes of a URL into one.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfumato.cli.options import Address, LedgerFile
from sfumato.cli.show import AsJson, keeping_work, print_json, stderr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sfumato.base.engines import EngineConfig
    from sfumato.device.jobs.folder import FolderConfig, Outcome
    from sfumato.images import Images
    from sfumato.protect import Protection

_STREAM = Path("-")
_FILES = ("png", "jpg", "jpeg", "webp", "bmp", "release", "txt", "tar")
_SHOWN = 3  # sizes of images whose guarantee is printed


def protect(
    source: Annotated[
        str,
        typer.Argument(
            help="A folder of any depth, a tar file, or the URL of one. Or an image, a video, or - for "
            "standard input."
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            help="A new folder or its URL. For one image or video: a new file, or - for standard output."
        ),
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
        bool,
        typer.Option("--rename", help="Write files under new names that reveal nothing about the originals."),
    ] = False,
    size: Annotated[
        int | None,
        typer.Option(
            min=1, help="First crop every image to its centre square and resize it to this side, in pixels."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Protect only a part, and show the rest unchanged: faces, background (all but the faces), "
            "or box:FILE, a CSV with left,top,right,bottom.",
        ),
    ] = None,
    detector: Annotated[
        Path | None, typer.Option(help="The weights of MTCNN, to find faces without the extra faces.")
    ] = None,
    margin: Annotated[
        float | None,
        typer.Option(help="Widen each face on every side by this share of its size (default: 0.25)."),
    ] = None,
    no_face: Annotated[
        str | None,
        typer.Option(
            "--no-face",
            help="What to do if no face is found: stop releases nothing of the image (default), all "
            "protects all of it.",
        ),
    ] = None,
    preview: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the first image next to its release as a PNG, and nothing else."
        ),
    ] = None,
    people: Annotated[
        bool,
        typer.Option("--people", help="Each sub-folder is one person: their images share a budget."),
    ] = False,
    engine: Annotated[
        str, typer.Option(help="Where files are protected: local, or ray for a cluster.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="How many processes or tasks run at the same time (default: one per core)."),
    ] = None,
    address: Address = None,
    ledger: LedgerFile = None,
    failures: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write name and cause of each file of a folder that fails to this CSV. Keep it here.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read everything, write nothing, and print the cost.")
    ] = False,
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
    from sfumato.device.jobs import video
    from sfumato.device.jobs.folder import FolderConfig
    from sfumato.device.jobs.worker import PAGES, channels_of, is_shard, usual_format
    from sfumato.device.ledger import default_path
    from sfumato.device.storage import is_url
    from sfumato.errors import ConfigError, DataError
    from sfumato.protect.release import KINDS, kind_of

    _check_source(source)
    if spec == "none":
        raise ConfigError(
            "none: protects nothing, so these images would leave in clear: choose a protection, such as "
            "dp-pix:cell=8,epsilon=3"
        )
    protection: Any = protections.parse(
        _on_part(spec, where, detector, margin, no_face), takes=KINDS if where is None else ("pixels",)
    )
    if Path(source).suffix.lower() in video.SUFFIXES and not is_url(source):
        _clip(source, target, protection, ledger or default_path(), as_json=as_json)
        return
    many = is_url(source) or Path(source).is_dir() or is_shard(source)
    suffix = "" if many or Path(target).is_dir() else Path(target).suffix.lower().removeprefix(".")
    name = (format_name or suffix or usual_format(kind_of(protection))).upper()
    config = FolderConfig(
        format_name={"JPG": "JPEG", "TXT": "TEXT"}.get(name, name),
        cells=cells,
        rename=rename,
        people=people,
        size=size,
        channels=channels_of(protection),
    )
    if many and Path(target).suffix.lower().removeprefix(".") in _FILES and not Path(target).exists():
        raise DataError(f"{target}: {source} is many images, and this names one file: name a new folder")
    engines = EngineConfig(name=engine, workers=workers, address=address)
    ledger = ledger or default_path()
    if preview is not None:
        _preview(source, target, preview, protection, config, many=many)
    elif not many:
        left_out = _one(source, target, protection, ledger, config, dry_run, as_json=as_json)
        if PAGES in left_out:
            raise typer.Exit(1)
    else:
        if failures is not None:
            _check_kept(failures, target)
        outcome = _many(source, target, protection, ledger, config, engines, dry_run, as_json=as_json)
        if failures is not None:
            _write_failures(failures, outcome)
        elif len(outcome.failed) > len(outcome.failures) and not as_json:
            print("each file that failed, by name: the same command with --failures FILE")
        if outcome.failures or outcome.left_out[PAGES]:
            raise typer.Exit(1)
        if not outcome.shapes:
            raise DataError(f"{source}: has no images: name a folder or a tar file that holds some")


def _check_source(source: str) -> None:
    """Raise DataError if the source is written as for a study, not a folder or an image."""
    from sfumato.errors import DataError

    kind, _, path = source.partition(":")
    if (kind == "parquet" and path) or Path(source).suffix.lower() == ".parquet":
        file = path if kind == "parquet" else source
        raise DataError(
            f"{source}: is a table with images in it: write them as files with `sfumato data write "
            f"parquet:{file} DIR --size 224`, and protect DIR/images"
        )
    if kind in ("folder", "table") and path and not Path(source).exists():
        what = f"write {path}" if kind == "folder" else "name the folder of its images, or an image"
        raise DataError(f"{source}: is a source of data for studies: {what}")
    if Path(source).suffix.lower() == ".csv":
        raise DataError(f"{source}: is a table: name the folder of its images, or an image")


def _on_part(
    spec: str, where: str | None, detector: Path | None, margin: float | None, no_face: str | None
) -> str:
    """Write the spec of a protection on a part of the image, for sfumato.protect.region; see the options."""
    from sfumato.errors import ConfigError
    from sfumato.protect.parameters import PLACES

    asked = {"detector": detector, "margin": margin, "no-face": no_face}
    given = [name for name, value in asked.items() if value is not None]
    if where is None:
        if given:
            raise ConfigError(f"--{given[0]} is for parts of an image: add --where faces, or leave it out")
        return spec
    place, _, file = where.partition(":")
    if place not in PLACES:
        raise ConfigError(f"--where {where}: faces, background, or box:FILE")
    if place == "box" and (not file or given):
        raise ConfigError(
            f"--where {where}: box:FILE names a CSV with left,top,right,bottom, and takes no --detector, "
            "--margin or --no-face"
        )
    if place != "box" and file:
        raise ConfigError(f"--where {where}: the weights that find faces are named with --detector FILE")
    if place != "box" and detector is None:
        from sfumato.networks.faces.center_face import WEIGHTS  # imports PyTorch

        WEIGHTS.path()  # fails now, not for each image, if it is not installed
    more = [f"file={file or detector}"] if file or detector else []
    more += [f"margin={margin:g}"] if margin is not None else []
    more += [f"missing={no_face}"] if no_face is not None else []
    return f"{spec}@{place}{':' if more else ''}{','.join(more)}"


def _many(
    source: str,
    target: str,
    protection: "Protection",
    ledger: Path,
    config: "FolderConfig",
    engine: "EngineConfig",
    dry_run: bool,
    *,
    as_json: bool,
) -> "Outcome":
    """Release a folder under a progress bar, and print the outcome."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from sfumato.device.jobs import folder

    begun = not ledger.exists()
    _warn(folder.first_image(source, config), protection)
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=stderr()) as progress:
        task = progress.add_task("reading the folder", total=None)

        def report(images: int, done: int, total: int) -> None:
            seconds = progress.tasks[task].elapsed or 1e-9
            words = f"{images:,} images, {images / seconds:,.0f} a second, left:"
            progress.update(task, completed=done, total=total, description=words)

        if dry_run:
            outcome = folder.dry_run(source, protection, ledger, config, engine=engine, report=report)
        else:
            with keeping_work():
                outcome = folder.protect_folder(
                    source, target, protection, ledger, config, engine=engine, report=report
                )
        seconds = progress.tasks[task].elapsed or 1e-9
    if as_json:
        print_json({"dry_run": dry_run, **_in_numbers(outcome, protection, ledger)})
    else:
        _tell(outcome, protection, ledger, config, seconds, begun=begun and ledger.exists(), dry_run=dry_run)
    return outcome


def _tell(
    outcome: "Outcome",
    protection: "Protection",
    ledger: Path,
    config: "FolderConfig",
    seconds: float,
    *,
    begun: bool,
    dry_run: bool,
) -> None:
    """Print the outcome of a folder."""
    from sfumato.base.files import printable
    from sfumato.device.jobs.manifest import NAMED
    from sfumato.device.jobs.worker import SAME_NAME

    did = "would protect" if dry_run else "protected"
    print(f"{did} {outcome.shapes.total():,} images with {protection.spec} ({seconds:.1f} s)")
    for shape, count in outcome.shapes.most_common(_SHOWN):
        print(f"{count:,} of {'x'.join(map(str, shape))}: {_state_guarantee(protection, shape, count)}")
    if len(outcome.shapes) > _SHOWN:
        print(f"{len(outcome.shapes) - _SHOWN} more sizes: see the manifest")
    for words in _describe_counts(protection, outcome.counts):
        print(words)
    if outcome.stills:
        named = ", ".join(f"{printable(name)} {boxes}" for name, boxes in outcome.stills)
        print(f"in each: {named}{', ...: see the manifest' if outcome.shapes.total() > NAMED else ''}")
    if outcome.without:
        named = ", ".join(map(printable, outcome.without[:NAMED])) + ", ..." * (len(outcome.without) > NAMED)
        print(f"no face was found in {len(outcome.without):,} images, all of which is protected: {named}")
    if stopped := _without_face(outcome):
        named = ", ".join(map(printable, stopped[:NAMED])) + ", ..." * (len(stopped) > NAMED)
        print(f"no face was found in {len(stopped):,} images, which are not released: {named}")
    if not outcome.shapes and not dry_run:
        print("nothing was released, so there is no folder of releases and no manifest")
    if outcome.shapes or ledger.exists():
        print(
            f"{'would charge' if dry_run else 'charged'} {outcome.charged:,} new releases; ledger: {ledger}"
        )
    if begun and not dry_run:
        print(_describe_new_ledger())
    if outcome.earlier:
        print(f"there already from an earlier run: {outcome.earlier:,} files")
    for reason, count in sorted(outcome.left_out.items()):
        print(f"left out: {count:,} ({reason})")
    for cause, (count, first) in sorted(outcome.failures.items()):
        print(f"failed: {count:,} ({cause}), such as {printable(first)}")
        if cause in outcome.words:
            print(printable(outcome.words[cause]))
    if any(cause.endswith(" does not fit") for cause in outcome.failures):
        print(_cure_of_size(protection))
    if outcome.shapes and (searched := getattr(protection, "searched", None)):
        print(f"searched: {searched}")
    if not config.rename and any(cause.startswith(SAME_NAME) for cause in outcome.failures):
        print("the same command with --rename, into a new folder, gives each release a name of its own")
    if outcome.manifest is not None:
        print(f"manifest: {outcome.manifest}")


def _without_face(outcome: "Outcome") -> list[str]:
    """List the images that are not released since no face was found."""
    from sfumato.protect.region import NO_FACE

    return [name for name, cause, _ in outcome.failed if cause == NO_FACE]


def _describe_counts(protection: "Protection", counts: "Mapping[str, int]") -> list[str]:
    """Put the counts of images in words, a line each."""
    from sfumato.device.jobs.manifest import counts_by_word

    return [
        f"{what.replace('_', ' ')}: {count:,}" for what, count in counts_by_word(protection, counts).items()
    ]


def _check_kept(file: Path, target: str | None) -> None:
    """Raise DataError if a file exists already, or would leave with the releases in a folder."""
    from sfumato.errors import DataError

    if file.exists():
        raise DataError(f"{file}: already exists: name another file, or remove it")
    if target is not None and file.resolve().is_relative_to(Path(target).resolve()):
        raise DataError(
            f"{file}: shows or names originals, and lies in {target}, which leaves: name another file"
        )


def _write_failures(file: Path, outcome: "Outcome") -> None:
    from sfumato.base.files import whole, write_rows

    rows = [("file", "cause", "images"), *sorted(outcome.failed)]
    with (
        whole(file) as temporary,
        temporary.open("w", newline="", encoding="utf-8", errors="surrogateescape") as out,
    ):
        write_rows(out, rows)
    print(f"failures: {file}, {len(outcome.failed):,} files by name. Keep it here: it names originals")


def _in_numbers(outcome: "Outcome", protection: "Protection", ledger: Path) -> dict[str, Any]:
    """Turn the outcome of a folder into JSON."""
    from sfumato.device.jobs.manifest import counts_by_word

    return {
        "spec": protection.spec,
        "images": outcome.shapes.total(),
        "shapes": [
            {"shape": list(shape), "images": count, "proved": _state_guarantee(protection, shape, count)}
            for shape, count in outcome.shapes.most_common()
        ],
        "charged": outcome.charged,
        "ledger": str(ledger),
        "earlier": outcome.earlier,
        "left_out": dict(outcome.left_out),
        **counts_by_word(protection, outcome.counts),
        **({"protected_whole": outcome.without} if outcome.without else {}),
        **({"without_face": names} if (names := _without_face(outcome)) else {}),
        "failed": {
            cause: {"images": count, "first": first} for cause, (count, first) in outcome.failures.items()
        },
        "manifest": None if outcome.manifest is None else str(outcome.manifest),
    }


def _preview(
    source: str, target: str, file: Path, protection: "Protection", config: "FolderConfig", *, many: bool
) -> None:
    """Write the first image next to its release, without a charge or a release."""
    from sfumato import images
    from sfumato.device.jobs import folder
    from sfumato.errors import DataError

    _check_kept(file, target if many else None)
    if many:
        image = folder.first_image(source, config)
        if image is None:
            raise DataError(f"{source}: has no image to preview outside of tar files")
    else:
        data = sys.stdin.buffer.read(images.reading.MAX_BYTES + 1) if source == "-" else source
        image = images.read_array(data, channels=config.channels, size=config.size)
    both = folder.preview(image, protection)
    images.write(file, both)
    _warn(image, protection)
    print(f"preview: {file}, the original and its release. Keep it here: it shows the original")
    print("nothing was charged or released: the same command without --preview does that")


def _warn(image: "Images | None", protection: "Protection") -> None:
    """Warn before anything leaves if people remain recognisable."""
    from sfumato.errors import ImageError
    from sfumato.protect.recognisable import recognisable
    from sfumato.protect.region import Region

    # Only cells are warned of: for others, no faces need to be found.
    if image is not None and getattr(getattr(protection, "inner", protection), "cell", 1) != 1:
        channels, height, width = image.shape
        if isinstance(protection, Region):
            try:
                boxes = protection.boxes(image)
            except ImageError:
                boxes = []
            heights = [(bottom - top, right - left) for top, bottom, left, right in boxes]
            height, width = max(heights, default=(height, width))
            protection = protection.inner
        if words := recognisable(protection, (channels, height, width)):
            typer.echo(f"warning: {words}", err=True)


def _one(
    source_name: str,
    target_name: str,
    protection: "Protection",
    ledger: Path,
    config: "FolderConfig",
    dry_run: bool,
    *,
    as_json: bool,
) -> "Mapping[str, int]":
    """Release one image; words go to standard error, since the release may go to standard output.

    Returns:
        the number of other pictures in its file, which were left out, by their kind.
    """
    from sfumato.base.files import check_writable, whole
    from sfumato.device.jobs.folder import protect_image
    from sfumato.device.jobs.manifest import counts_by_word
    from sfumato.device.ledger import Ledger
    from sfumato.device.storage import is_url, without_password
    from sfumato.errors import DataError
    from sfumato.images.reading import MAX_BYTES, read_array

    if as_json and target_name == str(_STREAM):
        raise DataError("--json and the image would both go to standard output: name a file for the image")
    if dry_run:
        raise DataError("--dry-run is for folders and tar files")
    if is_url(target_name):
        raise DataError(f"{without_password(target_name)}: one image needs a local file: release its folder")
    source, target = Path(source_name), Path(target_name)
    if target.is_dir():
        stem = "image" if config.rename or source == _STREAM else source.stem
        target = target / f"{stem}.{config.format_name.lower()}"
    if target != _STREAM and target.exists():
        raise DataError(f"{target}: already exists, and might be an original: name a new file")
    if target != _STREAM:
        check_writable(target)
    image = sys.stdin.buffer.read(MAX_BYTES + 1) if source == _STREAM else source
    _warn(read_array(image, channels=None, size=config.size), protection)
    with Ledger(ledger) as opened:
        begun = opened.begun
        released = protect_image(image, protection, opened, config)
    if target == _STREAM:
        sys.stdout.buffer.write(released.content)
    else:
        with whole(target) as temporary:
            temporary.write_bytes(released.content)
    proved = _state_guarantee(protection, released.shape, 1)
    if as_json:
        result = {"spec": protection.spec, "shape": list(released.shape), "proved": proved}
        left_out = {"left_out": dict(released.left_out)} if released.left_out else {}
        counts = {**counts_by_word(protection, released.counts), **left_out}
        print_json({**result, "charged": released.charged, **counts})
        return released.left_out
    print(f"{protection.spec}: {proved}", file=sys.stderr)
    for words in _describe_counts(protection, released.counts):
        print(words, file=sys.stderr)
    if searched := getattr(protection, "searched", None):
        print(f"searched: {searched}", file=sys.stderr)
    for reason, count in released.left_out.items():
        print(f"left out: {count:,} ({reason})", file=sys.stderr)
    charged = "charged" if released.charged else "released before, and given again at no cost"
    print(f"{charged}; ledger: {ledger}", file=sys.stderr)
    if begun:
        print(_describe_new_ledger(), file=sys.stderr)
    return released.left_out


def _clip(source: str, target: str, protection: Any, ledger: Path, *, as_json: bool) -> None:
    """Release a video, and print the outcome."""
    from dataclasses import asdict

    from sfumato.device.jobs.video import protect_video
    from sfumato.device.ledger import Ledger
    from sfumato.errors import DataError

    if Path(target).exists():
        raise DataError(f"{target}: already exists, and might be an original: name a new file")
    with Ledger(ledger) as opened:
        begun = opened.begun
        clip = protect_video(source, target, protection, opened)
    shape = (3, *clip.size)
    if as_json:
        print_json(
            {"spec": protection.spec, "proved": _state_guarantee(protection, shape, 1), **asdict(clip)}
        )
        return
    print(f"{protection.spec}: {_state_guarantee(protection, shape, 1)}")
    height, width = clip.size
    print(f"{clip.frames:,} frames of {width}x{height}, {clip.seconds:.1f} s, without sound and metadata")
    for kind, count in sorted(clip.left_out.items()):
        print(f"left out: {count:,} ({kind} track{'s' * (count > 1)})")
    if clip.faces:
        print(f"boxes: at most {clip.faces} at once; {clip.without:,} frames have none")
        if words := getattr(protection, "searched", None):
            print(f"every frame was searched: {words}")
    print(f"{'charged' if clip.charged else 'charged before'}, as one image; ledger: {ledger}")
    if begun:
        print(_describe_new_ledger())


def _cure_of_size(protection: "Protection") -> str:
    """Say how to make images fit a protection."""
    from sfumato.artefacts import read_card

    artefact = getattr(protection, "artefact", None)
    if artefact is None:
        return "smaller cells fit, or shares of the image, such as cell=1/8"
    channels, height, width = read_card(artefact)["shape"]
    wanted = f"it is for images of {channels}x{height}x{width}"
    return f"{wanted}: --size {height} makes such squares" if height == width else f"{wanted}: resize"


def _state_guarantee(protection: "Protection", shape: tuple[int, int, int], count: int) -> str:
    """State the guarantees for pixels, and for the person shown: of one release, or of all of one person."""
    from sfumato.protect.naming import PEOPLE, bound_naming, guarantee_words, naming_words

    words = f"{guarantee_words(protection, shape)}; {naming_words(protection, shape)}"
    if count > 1 and bound_naming(protection, shape, candidates=max(PEOPLE)).proves:
        words += f"; if all are of one person, {naming_words(protection, shape, releases=count)}"
    return words


def _describe_new_ledger() -> str:
    from sfumato.device.ledger.scopes import describe
    from sfumato.device.ledger.tables import DEFAULT_BUDGETS

    limits = "; ".join(f"{describe(scope)} may have {budget}" for scope, budget in DEFAULT_BUDGETS.items())
    return f"the ledger is new: {limits} (change it with `sfumato ledger budget`)"
