"""The files of a folder job: the source, the files still to release, and their tasks."""

import errno
from collections.abc import Callable, Iterator
from dataclasses import replace

from sfumato import images
from sfumato.device.jobs.journal import Journal, Row
from sfumato.device.jobs.manifest import MANIFEST, Outcome
from sfumato.device.jobs.worker import SAME_NAME, SHARDS, Item, Job, is_shard
from sfumato.device.ledger.storage import Storage

# A task for a worker: few enough files that a kill costs little work, enough that the two commits of the
# ledger and the journal cost little.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20


def split_source(source: Storage) -> tuple[Storage, str | None]:
    """Split a source into the folder that tasks read, and the one file of it to release (None: all)."""
    return (source, None) if source.is_folder() else (source.parent, source.name)


def walk(source: Storage, only: str | None, outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    """Yield path, size in bytes and stamp of the images and shards of a storage, or of one shard of it."""
    if only is not None:
        entry = source.look(only)
        if entry.kind in ("file", "link out"):  # a user who names a link means its file
            yield only, entry.size, entry.stamp
        else:
            outcome.fail("no regular file", only)
        return
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = source.entries(folder)
        except OSError as error:
            outcome.fail(f"a folder that cannot be read ({error.strerror})", folder)
            continue
        below = []
        for base, look in entries:
            name = f"{folder}/{base}" if folder else base
            wanted = base.lower().endswith((*images.SUFFIXES, *SHARDS))
            try:
                if base.startswith("."):
                    outcome.left_out["hidden"] += 1
                    continue
                entry = look()
            except OSError as error:
                if wanted or error.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nowhere
                    outcome.fail(f"cannot be read ({error.strerror})", name)
                else:
                    outcome.left_out["no images by their names"] += 1
                continue
            if entry.kind == "folder":
                below.append(name)
            elif entry.kind == "link to a folder":
                outcome.left_out["links to folders"] += 1
            elif not wanted:
                outcome.left_out["no images by their names"] += 1
            elif entry.kind == "link out":
                outcome.left_out["links out of the folder"] += 1
            elif entry.kind == "file":
                yield name, entry.size, entry.stamp
            else:
                outcome.fail("no regular file", name)
        folders += reversed(below)


def todo(
    job: Job,
    only: str | None,
    journal: Journal | None,
    outcome: Outcome,
    finish: Callable[[list[Row], int], None],
) -> Iterator[Item]:
    """Yield the files whose releases are missing."""
    before = ("", "")  # the last output, and its source
    for name, size, stamp in walk(job.source, only, outcome):
        item = Item(name, stamp, size, job.output(name), ours=False)
        owner = before[1] if before[0] == item.output else name
        if journal is not None and job.target is not None:
            row = journal.find(name)
            if row is not None and row.output:
                if row.stamp == item.stamp and not row.failures and is_there(job.target, row):
                    before = item.output, name
                    outcome.earlier += 1
                    outcome.left_out += row.left_out
                    finish([], size)
                    continue
                item = replace(item, ours=True)
            owner = journal.owner(item.output) or owner
        if owner != name or name.split("/")[0] == MANIFEST:
            outcome.fail(f"{SAME_NAME}, or of the manifest", name)
        else:
            before = item.output, name
            yield item


def is_there(target: Storage, row: Row) -> bool:
    """Whether the output of a file exists in the target with its recorded size."""
    return target.size(row.output) == row.size


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
