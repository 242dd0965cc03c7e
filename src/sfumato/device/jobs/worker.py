"""The tasks of a folder job: read images, charge them, and write their releases."""

import errno
import hashlib
import hmac
import os
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, repeat
from pathlib import PurePosixPath
from typing import Any, NamedTuple, cast

import numpy as np

from sfumato import images, wire
from sfumato.base.tars import DamagedTarError, read_members
from sfumato.device.jobs import releasing
from sfumato.device.jobs.journal import BOXES, Outcome
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.near_copies import Fingerprint, fingerprints
from sfumato.device.storage import Storage
from sfumato.errors import BudgetExceededError, ConfigError, ImageError, MissingExtraError, SpecError
from sfumato.images import SUFFIXES, Pixels
from sfumato.protect.release import KINDS, artefact_of
from sfumato.protect.spec import parse, portable

SHARDS = (".tar", ".tar.gz", ".tgz")

RELEASE = "RELEASE"  # the format of a release on its way to a service
TEXT = "TEXT"  # the format of answers
USUAL = {"pixels": "PNG", "numbers": RELEASE, "bits": RELEASE, "answer": TEXT}  # formats, by kind of release

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
    """The output settings of a folder job."""

    # PNG, WEBP or BMP (lossless), or JPEG (lossy: hides no less, but differs from the images that a denoiser
    # was trained on); RELEASE for codes and features, TEXT for answers. A mask is transparent: PNG, WEBP.
    format_name: str = "PNG"
    cells: bool = False  # write a pixel for each cell, for receivers that enlarge
    # Derive names from a secret key, in meaningless folders. All files have one time, and are written in the
    # order of these names, in tar files, too.
    rename: bool = False
    people: bool = False  # each folder of the source, with all below it, is one person
    size: int | None = None  # the side of the centre square that every image becomes before protection
    channels: int | None = None  # 3 or 1: colour or grey; None for a trained protection's, or its own

    def __post_init__(self) -> None:
        if self.format_name not in _SUFFIX:
            raise ConfigError(f"format {self.format_name}: choose one of {', '.join(_SUFFIX)}")
        if self.size is not None and self.size < 1:
            raise ConfigError(f"size={self.size}: at least 1 pixel")


def read_as(data: bytes, name: str, config: FolderConfig, file: Outcome) -> tuple[Pixels, Fingerprint | None]:
    """Decode the first picture of a file, and fit it to a size, if one is given, with its fingerprint before.

    Its outcome counts GREY or COLOUR if its own channels differ, and its other pictures: those of
    photographs, told by their suffix, are smaller ones. Raises ImageError as images.read does.
    """
    image = images.read_array(data, channels=None)
    if more := images.count_pictures(data) - 1:
        file.left_out[SMALLER if name.lower().endswith(_PHOTOGRAPHS) else PAGES] += more
    if config.channels not in (None, len(image)):
        file.counts[GREY if config.channels == 3 else COLOUR] += 1
        image = images.read_array(data, channels=config.channels)
    if config.size is None:
        return image, None
    return images.resize(image, config.size), fingerprints(image[None])[0]


@dataclass(frozen=True)
class Job:
    """The settings of a worker."""

    source: Storage
    target: Storage
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
    stamp: str  # see storage.Entry
    size: int  # in bytes
    output: str  # path of its release below the target
    ours: bool = False  # whether an earlier release of it exists there, which may be replaced


def is_image(name: str, head: bytes) -> bool:
    """Whether a file is an image by its suffix, or by its first bytes."""
    return name.lower().endswith(tuple(SUFFIXES)) or images.is_image(head)


def is_shard(name: str) -> bool:
    """Whether the name of a file is that of a tar file."""
    return name.lower().endswith(SHARDS)


def encode_files(release: Any, config: FolderConfig, *, made_of: str | None) -> Iterator[bytes]:
    """Yield the file content for each image of a release whose kind fits, see folder.check_format."""
    if config.format_name == TEXT:
        yield from (f"{name}\n".encode() for name in release.names)
    elif config.format_name == RELEASE:
        rows = range(len(release.array))
        yield from (wire.encode(release.rows([row]), made_of=made_of) for row in rows)
    else:
        pixels = release.array if config.cells else release.pictures()
        shown = repeat(None) if release.shown is None else release.shown
        for image, mask in zip(pixels, shown, strict=False):
            content = images.encode(image, config.format_name, shown=mask)
            yield fill(content) if config.format_name == "PNG" else content


def fill(png: bytes) -> bytes:
    """Fill a PNG, by a chunk that readers skip, up to 2 or 3 times a power of two: sizes tell little then."""
    chunk = b"fiLl" + bytes(-(len(png) + 12) % (1 << ((len(png) + 12).bit_length() - 2)))
    return png[:-12] + (len(chunk) - 4).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4) + png[-12:]


