"""Folders of any depth, tar shards among them: every image released by the ledger, and a manifest."""

import fcntl
import json
import multiprocessing
import os
import platform
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import PIL
import torch

import sfumato
from sfumato import images
from sfumato.dp.ledger import Ledger
from sfumato.errors import ConfigError, DataError, SfumatoError
from sfumato.files import PART, whole
from sfumato.protect import device
from sfumato.protect.journal import Journal, Row, by_shape
from sfumato.protect.mask import Mask
from sfumato.protect.release import Protection, made_of
from sfumato.protect.worker import SHARDS, FolderConfig, Item, Job, Worker, encoded, is_shard, start, work

__all__ = ["MANIFEST", "FolderConfig", "Outcome", "dry_run", "protect_folder", "protect_image"]

MANIFEST = "manifest.json"

# A task for a worker: few enough files that little is done twice after a kill, enough that the two commits of
# the ledger and the journal do not count.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20


@dataclass
class Outcome:
    """What a folder job did.

    Attributes:
        shapes: (C, H, W) -> how many images of that shape are in the target, those of earlier runs included.
        earlier: how many files were there already, from an earlier run.
        charged: how many releases were new to the ledger.
        failures: cause -> how many images could not be released for it, and the first of their names.
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
            self.failures[cause] = (so_far + count, min(first, name))


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
    killed, the same call goes on; releases that are there are not touched, and files that were added or
    changed are released (the release of a file that can no longer be read is removed). Nothing of somebody
    else is replaced. A tar shard becomes a shard, and counts as lying in its own folder. Files that are no
    images by their suffix, hidden files, and links to folders are left out and counted.

    Args:
        source: the folder, or one tar file.
        target: a folder that is new, empty, or from an earlier run with the same settings.
        protection: how.
        ledger: path of this device's ledger.
        config: how to write.
        report: called as the job goes on, with images and bytes done and bytes in all.

    Raises:
        ConfigError, ArtefactError: of a mask, the format has no transparency, or the artefact is none.
        DataError: no such source, or a target that cannot be used, or a damaged journal of an earlier run.
        LedgerError, OSError: the ledger or the target cannot be written; what was finished is kept.
    """
    config = config or FolderConfig()
    source, target, ledger = Path(source), Path(target), Path(ledger)
    _check_places(source, target, ledger)
    _check_mask(protection, config)
    with ExitStack() as stack:
        stack.enter_context(_journal_errors(ledger))
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
        made = made_of(protection)
        if made is not None:  # a mask that was trained again is another, under the same spec
            settings["files of the protection"] = made
        secret = journal.settle(settings, target)
        for leftover in target.rglob(PART):
            leftover.unlink()
        job = Job(source, target, protection.spec, ledger, config, secret)
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
    _check_places(source, None, ledger)
    _check_mask(protection, config)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.db"
        if ledger.exists():
            with Ledger(ledger) as original:
                original.copy_without_releases(copy)
        return _run(Job(source, None, protection.spec, copy, config, b""), None, report)


def protect_image(
    source: str | os.PathLike[str] | bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
    *,
    folder: str | os.PathLike[str] = ".",
) -> tuple[bytes, tuple[int, int, int]]:
    """One image file, or its bytes, in; the file of its release out, and the (C, H, W) of the original.

    Args:
        source: the image.
        protection: how.
        ledger: of this device.
        config: how to write.
        folder: where the image lies, for the budgets of folders.

    Raises:
        ImageError: not an image that can be read.
        BudgetExceededError, LedgerError, SpecError: see sfumato.protect.device.release.
        ConfigError, ArtefactError: see protect_folder.
    """
    config = config or FolderConfig()
    _check_mask(protection, config)
    image = images.read(source, channels=None)
    released = device.release(protection, image[None], ledger, folders=[folder])
    shape = (image.shape[0], image.shape[1], image.shape[2])
    return encoded(released, 0, config), shape


def _check_places(source: Path, target: Path | None, ledger: Path) -> None:
    if not source.exists():
        raise DataError(f"{source}: no such folder or file")
    if source.is_file() and not is_shard(source.name):
        raise DataError(f"{source}: is no folder and no tar file")
    if target is None:
        return
    if target.exists() and not target.is_dir():
        raise DataError(f"{target}: is not a folder: name a new one for the releases of {source}")
    if target.resolve().is_relative_to(source.resolve()):
        raise DataError(f"{target}: lies in {source}, whose images would be mixed with their releases")
    if ledger.resolve().is_relative_to(target.resolve()):
        raise DataError(f"{ledger}: lies in {target}, which leaves the device: the ledger must not")


def _check_mask(protection: Protection, config: FolderConfig) -> None:
    """Raise now, before anything is charged or written, what would stop every file."""
    if not isinstance(protection, Mask):
        return
    if config.format_name not in images.TRANSPARENT:
        raise ConfigError(
            f"{config.format_name} cannot say which pixels are hidden: "
            f"write a mask as {' or '.join(images.TRANSPARENT)}"
        )
    protection.check()


