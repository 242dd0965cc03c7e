"""Folders of any depth, tar shards among them: every image released by the ledger, and a manifest.

The folder and that of the releases may be of this machine or at URLs; see storage. The work is done in tasks
on an engine: each may be done more than once, and writes the same, for the ledger says what to release.
"""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from sfumato import images
from sfumato.base import engines
from sfumato.base.engines import EngineConfig
from sfumato.base.files import lock_file
from sfumato.device.jobs import listing, releasing, worker
from sfumato.device.jobs.journal import BOXES, Journal, Row, by_shape, path_of
from sfumato.device.jobs.manifest import MANIFEST, Outcome, write_manifest
from sfumato.device.jobs.survey import survey
from sfumato.device.jobs.worker import (
    RELEASE,
    TEXT,
    FolderConfig,
    Job,
    channels_of,
    encoded,
    is_shard,
    read_as,
    usual_format,
)
from sfumato.device.ledger import Ledger
from sfumato.device.ledger.fingerprints import look
from sfumato.device.ledger.storage import Folder, Remote, Storage, storage_of
from sfumato.dp.mechanisms import fresh_noise
from sfumato.errors import ConfigError, DataError, ImageError, MissingExtraError
from sfumato.images import Images, Pixels, as_array
from sfumato.protect.region import Box, Region
from sfumato.protect.release import IMAGES, Protection, artefact_of, file_digest_of, kind_of

__all__ = [
    "MANIFEST",
    "FolderConfig",
    "Outcome",
    "dry_run",
    "first_image",
    "preview",
    "protect_folder",
    "protect_image",
]

_AHEAD = 3  # tasks for each worker, those that wait for it included


Report = Callable[[int, int, int], None]  # images done, bytes done, bytes in all


class ReleasedFile(NamedTuple):
    """The release of one image.

    Attributes:
        content: of its file.
        shape: (C, H, W) of the original.
        charged: how many releases were new to the ledger: 1, or 0.
        counts: see Row.counts.
    """

    content: bytes
    shape: tuple[int, int, int]
    charged: int
    counts: Counter[str]


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
    killed, the same call continues; releases that are there are not touched, and files that were added or
    changed are released (the release of a file that can no longer be read is removed). Nothing of somebody
    else is replaced. A tar shard becomes a shard, and counts as lying in its own folder. Files that are not
    images by their suffix, hidden files, links to folders and links out of the source are left out and
    counted. A run that releases nothing leaves nothing behind.

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
        report: called during the job, with images and bytes done and bytes in all.

    Raises:
        ConfigError, ArtefactError: of a mask, the format has no transparency, or the file is not an artefact;
            or no such engine; or a URL that other processes cannot see, or with a password that is not
            quoted.
        MissingExtraError: Ray, or what fsspec needs for the URL, is not installed.
        DataError: no such source, or a target that cannot be used, or a damaged journal of an earlier run; or
            a node of the cluster has not the target of this machine.
        LedgerError, OSError: the ledger or the target cannot be written; what was finished is kept.
        SfumatoError: worker processes were killed; what was finished is kept.
    """
    config, engine = _suited(config, protection), engine or EngineConfig()
    origin, goal, ledger = storage_of(source), storage_of(target), Path(ledger)
    _check_storages(origin, goal, ledger)
    _check_shared(engine, origin, goal)
    _check_format(protection, config)
    new, missing = goal.is_empty(), not goal.exists()
    if new and not _has_images(origin, config):
        return _simulate(origin, protection, ledger, config, engine, report)
    with ExitStack() as stack:
        stack.enter_context(_journal_errors(ledger))
        goal.make()
        with Ledger(ledger) as opened:  # begins it, or fails now and not in a worker
            survey(opened)
        journal_path = path_of(ledger, goal)
        stack.enter_context(_locked(goal, journal_path))
        first = not journal_path.exists()
        journal = Journal(journal_path)
        stack.callback(journal.close)
        made = file_digest_of(protection)
        secret = journal.settle(_settings(origin, protection, made, config), goal)
        goal.tidy()
        below, only = listing.parted(origin)
        job = Job(below, goal, protection.spec, config, secret)
        outcome = _run(job, only, ledger, journal, engine, report)
        if engine.name == "ray":  # which goes on without a worker that was killed, and its half
            goal.tidy()
        outcome.shapes, outcome.counts = journal.shapes(), journal.counts()
        if new and not outcome.shapes:
            if missing:
                goal.remove_empty()
            if first:
                journal.remove()
            return outcome
        outcome.manifest = goal.at(MANIFEST)
        write_manifest(goal, outcome, protection, config, journal)
    return outcome


def _suited(config: FolderConfig | None, protection: Protection) -> FolderConfig:
    """The configuration with the channels that a protection takes."""
    config = config or FolderConfig()
    return config if config.channels else replace(config, channels=channels_of(protection))


def _has_images(source: Storage, config: FolderConfig) -> bool:
    """Whether anything of a source can be read: an image, or a tar file, into which nobody looks here."""
    below, only = listing.parted(source)
    names = (name for name, _, _ in listing.walk(below, only, Outcome()))
    return any(is_shard(name) for name in names) or first_image(source, config) is not None


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
    config, engine = _suited(config, protection), engine or EngineConfig()
    origin, ledger = storage_of(source), Path(ledger)
    _check_storages(origin, None, ledger)
    _check_shared(engine, origin)
    _check_format(protection, config)
    return _simulate(origin, protection, ledger, config, engine, report)


def _simulate(
    origin: Storage,
    protection: Protection,
    ledger: Path,
    config: FolderConfig,
    engine: EngineConfig,
    report: Report,
) -> Outcome:
    """See dry_run."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "ledger.db"
        if ledger.exists():
            with Ledger(ledger) as original:
                original.copy_without_releases(copy)
            with Ledger(copy) as opened:
                survey(opened)
        below, only = listing.parted(origin)
        return _run(Job(below, None, protection.spec, config, b""), only, copy, None, engine, report)


