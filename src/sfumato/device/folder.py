"""Folders of any depth, tar shards among them: every image released by the ledger, and a manifest.

The folder and that of the releases may be of this machine or at URLs; see places. The work is done in tasks
on an engine: each may be done more than once, and writes the same, for the ledger says what to release.
"""

import errno
import fcntl
import json
import os
import platform
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import PIL
import torch

import sfumato
from sfumato import engines, images
from sfumato.device import releasing, worker
from sfumato.device.journal import Journal, Row, by_shape, path_of
from sfumato.device.ledger import Ledger
from sfumato.device.storage import Folder, Place, Remote, place
from sfumato.device.survey import survey
from sfumato.device.worker import SHARDS, FolderConfig, Item, Job, encoded, is_shard
from sfumato.engines import EngineConfig
from sfumato.errors import ConfigError, DataError
from sfumato.protect.mask import Mask
from sfumato.protect.release import Protection, made_of
from sfumato.wire import portable

__all__ = ["MANIFEST", "FolderConfig", "Outcome", "dry_run", "protect_folder", "protect_image"]

MANIFEST = "manifest.json"

# A task for a worker: few enough files that little is done twice after a kill, enough that the two commits of
# the ledger and the journal do not count.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20
_AHEAD = 3  # tasks for each worker, those that wait for it included


@dataclass
class Outcome:
    """What a folder job did.

    Attributes:
        shapes: (C, H, W) -> how many images of that shape are in the target, those of earlier runs included.
        earlier: how many files were there already, from an earlier run.
        charged: how many releases were new to the ledger; those of a task whose worker was lost on a cluster,
            and that was done again, are in the ledger and not in this number.
        failures: cause -> how many images could not be released for it, and the first of their names.
        left_out: reason -> how many files were passed over.
        manifest: where it is, at a URL without the password; None after a dry run.
    """

    shapes: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    earlier: int = 0
    charged: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    manifest: Path | str | None = None

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
    engine: EngineConfig | None = None,
    report: Report = lambda images, done, total: None,
) -> Outcome:
    """Release every image below a folder into another, under the same names with the suffix of the format.

    Each image is charged in the ledger before its release is written, and each file appears whole. Stopped or
    killed, the same call goes on; releases that are there are not touched, and files that were added or
    changed are released (the release of a file that can no longer be read is removed). Nothing of somebody
    else is replaced. A tar shard becomes a shard, and counts as lying in its own folder. Files that are no
    images by their suffix, hidden files, and links to folders are left out and counted.

    On a Ray cluster the ledger stays on this machine, in one process that all workers ask; the source and the
    target are URLs, or folders that all nodes share, and so is the artefact of a mask. What a lost worker or
    node had begun is done again by another. Of URLs, a second run at once is kept out on this device alone.

    Args:
        source: the folder, or one tar file; a path, or a URL (a str) that fsspec understands.
        target: a folder that is new, empty, or from an earlier run with the same settings; a path or a URL.
        protection: how.
        ledger: path of this device's ledger.
        config: how to write.
        engine: where the work is done; None for a process on each core of this machine.
        report: called as the job goes on, with images and bytes done and bytes in all.

    Raises:
        ConfigError, ArtefactError: of a mask, the format has no transparency, or the artefact is none; or no
            such engine; or a URL that other processes cannot see, or with a password that is not quoted.
        MissingExtraError: Ray, or what fsspec needs for the URL, is not installed.
        DataError: no such source, or a target that cannot be used, or a damaged journal of an earlier run; or
            a node of the cluster has not the target of this machine.
        LedgerError, OSError: the ledger or the target cannot be written; what was finished is kept.
        SfumatoError: worker processes were killed; what was finished is kept.
    """
    config, engine = config or FolderConfig(), engine or EngineConfig()
    found, goal, ledger = place(source), place(target), Path(ledger)
    _check_places(found, goal, ledger)
    _check_shared(engine, found, goal)
    _check_mask(protection, config)
    with ExitStack() as stack:
        stack.enter_context(_journal_errors(ledger))
        goal.make()
        with Ledger(ledger) as opened:  # begins it, or fails now and not in a worker
            survey(opened)
        journal_path = path_of(ledger, goal)
        stack.enter_context(_locked(goal, journal_path))
        journal = Journal(journal_path)
        stack.callback(journal.close)
        settings = {
            "source": found.identity.hex(),
            "spec": protection.spec,
            "format": config.format_name,
            "cells": str(config.cells),
            "rename": str(config.rename),
        }
        made = made_of(protection)
        if made is not None:  # a mask that was trained again is another, under the same spec
            settings["files of the protection"] = made
        secret = journal.settle(settings, goal)
        goal.tidy()
        below, only = _parted(found)
        job = Job(below, goal, protection.spec, config, secret)
        outcome = _run(job, only, ledger, journal, engine, report)
        if engine.name == "ray":  # which goes on without a worker that was killed, and its half
            goal.tidy()
        outcome.shapes = journal.shapes()
        outcome.manifest = goal.at(MANIFEST)
        _write_manifest(goal, outcome, protection, made, config, journal)
    return outcome


