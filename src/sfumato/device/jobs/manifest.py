"""The outcome of a folder job, and the manifest that travels with the releases."""

import json
import platform
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import PIL

import sfumato
from sfumato.device.jobs.journal import BOXES, Journal, Row
from sfumato.device.jobs.worker import FolderConfig
from sfumato.device.storage import Storage
from sfumato.protect.naming import naming_words
from sfumato.protect.region import COUNTED, Region
from sfumato.protect.release import Protection, artefact_of
from sfumato.protect.spec import portable

MANIFEST = "manifest.json"
NAMED = 10  # files that are named in a report


@dataclass
class Outcome:
    """The outcome of a folder job.

    Attributes:
        shapes: maps (C, H, W) to the number of images of that shape in the target, earlier runs included.
        earlier: number of files that an earlier run had released.
        charged: number of releases that were new to the ledger. If a worker was lost on a cluster and its
            task repeated, the ledger has the releases of its first attempt, and this number does not.
        failures: maps each cause to the number of images that failed for it, and the first of their names.
        words: maps each cause to the message for the first image that failed; it stays on the device.
        failed: for each file with failures, its name, the cause, and the number of its images that failed (a
            tar file may have several).
        left_out: maps each reason to the number of files, or of further pictures in files, that were skipped.
        counts: further counts of the images in the target; see Row.
        stills: the first files of this run with protected parts, and their numbers of faces or boxes.
        without: the images of this run that have none: all of the image is protected.
        manifest: its path, or its URL without the password; None after a dry run.
    """

    shapes: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    earlier: int = 0
    charged: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    failed: list[tuple[str, str, int]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    stills: list[tuple[str, int]] = field(default_factory=list)
    without: list[str] = field(default_factory=list)
    manifest: Path | str | None = None

    def fail(self, cause: str, name: str) -> None:
        """Count a file that cannot be released."""
        row = Row(source=name, stamp="")
        row.fail(cause, name)
        self.add(row)

    def add(self, row: Row) -> None:
        """Count the result of one file."""
        self.charged += row.charged
        self.left_out += row.left_out
        self.without += row.without
        if BOXES in row.counts and len(self.stills) < NAMED:
            self.stills.append((row.source, row.counts[BOXES]))
        self.words = row.words | self.words
        for cause, (count, name) in row.failures.items():
            self.failed.append((row.source, cause, count))
            so_far, first = self.failures.get(cause, (0, name))
            self.failures[cause] = (so_far + count, min(first, name))


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
    config: FolderConfig,
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
        "format": config.format_name,
        "one_pixel_is": "a cell" if config.cells else "a pixel",
        "renamed": config.rename,
        **({} if config.size is None else {"size": config.size}),
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
        for i, row in enumerate(journal.outputs()):
            entry = {"file": row.output, "sha256": row.sha256, "bytes": row.size, "shapes": row.shapes}
            if BOXES in row.counts:
                entry[BOXES] = row.counts[BOXES]
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")