@contextmanager
def _journal_errors(ledger: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DataError(
            f"a journal in {ledger}.runs: {error}. If it is damaged, delete it and name a new target: the "
            "ledger gives the same releases again for nothing"
        ) from error


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


def _run(job: Job, journal: Journal | None, report: Report) -> Outcome:
    """Go through the source, have the workers release what is not there yet, and keep the journal."""
    total = sum(size for _, size, _ in _walk(job.source, Outcome()))
    outcome = Outcome()
    done_images = done_bytes = 0

    def finished(rows: list[Row], size: int) -> None:
        nonlocal done_images, done_bytes
        if journal is not None:
            for row in rows:
                before = None if row.output else journal.find(row.source)
                if before is not None and before.output and job.target is not None:
                    (job.target / before.output).unlink(missing_ok=True)
            journal.record(rows)
        else:
            for row in rows:
                outcome.shapes += by_shape(row.shapes)
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
            with _broken_pool():
                running[submit(items)] = sum(item.size for item in items)
        while running:
            _collect(running, finished)
    return outcome


def _collect(running: dict[Future[list[Row]], int], finished: Callable[[list[Row], int], None]) -> None:
    wait(running, return_when=FIRST_COMPLETED)
    for future in [future for future in running if future.done()]:
        size = running.pop(future)
        with _broken_pool():
            finished(future.result(), size)


@contextmanager
def _broken_pool() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise SfumatoError(
            "a worker process was killed, by the system for want of memory or by hand. What was finished is "
            "kept: the same command goes on, and takes less memory with fewer workers"
        ) from error


@contextmanager
def _workers(job: Job) -> Iterator[Callable[[list[Item]], Future[list[Row]]]]:
    """Something that takes chunks and gives futures: a process pool, or this process."""
    if job.config.workers == 1:
        worker = Worker(job)
        try:
            yield lambda items: _done(worker, items)
        finally:
            worker.ledger.close()
        return
    # Not fork: the threads of torch would not survive it. The server has all imports done once.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["sfumato.protect.worker"])
    pool = ProcessPoolExecutor(job.config.workers, context, initializer=start, initargs=(job,))
    try:
        yield lambda items: pool.submit(work, items)
    finally:
        pool.shutdown(cancel_futures=True)


def _done(worker: Worker, items: list[Item]) -> Future[list[Row]]:
    future: Future[list[Row]] = Future()
    future.set_result(worker.work(items))
    return future


def _walk(source: Path, outcome: Outcome) -> Iterator[tuple[str, int, int]]:
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
                # By stem first: files whose releases would have one name come one after another.
                names = sorted((entry.name.rpartition(".")[0], entry.name) for entry in entries)
        except OSError as error:
            _fail(outcome, f"a folder that cannot be read ({error.strerror})", folder)
            continue
        below = []
        for _, base in names:
            name = f"{folder}/{base}" if folder else base
            path = source / name
            try:
                if base.startswith("."):
                    outcome.left_out["hidden"] += 1
                elif path.is_dir():
                    if path.is_symlink():
                        outcome.left_out["links to folders"] += 1
                    else:
                        below.append(name)
                elif not base.lower().endswith((*images.SUFFIXES, *SHARDS)):
                    outcome.left_out["no images by their names"] += 1
                else:
                    found = path.stat()
                    if stat.S_ISREG(found.st_mode):
                        yield name, found.st_size, found.st_mtime_ns
                    else:
                        _fail(outcome, "no regular file", name)
            except OSError as error:
                _fail(outcome, f"cannot be read ({error.strerror})", name)
        folders += reversed(below)


def _fail(outcome: Outcome, cause: str, name: str) -> None:
    row = Row(source=name, stamp="")
    row.fail(cause, name)
    outcome.add(row)


def _todo(
    job: Job, journal: Journal | None, outcome: Outcome, finished: Callable[[list[Row], int], None]
) -> Iterator[Item]:
    """The files whose releases are not there yet."""
    before = ("", "")  # the last output, and whose it is
    for name, size, modified in _walk(job.source, outcome):
        item = Item(name, f"{size}:{modified}", size, job.output(name), ours=False)
        owner = before[1] if before[0] == item.output else name
        if journal is not None and job.target is not None:
            row = journal.find(name)
            if row is not None and row.output:
                if row.stamp == item.stamp and not row.failures and _is_there(job.target / row.output, row):
                    before = item.output, name
                    outcome.earlier += 1
                    outcome.left_out += row.left_out
                    finished([], size)
                    continue
                item = replace(item, ours=True)
            owner = journal.owner(item.output) or owner
        if owner != name or name.split("/")[0] == MANIFEST:
            _fail(outcome, "its release would take the name of another's, or of the manifest", name)
        else:
            before = item.output, name
            yield item


def _is_there(path: Path, row: Row) -> bool:
    with suppress(OSError):
        return path.stat().st_size == row.size
    return False


def _chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Files for one task; a shard is a task by itself."""
    chunk: list[Item] = []
    size = 0
    for item in items:
        if is_shard(item.name):
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
        "made_of": made_of(protection),
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