def first_image(
    source: str | os.PathLike[str] | Storage, config: FolderConfig | None = None
) -> Pixels | None:
    """The first image of a folder that can be read, before it is protected; None where there is none.

    Tar files are passed over.
    """
    config = config or FolderConfig()
    origin = source if isinstance(source, Folder | Remote) else storage_of(source)
    below, only = listing.parted(origin)
    for name, _, _ in listing.walk(below, only, Outcome()) if origin.exists() else ():
        if not is_shard(name):
            with suppress(ImageError, MissingExtraError):
                return below.image(name, config.channels, size=config.size)
    return None


def preview(image: Images, protection: Protection) -> Pixels:
    """An image beside what the receiver of its release sees: (C, H, W) uint8 -> (C, H, 2 W).

    Where parts are protected, they are framed on the original.

    Nothing of it is charged, and its noise is drawn for it alone: it must not leave the device.

    Raises:
        ConfigError: what is released is not an image.
        SpecError: a parameter does not fit the image.
    """
    if kind_of(protection) not in IMAGES:
        raise ConfigError(f"{protection.spec}: releases {kind_of(protection)}, of which there is no picture")
    shown = as_array(image)
    released = protection.release(image[None], fresh_noise()).pictures()[0]
    if isinstance(protection, Region):
        shown = _framed(shown, protection.boxes(image))
    return np.concatenate([shown, released], axis=2)


def _framed(image: Pixels, boxes: Sequence[Box]) -> Pixels:
    """A copy of a (C, H, W) image with a white frame, in a black one, around each box."""
    framed = image.copy()
    for top, bottom, left, right in boxes:
        for inset, value in ((0, 0), (1, 255), (2, 0)):
            rows = slice(top + inset, bottom - inset)
            columns = slice(left + inset, right - inset)
            for edge in (
                (slice(rows.start, rows.start + 1), columns),
                (slice(rows.stop - 1, rows.stop), columns),
                (rows, slice(columns.start, columns.start + 1)),
                (rows, slice(columns.stop - 1, columns.stop)),
            ):
                framed[:, *edge] = value
    return framed


def protect_image(
    source: str | os.PathLike[str] | bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
    *,
    folder: str | os.PathLike[str] = ".",
) -> ReleasedFile:
    """One image file, or its bytes, in; the file of its release out.

    Args:
        source: the image.
        protection: how.
        ledger: of this device.
        config: how to write.
        folder: where the image lies, for the budgets of folders; a path or a URL.

    Raises:
        ImageError: not an image that can be read.
        BudgetExceededError, LedgerError, SpecError: see sfumato.device.jobs.releasing.release.
        ConfigError, ArtefactError: see protect_folder.
    """
    config = _suited(config, protection)
    _check_format(protection, config)
    counts: Counter[str] = Counter()
    image, printed = look(read_as(partial(_read, source), config.channels, counts), config.size)
    name = "" if isinstance(source, bytes) else Path(source).name
    released, new, _ = releasing.charged_release(
        protection, image[None], ledger, folders=[folder], names=[name], printed=[printed]
    )
    content = next(encoded(released, config, made_of=artefact_of(protection)))
    counts[BOXES] = sum(getattr(released, "boxes", ()))
    return ReleasedFile(content, (image.shape[0], image.shape[1], image.shape[2]), new, counts)


