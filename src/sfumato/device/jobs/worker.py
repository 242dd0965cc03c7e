"""What the tasks of a folder job do: read images, have them charged, and write their releases."""

import errno
import hashlib
import hmac
import io
import os
import tarfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sfumato import images, wire
from sfumato.artefacts import read_card
from sfumato.device.jobs import releasing
from sfumato.device.jobs.journal import Row
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.fingerprints import look
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.storage import Storage
from sfumato.errors import BudgetExceededError, ConfigError, ImageError, MissingExtraError, SpecError
from sfumato.images import Pixels
from sfumato.protect.release import KINDS, Release, artefact_of, kind_of
from sfumato.protect.spec import parse, portable

if TYPE_CHECKING:
    from sfumato.protect.answer import AnswerRelease
    from sfumato.wire import AnyRelease

SHARDS = (".tar", ".tar.gz", ".tgz")

RELEASE = "RELEASE"  # the format in which a release travels
TEXT = "TEXT"  # that of answers

_SUFFIX = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", RELEASE: ".release", TEXT: ".txt"}
_GROUP_BYTES = 16 << 20  # of pixels that are released together

GREY, COLOUR = "grey images made colour", "colour images made grey"

SAME_NAME = "its release would have the name of another one"
_IN_THE_WAY = "a file that is not of this run has its name"


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """How releases of a folder are written.

    Attributes:
        format_name: "PNG", "WEBP" or "BMP" (what was released, exactly), or "JPEG" (lossy: hides no less, but
            is no longer quite what a denoiser was trained on). What a mask hides is transparent: PNG, WEBP.
            "RELEASE" is what travels to a service, see sfumato.wire: codes and features have no other; and
            answers are "TEXT", the name of the class.
        cells: write a pixel for each cell rather than enlarge it, for receivers that enlarge.
        rename: names from a secret key in place of the original ones, in folders that mean nothing.
        people: each folder of the source, with all below it, has the images of one person, for the budgets of
            people; otherwise nobody says who is in an image.
        size: every image becomes a centre square of this side, in pixels, before it is protected; None keeps
            its own size.
        channels: 3 or 1 makes every image colour or grey; None keeps its own, but for a trained protection,
            which takes images as it was trained on.
    """

    format_name: str = "PNG"
    cells: bool = False
    rename: bool = False
    people: bool = False
    size: int | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        if self.format_name not in _SUFFIX:
            raise ConfigError(f"format {self.format_name}: choose one of {', '.join(_SUFFIX)}")
        if self.size is not None and self.size < 1:
            raise ConfigError(f"size={self.size}: at least 1 pixel")


def channels_of(protection: Any) -> int | None:
    """How many channels the images have that a trained protection takes; None for any."""
    artefact = getattr(protection, "artefact", None)
    return None if artefact is None else int(read_card(artefact)["shape"][0])


def read_as(read: Callable[[int | None], Pixels], channels: int | None, counts: Counter[str]) -> Pixels:
    """Read an image with these channels, and count it where its own are others.

    Args:
        read: gives the image with 1 or 3 channels, or for None with its own.
        channels: of the result; None for its own.
        counts: of GREY and COLOUR.
    """
    image = read(None)
    if channels in (None, len(image)):
        return image
    counts[GREY if channels == 3 else COLOUR] += 1
    return read(channels)


@dataclass(frozen=True)
class Job:
    """What a worker has to know.

    Attributes:
        source: where the images lie.
        target: where releases go; None for a dry run, which writes nothing and keeps no release.
        spec: the protection.
        config: how releases are written.
        secret: what new names are made from.
    """

    source: Storage
    target: Storage | None
    spec: str
    config: FolderConfig
    secret: bytes

    def person(self, name: str) -> str | None:
        """Who is in the image of that name; None where nobody says."""
        folder, slash, _ = name.partition("/")
        return folder if self.config.people and slash else None

    def output(self, name: str) -> str:
        """The path below the target for the release of a file, or of a member of a shard."""
        suffix = ".tar" if is_shard(name) else _SUFFIX[self.config.format_name]
        if self.config.rename:
            secret = hmac.new(self.secret, os.fsencode(name), hashlib.sha256).hexdigest()
            return f"{secret[:2]}/{secret[2:18]}{suffix}"
        ending = next((end for end in SHARDS if name.lower().endswith(end)), PurePosixPath(name).suffix)
        return name[: len(name) - len(ending)] + suffix


@dataclass(frozen=True)
class Item:
    """A file to be released.

    Attributes:
        name: its path below the source.
        stamp: by which a change is noticed; see storage.Entry.
        size: in bytes.
        output: where its release goes, below the target.
        ours: whether an earlier release of it lies there, which may be replaced.
    """

    name: str
    stamp: str
    size: int
    output: str
    ours: bool


def is_shard(name: str) -> bool:
    """Whether a file is a tar file by its name."""
    return name.lower().endswith(SHARDS)


