"""The files of a folder job: their outcomes, the journal that resumes a run, and the manifest.

The journal, one small database a target, lies next to the ledger and not in the target, because it has the
names of the originals. The manifest travels with the releases.
"""

import hashlib
import json
import os
import platform
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy
import PIL

import sfumato
from sfumato.base.databases import transaction
from sfumato.base.files import lock_file
from sfumato.device.ledger.witness import runs_of
from sfumato.device.storage import Storage
from sfumato.errors import DataError
from sfumato.protect.naming import naming_words
from sfumato.protect.region import COUNTED, Region
from sfumato.protect.release import Protection, artefact_of
from sfumato.protect.spec import portable

MANIFEST = "manifest.json"
BOXES = "boxes"
NAMED = 10  # files that are named in a report

Shape = tuple[int, int, int]

_SCHEMA = """
create table if not exists settings (key text primary key, value text not null);
create table if not exists results (
    source blob primary key,  -- path below the source folder
    output blob unique,
    facts text not null  -- the rest of an Outcome, in JSON
);
"""
_FACTS = ("stamp", "sha256", "size", "failures", "left_out", "counts")  # as they are


@dataclass
class Outcome:
    """The result for one file or tar shard, or the sum for a folder."""

    source: str = ""  # of a file: its path below the source
    stamp: str = ""  # of a file: it changes with the file; see storage.Entry
    output: str = ""  # of a file: path of its release below the target; "" if nothing was written
    sha256: str = ""
    size: int = 0
    shapes: Counter[Shape] = field(default_factory=Counter)  # of a folder: earlier runs, too
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)  # cause -> images, the first's name
    words: dict[str, str] = field(default_factory=dict)  # cause -> message of the first; stays on the device
    failed: list[tuple[str, str, int]] = field(default_factory=list)  # of a folder: file, cause, images
    left_out: Counter[str] = field(default_factory=Counter)  # reason -> files, members, or further pictures
    counts: Counter[str] = field(default_factory=Counter)  # BOXES, and conversions of the worker; as shapes
    stills: list[tuple[str, int]] = field(default_factory=list)  # of a folder: the first files with BOXES
    without: list[str] = field(default_factory=list)  # released images without a box: all is protected
    charged: int = 0  # new to the ledger, less those of a task that a cluster repeated
    earlier: int = 0  # of a folder: files that an earlier run had released
    manifest: Path | str | None = None  # of a folder: its path, or its URL without the password

    def fail(self, cause: str, name: str, words: str = "") -> "Outcome":
        """Count one image that could not be released. Returns itself."""
        self.words |= {cause: words} if words and cause not in self.words else {}
        count, first = self.failures.get(cause, (0, name))
        self.failures[cause] = (count + 1, first)
        return self

    def add(self, file: "Outcome") -> None:
        """Count the result of one file."""
        self.charged += file.charged
        self.left_out += file.left_out
        self.without += file.without
        self.shapes += file.shapes
        self.counts.update(file.counts)
        if BOXES in file.counts and len(self.stills) < NAMED:
            self.stills.append((file.source, file.counts[BOXES]))
        self.words = file.words | self.words
        for cause, (count, name) in file.failures.items():
            self.failed.append((file.source, cause, count))
            so_far, first = self.failures.get(cause, (0, name))
            self.failures[cause] = (so_far + count, min(first, name))


@contextmanager
def open_journal(ledger: Path, target: Storage) -> Iterator["Journal"]:
    """Open the journal of a target, and keep a second run out of the target, until the block ends.

    If nothing was released by then, nothing is left of it, unless it was there before.
    """
    folder = runs_of(ledger)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(target.identity).hexdigest()[:16]}.db"
    new = not path.exists()
    lock = Path(target.url)
    if not target.local:  # not the journal: closing any handle to it would drop SQLite's own locks
        lock = path.with_suffix(".lock")
        lock.touch(mode=0o600)
    handle = os.open(lock, os.O_RDONLY)  # this process holds it until it ends in any way
    try:
        try:
            lock_file(handle, target)
        except BlockingIOError as error:
            raise DataError(f"{target}: another run is writing here: wait for it, or name another") from error
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            journal = Journal(database, target)
            yield journal
            unused = new and not any(journal.totals())
        if unused:
            path.unlink()
            with suppress(OSError):  # it holds other journals
                folder.rmdir()
    except sqlite3.Error as error:
        raise DataError(
            f"a journal in {folder}: {error}. If it is damaged, delete it and name a new target: the "
            "ledger returns the same releases at no cost"
        ) from error
    finally:
        os.close(handle)


