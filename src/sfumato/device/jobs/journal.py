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
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import PIL

import sfumato
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
    """The result for one file or tar shard, or the sum for a folder.

    Attributes:
        source, stamp: of a file: its path below the source, and what tells a change; see storage.Entry.
        output: of a file: path of its release below the target; "" if nothing was written.
        shapes, counts: released images by (C, H, W); and BOXES, and conversions of the worker. For a folder,
            of all in the target, earlier runs included.
        failures: by cause, the number of images that failed for it, and the name of the first.
        words: by cause, the message for the first image that failed for it; stays on the device.
        failed: of a folder: file, cause and number of images, for each file with failures.
        left_out: by reason, the number of files, members of shards, or further pictures of files.
        stills: of a folder: the first files of this run with protected parts, and their numbers of boxes.
        without: the names of released images without a box: all of the image is protected.
        charged: releases that were new to the ledger, less those of a task that a cluster repeated.
        earlier: of a folder: number of files that an earlier run had released.
        manifest: of a folder: its path, or its URL without the password; None after a dry run.
    """

    source: str = ""
    stamp: str = ""
    output: str = ""
    sha256: str = ""
    size: int = 0
    shapes: Counter[Shape] = field(default_factory=Counter)
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    failed: list[tuple[str, str, int]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    stills: list[tuple[str, int]] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    charged: int = 0
    earlier: int = 0
    manifest: Path | str | None = None

    def fail(self, cause: str, name: str, words: str = "") -> "Outcome":
        """Count one image that could not be released. Returns itself."""
        if words:
            self.words.setdefault(cause, words)
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


def path_of(ledger: Path, target: Storage) -> Path:
    """Return the path of a target's journal, in a folder next to the ledger, which is created."""
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
                    f"{target}: holds a run with {key} {earlier}, not {value}: name a new folder, or empty it"
                )
        return bytes.fromhex(known["secret"])

    def record(self, files: Sequence[Outcome]) -> None:
        """Store the results of some files."""
        self._database.execute("begin")
        for file in files:
            facts = {name: getattr(file, name) for name in _FACTS} | {"shapes": _in_words(file.shapes)}
            output = os.fsencode(file.output) if file.output else None
            self._database.execute(
                "insert into results values (?, ?, ?) on conflict (source) do update "
                "set output = excluded.output, facts = excluded.facts",
                (os.fsencode(file.source), output, json.dumps(facts, sort_keys=True)),
            )
        self._database.execute("commit")

    def find(self, source: str) -> Outcome | None:
        """Read the result of a file; None if unknown."""
        return next(self._read("where source = ?", os.fsencode(source)), None)

    def owner(self, output: str) -> str | None:
        """Find the source whose release lies at a path below the target."""
        query = "select source from results where output = ?"
        row = self._database.execute(query, (os.fsencode(output),)).fetchone()
        return os.fsdecode(row[0]) if row else None

    def outputs(self) -> Iterator[Outcome]:
        """Yield all results with an output, ordered by path."""
        return self._read("where output is not null order by output")

    def totals(self) -> tuple[Counter[Shape], Counter[str]]:
        """Add up the shapes and counts of all released images."""
        shapes, counts = Counter[Shape](), Counter[str]()
        for text, files in self._database.execute(
            "select json_extract(facts, '$.shapes', '$.counts'), count(*) from results "
            "where output is not null group by 1"
        ):
            shaped, counted = json.loads(text)
            shapes.update({shape: files * count for shape, count in _read_shapes(shaped).items()})
            counts.update({what: files * count for what, count in counted.items()})
        return shapes, counts

    def _read(self, condition: str, *values: bytes) -> Iterator[Outcome]:
        query = f"select source, output, facts from results {condition}"
        for source, output, text in self._database.execute(query, values):
            facts = json.loads(text)
            facts["shapes"] = _read_shapes(facts["shapes"])
            facts["failures"] = {cause: (count, first) for cause, (count, first) in facts["failures"].items()}
            facts |= {name: Counter(facts[name]) for name in ("left_out", "counts")}
            yield Outcome(source=os.fsdecode(source), output=os.fsdecode(output or b""), **facts)


def _in_words(shapes: Mapping[Shape, int]) -> dict[str, int]:
    return {"x".join(map(str, shape)): count for shape, count in shapes.items()}


def _read_shapes(words: Mapping[str, int]) -> Counter[Shape]:
    sides = {name: [int(side) for side in name.split("x")] for name in words}
    return Counter({(sides[name][0], sides[name][1], sides[name][2]): words[name] for name in words})


def counts_by_word(protection: Protection, counts: Mapping[str, int]) -> dict[str, int]:
    """Rename the counts of images to the keys of a manifest; faces by how they were protected."""
    words = {what.replace(" ", "_"): count for what, count in counts.items() if what != BOXES}
    if isinstance(protection, Region):
        words[COUNTED[protection.place].replace(" ", "_")] = counts.get(BOXES, 0)
    return words


def write_manifest(
    target: Storage,
    outcome: Outcome,
    protection: Protection,
    settings: Mapping[str, object],
    journal: Journal,
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
            "sfumato": sfumato.__version__,
            "python": platform.python_version(),
            "pillow": PIL.__version__,
            "numpy": numpy.__version__,
            "torch": torch,
        },
        "images": outcome.shapes.total(),
        "failed": {cause: count for cause, (count, _) in sorted(outcome.failures.items())},
        "left_out": dict(sorted(outcome.left_out.items())),
        **({"searched": words} if (words := getattr(protection, "searched", None)) else {}),
        **counts_by_word(protection, outcome.counts),
    }
    with target.file(MANIFEST, replace=True) as temporary, temporary.open("w", encoding="ascii") as out:
        # Row by row, since there may be many. In names, \udcXX is a byte that is not UTF-8 (os.fsencode).
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "outputs": [')
        for i, file in enumerate(journal.outputs()):
            facts = {"file": file.output, "sha256": file.sha256, "bytes": file.size}
            entry = {**facts, "shapes": _in_words(file.shapes)}
            if BOXES in file.counts:
                entry[BOXES] = file.counts[BOXES]
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")
