"""An attack's comparisons of every probe, kept with the models of a study for attacks that fuse them.

The cell that comes first makes them, that of the attack or that of the fusion.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sfumato import artefacts
from sfumato.attack.fusion import standardise
from sfumato.attack.reidentify import Guesses
from sfumato.study.cells import Cell
from sfumato.study.lab.lab import Lab
from sfumato.study.vocabulary import ATTACKS, attacks_of


@dataclass(frozen=True)
class Comparison:
    """The similarities that one attack found for every probe.

    Attributes:
        result: see kinds.attack.Result.
        classifiers: names of k ways to compare.
        identities: (I,) int64 code of each column, ascending.
        similarities: (k, m, I) float16, of each probe to each identity; standardised.
    """

    result: dict[str, Any]
    classifiers: tuple[str, ...]
    identities: Tensor
    similarities: Tensor

    @classmethod
    def of(cls, result: dict[str, Any], guesses: Sequence[Guesses]) -> "Comparison":
        """Joins all classifiers of an attack, at least one, which name the same people."""
        similarities = torch.stack([standardise(made.similarities).half() for made in guesses])
        names = tuple(made.classifier for made in guesses)
        return cls(result, names, guesses[0].identities, similarities)


def compare_once(
    lab: Lab, cell: Cell, decided: dict[str, Any], compare: Callable[[Lab, Cell], Comparison]
) -> Comparison:
    """The comparison of a cell: made by `compare`, or read; kept if the study fuses attacks.

    `decided` are the settings of the attack.

    Raises:
        BusyError: another process is making it.
    """
    if not any(ATTACKS[name].fuses for name in attacks_of(lab.config, cell.protection)):
        return compare(lab, cell)

    def make(path: Path) -> None:
        made = compare(lab, cell)
        card = {"kind": "comparison", "classifiers": made.classifiers, "result": made.result}
        tensors = {"identities": made.identities, "similarities": made.similarities}
        artefacts.save(path, tensors, card)

    def read(path: Path) -> Comparison:
        tensors, card = artefacts.load(path, kind="comparison")
        return Comparison(card["result"], tuple(card["classifiers"]), **tensors)

    settings = {"cell": lab.digest(cell, decided)}
    made: Comparison = lab.models.once("comparison", settings, make, read, keep=False)
    return made
