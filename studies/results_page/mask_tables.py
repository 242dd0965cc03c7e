"""Table I and II of the mask paper beside what studies/mask_tables.py measured: task and face similarity."""

from dataclasses import dataclass
from typing import Any

from results_page.masks import Task, task
from results_page.reading import Row, record

# What each is called here and in the paper, whose face similarity and accuracy follow, in %: of Table I, and of Table II.
ROWS = (
    ("none", "original image", ("100", "92.49"), ("100", "89.01")),
    ("block", "block", ("16", "81.34"), ("36", "78.89")),
    ("centre-blur:radius=8", "Gaussian blur", ("35", "87.78"), ("72", "85.86")),
    (None, "CIAGAN, DeepPrivacy", ("19, 26", "87.79, 88.01"), ("31, 49", "85.57, 84.49")),
    ("k-same of 2", None, None, None),
    ("k-same of 10", None, None, None),
    ("swapped face", None, None, None),
    ("drawn face", None, None, None),
    ("plain soft", "non-adversarial", ("48", "89.81"), ("47", "86.73")),
    ("adversarial soft", "our method", ("20", "88.64"), ("35", "85.59")),
    ("plain hard", None, None, None),
    ("adversarial hard", None, None, None),
)
STAND_INS = ("k-same of 2", "k-same of 10", "swapped face", "drawn face")


@dataclass(frozen=True)
class Table:
    """One of the paper's tables."""

    number: str
    about: str
    task: Task

    @property
    def rows(self) -> list[tuple[str | None, str | None, tuple[str, str] | None]]:
        """Name here, name there, and the paper's face similarity and accuracy."""
        return [(here, there, first if self.number == "I" else second) for here, there, first, second in ROWS]

    def above(self, of: str, other: str = "plain soft") -> list[float]:
        """By how much a figure of the paper's mask is above another release's, seed by seed; see Task.apart.

        Without `other`: above that of the same mask without the adversarial step.
        """
        return self.task.apart(of, other, "adversarial soft")


def by_eye() -> Row:
    """How the rule of studies/hair.py looks to the eye: of how many photographs it is right, and the eye cannot tell."""
    found = record("hair")
    found["cannot_tell"] = sum(len(rows) for rows in found.unclear.values())
    found["right"] = found.checked - found.cannot_tell - sum(len(rows) for rows in found.wrong.values())
    return found


def values() -> dict[str, Any]:
    """What templates may use: the tables that have records."""
    known = (
        ("I", "FER+, of three emotions", "fer", "emotion"),
        ("II", "LFW, dark above the forehead or not, a proxy of hair colour", "lfw-hair", "hair"),
    )
    tables = [
        Table(number, about, task("mask-tables", world, target)) for number, about, world, target in known
    ]
    return {
        "paper_tables": [table for table in tables if table.task.records],
        "paper_stand_ins": STAND_INS,
        "hair_by_eye": by_eye(),
    }