def dry_run(
    source: str | os.PathLike[str],
    protection: Protection,
    ledger: str | os.PathLike[str],
    config: FolderConfig | None = None,
    *,
    engine: EngineConfig | None = None,
    report: Report = lambda images, done, total: None,
) -> Outcome:
    """What protect_folder would do and charge: everything is read and nothing is written.

    The charges are made in a copy of the ledger, so that budgets stop them where they would.
    """
    config, engine = config or FolderConfig(), engine or EngineConfig()
    found, ledger = place(source), Path(ledger)
    _check_places(found, None, ledger)
    _check_shared(engine, found)
    _check_mask(protection, config)
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.db"
        if ledger.exists():
            with Ledger(ledger) as original:
                original.copy_without_releases(copy)
            with Ledger(copy) as opened:
                survey(opened)
        below, only = _parted(found)
        return _run(Job(below, None, protection.spec, config, b""), only, copy, None, engine, report)


def protect_image(
    source: str | os.PathLike[str] | bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
    *,
    folder: str | os.PathLike[str] = ".",
) -> tuple[bytes, tuple[int, int, int], int]:
    """One image file, or its bytes, in; the file of its release out.

    Args:
        source: the image.
        protection: how.
        ledger: of this device.
        config: how to write.
        folder: where the image lies, for the budgets of folders; a path or a URL.

    Returns:
        the file, the (C, H, W) of the original, and how many releases were new to the ledger: 1, or 0.

    Raises:
        ImageError: not an image that can be read.
        BudgetExceededError, LedgerError, SpecError: see sfumato.device.releasing.release.
        ConfigError, ArtefactError: see protect_folder.
    """
    config = config or FolderConfig()
    _check_mask(protection, config)
    image = images.read(source, channels=None)
    released, new = releasing.charged_release(protection, image[None], ledger, folders=[folder])
    shape = (image.shape[0], image.shape[1], image.shape[2])
    return next(encoded(released, config)), shape, new


def _check_places(source: Place, target: Place | None, ledger: Path) -> None:
    if not source.exists():
        raise DataError(f"{source}: no such folder or file")
    if not source.is_folder() and not is_shard(source.name):
        raise DataError(f"{source}: is no folder and no tar file")
    if target is None:
        return
    if target.exists() and not target.is_folder():
        raise DataError(f"{target}: is not a folder: name a new one for the releases of {source}")
    if target.within(source):
        raise DataError(f"{target}: lies in {source}, whose images would be mixed with their releases")
    if Folder(ledger).within(target):
        raise DataError(f"{ledger}: lies in {target}, which leaves the device: the ledger must not")


def _check_shared(engine: EngineConfig, *places: Place) -> None:
    """Raise where the processes of an engine would each see a place of their own."""
    if engine.name == "local" and engine.workers == 1:
        return
    for one in places:
        if isinstance(one, Remote) and one.of_one_process:
            raise ConfigError(
                f"{one}: lies in the memory of this process: use the engine local with workers=1"
            )


def _parted(source: Place) -> tuple[Place, str | None]:
    """The folder that tasks read from, and the one file of it that is wanted; None for all."""
    return (source, None) if source.is_folder() else (source.parent, source.name)


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
def _locked(target: Place, journal: Path) -> Iterator[None]:
    """Keep a second run out of a target; the system lets go of the lock when this process ends, however."""
    if isinstance(target, Folder):
        path = target.path
    else:
        # Not the journal itself: SQLite's own locks would end with any handle to it.
        path = journal.with_suffix(".lock")
        path.touch(mode=0o600)
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataError(f"{target}: another run is writing here: wait for it, or name another") from error
        yield
    finally:
        os.close(handle)