_Listed = Iterable[tuple[str, Outcome, Callable[[], bytes]]]  # name, file, reader
_Picture = tuple[str, Outcome, Pixels, Fingerprint | None]  # name, file, image, fingerprint
_Releases = Iterator[tuple[str, bytes]]  # name, content of its release


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
        files = {item.name: Outcome(item.name, item.stamp) for item in items}
        item_of, read = {item.name: item for item in items}, self.job.source.read
        releases = self._release_all([(name, file, partial(read, name)) for name, file in files.items()])
        for name, content in releases:
            file, item = files[name], item_of[name]
            try:
                with self.job.target.file(item.output, replace=item.ours) as path:
                    path.write_bytes(content)
            except OSError as error:
                files[name] = self._failed(file, error)
                continue
            file.output, file.size = item.output, len(content)
            file.sha256 = hashlib.sha256(content).hexdigest()
        return list(files.values())

    def _shard(self, item: Item) -> Outcome:
        """Release a shard into a shard without other metadata; new names in their order.

        The order of the originals would tell which releases are of one folder.
        """
        file, places = Outcome(item.name, item.stamp), list[tuple[str, int, int]]()
        releases = self._release_all(self._members(file))
        try:
            with self.job.target.file(item.output, replace=item.ours) as path:
                with tempfile.TemporaryFile(dir=path.parent) as waiting, tarfile.open(path, "w") as out:
                    for name, content in releases:
                        places.append((self.job.output(name), waiting.tell(), len(content)))
                        waiting.write(content)
                    for name, start, size in sorted(places) if self.job.config.rename else places:
                        member = tarfile.TarInfo(name)
                        member.size = size
                        waiting.seek(start)
                        out.addfile(member, waiting)
                with path.open("rb") as written:
                    file.sha256 = hashlib.file_digest(written, "sha256").hexdigest()
                file.size = path.stat().st_size
            file.output = item.output
        except (DamagedTarError, OSError) as error:
            return self._failed(file, error)
        return file

    def _members(self, file: Outcome) -> _Listed:
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
                        yield name, file, partial(bytes, head + read())
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise DamagedTarError(f"a tar file that cannot be read ({reason})") from error

    def _release_all(self, listed: _Listed) -> _Releases:
        """Read images and release them in groups that are charged together, each of one shape."""
        groups: dict[tuple[int, ...], list[_Picture]] = {}
        size = 0
        for name, file, read in listed:
            try:
                image, printed = read_as(read(), name, self.job.config, file)
            except (ImageError, MissingExtraError) as error:
                file.fail(error.cause if isinstance(error, ImageError) else str(error), name)
                continue
            groups.setdefault(image.shape, []).append((name, file, image, printed))
            size += image.size
            if size >= _GROUP_BYTES:
                yield from chain.from_iterable(map(self._release, groups.values()))
                groups, size = {}, 0
        yield from chain.from_iterable(map(self._release, groups.values()))

    def _release(self, pictures: list[_Picture]) -> _Releases:
        """Charge and release images of one shape; if one of them is refused, each by itself."""
        config, person = self.job.config, self.job.person
        names, files, pixels, prints = zip(*pictures, strict=True)
        people = [person(file.source) or person(name) for name, file in zip(names, files, strict=True)]
        # Without a size, the fingerprints are computed as a batch.
        printed = None if config.size is None else prints
        try:
            release, new, _ = releasing.charge_and_release(
                self._protection, np.stack(pixels), self.ledger, people=people, names=names, printed=printed
            )
        except SpecError:
            for name, file in zip(names, files, strict=True):
                file.fail(f"an image that {portable(self.job.spec)} does not fit", name)
            return
        except (BudgetExceededError, ImageError) as error:
            if len(pictures) == 1:
                files[0].fail(error.cause, names[0], str(error))
            else:
                yield from chain.from_iterable(self._release([picture]) for picture in pictures)
            return
        files[0].charged += new
        contents = encode_files(release, config, made_of=self._artefact)
        boxes = getattr(release, "boxes", repeat(None))  # for a protection of parts
        for name, file, who, content, count in zip(names, files, people, contents, boxes, strict=False):
            file.shapes[pixels[0].shape] += 1
            if config.people and who is None:
                file.counts[NOBODY] += 1
            if count is not None:
                file.counts[BOXES] += count
            if count == 0:
                file.without.append(name)
            yield name, content

    def _failed(self, file: Outcome, error: OSError | DamagedTarError) -> Outcome:
        """Return the outcome of a file whose release cannot be written. Raises OSError if no other can."""
        if isinstance(error, DamagedTarError):
            cause = str(error)
        elif error.errno == errno.ENAMETOOLONG:
            cause = "a name that is too long for the target"
        elif isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
            cause = "a file from outside this run has its name"
        else:
            cure = "finished work is kept: fix that, and run the same command again to resume"
            raise OSError(error.errno, f"{error.strerror}; {cure}", str(self.job.target)) from error
        return Outcome(file.source, file.stamp, charged=file.charged).fail(cause, file.source)


_mine = threading.local()  # the worker of this thread: tasks of the same job reuse it


def release_items(job: Job, items: list[Item], ledger: Callable[[], Ledger]) -> list[Outcome]:
    """Release files, or one shard, as a task of a job; repeating it gives the same result."""
    if getattr(_mine, "worker", None) is None or _mine.worker.job != job:
        _mine.worker = Worker(job, ledger())
    return cast(list[Outcome], _mine.worker.work(items))


def close() -> None:
    """Close the ledger after a job whose tasks ran in this thread."""
    if worker := _mine.__dict__.pop("worker", None):
        worker.ledger.close()
