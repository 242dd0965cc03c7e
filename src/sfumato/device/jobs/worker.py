"""The tasks of a folder job: read images, charge them, and write their releases."""

import errno
import hashlib
import hmac
import os
import tarfile
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, cast

import numpy as np

from sfumato import images, wire
from sfumato.artefacts import read_card
from sfumato.base.tars import DamagedTarError, read_members
from sfumato.device.jobs import releasing
from sfumato.device.jobs.journal import BOXES, Outcome
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.near_copies import Fingerprint, look
from sfumato.device.storage import Storage
from sfumato.errors import BudgetExceededError, ConfigError, ImageError, MissingExtraError, SpecError
from sfumato.images import SUFFIXES, Pixels
from sfumato.protect.release import KINDS, artefact_of
from sfumato.protect.spec import parse, portable

SHARDS = (".tar", ".tar.gz", ".tgz")

RELEASE = "RELEASE"  # the format of a release on its way to a service
TEXT = "TEXT"  # the format of answers

_SUFFIX = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp", RELEASE: ".release", TEXT: ".txt"}
_GROUP_BYTES = 16 << 20  # of pixels released together

GREY, COLOUR = "grey images made colour", "colour images made grey"
NOBODY = "images outside of the folders of people"

# Pictures of one file behind the first, which alone is released.
PAGES = "further pages or frames of their files"
SMALLER = "smaller pictures in files of photographs: thumbnails, gain maps, depth maps"
NO_IMAGES = "no images by their first bytes"
_PHOTOGRAPHS = (".jpg", ".jpeg", ".jpe", ".jif", ".jfif", ".jfi", ".mpo", ".heic", ".heif", ".hif")

