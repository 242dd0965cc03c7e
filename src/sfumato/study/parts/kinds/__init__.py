"""The kinds of cells of a study, a module each, see protocol.Kind; the cells of a study, and their results.

None needs PyTorch before it measures something.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sfumato.study.cells import Cell
from sfumato.study.parts.kinds import (
    accuracy,
    attack,
    checks,
    examples,
    inference,
    log_rank,
    many,
    pictures,
    proved,
    reconstruction,
    similarity,
    tells,
)
from sfumato.study.protocol import Kind

if TYPE_CHECKING:
    from sfumato.study.grid import StudyConfig
    from sfumato.study.lab.lab import Lab

RELEASED = {
    "pixels": "pixels",
    "shape": "shapes",
    "numbers": "numbers",
    "bits": "bits",
    "answer": "answers",
}

# In the order in which they are measured for each protection.
KINDS: dict[str, Kind] = {
    "accuracy": accuracy.KIND,
    "attack": attack.KIND,
    "many": many.KIND,
    "log-rank": log_rank.KIND,
    "similarity": similarity.KIND,
    "pictures": pictures.KIND,
    "examples": examples.KIND,
    "proved": proved.KIND,
    "checks": checks.KIND,
    "tells": tells.KIND,
    "inference": inference.KIND,
    "reconstruction": reconstruction.KIND,
}


def cells(config: "StudyConfig") -> list[Cell]:
    """Every cell of a study, each after the cells that it needs."""
    every = (
        cell
        for seed in config.seeds
        for spec in config.specs
        for kind in KINDS.values()
        for cell in kind.cells(config, spec, seed)
    )
    return list(dict.fromkeys(every))  # a study may name something twice


def list_omissions(config: "StudyConfig") -> list[str]:
    """The impossible combinations that a study names and does not measure, a sentence each."""
    specs: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for spec in config.specs:
        for kind in KINDS.values():
            for subject, takes in kind.left_out(config, spec).items():
                specs[subject, takes].append(spec)
    return [
        f"{subject[:1].upper()}{subject[1:]} takes {_join_words(takes)}, and is left out where others are "
        f"released: for {', '.join(without)}."
        for (subject, takes), without in specs.items()
    ]


def digest(lab: "Lab", cell: Cell) -> str:
    """The digest of all that decides the result of a cell; the name of its record."""
    return lab.digest(cell, KINDS[cell.kind].settings(lab, cell))


def measure(lab: "Lab", cell: Cell) -> dict[str, Any]:
    """The result of a cell. Raises BusyError if another process is making one of its parts."""
    return KINDS[cell.kind].measure(lab, cell)


def _join_words(takes: tuple[str, ...]) -> str:
    *first, last = (RELEASED[kind] for kind in takes)
    return f"{', '.join(first)} and {last}" if first else last