def _run(
    job: Job, only: str | None, ledger: Path, journal: Journal | None, where: EngineConfig, report: Report
) -> Outcome:
    """Go through the source, have the workers release what is not there yet, and keep the journal."""
    total = sum(size for _, size, _ in _walk(job.source, only, Outcome()))
    outcome = Outcome()
    done_images = done_bytes = 0

    def finished(rows: list[Row], size: int) -> None:
        nonlocal done_images, done_bytes
        if journal is not None:
            assert job.target is not None
            for row in rows:
                if where.name == "ray" and row.output and not _is_there(job.target, row):
                    raise DataError(
                        f"{job.target.at(row.output)}: written by a node of the cluster, and not here: name "
                        "URLs, or folders that all nodes share"
                    )
                before = None if row.output else journal.find(row.source)
                if before is not None and before.output:
                    job.target.delete(before.output)
            journal.record(rows)
        else:
            for row in rows:
                outcome.shapes += by_shape(row.shapes)
        for row in rows:
            outcome.add(row)
        done_images += sum(row.shapes.total() for row in rows)
        done_bytes += size
        report(done_images, done_bytes, total)

    # On a cluster of many, tasks that wait would not wait: a limit is one of tasks.
    ahead = 1 if where.name == "ray" and where.workers else _AHEAD
    with ExitStack() as stack:
        stack.callback(worker.close)  # where the tasks are done in this process
        tasks = stack.enter_context(engines.engine(where, preload=[worker.__name__]))
        held = tasks.held(partial(Ledger, ledger, keep_releases=job.target is not None))
        running: dict[Future[list[Row]], int] = {}
        for items in _chunks(_todo(job, only, journal, outcome, finished)):
            # A few tasks wait for each worker, so that memory does not grow with the folder.
            while len(running) >= max(1, ahead * tasks.workers):
                _collect(running, finished)
            with engines.lost_workers():
                future = tasks.submit(worker.release_items, job, items, held)
            running[future] = sum(item.size for item in items)
        while running:
            _collect(running, finished)
    return outcome


def _collect(running: dict[Future[list[Row]], int], finished: Callable[[list[Row], int], None]) -> None:
    wait(running, return_when=FIRST_COMPLETED)
    for future in [future for future in running if future.done()]:
        size = running.pop(future)
        with engines.lost_workers():
            rows = future.result()
        finished(rows, size)


def _walk(source: Place, only: str | None, outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    """Images and shards below a place, or one shard of it: path, size in bytes, stamp; a folder at a time."""
    if only is not None:
        found = source.look(only)
        if found.kind == "file":
            yield only, found.size, found.stamp
        else:
            _fail(outcome, "no regular file", only)
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = source.entries(folder)
        except OSError as error:
            _fail(outcome, f"a folder that cannot be read ({error.strerror})", folder)
            continue
        below = []
        for base, look in entries:
            name = f"{folder}/{base}" if folder else base
            wanted = base.lower().endswith((*images.SUFFIXES, *SHARDS))
            try:
                if base.startswith("."):
                    outcome.left_out["hidden"] += 1
                    continue
                found = look()
            except OSError as error:
                if wanted or error.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nowhere
                    _fail(outcome, f"cannot be read ({error.strerror})", name)
                else:
                    outcome.left_out["no images by their names"] += 1
                continue
            if found.kind == "folder":
                below.append(name)
            elif found.kind == "link to a folder":
                outcome.left_out["links to folders"] += 1
            elif not wanted:
                outcome.left_out["no images by their names"] += 1
            elif found.kind == "file":
                yield name, found.size, found.stamp
            else:
                _fail(outcome, "no regular file", name)
        folders += reversed(below)


def _fail(outcome: Outcome, cause: str, name: str) -> None:
    row = Row(source=name, stamp="")
    row.fail(cause, name)
    outcome.add(row)


def _todo(
    job: Job,
    only: str | None,
    journal: Journal | None,
    outcome: Outcome,
    finished: Callable[[list[Row], int], None],
) -> Iterator[Item]:
    """The files whose releases are not there yet."""
    before = ("", "")  # the last output, and whose it is
    for name, size, stamp in _walk(job.source, only, outcome):
        item = Item(name, stamp, size, job.output(name), ours=False)
        owner = before[1] if before[0] == item.output else name
        if journal is not None and job.target is not None:
            row = journal.find(name)
            if row is not None and row.output:
                if row.stamp == item.stamp and not row.failures and _is_there(job.target, row):
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


def _is_there(target: Place, row: Row) -> bool:
    return target.size(row.output) == row.size


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


def _write_manifest(
    target: Place,
    outcome: Outcome,
    protection: Protection,
    made: str | None,
    config: FolderConfig,
    journal: Journal,
) -> None:
    """The manifest that travels with the releases: nothing in it is a secret of the device."""
    head = {
        "spec": portable(protection.spec),
        "made_of": made,
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
    with target.file(MANIFEST, replace=True) as temporary, temporary.open("w", encoding="ascii") as out:
        # Row by row, for there may be very many. In names, \udcXX is a byte that is not UTF-8 (os.fsencode).
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "outputs": [')
        for i, row in enumerate(journal.outputs()):
            entry = {"file": row.output, "sha256": row.sha256, "bytes": row.size, "shapes": row.shapes}
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")
