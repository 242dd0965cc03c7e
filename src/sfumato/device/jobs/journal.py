"""The journal of a folder job, by which the same command resumes it: one small database a target.

It lies next to the ledger and not in the target, because it has the names of the originals.
"""

import hashlib
import json
import os
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sfumato.device.ledger.witness import runs_of
from sfumato.device.storage import Storage
from sfumato.errors import DataError

BOXES = "boxes"
_FACTS = ("shapes", "failures", "left_out", "counts")  # of Row

_SCHEMA = """
create table if not exists settings (key text primary key, value text not null);
create table if not exists results (
    source blob primary key,  -- path below the source folder
    stamp text not null, output blob unique, sha256 text, size integer,
    facts text not null  -- shapes, failures, left_out and counts of Row, in JSON
);
"""


@dataclass
class Row:
    """The result for one file or tar shard.

    Attributes:
        source: path below the source.
        stamp: of the source, to notice a changed file; see storage.Entry.
        output: path below the target; "" if nothing was written.
        sha256: of the output, in hexadecimal.
        size: of the output, in bytes.
        shapes: maps "3x84x84" to the number of images of that shape in the output.
        failures: maps each cause to the number of images that failed for it, and the name of the first.
        words: maps each cause to the message for the first image that failed for it; may name other images.
        left_out: maps each reason to the number of members of a shard, or of pictures of a file behind its
            first one, that were skipped.
        counts: further counts of its images: BOXES, and the conversions of sfumato.device.jobs.worker.
        without: the names of released images without a box: all of the image is protected.
        charged: number of releases that were new to the ledger.
    """

    source: str
    stamp: str
    output: str = ""
    sha256: str = ""
    size: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    without: list[str] = field(default_factory=list)
    charged: int = 0

    def fail(self, cause: str, name: str, words: str = "") -> None:
        """Count one image that could not be released."""
        if words:
            self.words.setdefault(cause, words)
        count, first = self.failures.get(cause, (0, name))
        self.failures[cause] = (count + 1, first)

    def count_boxes(self, name: str, boxes: int) -> None:
        """Count the faces, or boxes, of one image with protected parts."""
        self.counts[BOXES] += boxes
        if not boxes:
            self.without.append(name)


def by_shape(shapes: Mapping[str, int]) -> Counter[tuple[int, int, int]]:
    """Add up Row.shapes by (C, H, W)."""
    total: Counter[tuple[int, int, int]] = Counter()
    for name, count in shapes.items():
        channels, height, width = map(int, name.split("x"))
        total[channels, height, width] += count
    return total


def path_of(ledger: Path, target: Storage) -> Path:
    """Return the path of a target's journal, in a folder next to the ledger that is created if missing."""
    folder = runs_of(ledger)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(target.identity).hexdigest()[:16]}.db"


class Journal:
    """The journal of one target. State: a connection to its database, for one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        # Rows lost in a power cut are redone with the same result.
        self._database.execute("pragma journal_mode = wal")
        self._database.execute("pragma synchronous = normal")
        self._database.executescript(_SCHEMA)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def remove(self) -> None:
        """Close the connection and remove the file, after a run that released nothing."""
        self.close()
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # it holds other journals
            self._path.parent.rmdir()

    def settle(self, settings: dict[str, str], target: Storage) -> bytes:
        """Begin or resume a run with these settings. Returns its secret key, for new names.

        Raises:
            DataError: the target belongs to a run with other settings, or has files from elsewhere.
        """
        known = dict(self._database.execute("select key, value from settings"))
        empty = target.is_empty()
        if not known or empty:
            if not empty:
                raise DataError(f"{target}: is not empty and not from an earlier run: name a new folder")
            known = {**settings, "secret": known.get("secret", secrets.token_hex(32))}
            self._database.execute("begin")
            self._database.execute("delete from settings")
            self._database.execute("delete from results")
            self._database.executemany("insert into settings values (?, ?)", known.items())
            self._database.execute("commit")
        for key, value in settings.items():
            earlier = known.get(key, "")
            if earlier != value:
                raise DataError(
                    f"{target}: holds a run with {key} {_show(key, earlier)}, not "
                    f"{_show(key, value)}: name a new folder, or empty it"
                )
        return bytes.fromhex(known["secret"])

    def record(self, rows: Sequence[Row]) -> None:
        """Store the results of some files."""
        self._database.execute("begin")
        for row in rows:
            output = os.fsencode(row.output) if row.output else None
            facts = json.dumps({name: getattr(row, name) for name in _FACTS}, sort_keys=True)
            values = (row.stamp, output, row.sha256, row.size, facts, os.fsencode(row.source))
            known = self._database.execute(
                "update results set stamp = ?, output = ?, sha256 = ?, size = ?, facts = ? where source = ?",
                values,
            )
            if not known.rowcount:
                self._database.execute(
                    "insert into results (stamp, output, sha256, size, facts, source) values (?,?,?,?,?,?)",
                    values,
                )
        self._database.execute("commit")

    def find(self, source: str) -> Row | None:
        """Read the result of a file; None if unknown."""
        return next(self._rows("where source = ?", os.fsencode(source)), None)

    def owner(self, output: str) -> str | None:
        """Find the source whose release lies at a path below the target."""
        row = self._database.execute(
            "select source from results where output = ?", (os.fsencode(output),)
        ).fetchone()
        return os.fsdecode(row[0]) if row else None

    def outputs(self) -> Iterator[Row]:
        """Yield all rows with an output, ordered by path."""
        return self._rows("where output is not null order by output")

    def totals(self) -> tuple[Counter[tuple[int, int, int]], Counter[str]]:
        """Count the released images by shape (C, H, W), and add up Row.counts over them."""
        shapes: Counter[tuple[int, int, int]] = Counter()
        counts: Counter[str] = Counter()
        for text, rows in self._database.execute(
            "select facts, count(*) from results where output is not null group by facts"
        ):
            facts = json.loads(text)
            shapes.update({shape: rows * count for shape, count in by_shape(facts["shapes"]).items()})
            counts.update({what: rows * count for what, count in facts["counts"].items()})
        return shapes, counts

    def _rows(self, condition: str, *values: bytes) -> Iterator[Row]:
        columns = "source, stamp, output, sha256, size, facts"
        for source, stamp, output, sha256, size, text in self._database.execute(
            f"select {columns} from results {condition}", values
        ):
            facts = json.loads(text)
            failures = {cause: (count, first) for cause, (count, first) in facts["failures"].items()}
            counters: dict[str, Any] = {name: Counter(facts[name]) for name in _FACTS if name != "failures"}
            path = os.fsdecode(output or b"")
            yield Row(os.fsdecode(source), stamp, path, sha256, size, failures=failures, **counters)


def _show(key: str, value: str) -> str:
    return os.fsdecode(bytes.fromhex(value)) if key == "source" else value