def usual_format(kind: str) -> str:
    """The format of a kind of releases, where nobody asks for another."""
    return {"numbers": RELEASE, "bits": RELEASE, "answer": TEXT}.get(kind, "PNG")


def encoded(
    release: "AnyRelease | AnswerRelease", config: FolderConfig, *, made_of: str | None
) -> Iterator[bytes]:
    """The files of the images of a release, one after the other.

    Args:
        release: of a kind that has this format, see folder.check_format.
        config: the format.
        made_of: `release.artefact_of` of the protection.
    """
    if kind_of(release) == "answer":
        yield from (f"{name}\n".encode() for name in cast("AnswerRelease", release).names)
        return
    sent = cast("AnyRelease", release)
    if config.format_name == RELEASE:
        for row in range(len(sent.values)):
            yield wire.encode(sent.rows([row]), made_of=made_of)
        return
    assert isinstance(sent, Release)  # folder.check_format said so
    pixels = sent.array if config.cells else sent.pictures()
    shown = repeat(None) if sent.shown is None else sent.shown
    for image, mask in zip(pixels, shown, strict=False):
        yield images.encode(image, config.format_name, shown=mask)


@dataclass(frozen=True)
class _Source:
    """An image to be released: its name, what to count it in, how to read it, where it lies, who is in it."""

    name: str
    row: Row
    read: Callable[[int | None], Pixels]
    folder: str | os.PathLike[str]
    person: str | None
    printed: Fingerprint | None = None  # once it was read


def _decoded(data: bytes, channels: int | None) -> Pixels:
    return images.read_array(data, channels=channels)


_Sink = Callable[[_Source, bytes], None]
_Group = list[tuple[_Source, Pixels]]


