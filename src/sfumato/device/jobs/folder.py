"""Release every image of a folder of any depth, tar shards included, by the ledger, and write a manifest.

Source and target may be local folders or URLs; see storage. An engine runs the work as tasks. A task may run
more than once and writes the same each time: the ledger fixes every release.
"""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from sfumato import images
from sfumato.artefacts import read_card
from sfumato.base import engines
from sfumato.base.engines import EngineConfig
from sfumato.base.files import check_writable
from sfumato.device.jobs import releasing, worker
from sfumato.device.jobs.journal import BOXES, MANIFEST, Journal, Outcome, open_journal, write_manifest
from sfumato.device.jobs.worker import RELEASE, TEXT, USUAL, FolderConfig, Item, Job, is_shard
from sfumato.device.ledger import Ledger
from sfumato.device.storage import Storage, storage_of
from sfumato.errors import ConfigError, DataError, ImageError, MissingExtraError
from sfumato.images import Images, Pixels
from sfumato.images.reading import name_and_bytes
from sfumato.protect.naming import recognisable
from sfumato.protect.region import Region
from sfumato.protect.release import IMAGES, Protection, artefact_of, cell_of, file_digest_of, kind_of

__all__ = ["MANIFEST", "FolderConfig", "Outcome", "protect_folder", "protect_image"]

_AHEAD = 3  # tasks for each worker, including those that wait
# A task for a worker: few enough files that a kill costs little work, enough that the two commits of the
# ledger and the journal cost little.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20

Report = Callable[[int, int, int], None]  # images done, bytes done, total bytes
Warn = Callable[[str], None]


def protect_folder(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    protection: Protection,
    ledger: str | os.PathLike[str],
    config: FolderConfig | None = None,
    *,
    engine: EngineConfig | None = None,
    report: Report = lambda images, done, total: None,
    warn: Warn | None = None,
) -> Outcome:
    """Release every image below a folder into another, under the same names with a new suffix.

    Each image is charged in the ledger before its release is written, and each file appears whole. If the
    run is stopped or killed, the same call resumes it: existing releases stay, and new or changed files are
    released (the release of a file that can no longer be read is removed). Files of others are never
    replaced. A tar shard becomes a shard. Files without an image suffix, hidden files, links to folders and
    links out of the source are skipped and counted.

    On a Ray cluster the ledger stays on this machine, in one process that all workers ask. The source, the
    target and the artefact of a mask are URLs, or folders that all nodes share. A second run into the same
    URL is excluded on this device only.

    Args:
        source: the folder, or one tar file; a path, or a URL (a str) that fsspec opens.
        target: a folder that is new, empty, or from an earlier run with the same settings; a path or a URL.
        engine: where tasks run; None for one process per core of this machine.
        warn: called before anything leaves, if people remain recognisable on the first image.

    Raises:
        ConfigError, ArtefactError, MissingExtraError: the format, engine, URL or artefact cannot be used.
        DataError: no such source, an unusable target, or a damaged journal of an earlier run.
        LedgerError, OSError, SfumatoError: the ledger or the target cannot be written, or worker processes
            were killed; finished work is kept.
    """
    config, engine = _fit_channels(config, protection), engine or EngineConfig()
    origin, goal = storage_of(source), storage_of(target)
    ledger, outcome = Path(ledger), Outcome()
    _check_storages(origin, goal, ledger, engine)
    check_format(protection, config)
    with ExitStack() as stack:
        plan = stack.enter_context(closing(Plan(origin, outcome)))
        names = list(plan.names()) if config.people else []
        if names and not any("/" in name or is_shard(name) for name in names):
            raise DataError(
                f"{origin}: no image lies in a sub-folder, and each person needs one: make a folder for each "
                "of them, or leave --people out"
            )
        new = goal.is_empty()
        if new and next(plan.names(), None) is None:
            return outcome
        image = _first_image(plan, config) if new or warn is not None else None
        if image is not None:
            _warn_of_people(image, protection, warn)
        missing = not goal.exists()
        goal.make()
        Ledger(ledger).close()  # creates it, or fails now and not in a worker
        journal = stack.enter_context(open_journal(ledger, goal))
        if config.rename:
            stack.callback(goal.level_times)  # also after an error
        secret = journal.settle(_settings(origin, protection, config))
        goal.tidy()
        job = Job(plan.source, goal, protection.spec, config, secret)
        _run(job, plan, ledger, journal, engine, report, outcome)
        if engine.name == "ray":  # which continues after a worker was killed and left a partial file
            goal.tidy()
        outcome.shapes, outcome.counts = journal.totals()
        if new and not outcome.shapes:
            if missing:
                goal.remove_empty()
            return outcome
        outcome.manifest = goal.at(MANIFEST)
        told = {"format": config.format_name, "one_pixel_is": "a cell" if config.cells else "a pixel"}
        size = {} if config.size is None else {"size": config.size}
        write_manifest(journal, outcome, protection, {**told, "renamed": config.rename, **size})
    return outcome