class Journal:
    """The journal of one target. State: a connection to its database, for one thread."""

    def __init__(self, database: sqlite3.Connection, target: Storage) -> None:
        self._database, self.target = database, target
        # Rows lost in a power cut are redone with the same result.
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = normal")
        database.executescript(_SCHEMA)

    def settle(self, settings: dict[str, str]) -> bytes:
        """Begin or resume a run with these settings. Returns its secret key, for new names.

        Raises DataError if the target belongs to a run with other settings, or has files from elsewhere.
        """
        known, target = dict(self._database.execute("select key, value from settings")), self.target
        empty = target.is_empty()
        if not known and not empty:
            raise DataError(f"{target}: is not empty and not from an earlier run: name a new folder")
        if empty:
            known = {**settings, "secret": known.get("secret", secrets.token_hex(32))}
            with transaction(self._database):
                self._database.execute("delete from settings")
                self._database.execute("delete from results")
                self._database.executemany("insert into settings values (?, ?)", known.items())
        for key, value in settings.items():
            if (earlier := known.get(key, "")) != value:
                raise DataError(
                    f"{target}: holds a run with {key} {earlier}, not {value}: name a new folder, or empty it"
                )
        return bytes.fromhex(known["secret"])

    def record(self, files: Sequence[Outcome]) -> None:
        """Store the results of some files, and remove earlier releases of those that have none now."""
        for file in files:
            if not file.output and (before := self.find("source", file.source)) is not None and before.output:
                self.target.delete(before.output)
        rows = []
        for file in files:
            facts = {name: getattr(file, name) for name in _FACTS} | {"shapes": _in_words(file.shapes)}
            output, text = os.fsencode(file.output) or None, json.dumps(facts, sort_keys=True)
            rows.append((os.fsencode(file.source), output, text))
        with transaction(self._database):
            self._database.executemany(
                "insert into results values (?, ?, ?) on conflict (source) do update "
                "set output = excluded.output, facts = excluded.facts",
                rows,
            )

    def find(self, column: Literal["source", "output"], path: str) -> Outcome | None:
        """Read the result of the file, or that whose release, has a path; None if unknown."""
        return next(self._read(f"where {column} = ?", os.fsencode(path)), None)

    def outputs(self) -> Iterator[Outcome]:
        """Yield all results with an output, ordered by path."""
        return self._read("where output is not null order by output")

    def totals(self) -> tuple[Counter[Shape], Counter[str]]:
        """Add up the shapes and counts of all released images."""
        query = "select key, sum(value) from results, json_each(facts, ?) where output not null group by key"
        shapes, counts = (dict(self._database.execute(query, (path,))) for path in ("$.shapes", "$.counts"))
        return _read_shapes(shapes), Counter(counts)

    def _read(self, condition: str, *values: bytes) -> Iterator[Outcome]:
        query = f"select source, output, facts from results {condition}"
        for source, output, text in self._database.execute(query, values):
            facts = json.loads(text)
            facts |= {name: Counter(facts[name]) for name in ("left_out", "counts")}
            facts["shapes"] = _read_shapes(facts["shapes"])
            yield Outcome(source=os.fsdecode(source), output=os.fsdecode(output or b""), **facts)


def _in_words(shapes: Mapping[Shape, int]) -> dict[str, int]:
    return {"x".join(map(str, shape)): count for shape, count in shapes.items()}


def _read_shapes(words: Mapping[str, int]) -> Counter[Shape]:
    return Counter({cast(Shape, tuple(map(int, word.split("x")))): count for word, count in words.items()})


def counts_by_word(protection: Protection, counts: Mapping[str, int]) -> dict[str, int]:
    """Rename the counts of images to the keys of a manifest; faces by how they were protected."""
    words = {what.replace(" ", "_"): count for what, count in counts.items() if what != BOXES}
    if isinstance(protection, Region):
        words[COUNTED[protection.place].replace(" ", "_")] = counts.get(BOXES, 0)
    return words


def write_manifest(
    journal: Journal, outcome: Outcome, protection: Protection, settings: Mapping[str, object]
) -> None:
    """Write the manifest that travels with the releases. It has no secret of the device."""
    from importlib.metadata import distributions  # imported here: single images need no manifest

    torch = next((each.version for each in distributions(name="torch")), None)  # None in a base install
    head = {
        "spec": portable(protection.spec),
        "made_of": artefact_of(protection),
        "neighbours": "two images of one shape that differ in any m pixels, each in all of its channels",
        "guarantees": [
            {
                "shape": shape,
                "images": count,
                "proved": None if guarantee is None else {**guarantee.__dict__, "words": str(guarantee)},
                "naming": naming_words(protection, shape),
            }
            for shape, count in sorted(outcome.shapes.items())
            for guarantee in [protection.guarantee(shape)]
        ],
        **settings,
        "versions": {
            **{"sfumato": sfumato.__version__, "python": platform.python_version()},
            **{"pillow": PIL.__version__, "numpy": numpy.__version__, "torch": torch},
        },
        "images": outcome.shapes.total(),
        "failed": {cause: count for cause, (count, _) in sorted(outcome.failures.items())},
        "left_out": dict(sorted(outcome.left_out.items())),
        **({"searched": words} if (words := getattr(protection, "searched", None)) else {}),
        **counts_by_word(protection, outcome.counts),
    }
    with journal.target.file(MANIFEST, replace=True) as path, path.open("w", encoding="ascii") as out:
        # Row by row, since there may be many. In names, \udcXX is a byte that is not UTF-8 (os.fsencode).
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "outputs": [')
        for i, file in enumerate(journal.outputs()):
            entry: dict[str, object] = {"file": file.output, "sha256": file.sha256, "bytes": file.size}
            entry |= {"shapes": _in_words(file.shapes)}
            entry |= {BOXES: file.counts[BOXES]} if BOXES in file.counts else {}
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")
