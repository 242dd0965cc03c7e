"""The files of a folder job: the source, listed once, the files still to release, and their tasks."""

import errno
import os
import sqlite3
from collections.abc import Callable, Iterator

from sfumato.device.jobs.journal import MANIFEST, Journal, Outcome
from sfumato.device.jobs.worker import NO_IMAGES, SAME_NAME, Item, Job, is_image, is_shard
from sfumato.device.storage import Storage

# A task for a worker: few enough files that a kill costs little work, enough that the two commits of the
# ledger and the journal cost little.
_CHUNK_FILES = 64
_CHUNK_BYTES = 8 << 20


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
            wanted = is_shard(base) or is_image(base, b"")
            if base.startswith("."):
                outcome.left_out["hidden"] += 1
                continue
            try:
                entry = look()
                wanted = wanted or (entry.kind == "file" and is_image(base, source.head(name)))
            except OSError as error:
                if wanted or error.errno not in (errno.ENOENT, errno.ELOOP):  # a link to nowhere
                    outcome.add(Outcome(name).fail(f"cannot be read ({error.strerror})", name))
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
        self.total = 0  # bytes
        self._files = sqlite3.connect("", isolation_level=None)
        self._files.execute("create table files (name blob, stamp text, size integer, output blob)")
        self._files.execute("begin")
        for name, stamp, size in files:
            self.total += size
            row = os.fsencode(name), stamp, size
            self._files.execute("insert into files values (?, ?, ?, null)", row)
        self._files.execute("commit")

    def names(self) -> Iterator[str]:
        """Yield the paths of all files."""
        for (name,) in self._files.execute("select name from files order by rowid"):
            yield os.fsdecode(name)

    def todo(
        self, job: Job, journal: Journal | None, outcome: Outcome, skip: Callable[[int], None]
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
            if journal is not None:
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
                outcome.add(Outcome(item.name).fail(f"{SAME_NAME}, or of the manifest", item.name))
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
