"""What a folder job did: its outcome for the caller, and the manifest that travels with the releases."""

import json
import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import PIL

import sfumato
from sfumato.device.journal import Journal, Row
from sfumato.device.storage import Storage
from sfumato.device.worker import FolderConfig
from sfumato.protect.naming import naming_words
from sfumato.protect.release import Protection
from sfumato.wire import portable

MANIFEST = "manifest.json"


@dataclass
class Outcome:
    """What a folder job did.

    Attributes:
        shapes: (C, H, W) -> how many images of that shape are in the target, those of earlier runs included.
        earlier: how many files were there already, from an earlier run.
        charged: how many releases were new to the ledger; those of a task whose worker was lost on a cluster,
            and that was done again, are in the ledger and not in this number.
        failures: cause -> how many images could not be released for it, and the first of their names.
        failed: of each file of which something failed, its name, the cause, and how many of its images (of a
            tar file there may be several).
        left_out: reason -> how many files were passed over.
        manifest: where it is, at a URL without the password; None after a dry run.
    """

    shapes: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    earlier: int = 0
    charged: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    failed: list[tuple[str, str, int]] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    manifest: Path | str | None = None

    def fail(self, cause: str, name: str) -> None:
        """Count a file that cannot be released."""
        row = Row(source=name, stamp="")
        row.fail(cause, name)
        self.add(row)

    def add(self, row: Row) -> None:
        """Count what became of one file."""
        self.charged += row.charged
        self.left_out += row.left_out
        for cause, (count, name) in row.failures.items():
            self.failed.append((row.source, cause, count))
            so_far, first = self.failures.get(cause, (0, name))
            self.failures[cause] = (so_far + count, min(first, name))


def write_manifest(
    target: Storage,
    outcome: Outcome,
    protection: Protection,
    made: str | None,
    config: FolderConfig,
    journal: Journal,
) -> None:
    """The manifest that travels with the releases: nothing in it is a secret of the device."""
    from importlib.metadata import version  # here: one image has no manifest

    head = {
        "spec": portable(protection.spec),
        "made_of": made,
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
            "torch": version("torch"),
        },
        "images": outcome.shapes.total(),
        "failed": {cause: count for cause, (count, _) in sorted(outcome.failures.items())},
    }
    with target.file(MANIFEST, replace=True) as temporary, temporary.open("w", encoding="ascii") as out:
        # Row by row, for there may be very many. In names, \udcXX is a byte that is not UTF-8 (os.fsencode).
        out.write(json.dumps(head, indent=1)[:-2] + ',\n "outputs": [')
        for i, row in enumerate(journal.outputs()):
            entry = {"file": row.output, "sha256": row.sha256, "bytes": row.size, "shapes": row.shapes}
            out.write(("," if i else "") + "\n  " + json.dumps(entry))
        out.write("\n ]\n}\n")
