"""Folders of any depth, tar shards among them: every image released by the ledger, and a manifest."""

import errno
import fcntl
import hashlib
import hmac
import io
import json
import multiprocessing
import os
import platform
import signal
import tarfile
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import numpy
import PIL
import torch
from torch import Tensor

import sfumato
from sfumato import images
from sfumato.dp.ledger import Ledger
from sfumato.errors import (
    BudgetExceededError,
    ConfigError,
    DataError,
    ImageError,
    MissingExtraError,
    SfumatoError,
    SpecError,
)
from sfumato.files import PART, whole
from sfumato.protect import device
from sfumato.protect.journal import Journal, Row
from sfumato.protect.release import Protection, Release
from sfumato.protect.spec import parse

MANIFEST = "manifest.json"

SHARDS = (".tar", ".tar.gz", ".tgz")
_SUFFIX = {"PNG": ".png", "JPEG": ".jpg", "WEBP": ".webp", "BMP": ".bmp"}

# A task for a worker: few enough files that little is done twice after a kill, enough that the two commits of
# the ledger and the journal do not count.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20
_GROUP_BYTES = 16 << 20  # of pixels that are released together


@dataclass(frozen=True, kw_only=True)
class FolderConfig:
    """How releases of a folder are written.

    Attributes:
        format_name: "PNG", "WEBP" or "BMP" (what was released, exactly), or "JPEG" (lossy: hides no less, but
            is no longer quite what a denoiser was trained on).
        cells: write a pixel for each cell rather than enlarge it, for receivers that enlarge.
        rename: names from a secret key in place of the original ones, in folders that mean nothing.
        workers: processes; 1 works in this one.
    """

    format_name: str = "PNG"
    cells: bool = False
    rename: bool = False
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    def __post_init__(self) -> None:
        if self.format_name not in _SUFFIX:
            raise ConfigError(f"format {self.format_name}: choose one of {', '.join(_SUFFIX)}")
        if self.workers < 1:
            raise ConfigError(f"workers={self.workers}: at least 1")


@dataclass
class Outcome:
    """What a folder job did.

    Attributes:
        shapes: (C, H, W) -> how many images of that shape are in the target, those of earlier runs included.
        earlier: how many files were there already, from an earlier run.
        charged: how many releases were new to the ledger.
        failures: cause -> how many images could not be released for it, and the name of the first.
        left_out: reason -> how many files were passed over.
        manifest: where it is; None after a dry run.
    """

    shapes: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    earlier: int = 0
    charged: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    manifest: Path | None = None

    def add(self, row: Row) -> None:
        """Count what became of one file."""
        self.charged += row.charged
        self.left_out += row.left_out
        for cause, (count, name) in row.failures.items():
            so_far, first = self.failures.get(cause, (0, name))
            self.failures[cause] = (so_far + count, first)


Report = Callable[[int, int, int], None]  # images done, bytes done, bytes in all


def protect_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    protection: Protection,
    ledger: str | os.PathLike[str],
    config: FolderConfig | None = None,
    *,
    report: Report = lambda images, done, total: None,
) -> Outcome:
    """Release every image below a folder into another, under the same names with the suffix of the format.

    Each image is charged in the ledger before its release is written, and each file appears whole. Stopped or
    killed, the same call goes on; what is there already is not touched, and files that were added or changed
    are released. A tar shard becomes a shard. Files that are no images by their suffix, hidden files, and
    links to folders are left out and counted.

    Args:
        source: the folder, or one tar file.
        target: a folder that is new, empty, or from an earlier run with the same settings.
        protection: how.
        ledger: path of this device's ledger.
        config: how to write.
        report: called as the job goes on, with images and bytes done and bytes in all.

    Raises:
        DataError: no such source, or a target that cannot be used.
        LedgerError, OSError: the ledger or the target cannot be written; what was finished is kept.
    """
    config = config or FolderConfig()
    source, target, ledger = Path(source), Path(target), Path(ledger)
    _check_places(source, target)
    with ExitStack() as stack:
        target.mkdir(parents=True, exist_ok=True)
        stack.enter_context(_locked(target))
        Ledger(ledger).close()  # begins it, or fails now and not in a worker
        journal = Journal(ledger, target)
        stack.callback(journal.close)
        settings = {
            "source": os.fsencode(source.resolve()).hex(),
            "spec": protection.spec,
            "format": config.format_name,
            "cells": str(config.cells),
            "rename": str(config.rename),
        }
        secret = journal.settle(settings, target)
        for leftover in target.rglob(PART):
            leftover.unlink()
        job = _Job(source, target, protection.spec, ledger, config, secret)
        outcome = _run(job, journal, report)
        outcome.shapes = journal.shapes()
        outcome.manifest = target / MANIFEST
        _write_manifest(outcome, protection, config, journal)
    return outcome