def _read(source: str | os.PathLike[str] | bytes, channels: int | None) -> Pixels:
    return images.read_array(source, channels=channels)


def _settings(
    source: Storage, protection: Protection, made: str | None, config: FolderConfig
) -> dict[str, str]:
    """What stays the same in all runs into one target."""
    settings = {
        "source": source.identity.hex(),
        "spec": protection.spec,
        "format": config.format_name,
        "cells": str(config.cells),
        "rename": str(config.rename),
        "people": str(config.people),  # what is there already would count for nobody
        "size": "" if config.size is None else str(config.size),  # as where nothing is known of it
    }
    if made is not None:  # a mask that was trained again is another, under the same spec
        settings["files of the protection"] = made
    return settings


def _check_storages(source: Storage, target: Storage | None, ledger: Path) -> None:
    if not source.exists():
        raise DataError(f"{source}: no such folder or file")
    if not source.is_folder() and not is_shard(source.name):
        raise DataError(f"{source}: is neither a folder nor a tar file")
    if target is None:
        return
    if target.exists() and not target.is_folder():
        raise DataError(f"{target}: is not a folder: name a new one for the releases of {source}")
    if target.within(source):
        raise DataError(f"{target}: lies in {source}, whose images would be mixed with their releases")
    if Folder(ledger).within(target):
        raise DataError(f"{ledger}: lies in {target}, which leaves the device: the ledger must not")


def _check_shared(engine: EngineConfig, *storages: Storage) -> None:
    """Raise where the processes of an engine would each see a storage of their own."""
    if engine.name == "local" and engine.workers == 1:
        return
    for storage in storages:
        if isinstance(storage, Remote) and storage.of_one_process:
            raise ConfigError(
                f"{storage}: lies in the memory of this process: use the engine local with workers=1"
            )


def _check_format(protection: Protection, config: FolderConfig) -> None:
    """Raise now, before anything is charged or written, what would stop every file."""
    kind = kind_of(protection)
    usual = usual_format(kind)
    if config.format_name != usual and (kind not in IMAGES or config.format_name == TEXT):
        what = "answers" if kind == "answer" else kind
        raise ConfigError(
            f"{config.format_name}: {protection.spec} releases {what}: write them in the format {usual}"
        )
    if not hasattr(protection, "artefact"):
        return
    from sfumato.protect.mask import Mask  # PyTorch comes with it

    if not isinstance(protection, Mask):
        return
    if config.format_name not in (*images.TRANSPARENT, RELEASE):
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
def _locked(target: Storage, journal: Path) -> Iterator[None]:
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
            lock_file(handle, target)
        except BlockingIOError as error:
            raise DataError(f"{target}: another run is writing here: wait for it, or name another") from error
        yield
    finally:
        os.close(handle)


def _run(
    job: Job, only: str | None, ledger: Path, journal: Journal | None, where: EngineConfig, report: Report
) -> Outcome:
    """Go through the source, have the workers release what is not there yet, and keep the journal."""
    total = sum(size for _, size, _ in listing.walk(job.source, only, Outcome()))
    outcome = Outcome()
    done_images = done_bytes = 0

    def finished(rows: list[Row], size: int) -> None:
        nonlocal done_images, done_bytes
        if journal is not None:
            assert job.target is not None
            for row in rows:
                if where.name == "ray" and row.output and not listing.is_there(job.target, row):
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
                outcome.counts.update(row.counts)
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
        held = tasks.hold(partial(Ledger, ledger, keep_releases=job.target is not None))
        running: dict[Future[list[Row]], int] = {}
        for items in listing.chunks(listing.todo(job, only, journal, outcome, finished)):
            # A few tasks wait for each worker, so that memory does not grow with the folder.
            while len(running) >= max(1, ahead * tasks.workers):
                _collect(running, finished)
            with engines.explain_lost_workers():
                future = tasks.submit(worker.release_items, job, items, held)
            running[future] = sum(item.size for item in items)
        while running:
            _collect(running, finished)
    return outcome


def _collect(running: dict[Future[list[Row]], int], finished: Callable[[list[Row], int], None]) -> None:
    wait(running, return_when=FIRST_COMPLETED)
    for future in [future for future in running if future.done()]:
        size = running.pop(future)
        with engines.explain_lost_workers():
            rows = future.result()
        finished(rows, size)