def protect_image(
    source: str | os.PathLike[str] | bytes,
    protection: Protection,
    ledger: Ledger,
    config: FolderConfig | None = None,
    *,
    warn: Warn | None = None,
) -> tuple[Outcome, bytes]:
    """Release one image file, or its bytes. Returns the outcome, and the bytes of the file of its release.

    Raises ImageError if it cannot be read, and as protect_folder and releasing.charge_and_release do.
    """
    config = _fit_channels(config, protection)
    check_format(protection, config)
    name = "" if isinstance(source, bytes) else Path(source).name
    outcome = Outcome(source=name)
    shown, data = name_and_bytes(source)
    try:
        image, printed = worker.read_as(data, name, config, outcome)
    except ImageError as error:
        raise ImageError(str(error).replace("<bytes>", shown), cause=error.cause) from error.__cause__
    _warn_of_people(image, protection, warn)
    released, outcome.charged, _ = releasing.charge_and_release(
        protection, image[None], ledger, names=[name], printed=None if printed is None else [printed]
    )
    outcome.shapes[image.shape[0], image.shape[1], image.shape[2]] = 1
    outcome.counts[BOXES] = sum(getattr(released, "boxes", ()))
    return outcome, next(worker.encode_files(released, config, made_of=artefact_of(protection)))