def dry_run(
    source: str | os.PathLike[str],
    protection: Protection,
    ledger: str | os.PathLike[str],
    config: FolderConfig | None = None,
    *,
    report: Report = lambda images, done, total: None,
) -> Outcome:
    """What protect_folder would do and charge: everything is read and nothing is written.

    The charges are made in a copy of the ledger, so that budgets stop them where they would.
    """
    config = config or FolderConfig()
    source, ledger = Path(source), Path(ledger)
    _check_places(source, None)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.db"
        if ledger.exists():
            with Ledger(ledger) as original:
                original.copy_without_releases(copy)
        return _run(_Job(source, None, protection.spec, copy, config, b""), None, report)


def protect_image(
    data: bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
    *,
    folder: str | os.PathLike[str] = ".",
) -> tuple[bytes, tuple[int, int, int]]:
    """One encoded image in, its release out, and the (C, H, W) of the original.

    Raises:
        ImageError: not an image that can be read.
        BudgetExceededError, LedgerError, SpecError: see sfumato.protect.device.release.
    """
    config = config or FolderConfig()
    image = images.read(data, channels=None)
    released = device.release(protection, image[None], ledger, folders=[folder])
    shape = (image.shape[0], image.shape[1], image.shape[2])
    return _encoded(released, 0, config), shape


@dataclass(frozen=True)
class _Job:
    """What a worker has to know."""

    source: Path
    target: Path | None  # None: a dry run
    spec: str
    ledger: Path
    config: FolderConfig
    secret: bytes


@dataclass(frozen=True)
class _Item:
    """A file to be released: its path below the source, its stamp, its size, and where the release goes."""

    name: str
    stamp: str
    size: int
    output: str

    @property
    def is_shard(self) -> bool:
        return self.name.lower().endswith(SHARDS)


