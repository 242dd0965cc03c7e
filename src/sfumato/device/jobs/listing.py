"""The files of a folder job: the source, the files still to release, and their tasks."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import replace

from sfumato.device.jobs.journal import Journal, Row
from sfumato.device.jobs.manifest import MANIFEST, Outcome
from sfumato.device.jobs.worker import NO_IMAGES, SAME_NAME, Item, Job, is_image, is_shard
from sfumato.device.storage import Storage

# A task for a worker: few enough files that a kill costs little work, enough that the two commits of the
# ledger and the journal cost little.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20


def split_source(source: Storage) -> tuple[Storage, str | None]:
    """Split a source into the folder that tasks read, and the one file of it to release (None: all)."""
    return (source, None) if source.is_folder() else (source.parent, source.name)


def walk(source: Storage, only: str | None, outcome: Outcome) -> Iterator[tuple[str, int, str]]:
    """Yield path, size in bytes and stamp of the images and shards of a storage, or of one shard of it.

    Images are told by their suffix, or else by their first bytes.
    """
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
            wanted = is_shard(base) or is_image(base, b"")
            try:
                if base.startswith("."):
                    outcome.left_out["hidden"] += 1
                    continue
                entry = look()
                wanted = wanted or (entry.kind == "file" and is_image(base, source.head(name)))
            except OSError as error:
                if wanted or error.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nowhere
                    outcome.fail(f"cannot be read ({error.strerror})", name)
                else:
                    outcome.left_out[NO_IMAGES] += 1
                continue
            if entry.kind == "folder":
                below.append(name)
            elif entry.kind == "link to a folder":
                outcome.left_out["links to folders"] += 1
            elif not wanted:
                outcome.left_out[NO_IMAGES] += 1
            elif entry.kind == "link out":
                outcome.left_out["links out of the folder"] += 1
            elif entry.kind == "file":
                yield name, entry.size, entry.stamp
            else:
                outcome.fail("no regular file", name)
        folders += reversed(below)


class Plan:
    """The files of a source, listed once. State: a temporary database on disk, since they may be many.

    Attributes:
        total: their size in bytes.
    """

    def __init__(self, job: Job, only: str | None, outcome: Outcome) -> None:
        self._job, self._files = job, sqlite3.connect("", isolation_level=None)
        self._files.execute("create table files (name blob, stamp text, size integer, output blob)")
        self._files.execute("begin")
        self._files.executemany(
            "insert into files values (?, ?, ?, ?)",
            (
                (os.fsencode(name), stamp, size, os.fsencode(job.output(name)))
                for name, size, stamp in walk(job.source, only, outcome)
            ),
        )
        self._files.execute("create index outputs on files (output)")
        self._files.execute("commit")
        self.total: int = self._files.execute("select coalesce(sum(size), 0) from files").fetchone()[0]

    def items(self) -> Iterator[tuple[Item, str]]:
        """Yield each file, and the first file whose release would have the same name.

        Under new names in the order of these: the order of writing, which folders, inodes and stores keep,
        would tell which releases are of one folder.
        """
        first = "(select name from files as same where same.output = files.output order by rowid limit 1)"
        order = "output" if self._job.config.rename else "rowid"
        rows = self._files.execute(f"select name, stamp, size, output, {first} from files order by {order}")
        for name, stamp, size, output, owner in rows:
            yield Item(os.fsdecode(name), stamp, size, os.fsdecode(output), ours=False), os.fsdecode(owner)

    def close(self) -> None:
        """Remove the database."""
        self._files.close()


def todo(
    job: Job,
    plan: Plan,
    journal: Journal | None,
    outcome: Outcome,
    finish: Callable[[list[Row], int], None],
) -> Iterator[Item]:
    """Yield the files whose releases are missing."""
    for listed, first in plan.items():
        item, owner = listed, first
        if journal is not None and job.target is not None:
            row = journal.find(item.name)
            if row is not None and row.output:
                if row.stamp == item.stamp and not row.failures and is_there(job.target, row):
                    outcome.earlier += 1
                    outcome.left_out += row.left_out
                    finish([], item.size)
                    continue
                item = replace(item, ours=True)
            owner = journal.owner(item.output) or owner
        if owner != item.name or item.name.split("/")[0] == MANIFEST:
            outcome.fail(f"{SAME_NAME}, or of the manifest", item.name)
        else:
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
