"""The kinds of cells of a study, a module each.

A kind says which cells a study has of it (`cells`), what decides the result of a cell (`settings`), how it is
measured (`measure`) and what its result holds (`Result`). Where a study may name what cannot be done with a
release, it says so (`left_out`). None needs PyTorch before something is measured.
"""

from collections import defaultdict
from types import ModuleType
from typing import TYPE_CHECKING

from sfumato.study.parts.kinds import (
    accuracy,
    attack,
    embeddings,
    examples,
    inference,
    pictures,
    proved,
    reconstruction,
    similarity,
    stored,
    tells,
    transfer,
)
from sfumato.study.parts.kinds.common import RELEASED

if TYPE_CHECKING:
    from sfumato.study.grid import Cell, StudyConfig

# In the order in which they are measured for each protection.
KINDS: dict[str, ModuleType] = {
    "accuracy": accuracy,
    "attack": attack,
    "similarity": similarity,
    "embeddings": embeddings,
    "pictures": pictures,
    "examples": examples,
    "proved": proved,
    "tells": tells,
    "inference": inference,
    "stored": stored,
    "reconstruction": reconstruction,
}
# Those that compare protections, after all others.
ACROSS: dict[str, ModuleType] = {"transfer": transfer}
ALL: dict[str, ModuleType] = {**KINDS, **ACROSS}


def cells(config: "StudyConfig") -> list["Cell"]:
    """Every cell of a study, in an order in which what a cell needs has come before."""
    return [
        cell
        for kinds in (KINDS, ACROSS)
        for seed in config.seeds
        for spec in config.specs
        for kind in kinds.values()
        for cell in kind.cells(config, spec, seed)
    ]


def left_out(config: "StudyConfig") -> list[str]:
    """What a study names and does not measure, a sentence each: combinations that make no sense."""
    specs: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for spec in config.specs:
        for kind in (accuracy, attack, reconstruction):
            for subject, takes in kind.left_out(config, spec).items():
                specs[subject, takes].append(spec)
    return [
        f"{subject[:1].upper()}{subject[1:]} takes {_listed(takes)}, and is left out where others are "
        f"released: for {', '.join(without)}."
        for (subject, takes), without in specs.items()
    ]


def _listed(takes: tuple[str, ...]) -> str:
    *first, last = (RELEASED[kind] for kind in takes)
    return f"{', '.join(first)} and {last}" if first else last