def _check_places(source: Path, target: Path | None) -> None:
    if not source.exists():
        raise DataError(f"{source}: no such folder or file")
    if source.is_file() and not source.name.lower().endswith(SHARDS):
        raise DataError(f"{source}: is no folder and no tar file")
    if target is None:
        return
    if target.exists() and not target.is_dir():
        raise DataError(f"{target}: is not a folder: name a new one for the releases of {source}")
    if target.resolve().is_relative_to(source.resolve()):
        raise DataError(f"{target}: lies in {source}, whose images would be mixed with their releases")


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Keep a second run out of a folder; the system lets go of the lock when this process ends, however."""
    handle = os.open(target, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{target}: another run is writing here: wait for it, or name another") from error
        yield
    finally:
        os.close(handle)


# -- in the process that was started ---------------------------------------------------------------------


def _run(job: _Job, journal: Journal | None, report: Report) -> Outcome:
    """Go through the source, have the workers release what is not there yet, and keep the journal."""
    outcome = Outcome()
    total = sum(size for _, size, _ in _walk(job.source, Counter(), outcome))
    outcome = Outcome()
    done_images = done_bytes = 0

    def finished(rows: list[Row], size: int) -> None:
        nonlocal done_images, done_bytes
        if journal is not None:
            journal.record(rows)
        else:
            for row in rows:
                for shape, count in row.shapes.items():
                    channels, height, width = map(int, shape.split("x"))
                    outcome.shapes[channels, height, width] += count
        for row in rows:
            outcome.add(row)
        done_images += sum(row.shapes.total() for row in rows)
        done_bytes += size
        report(done_images, done_bytes, total)

    with _workers(job) as submit:
        running: dict[Future[list[Row]], int] = {}
        for items in _chunks(_todo(job, journal, outcome, finished)):
            # A few tasks wait for each worker, so that memory does not grow with the folder.
            while len(running) >= 3 * job.config.workers:
                _collect(running, finished)
            running[submit(items)] = sum(item.size for item in items)
        while running:
            _collect(running, finished)
    return outcome


def _collect(running: dict[Future[list[Row]], int], finished: Callable[[list[Row], int], None]) -> None:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        size = running.pop(future)
        try:
            finished(future.result(), size)
        except BrokenProcessPool as error:
            raise SfumatoError(
                "a worker process was killed, by the system for want of memory or by hand. What was "
                "finished is kept: the same command goes on, and takes less memory with fewer workers"
            ) from error


@contextmanager
def _workers(job: _Job) -> Iterator[Callable[[list[_Item]], Future[list[Row]]]]:
    """Something that takes chunks and gives futures: a process pool, or this process."""
    if job.config.workers == 1:
        worker = _Worker(job)
        try:
            yield lambda items: _done(worker, items)
        finally:
            worker.ledger.close()
        return
    # Not fork: the threads of torch would not survive it. The server has all imports done once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    pool = ProcessPoolExecutor(job.config.workers, context, initializer=_start_worker, initargs=(job,))
    try:
        yield lambda items: pool.submit(_work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _done(worker: "_Worker", items: list[_Item]) -> Future[list[Row]]:
    future: Future[list[Row]] = Future()
    future.set_result(worker.work(items))
    return future


def _walk(source: Path, left_out: Counter[str], outcome: Outcome) -> Iterator[tuple[str, int, int]]:
    """Images and shards below a folder: path, size in bytes, modification time in ns; a folder at a time."""
    if source.is_file():
        found = source.stat()
        yield source.name, found.st_size, found.st_mtime_ns
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(source / folder) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            _fail(outcome, f"a folder that cannot be read ({error.strerror})", folder)
            continue
        below = []
        for entry in ordered:
            name = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.name.startswith("."):
                    left_out["hidden"] += 1
                elif entry.is_dir(follow_symlinks=False):
                    below.append(name)
                elif entry.is_dir():
                    left_out["links to folders"] += 1
                elif not entry.name.lower().endswith((*images.SUFFIXES, *SHARDS)):
                    left_out["no images by their names"] += 1
                elif not entry.is_file():
                    _fail(outcome, "no regular file", name)
                else:
                    found = entry.stat()
                    yield name, found.st_size, found.st_mtime_ns
            except OSError as error:
                _fail(outcome, f"cannot be read ({error.strerror})", name)
        folders += reversed(below)


def _fail(outcome: Outcome, cause: str, name: str) -> None:
    row = Row(source=name, stamp="")
    row.fail(cause, name)
    outcome.add(row)


def _todo(
    job: _Job, journal: Journal | None, outcome: Outcome, finished: Callable[[list[Row], int], None]
) -> Iterator[_Item]:
    """The files whose releases are not there yet."""
    folder, taken = None, {}
    for name, size, modified in _walk(job.source, outcome.left_out, outcome):
        stamp = f"{size}:{modified}"
        output = _output_name(name, job)
        if folder != os.path.dirname(name):  # noqa: PTH120
            folder, taken = os.path.dirname(name), {MANIFEST: "the manifest"}  # noqa: PTH120
        row = None
        if journal is not None and job.target is not None:
            row = journal.find(name)
            if row is not None and row.stamp == stamp and row.output and not row.failures:
                with suppress(OSError):
                    if (job.target / row.output).stat().st_size == row.size:
                        taken[output] = name
                        outcome.earlier += 1
                        finished([], size)
                        continue
            owner = journal.owner(output)
            if owner not in (None, name):
                taken[output] = owner or ""
        if taken.setdefault(output, name) != name:
            _fail(outcome, f"its release would take the name of another's ({taken[output]})", name)
            continue
        yield _Item(name, stamp, size, output)


def _output_name(name: str, job: _Job) -> str:
    suffix = ".tar" if name.lower().endswith(SHARDS) else _SUFFIX[job.config.format_name]
    if job.config.rename:
        secret = hmac.new(job.secret, os.fsencode(name), hashlib.sha256).hexdigest()
        return f"{secret[:2]}/{secret[2:18]}{suffix}"
    ending = next((end for end in SHARDS if name.lower().endswith(end)), PurePosixPath(name).suffix)
    return name[: len(name) - len(ending)] + suffix


def _chunks(items: Iterator[_Item]) -> Iterator[list[_Item]]:
    """Files for one task; a shard is a task by itself."""
    chunk: list[_Item] = []
    size = 0
    for item in items:
        if item.is_shard:
            yield [item]
            continue
        chunk.append(item)
        size += item.size
        if len(chunk) >= _CHUNK_FILES or size >= _CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _write_manifest(outcome: Outcome, protection: Protection, config: FolderConfig, journal: Journal) -> None:
    """The manifest that travels with the releases: nothing in it is a secret of the device."""
    assert outcome.manifest is not None
    head = {
        "spec": protection.spec,
        "neighbours": "two images of one shape that differ in any m pixels, each in all of its channels",
        "guarantees": [
            {
                "shape": shape,
                "images": count,
                "proved": None if guarantee is None else {**guarantee.__dict__, "words": str(guarantee)},
            }
            for shape, count in sorted(outcome.shapes.items())
            for guarantee in [protection.guarantee(shape)]
        ],
        "format": config.format_name,
        "one_pixel_is": "a cell" if config.cells else "a pixel",
        "renamed": config.rename,
        "versions": {
            "sfumato": sfumato.__version__,
            "python": platform.python_version(),
            "pillow": PIL.__version__,
            "numpy": numpy.__version__,
            "torch": torch.__version__,
        },
        "images": outcome.shapes.total(),
        "failed": {cause: count for cause, (count, _) in sorted(outcome.failures.items())},
    }
    with whole(outcome.manifest) as temporary, temporary.open("w", encoding="ascii") as out:
        # Row by row, for there may be very many. In names, \udcXX is a byte that is not UTF-8 (os.fsencode).
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "outputs": [')
        for i, row in enumerate(journal.outputs()):
            entry = {"file": row.output, "sha256": row.sha256, "bytes": row.size, "shapes": row.shapes}
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")


# -- in the workers --------------------------------------------------------------------------------------


class _Worker:
    """Releases chunks of files. State: its connection to the ledger."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._protection = parse(job.spec)
        self.ledger = Ledger(job.ledger)

    def work(self, items: list[_Item]) -> list[Row]:
        """Release files, or one shard."""
        if items[0].is_shard:
            return [self._shard(items[0])]
        rows = {item.name: Row(source=item.name, stamp=item.stamp) for item in items}
        outputs = {item.name: item.output for item in items}

        def sources() -> Iterator[tuple[str, Row, bytes | Path]]:
            for item in items:
                yield item.name, rows[item.name], self._job.source / item.name

        def sink(name: str, encoded: bytes) -> None:
            assert self._job.target is not None
            with whole(self._job.target / outputs[name]) as temporary:
                temporary.write_bytes(encoded)
            rows[name].output, rows[name].size = outputs[name], len(encoded)
            rows[name].sha256 = hashlib.sha256(encoded).hexdigest()

        self._release_all(sources(), sink)
        return list(rows.values())

    def _shard(self, item: _Item) -> Row:
        row = Row(source=item.name, stamp=item.stamp)
        path = self._job.source if self._job.source.is_file() else self._job.source / item.name
        try:
            if self._job.target is None:
                self._release_all(self._members(path, row), lambda name, encoded: None)
                return row
            output = self._job.target / item.output
            with whole(output) as temporary:
                with tarfile.open(temporary, "w") as out:
                    self._release_all(self._members(path, row), _TarSink(out, self._job))
                with temporary.open("rb") as written:
                    row.sha256 = hashlib.file_digest(written, "sha256").hexdigest()
                row.size = temporary.stat().st_size
            row.output = item.output
        except (tarfile.TarError, EOFError, zlib.error) as error:
            row.shapes.clear()
            row.fail(f"a damaged tar file ({type(error).__name__})", item.name)
        return row

    def _members(self, path: Path, row: Row) -> Iterator[tuple[str, Row, bytes | Path]]:
        """The images of a shard, one after another."""
        with tarfile.open(path, "r|*") as shard:
            for member in shard:
                parts = PurePosixPath(member.name).parts
                if member.isdir():
                    continue
                if parts[-1].startswith(".") or not member.isfile():
                    row.left_out["hidden, or no regular files"] += 1
                elif not member.name.lower().endswith(tuple(images.SUFFIXES)):
                    row.left_out["no images by their names"] += 1
                elif ".." in parts or parts[0] == "/":
                    row.fail("a name that leads out of the tar file", member.name)
                elif member.size > images.MAX_BYTES:
                    row.fail(f"more than {images.MAX_BYTES} bytes", member.name)
                else:
                    extracted = shard.extractfile(member)
                    yield member.name, row, extracted.read() if extracted else b""

    def _release_all(
        self, sources: Iterator[tuple[str, Row, bytes | Path]], sink: Callable[[str, bytes], None]
    ) -> None:
        """Read images, and release them in groups that are charged together."""
        group: list[tuple[str, Row, Tensor]] = []
        size = 0
        for name, row, source in sources:
            try:
                image = images.read(source, channels=None)
            except ImageError as error:
                row.fail(error.cause, name)
                continue
            except MissingExtraError as error:
                row.fail(str(error), name)
                continue
            group.append((name, row, image))
            size += image.numel()
            if size >= _GROUP_BYTES:
                self._release_group(group, sink)
                group, size = [], 0
        self._release_group(group, sink)

    def _release_group(
        self, group: list[tuple[str, Row, Tensor]], sink: Callable[[str, bytes], None]
    ) -> None:
        by_shape: dict[tuple[int, ...], list[tuple[str, Row, Tensor]]] = {}
        for one in group:
            by_shape.setdefault(tuple(one[2].shape), []).append(one)
        for shape, members in by_shape.items():
            for name, row, release, i in self._released(members):
                if self._job.target is not None:
                    try:
                        sink(name, _encoded(release, i, self._job.config))
                    except OSError as error:
                        if error.errno != errno.ENAMETOOLONG:
                            raise  # a full or read-only target: no other file would fare better
                        row.fail("a name that is too long for the target", name)
                        continue
                row.shapes["x".join(map(str, shape))] += 1

    def _released(self, members: list[tuple[str, Row, Tensor]]) -> Iterator[tuple[str, Row, Release, int]]:
        """Images of one shape -> each with the release it is in, and its place there."""
        before = self.ledger.charged
        try:
            release = device.release(
                self._protection,
                torch.stack([image for _, _, image in members]),
                self.ledger,
                folders=[(self._job.source / name).parent for name, _, _ in members],
            )
        except SpecError as error:
            for name, row, _ in members:
                row.fail(str(error), name)
        except BudgetExceededError:
            if len(members) == 1:
                ((name, row, _),) = members
                row.fail("over budget", name)
                return
            for one in members:
                yield from self._released([one])
        else:
            members[0][1].charged += self.ledger.charged - before
            for i, (name, row, _) in enumerate(members):
                yield name, row, release, i


class _TarSink:
    """Adds releases to a tar file under the names of the originals, or new ones, and nothing else."""

    def __init__(self, out: tarfile.TarFile, job: _Job) -> None:
        self._out = out
        self._job = job

    def __call__(self, name: str, encoded: bytes) -> None:
        member = tarfile.TarInfo(_output_name(name, self._job))
        member.size = len(encoded)
        self._out.addfile(member, io.BytesIO(encoded))


def _encoded(release: Release, i: int, config: FolderConfig) -> bytes:
    one = replace(release, values=release.values[i : i + 1])
    return images.encode((one.values if config.cells else one.images())[0], config.format_name)


_worker: _Worker | None = None


def _start_worker(job: _Job) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that was started
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)
    _worker = _Worker(job)


def _end_with_parent() -> None:
    # A worker whose parent was killed would wait for its next task for ever.
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _work(items: list[_Item]) -> list[Row]:
    assert _worker is not None
    return _worker.work(items)