SAME_NAME = "its release would have the same name as another"


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """The output settings of a folder job.

    Attributes:
        format_name: "PNG", "WEBP" or "BMP" (lossless), or "JPEG" (lossy: hides no less, but differs from the
            images that a denoiser was trained on). A mask writes hidden pixels as transparent: PNG, WEBP.
            Codes and features are "RELEASE", see sfumato.wire, and answers "TEXT", the name of the class.
        cells: write a pixel for each cell rather than enlarge it, for receivers that enlarge.
        rename: derive names from a secret key, in meaningless folders. All files have one time, and are
            written in the order of these names, in tar files, too.
        people: each folder of the source, with all below it, is one person; otherwise they are unknown.
        size: every image becomes a centre square of this side, before protection; None keeps its size.
        channels: 3 or 1 makes every image colour or grey; None takes a trained protection's, or its own.
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
    """Return the channels that a trained protection takes; None for any."""
    artefact = getattr(protection, "artefact", None)
    return None if artefact is None else int(read_card(artefact)["shape"][0])


def read_as(data: bytes, name: str, channels: int | None, file: Outcome) -> Pixels:
    """Decode the first picture of a file with these channels. Raises ImageError as images.read does.

    Its outcome counts GREY or COLOUR if its own channels differ, and its other pictures: those of
    photographs, told by their suffix, are smaller ones.
    """
    image = images.read_array(data, channels=None)
    if more := images.count_pictures(data) - 1:
        file.left_out[SMALLER if name.lower().endswith(_PHOTOGRAPHS) else PAGES] += more
    if channels in (None, len(image)):
        return image
    file.counts[GREY if channels == 3 else COLOUR] += 1
    return images.read_array(data, channels=channels)


@dataclass(frozen=True)
class Job:
    """The settings of a worker."""

    source: Storage
    target: Storage | None  # None for a dry run, which writes and stores nothing
    spec: str
    config: FolderConfig
    secret: bytes  # the key for new names

    def person(self, name: str) -> str | None:
        """Tell the person by the name of their image; None if unknown."""
        folder, slash, _ = name.partition("/")
        return folder if self.config.people and slash else None

    def output(self, name: str) -> str:
        """Return the path below the target for the release of a file, or of a member of a shard."""
        suffix = ".tar" if is_shard(name) else _SUFFIX[self.config.format_name]
        if self.config.rename:
            secret = hmac.new(self.secret, os.fsencode(name), hashlib.sha256).hexdigest()
            return f"{secret[:2]}/{secret[2:18]}{suffix}"
        ending = next((end for end in (*SHARDS, *SUFFIXES) if name.lower().endswith(end)), "")
        return name[: len(name) - len(ending)] + suffix


class Item(NamedTuple):
    """A file to release."""

    name: str  # its path below the source
    stamp: str  # to notice a change; see storage.Entry
    size: int  # in bytes
    output: str  # path of its release below the target
    ours: bool  # whether an earlier release of it exists there, which may be replaced


def is_image(name: str, head: bytes) -> bool:
    """Whether a file is an image by its suffix, or by its first bytes."""
    return name.lower().endswith(tuple(SUFFIXES)) or images.is_image(head)


def is_shard(name: str) -> bool:
    """Whether the name of a file is that of a tar file."""
    return name.lower().endswith(SHARDS)


def usual_format(kind: str) -> str:
    """Return the default format of a kind of releases."""
    return {"numbers": RELEASE, "bits": RELEASE, "answer": TEXT}.get(kind, "PNG")


def encode_files(release: Any, config: FolderConfig, *, made_of: str | None) -> Iterator[bytes]:
    """Yield the file content for each image of a release whose kind fits, see folder.check_format."""
    if config.format_name == TEXT:
        yield from (f"{name}\n".encode() for name in release.names)
    elif config.format_name == RELEASE:
        for row in range(len(release.array)):
            yield wire.encode(release.rows([row]), made_of=made_of)
    else:
        pixels = release.array if config.cells else release.pictures()
        shown = repeat(None) if release.shown is None else release.shown
        for image, mask in zip(pixels, shown, strict=False):
            yield images.encode(image, config.format_name, shown=mask)


class _Picture(NamedTuple):
    """A picture that was read, with the outcome of its file."""

    name: str
    file: Outcome
    person: str | None
    image: Pixels
    printed: Fingerprint | None


_Listed = Iterator[tuple[str, Outcome, str | None, Callable[[], bytes]]]  # name, file, person, reader
_Sink = Callable[[_Picture, bytes], None]


class Worker:
    """Releases chunks of files. State: its connection to the ledger."""

    def __init__(self, job: Job, ledger: Ledger) -> None:
        self.job, self.ledger = job, ledger
        self._protection: Any = parse(job.spec, takes=KINDS)
        self._artefact = artefact_of(self._protection)

    def work(self, items: list[Item]) -> list[Outcome]:
        """Release files, or one shard."""
        if is_shard(items[0].name):
            return [self._shard(items[0])]
        item_of = {item.name: item for item in items}
        files = {item.name: Outcome(source=item.name, stamp=item.stamp) for item in items}

        def sink(picture: _Picture, content: bytes) -> None:
            assert self.job.target is not None
            item, file = item_of[picture.name], picture.file
            self.job.target.put(item.output, content, replace=item.ours)
            file.output, file.size = item.output, len(content)
            file.sha256 = hashlib.sha256(content).hexdigest()

        read = self.job.source.read
        listed = ((name, file, self.job.person(name), partial(read, name)) for name, file in files.items())
        self._release_all(listed, sink)
        return list(files.values())

    def _shard(self, item: Item) -> Outcome:
        file = Outcome(source=item.name, stamp=item.stamp)
        try:
            if self.job.target is None:
                self._release_all(self._members(file), lambda picture, content: None)
                return file
            with self.job.target.file(item.output, replace=item.ours) as temporary:
                self._write_shard(temporary, file)
                with temporary.open("rb") as written:
                    file.sha256 = hashlib.file_digest(written, "sha256").hexdigest()
                file.size = temporary.stat().st_size
            file.output = item.output
        except (DamagedTarError, OSError) as error:
            cause = self._cause_of(error) if isinstance(error, OSError) else str(error)
            failed = Outcome(source=item.name, stamp=item.stamp, charged=file.charged)
            return failed.fail(cause, item.name)
        return file

    def _write_shard(self, path: Path, file: Outcome) -> None:
        """Write the releases of a shard, without other metadata; new names in their order.

        The order of the originals would tell which releases are of one folder.
        """
        places: list[tuple[str, int, int]] = []
        with tempfile.TemporaryFile(dir=path.parent) as waiting:

            def sink(picture: _Picture, content: bytes) -> None:
                places.append((self.job.output(picture.name), waiting.tell(), len(content)))
                waiting.write(content)

            self._release_all(self._members(file), sink)
            with tarfile.open(path, "w") as out:
                for name, start, size in sorted(places) if self.job.config.rename else places:
                    member = tarfile.TarInfo(name)
                    member.size = size
                    waiting.seek(start)
                    out.addfile(member, waiting)

    def _members(self, file: Outcome) -> _Listed:
        """Yield the images of a shard. Raises DamagedTarError."""
        outputs: set[str] = set()
        try:
            with self.job.source.stream(file.source) as content:
                for member, read in read_members(content):
                    parts = PurePosixPath(member.name).parts
                    name = "/".join(parts)
                    if member.isdir() or not parts:
                        continue
                    if ".." in parts or member.name.startswith("/"):
                        file.fail("a name that leads out of the tar file", member.name)
                    elif read is None or any(part.startswith(".") for part in parts):
                        file.left_out["hidden, or no regular files"] += 1
                    elif not is_image(name, head := read(512)):
                        file.left_out[NO_IMAGES] += 1
                    elif self.job.output(name) in outputs:
                        file.fail(SAME_NAME, member.name)
                    elif member.size > images.reading.MAX_BYTES:
                        file.fail("more bytes than allowed", member.name)
                    else:
                        outputs.add(self.job.output(name))
                        person = self.job.person(file.source) or self.job.person(name)
                        yield name, file, person, partial(bytes, head + read())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DamagedTarError(f"a tar file that cannot be read ({reason})") from error

    def _release_all(self, listed: _Listed, sink: _Sink) -> None:
        """Read images and release them in groups that are charged together, each of one shape."""
        groups: dict[tuple[int, ...], list[_Picture]] = {}
        size = 0
        for name, file, person, read in listed:
            try:
                image = read_as(read(), name, self.job.config.channels, file)
                printed = None
                if self.job.config.size is not None:
                    image, printed = look(image, self.job.config.size)
            except (ImageError, MissingExtraError) as error:
                file.fail(error.cause if isinstance(error, ImageError) else str(error), name)
                continue
            groups.setdefault(image.shape, []).append(_Picture(name, file, person, image, printed))
            size += image.size
            if size >= _GROUP_BYTES:
                for pictures in groups.values():
                    self._release(pictures, sink)
                groups, size = {}, 0
        for pictures in groups.values():
            self._release(pictures, sink)

    def _release(self, pictures: list[_Picture], sink: _Sink) -> None:
        """Charge and release images of one shape; if one of them is refused, each by itself."""
        whole = self.job.config.size is None  # then their fingerprints are computed as a batch
        try:
            release, new, _ = releasing.charge_and_release(
                self._protection,
                np.stack([picture.image for picture in pictures]),
                self.ledger,
                people=[picture.person for picture in pictures],
                names=[picture.name for picture in pictures],
                printed=None if whole else [picture.printed for picture in pictures],
            )
        except SpecError:
            for picture in pictures:
                picture.file.fail(f"an image that {portable(self.job.spec)} does not fit", picture.name)
            return
        except (BudgetExceededError, ImageError) as error:
            if len(pictures) == 1:
                pictures[0].file.fail(error.cause, pictures[0].name, str(error))
                return
            for picture in pictures:
                self._release([picture], sink)
            return
        pictures[0].file.charged += new
        files: Iterator[bytes] = repeat(b"")
        if self.job.target is not None:
            files = encode_files(release, self.job.config, made_of=self._artefact)
        boxes = getattr(release, "boxes", repeat(None))  # for a protection of parts
        for picture, content, count in zip(pictures, files, boxes, strict=False):
            file, (channels, height, width) = picture.file, picture.image.shape
            try:
                if self.job.target is not None:
                    sink(picture, content)
            except OSError as error:
                file.fail(self._cause_of(error), picture.name)
                continue
            file.shapes[channels, height, width] += 1
            if self.job.config.people and picture.person is None:
                file.counts[NOBODY] += 1
            if count is not None:
                file.counts[BOXES] += count
            if count == 0:
                file.without.append(picture.name)

    def _cause_of(self, error: OSError) -> str:
        """Say why this one file cannot be written. Raises OSError if every other file would fail, too."""
        if error.errno == errno.ENAMETOOLONG:
            return "a name that is too long for the target"
        if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
            return "a file from outside this run has its name"
        cure = "finished work is kept: fix that, and run the same command again to resume"
        raise OSError(error.errno, f"{error.strerror}; {cure}", str(self.job.target)) from error


# The worker of this thread, for its last job: tasks of the same job reuse it.
_mine = threading.local()


def release_items(job: Job, items: list[Item], ledger: Callable[[], Ledger]) -> list[Outcome]:
    """Release files, or one shard, as a task of a job; repeating it gives the same result."""
    if getattr(_mine, "worker", None) is None or _mine.worker.job != job:
        _mine.worker = Worker(job, ledger())
    return cast(list[Outcome], _mine.worker.work(items))


def close() -> None:
    """Close the ledger after a job whose tasks ran in this thread."""
    if getattr(_mine, "worker", None) is not None:
        _mine.worker.ledger.close()
        _mine.worker = None