class Worker:
    """Releases chunks of files. State: its connection to the ledger."""

    def __init__(self, job: Job, ledger: Ledger) -> None:
        self.job = job
        self.ledger = ledger
        self._protection: Any = parse(job.spec, takes=KINDS)
        self._artefact = artefact_of(self._protection)

    def work(self, items: list[Item]) -> list[Row]:
        """Release files, or one shard."""
        if is_shard(items[0].name):
            return [self._shard(items[0])]
        item_of = {item.name: item for item in items}
        rows = {item.name: Row(source=item.name, stamp=item.stamp) for item in items}

        def sources() -> Iterator[_Source]:
            storage = self.job.source
            for name, row in rows.items():
                read = partial(storage.image, name)  # and channels
                yield _Source(name, row, read, storage.lies_in(name), self.job.person(name))

        def sink(source: _Source, content: bytes) -> None:
            assert self.job.target is not None
            item = item_of[source.name]
            self.job.target.put(item.output, content, replace=item.ours)
            source.row.output, source.row.size = item.output, len(content)
            source.row.sha256 = hashlib.sha256(content).hexdigest()

        self._release_all(sources(), sink)
        return list(rows.values())

    def _shard(self, item: Item) -> Row:
        row = Row(source=item.name, stamp=item.stamp)
        sources = self._members(item.name, row)
        try:
            if self.job.target is None:
                self._release_all(sources, lambda source, content: None)
                return row
            with self.job.target.file(item.output, replace=item.ours) as temporary:
                with tarfile.open(temporary, "w") as out:
                    self._release_all(sources, _TarSink(out, self.job))
                with temporary.open("rb") as written:
                    row.sha256 = hashlib.file_digest(written, "sha256").hexdigest()
                row.size = temporary.stat().st_size
            row.output = item.output
        except (_DamagedShardError, OSError) as error:
            cause = self._cause_of(error) if isinstance(error, OSError) else str(error)
            row = Row(source=item.name, stamp=item.stamp, charged=row.charged)
            row.fail(cause, item.name)
        return row

    def _members(self, shard_name: str, row: Row) -> Iterator[_Source]:
        """The images of a shard, one after another. Raises _DamagedShardError."""
        outputs: set[str] = set()
        folder = self.job.source.lies_in(shard_name)
        try:
            with (
                self.job.source.stream(shard_name) as content,
                tarfile.open(fileobj=content, mode="r|*", tarinfo=_StrictTarInfo) as shard,
            ):
                for member in shard:
                    parts = PurePosixPath(member.name).parts
                    name = "/".join(parts)
                    if member.isdir() or not parts:
                        continue
                    if ".." in parts or member.name.startswith("/"):
                        row.fail("a name that leads out of the tar file", member.name)
                    elif not member.isfile() or any(part.startswith(".") for part in parts):
                        row.left_out["hidden, or no regular files"] += 1
                    elif not name.lower().endswith(tuple(images.SUFFIXES)):
                        row.left_out["no images by their names"] += 1
                    elif self.job.output(name) in outputs:
                        row.fail(SAME_NAME, member.name)
                    elif member.size > images.reading.MAX_BYTES:
                        row.fail("more bytes than allowed", member.name)
                    else:
                        outputs.add(self.job.output(name))
                        extracted = shard.extractfile(member)
                        data = extracted.read() if extracted else b""
                        person = self.job.person(shard_name) or self.job.person(name)
                        read = partial(_decoded, data)
                        yield _Source(name, row, read, folder, person)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise _DamagedShardError(f"a tar file that cannot be read ({reason})") from error
        except (tarfile.TarError, EOFError, ValueError, zlib.error) as error:
            raise _DamagedShardError("a damaged tar file") from error

    def _release_all(self, sources: Iterator[_Source], sink: _Sink) -> None:
        """Read images, and release them in groups that are charged together."""
        group: _Group = []
        size = 0
        for source in sources:
            try:
                picture = read_as(source.read, self.job.config.channels, source.row.counts)
                image, printed = picture, None
                if self.job.config.size is not None:
                    image, printed = look(picture, self.job.config.size)
            except ImageError as error:
                source.row.fail(error.cause, source.name)
                continue
            except MissingExtraError as error:
                source.row.fail(str(error), source.name)
                continue
            group.append((replace(source, printed=printed), image))
            size += image.size
            if size >= _GROUP_BYTES:
                self._release_group(group, sink)
                group, size = [], 0
        self._release_group(group, sink)

    def _release_group(self, group: _Group, sink: _Sink) -> None:
        by_shape: dict[tuple[int, ...], _Group] = {}
        for source, image in group:
            by_shape.setdefault(tuple(image.shape), []).append((source, image))
        for shape, members in by_shape.items():
            for released, release in self._released(members):
                writes = self.job.target is not None
                files: Iterator[bytes] = repeat(b"")
                if writes:
                    files = encoded(release, self.job.config, made_of=self._artefact)
                boxes = getattr(release, "boxes", repeat(None))  # of a protection of parts
                for (source, _), content, count in zip(released, files, boxes, strict=False):
                    try:
                        if writes:
                            sink(source, content)
                    except OSError as error:
                        source.row.fail(self._cause_of(error), source.name)
                    else:
                        source.row.shapes["x".join(map(str, shape))] += 1
                        if count is not None:
                            source.row.count_boxes(source.name, count)

    def _cause_of(self, error: OSError) -> str:
        """Why this one file cannot be written. Raises OSError where no other file would fare better."""
        if error.errno == errno.ENAMETOOLONG:
            return "a name that is too long for the target"
        if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
            return _IN_THE_WAY
        cure = "what was finished is kept: fix that, and run the same command again to resume"
        raise OSError(error.errno, f"{error.strerror}; {cure}", str(self.job.target)) from error

    def _released(self, members: _Group) -> Iterator[tuple[_Group, "AnyRelease | AnswerRelease"]]:
        """Images of one shape -> those that were released, in groups, with the releases."""
        whole = (
            self.job.config.size is None
        )  # an image is what was read: its fingerprint is taken with others
        try:
            release, new, _ = releasing.charged_release(
                self._protection,
                np.stack([image for _, image in members]),
                self.ledger,
                folders=[source.folder for source, _ in members],
                people=[source.person for source, _ in members],
                names=[source.name for source, _ in members],
                printed=None if whole else [source.printed for source, _ in members],
            )
        except SpecError:
            for source, _ in members:
                source.row.fail(f"an image that {portable(self.job.spec)} does not fit", source.name)
        except (BudgetExceededError, ImageError) as error:
            if len(members) == 1:
                source = members[0][0]
                source.row.fail(error.cause, source.name, str(error))
                return
            for member in members:
                yield from self._released([member])
        else:
            members[0][0].row.charged += new
            yield members, release


class _DamagedShardError(Exception):
    """A shard cannot be read to its end."""


class _StrictTarInfo(tarfile.TarInfo):
    """A header of a tar file. Where one is damaged, tarfile would end there, and lose the rest in silence."""

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_StrictTarInfo":
        try:
            return super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":  # the regular end
                raise
            raise tarfile.ReadError(str(error)) from error


class _TarSink:
    """Adds releases to a tar file under the names of the originals, or new ones, and nothing else."""

    def __init__(self, out: tarfile.TarFile, job: Job) -> None:
        self._out = out
        self._job = job

    def __call__(self, source: _Source, content: bytes) -> None:
        member = tarfile.TarInfo(self._job.output(source.name))
        member.size = len(content)
        self._out.addfile(member, io.BytesIO(content))


# The worker of this thread: of its last job, since every task of that job would make the same.
_mine = threading.local()


def release_items(job: Job, items: list[Item], ledger: Callable[[], Ledger]) -> list[Row]:
    """Release files, or one shard, as a task of a job: done again, it gives the same."""
    if getattr(_mine, "worker", None) is None or _mine.worker.job != job:
        _mine.worker = Worker(job, ledger())
    rows: list[Row] = _mine.worker.work(items)
    return rows


def close() -> None:
    """Let go of the ledger, after a job whose tasks ran in this thread."""
    if getattr(_mine, "worker", None) is not None:
        _mine.worker.ledger.close()
        _mine.worker = None