def walk(source: Storage, outcome: Outcome) -> Iterator[tuple[str, str, int]]:
    """Yield path, stamp and size in bytes of the images, by suffix or first bytes, and shards of a folder."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = source.entries(folder)
        except OSError as error:
            outcome.add(Outcome(folder).fail(f"a folder that cannot be read ({error.strerror})", folder))
            continue
        below = []
        for base, look in entries:
            name = f"{folder}/{base}" if folder else base
            wanted = is_shard(base) or worker.is_image(base, b"")
            if base.startswith("."):
                outcome.left_out["hidden"] += 1
                continue
            try:
                entry = look()
                wanted = wanted or (entry.kind == "file" and worker.is_image(base, source.head(name)))
            except OSError as error:
                if wanted or error.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nowhere
                    outcome.add(Outcome(name).fail(f"cannot be read ({error.strerror})", name))
                else:
                    outcome.left_out[worker.NO_IMAGES] += 1
                continue
            if entry.kind == "folder":
                below.append(name)
            elif entry.kind == "link to a folder":
                outcome.left_out["links to folders"] += 1
            elif not wanted:
                outcome.left_out[worker.NO_IMAGES] += 1
            elif entry.kind == "link out":
                outcome.left_out["links out of the folder"] += 1
            elif entry.kind == "file":
                yield name, entry.stamp, entry.size
            else:
                outcome.add(Outcome(name).fail("no regular file", name))
        folders += reversed(below)


class Plan:
    """The files of a source, listed once. State: a temporary database on disk, since they may be many."""

    def __init__(self, source: Storage, outcome: Outcome) -> None:
        files = walk(source, outcome)
        self.source = source  # the folder that tasks read
        if not source.is_folder():
            entry, self.source = source.look(""), source.parent
            files = iter([(source.name, entry.stamp, entry.size)])
        self._files = sqlite3.connect("", isolation_level=None)
        self._files.execute("create table files (name blob, stamp text, size integer, output blob)")
        self._files.execute("begin")
        rows = ((os.fsencode(name), stamp, size) for name, stamp, size in files)
        self._files.executemany("insert into files values (?, ?, ?, null)", rows)
        self._files.execute("commit")
        (self.total,) = self._files.execute("select coalesce(sum(size), 0) from files").fetchone()  # bytes

    def names(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for (name,) in self._files.execute("select name from files order by rowid"):
            yield os.fsdecode(name)

    def todo(
        self, job: Job, journal: Journal, outcome: Outcome, skip: Callable[[int], None]
    ) -> Iterator[Item]:
        """Yield the files whose releases are missing; `skip` gets the bytes of each other one.

        Under new names in the order of these: the order of writing, which folders, inodes and stores keep,
        would tell which releases are of one folder.
        """
        self._files.create_function("output", 1, lambda name: os.fsencode(job.output(os.fsdecode(name))))
        self._files.execute("update files set output = output(name)")
        self._files.execute("create index outputs on files (output)")
        first = "(select name from files as same where same.output = files.output order by rowid limit 1)"
        order = "output" if job.config.rename else "rowid"
        rows = self._files.execute(f"select name, stamp, size, output, {first} from files order by {order}")
        for path, stamp, size, output, same in rows:
            item, owner = Item(os.fsdecode(path), stamp, size, os.fsdecode(output)), os.fsdecode(same)
            known = journal.find("source", item.name)
            if known is not None and known.output:
                there = known.stamp == stamp and journal.target.size(known.output) == known.size
                if there and not known.failures:
                    outcome.earlier += 1
                    outcome.left_out += known.left_out
                    skip(size)
                    continue
                item = item._replace(ours=True)
            other = journal.find("output", item.output)
            owner = owner if other is None else other.source
            if owner != item.name or item.name.split("/")[0] == MANIFEST:
                outcome.add(Outcome(item.name).fail(f"{worker.SAME_NAME}, or of the manifest", item.name))
            else:
                yield item

    def close(self) -> None:
        """Remove the database."""
        self._files.close()


def chunks(items: Iterator[Item]) -> Iterator[list[Item]]:
    """Group files into tasks; a shard is a task by itself."""
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


def _fit_channels(config: FolderConfig | None, protection: Protection) -> FolderConfig:
    config, artefact = config or FolderConfig(), getattr(protection, "artefact", None)
    if config.channels or artefact is None:
        return config
    return replace(config, channels=int(read_card(artefact)["shape"][0]))


def _first_image(plan: Plan, config: FolderConfig) -> Pixels | None:
    """Read the first readable image, unprotected; None if there is none outside of tar files."""
    for name in plan.names():
        if not is_shard(name):
            with suppress(ImageError, MissingExtraError):
                return images.read_array(plan.source.read(name), channels=config.channels, size=config.size)
    return None


def _warn_of_people(image: Images, protection: Protection, warn: Warn | None) -> None:
    if warn is None or cell_of(getattr(protection, "inner", protection)) == 1:
        return  # only cells are warned of: for others, no faces need to be found
    channels, height, width = image.shape
    if isinstance(protection, Region):
        boxes = []
        with suppress(ImageError):
            boxes = protection.boxes(image)
        sides = [(bottom - top, right - left) for top, bottom, left, right in boxes]
        height, width = max(sides, default=(height, width))
        protection = protection.inner
    if words := recognisable(protection, (channels, height, width)):
        warn(words)


def _settings(source: Storage, protection: Protection, config: FolderConfig) -> dict[str, str]:
    """Return the settings that all runs into one target share: all that change a byte, or a budget."""
    settings = {"source": source.identity.decode("utf-8", "backslashreplace"), "spec": protection.spec}
    settings |= {name.removesuffix("_name"): str(value) for name, value in asdict(config).items()}
    made = file_digest_of(protection)  # a retrained mask is another protection under the same spec
    return settings if made is None else {**settings, "files of the protection": made}


def _check_storages(source: Storage, target: Storage, ledger: Path, engine: EngineConfig) -> None:
    if not source.exists():
        raise DataError(f"{source}: no such folder or file")
    if not source.is_folder() and not (is_shard(source.name) and source.size("") is not None):
        raise DataError(f"{source}: is neither a folder nor a tar file")
    for storage in (source, target) if engine.name != "local" or engine.workers != 1 else ():
        if storage.url.startswith("memory://"):
            raise ConfigError(
                f"{storage}: is in the memory of this process: use the engine local with workers=1"
            )
    if target.exists() and not target.is_folder():
        raise DataError(f"{target}: is not a folder: name a new folder for the releases of {source}")
    if target.within(source):
        raise DataError(
            f"{target}: lies in {source}, whose images would be mixed with their releases: name a folder "
            "outside of it"
        )
    if target.local:
        check_writable(Path(target.url), folder=True)
    if storage_of(ledger).within(target):
        raise DataError(f"{ledger}: lies in {target}, which leaves the device: the ledger must not")


def check_format(protection: Protection, config: FolderConfig) -> None:
    """Raise what would stop every file, before anything is charged or written."""
    if isinstance(protection, Region) and protection.of_original and config.size is not None:
        raise ConfigError(
            f"--size {config.size} makes other pictures than those that {protection.file} has boxes of: "
            "write the smaller pictures first, and measure the boxes on them; or give boxes for all "
            "pictures, in shares up to 1"
        )
    kind = kind_of(protection)
    usual = USUAL.get(kind, "PNG")
    if config.format_name != usual and (kind not in IMAGES or config.format_name == TEXT):
        what = "answers" if kind == "answer" else kind
        raise ConfigError(
            f"{config.format_name}: {protection.spec} releases {what}: write them in the format {usual}"
        )
    if isinstance(protection, Region) and protection.place != "box" and not protection.file:
        from sfumato.networks.faces.finding import WEIGHTS  # imports PyTorch

        WEIGHTS.path()  # fails now, not for each image, if it is not installed
    if not hasattr(protection, "artefact"):
        return
    if hasattr(protection, "check"):
        protection.check()
    from sfumato.protect.mask import Mask  # PyTorch comes with it

    if isinstance(protection, Mask) and config.format_name not in (*images.reading.TRANSPARENT, RELEASE):
        raise ConfigError(
            f"{config.format_name} cannot say which pixels are hidden: "
            f"write a mask as {' or '.join(images.reading.TRANSPARENT)}"
        )


def _run(
    job: Job,
    plan: Plan,
    ledger: Path,
    journal: Journal,
    where: EngineConfig,
    report: Report,
    outcome: Outcome,
) -> None:
    images = size = 0
    # A cluster would run tasks that are meant to wait: there, the limit is on tasks.
    ahead = 1 if where.name == "ray" and where.workers else _AHEAD
    running: dict[Future[list[Outcome]], int] = {}

    def count(more: int, files: Sequence[Outcome] = ()) -> None:
        nonlocal images, size
        for file in files:
            outcome.add(file)
            images += file.shapes.total()
        size += more
        report(images, size, plan.total)

    def collect(most: int) -> None:
        while len(running) > most:
            for future, files in dict(engines.gather(running)).items():
                for file in files if where.name == "ray" else ():
                    if file.output and journal.target.size(file.output) != file.size:
                        raise DataError(
                            f"{journal.target.at(file.output)}: written by a node of the cluster, and not "
                            "here: name URLs, or folders that all nodes share"
                        )
                journal.record(files)
                count(running.pop(future), files)

    with ExitStack() as stack:
        stack.callback(worker.close)  # if the tasks ran in this process
        tasks = stack.enter_context(engines.engine(where, preload=[worker.__name__]))
        held = tasks.put(partial(Ledger, ledger))
        for items in chunks(plan.todo(job, journal, outcome, count)):
            # A few tasks wait for each worker, so that memory does not grow with the folder.
            collect(max(1, ahead * tasks.workers) - 1)
            running[tasks.submit(worker.release_items, job, items, held)] = sum(item.size for item in items)
        collect(0)
