"""Release every image of a folder of any depth, tar shards included, by the ledger, and write a manifest.

Source and target may be local folders or URLs; see storage. An engine runs the work as tasks. A task may run
more than once and writes the same each time: the ledger fixes every release.
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
from sfumato.base.files import check_writable, lock_file
from sfumato.device.jobs import listing, releasing, worker
from sfumato.device.jobs.journal import BOXES, Journal, Row, by_shape, path_of
from sfumato.device.jobs.manifest import MANIFEST, Outcome, write_manifest
from sfumato.device.jobs.worker import (
    RELEASE,
    TEXT,
    FolderConfig,
    Job,
    channels_of,
    encode_files,
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
from sfumato.images.reading import name_and_bytes
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

_AHEAD = 3  # tasks for each worker, including those that wait


Report = Callable[[int, int, int], None]  # images done, bytes done, total bytes


class ReleasedFile(NamedTuple):
    """The release of one image.

    Attributes:
        content: the bytes of its file.
        shape: (C, H, W) of the original.
        charged: number of releases that were new to the ledger: 1 or 0.
        counts: see Row.counts.
        left_out: the number of other pictures in its file: worker.PAGES or SMALLER.
    """

    content: bytes
    shape: tuple[int, int, int]
    charged: int
    counts: Counter[str]
    left_out: Counter[str]


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
    """Release every image below a folder into another, under the same names with a new suffix.

    Each image is charged in the ledger before its release is written, and each file appears whole. If the
    run is stopped or killed, the same call resumes it: existing releases stay, and new or changed files are
    released (the release of a file that can no longer be read is removed). Files of others are never
    replaced. A tar shard becomes a shard. Files without an image
    suffix, hidden files, links to folders and links out of the source are skipped and counted. A run that
    releases nothing leaves no files.

    On a Ray cluster the ledger stays on this machine, in one process that all workers ask. The source, the
    target and the artefact of a mask are URLs, or folders that all nodes share. Work that a lost worker or
    node had begun is repeated by another. A second run into the same URL is excluded on this device only.

    Args:
        source: the folder, or one tar file; a path, or a URL (a str) that fsspec opens.
        target: a folder that is new, empty, or from an earlier run with the same settings; a path or a URL.
        protection: the protection.
        ledger: path of this device's ledger.
        config: the output format.
        engine: where tasks run; None for one process per core of this machine.
        report: called during the job, with images and bytes done and bytes in all.

    Raises:
        ConfigError, ArtefactError: for a mask, the format has no transparency, or the file is not an
            artefact; or no such engine; a URL that others cannot see, or an unquoted password.
        MissingExtraError: Ray, or a package that fsspec needs for the URL, is not installed.
        DataError: no such source, an unusable target, or a damaged journal of an earlier run; or a node of
            the cluster does not have the target of this machine.
        LedgerError, OSError: the ledger or the target cannot be written; finished work is kept.
        SfumatoError: worker processes were killed; finished work is kept.
    """
    config, engine = _fit_channels(config, protection), engine or EngineConfig()
    origin, goal, ledger = storage_of(source), storage_of(target), Path(ledger)
    _check_storages(origin, goal, ledger)
    _check_shared(engine, origin, goal)
    _check_format(protection, config)
    _check_people(origin, config)
    new, missing = goal.is_empty(), not goal.exists()
    if new and not _has_images(origin, config):
        return _simulate(origin, protection, ledger, config, engine, report)
    with ExitStack() as stack:
        stack.enter_context(_journal_errors(ledger))
        goal.make()
        Ledger(ledger).close()  # creates it, or fails now and not in a worker
        journal_path = path_of(ledger, goal)
        stack.enter_context(_lock(goal, journal_path))
        if config.rename:
            stack.callback(goal.level_times)  # also after an error
        first = not journal_path.exists()
        journal = Journal(journal_path)
        stack.callback(journal.close)
        made = file_digest_of(protection)
        secret = journal.settle(_settings(origin, protection, made, config), goal)
        goal.tidy()
        below, only = listing.split_source(origin)
        job = Job(below, goal, protection.spec, config, secret)
        outcome = _run(job, only, ledger, journal, engine, report)
        if engine.name == "ray":  # which continues after a worker was killed and left a partial file
            goal.tidy()
        outcome.shapes, outcome.counts = journal.totals()
        if new and not outcome.shapes:
            if missing:
                goal.remove_empty()
            if first:
                journal.remove()
            return outcome
        outcome.manifest = goal.at(MANIFEST)
        write_manifest(goal, outcome, protection, config, journal)
    return outcome


def _fit_channels(config: FolderConfig | None, protection: Protection) -> FolderConfig:
    config = config or FolderConfig()
    return config if config.channels else replace(config, channels=channels_of(protection))


def _has_images(source: Storage, config: FolderConfig) -> bool:
    """Whether a source has a readable image, or a tar file, which is not opened here."""
    below, only = listing.split_source(source)
    names = (name for name, _, _ in listing.walk(below, only, Outcome()))
    return any(is_shard(name) for name in names) or first_image(source, config) is not None


def _check_people(source: Storage, config: FolderConfig) -> None:
    """Raise DataError if each sub-folder is a person, and there is none."""
    below, only = listing.split_source(source)
    names = [name for name, _, _ in listing.walk(below, only, Outcome())] if config.people else []
    if names and not any("/" in name or is_shard(name) for name in names):
        raise DataError(
            f"{source}: no image lies in a sub-folder, and each person needs one: make a folder for each of "
            "them, or leave --people out"
        )


def dry_run(
    source: str | os.PathLike[str],
    protection: Protection,
    ledger: str | os.PathLike[str],
    config: FolderConfig | None = None,
    *,
    engine: EngineConfig | None = None,
    report: Report = lambda images, done, total: None,
) -> Outcome:
    """Return the outcome and charges of protect_folder: it reads everything and writes nothing.

    The charges go to a copy of the ledger, so that its budgets apply.
    """
    config, engine = _fit_channels(config, protection), engine or EngineConfig()
    origin, ledger = storage_of(source), Path(ledger)
    _check_storages(origin, None, ledger)
    _check_shared(engine, origin)
    _check_format(protection, config)
    _check_people(origin, config)
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
        with Ledger(ledger if ledger.exists() else copy.with_name("new.db")) as original:
            original.copy_for_trial(copy)
        below, only = listing.split_source(origin)
        return _run(Job(below, None, protection.spec, config, b""), only, copy, None, engine, report)


def first_image(
    source: str | os.PathLike[str] | Storage, config: FolderConfig | None = None
) -> Pixels | None:
    """Read the first readable image of a folder, unprotected; None if there is none.

    Tar files are skipped.
    """
    config = config or FolderConfig()
    origin = source if isinstance(source, Folder | Remote) else storage_of(source)
    below, only = listing.split_source(origin)
    for name, _, _ in listing.walk(below, only, Outcome()) if origin.exists() else ():
        if not is_shard(name):
            with suppress(ImageError, MissingExtraError):
                return images.read_array(below.read(name), channels=config.channels, size=config.size)
    return None


def preview(image: Images, protection: Protection) -> Pixels:
    """Show an image next to the receiver's view of its release: (C, H, W) uint8 -> (C, H, 2 W).

    If parts are protected, they are framed on the original. Nothing is charged, and the noise is drawn for
    this picture alone: it must not leave the device.

    Raises:
        ConfigError: the protection does not release images.
        SpecError: a parameter does not fit the image.
    """
    if kind_of(protection) not in IMAGES:
        raise ConfigError(f"{protection.spec}: releases {kind_of(protection)}, which have no picture")
    shown = as_array(image)
    released = protection.release(image[None], fresh_noise()).pictures()[0]
    if isinstance(protection, Region):
        shown = _frame(shown, protection.boxes(image))
    return np.concatenate([shown, released], axis=2)


def _frame(image: Pixels, boxes: Sequence[Box]) -> Pixels:
    """Copy a (C, H, W) image with a white frame, inside a black one, around each box."""
    framed = image.copy()
    for top, bottom, left, right in boxes:
        for i, value in ((0, 0), (1, 255), (2, 0)):
            inner = framed[:, top + i : bottom - i, left + i : right - i]
            for edge in (inner[:, :1], inner[:, -1:], inner[:, :, :1], inner[:, :, -1:]):
                edge[:] = value
    return framed


def protect_image(
    source: str | os.PathLike[str] | bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
) -> ReleasedFile:
    """Release one image file, or its bytes. Returns the file of its release.

    Args:
        source: the image.
        protection: the protection.
        ledger: of this device.
        config: the output format.

    Raises:
        ImageError: the image cannot be read.
        BudgetExceededError, LedgerError, SpecError: see sfumato.device.jobs.releasing.release.
        ConfigError, ArtefactError: see protect_folder.
    """
    config = _fit_channels(config, protection)
    _check_format(protection, config)
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    name = "" if isinstance(source, bytes) else Path(source).name
    shown, data = name_and_bytes(source)
    try:
        read = read_as(data, name, config.channels, counts, left_out)
    except ImageError as error:
        raise ImageError(str(error).replace("<bytes>", shown), cause=error.cause) from error.__cause__
    image, printed = look(read, config.size)
    released, new, _ = releasing.charge_and_release(
        protection, image[None], ledger, names=[name], printed=[printed]
    )
    content = next(encode_files(released, config, made_of=artefact_of(protection)))
    counts[BOXES] = sum(getattr(released, "boxes", ()))
    return ReleasedFile(content, (image.shape[0], image.shape[1], image.shape[2]), new, counts, left_out)


def _settings(
    source: Storage, protection: Protection, made: str | None, config: FolderConfig
) -> dict[str, str]:
    """Return the settings that all runs into one target share."""
    settings = {
        "source": source.identity.hex(),
        "spec": protection.spec,
        "format": config.format_name,
        "cells": str(config.cells),
        "rename": str(config.rename),
        "people": str(config.people),  # earlier releases would count for nobody
        "size": "" if config.size is None else str(config.size),  # the same as a journal without a size
        "channels": "" if config.channels in (None, channels_of(protection)) else str(config.channels),
    }
    if made is not None:  # a retrained mask is another protection under the same spec
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
        raise DataError(f"{target}: is not a folder: name a new folder for the releases of {source}")
    if target.within(source):
        raise DataError(
            f"{target}: lies in {source}, whose images would be mixed with their releases: name a folder "
            "outside of it"
        )
    if isinstance(target, Folder):
        check_writable(target.path, folder=True)
    if Folder(ledger).within(target):
        raise DataError(f"{ledger}: lies in {target}, which leaves the device: the ledger must not")


def _check_shared(engine: EngineConfig, *storages: Storage) -> None:
    """Raise ConfigError if each process of an engine would see its own storage."""
    if engine.name == "local" and engine.workers == 1:
        return
    for storage in storages:
        if isinstance(storage, Remote) and storage.of_one_process:
            raise ConfigError(
                f"{storage}: is in the memory of this process: use the engine local with workers=1"
            )


def _check_format(protection: Protection, config: FolderConfig) -> None:
    """Raise the errors that would stop every file, before anything is charged or written."""
    if isinstance(protection, Region) and protection.of_original and config.size is not None:
        raise ConfigError(
            f"--size {config.size} makes other pictures than those that {protection.file} has boxes of: "
            "write the smaller pictures first, and measure the boxes on them; or give boxes for all "
            "pictures, in shares up to 1"
        )
    kind = kind_of(protection)
    usual = usual_format(kind)
    if config.format_name != usual and (kind not in IMAGES or config.format_name == TEXT):
        what = "answers" if kind == "answer" else kind
        raise ConfigError(
            f"{config.format_name}: {protection.spec} releases {what}: write them in the format {usual}"
        )
    if not hasattr(protection, "artefact"):
        return
    if hasattr(protection, "check"):
        protection.check()
    from sfumato.protect.mask import Mask  # PyTorch comes with it

    if not isinstance(protection, Mask):
        return
    if config.format_name not in (*images.TRANSPARENT, RELEASE):
        raise ConfigError(
            f"{config.format_name} cannot say which pixels are hidden: "
            f"write a mask as {' or '.join(images.TRANSPARENT)}"
        )


@contextmanager
def _journal_errors(ledger: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise DataError(
            f"a journal in {ledger}.runs: {error}. If it is damaged, delete it and name a new target: the "
            "ledger returns the same releases at no cost"
        ) from error


@contextmanager
def _lock(target: Storage, journal: Path) -> Iterator[None]:
    """Keep a second run out of a target. The system drops the lock when this process ends in any way."""
    if isinstance(target, Folder):
        path = target.path
    else:
        # Not the journal itself: closing any handle to it would drop SQLite's own locks.
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
    """Walk the source, let workers release the missing files, and keep the journal."""
    outcome = Outcome()
    done_images = done_bytes = 0

    def finish(rows: list[Row], size: int) -> None:
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
        report(done_images, done_bytes, plan.total)

    # A cluster would run tasks that are meant to wait: there, the limit is on tasks.
    ahead = 1 if where.name == "ray" and where.workers else _AHEAD
    with ExitStack() as stack:
        plan = listing.Plan(job, only, outcome)
        stack.callback(plan.close)
        stack.callback(worker.close)  # if the tasks ran in this process
        tasks = stack.enter_context(engines.engine(where, preload=[worker.__name__]))
        held = tasks.hold(partial(Ledger, ledger))
        running: dict[Future[list[Row]], int] = {}
        for items in listing.chunks(listing.todo(job, plan, journal, outcome, finish)):
            # A few tasks wait for each worker, so that memory does not grow with the folder.
            while len(running) >= max(1, ahead * tasks.workers):
                _collect(running, finish)
            with engines.explain_lost_workers():
                future = tasks.submit(worker.release_items, job, items, held)
            running[future] = sum(item.size for item in items)
        while running:
            _collect(running, finish)
    return outcome


def _collect(running: dict[Future[list[Row]], int], finish: Callable[[list[Row], int], None]) -> None:
    wait(running, return_when=FIRST_COMPLETED)
    for future in [future for future in running if future.done()]:
        size = running.pop(future)
        with engines.explain_lost_workers():
            rows = future.result()
        finish(rows, size)
