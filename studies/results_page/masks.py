"""Learned masks beside classical obfuscations: what they keep of a task and hide of a person."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Any

from results_page.engine import Study, study
from results_page.reading import Row, records

TASKS = (
    ("faces", "hair_color"),
    ("faces", "expression"),
    ("lfw", "smile"),
    ("lfw", "gender"),
    ("cmu", "sunglasses"),
    ("cmu", "expression"),
    ("fer", "emotion"),
)
LEARNED = ("adversarial", "plain", "published", "shape")
SHAPE = "shape of adversarial 0.1"
ATTACKS = ("static", "adaptive", "restored", "shape_alone", "by_values")
WITHOUT, AGAINST = "without", "against"  # masks of studies/masks_against.py
EQUAL = 0.02  # accuracies that are no further apart are equal


# What was measured of one mask or obfuscation -> its key in a record.
FIELDS = {
    "protected": "classifier-protected",
    "clean": "classifier-clean",
    "shape": "classifier-shape",
    "static": "reidentify-static",
    "adaptive": "reidentify-adaptive",
    "restored": "reidentify-restored-adaptive",
    "shape_alone": "reidentify-shape",
    "by_values": "reidentify-values",
    "similarity": "face-similarity",
    "strangers": "face-similarity_of_two",
    "emotions": "emotion-network",
}
COLUMNS = {
    "accuracy": ("protected", "accuracy"),
    "clean classifier": ("clean", "accuracy"),
    "by shape": ("shape", "accuracy"),
    "static": ("static", "top1"),
    "adaptive": ("adaptive", "top1"),
    "restored, adaptive": ("restored", "top1"),
    "shape alone": ("shape_alone", "top1"),
    "by values": ("by_values", "top1"),
    "face similarity": ("similarity",),
}


@dataclass(frozen=True)
class Task:
    """What masks of one task keep and hide; figures are lists over seeds."""

    world: str
    target: str
    records: list[Row]

    @property
    def name(self) -> str:
        """Of the task."""
        return f"{self.world}: {self.target}"

    @property
    def unlearned(self) -> Row | None:
        """The accuracy on clean images if nothing is learned from them."""
        return self.records[0].get("unlearned")

    @property
    def settings(self) -> list[str]:
        """Of all seeds."""
        return sorted({name for record in self.records for name in record.get("settings", {})})

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """Those that have figures: heading -> the names of fields that lead there."""
        carried = {
            "task's pixels shown": ("world", self.target, "of_it"),
            "of what is shown": ("world", self.target, "of_shown"),
        }
        return {
            heading: path
            for heading, path in (COLUMNS | carried).items()
            if any(self.figures(name, *path) for name in self.settings)
        }

    def figures(self, name: str, *path: str) -> list[float]:
        """A figure of a setting, by the names of fields that lead there, of each seed that has it."""
        found = []
        for record in self.records:
            value: Any = record.get("settings", {}).get(name)
            for field in path:
                value = value.get(FIELDS.get(field, field)) if value else None
            if value is not None:
                found.append(float(value))
        return found

    def accuracy(self, name: str) -> list[float]:
        """Of a classifier trained on releases."""
        return self.figures(name, "protected", "accuracy")

    def similarity(self, name: str) -> list[float]:
        """Of faces."""
        return self.figures(name, "similarity")

    @property
    def attacked(self) -> bool:
        """Whether it is known who is in the images."""
        return bool(self.figures("none", "static", "top1"))

    def strongest(self, name: str) -> list[float]:
        """The first guesses of the strongest adversary."""
        attacks = [found for attack in ATTACKS if (found := self.figures(name, attack, "top1"))]
        return [max(seed) for seed in zip(*attacks, strict=True)]

    def kept(self, name: str) -> list[float]:
        """The accuracy under a setting, of that of clean images."""
        clean = self.figures("none", "clean", "accuracy")
        return [value / whole for value, whole in zip(self.accuracy(name), clean, strict=True)]

    @property
    def classical(self) -> dict[str, float]:
        """The mean accuracy of each classical obfuscation."""
        return {
            name: statistics.mean(self.accuracy(name))
            for name in self.settings
            if name != "none" and name.split()[0] not in LEARNED
        }

    @property
    def best_classical(self) -> str:
        """The most accurate classical obfuscation."""
        return max(self.classical, key=lambda name: self.classical[name])

    def rivals(self, name: str) -> list[str]:
        """The classical obfuscations that are as accurate as a setting."""
        ours = statistics.mean(self.accuracy(name))
        return [rival for rival, accuracy in self.classical.items() if accuracy >= ours]

    def hiding(self, of: str, name: str) -> list[str]:
        """The rivals of a setting whose `similarity`, or `strongest` adversary, is no higher than its own."""
        figure = getattr(self, of)
        ours = statistics.mean(figure(name))
        return [rival for rival in self.rivals(name) if statistics.mean(figure(rival)) <= ours]

    def as_hidden(self, name: str) -> list[str]:
        """The classical obfuscations whose strongest adversary names no more people than a setting's."""
        ours = statistics.mean(self.strongest(name))
        return [rival for rival in self.classical if statistics.mean(self.strongest(rival)) <= ours]

    def lead(self, name: str) -> float | None:
        """How far its accuracy is above the best classical one that is as hidden; None where none is."""
        rivals = [self.classical[rival] for rival in self.as_hidden(name)]
        return statistics.mean(self.accuracy(name)) - max(rivals) if rivals else None

    def apart(self, of: str, name: str, other: str) -> list[float]:
        """By how much one setting's `accuracy`, `similarity`, or `strongest` adversary, is below another's."""
        figure = getattr(self, of)
        return [theirs - own for own, theirs in zip(figure(name), figure(other), strict=True)]

    @property
    def shape(self) -> "Task":
        """Of the seeds that have the shape of a mask released by itself."""
        return Task(
            self.world,
            self.target,
            [record for record in self.records if SHAPE in record.get("settings", {})],
        )

    @property
    def training(self) -> list[float]:
        """Seconds of each mask."""
        return [second for name in self.settings for second in self.figures(name, "training", "seconds")]


@dataclass(frozen=True)
class Held:
    """In how many tasks, and pairs of task and seed, adversarial masks of a share keep and hide what was wanted."""

    tasks: list[Task]
    keep: str

    @property
    def enough(self) -> int:
        """Tasks of which the mask keeps 95% of the clean accuracy, in the mean."""
        return sum(statistics.mean(task.kept(f"adversarial {self.keep}")) >= 0.95 for task in self.tasks)

    @property
    def alone(self) -> int:
        """Tasks in which no classical obfuscation is as accurate."""
        return sum(not task.rivals(f"adversarial {self.keep}") for task in self.tasks)

    @property
    def leads(self) -> list[float | None]:
        """See Task.lead, of each task of which it is known who is in the images."""
        return [task.lead(f"adversarial {self.keep}") for task in self.tasks if task.attacked]

    def lower(self, of: str) -> tuple[int, int]:
        """In how many pairs `strongest` or `similarity` is below that of the mask without adversary; of how many."""
        pairs = [
            less > 0
            for task in self.tasks
            if task.attacked
            for less in task.apart(of, f"adversarial {self.keep}", f"plain {self.keep}")
        ]
        return sum(pairs), len(pairs)


Point = tuple[float, float]  # what is named, and the accuracy


def accuracy_at(named: float, points: Iterable[Point]) -> float | None:
    """The accuracy at so much naming, between two strengths on the straight line; None below the strongest.

    Who may be named more than by the weakest has its accuracy.
    """
    points = sorted(points)
    if named < points[0][0]:
        return None
    best = max(accuracy for name, accuracy in points if name <= named)
    for (less, low), (more, high) in pairwise(points):
        if less <= named < more:
            return max(best, low + (high - low) * (named - less) / (more - less))
    return best


@dataclass(frozen=True)
class Strengths:
    """Masks beside several strengths of each classical obfuscation: spec -> point, and kind -> spec -> point."""

    masks: dict[str, Point]
    kinds: dict[str, dict[str, Point]]

    @property
    def points(self) -> dict[str, Point]:
        """Of all, masks first."""
        return reduce(or_, self.kinds.values(), self.masks)

    @property
    def quietest(self) -> str:
        """The obfuscation by which the fewest are named."""
        return min(self.points.keys() - self.masks.keys(), key=lambda spec: self.points[spec][0])

    @property
    def quieter(self) -> bool:
        """Whether every mask lets fewer be named than any obfuscation does, at any strength."""
        return all(named < self.points[self.quietest][0] for named, _ in self.masks.values())

    def leads(self, mask: str) -> dict[str, float | None]:
        """Kind -> how far the mask's accuracy is above it at the mask's naming; None if it names more."""
        named, accuracy = self.masks[mask]
        others = {kind: accuracy_at(named, points.values()) for kind, points in self.kinds.items()}
        return {kind: None if other is None else accuracy - other for kind, other in others.items()}

    def ahead(self, mask: str) -> bool:
        """Whether no obfuscation is as accurate where it lets as few be named."""
        return all(lead is None or lead > 0 for lead in self.leads(mask).values())


def strengths_of(studied: Study) -> Strengths:
    """Of the settings of a study."""
    kinds: dict[str, dict[str, Point]] = {}
    for each in studied.settings:
        if each.protection != "none" and each.risk and each.accuracy:
            of_kind = kinds.setdefault(each.protection.partition(":")[0], {})
            of_kind[each.protection] = each.risk.top1.value, each.accuracy.value
    return Strengths(kinds.pop("mask"), kinds)


def over_seeds(studied: Study, together: Strengths, alone: list[Strengths]) -> Row:
    """All seeds together, and of each mask and of all of them, in how many seeds alone the same holds."""
    return Row(
        studied=studied,
        together=together,
        seeds=len(alone),
        points={
            spec: tuple(zip(*(each.points[spec] for each in alone), strict=True)) for spec in together.points
        },
        quieter=sum(each.quieter for each in alone),
        ahead={mask: sum(each.ahead(mask) for each in alone) for mask in together.masks},
    )


def strengths(name: str = "lfw-smile-strengths") -> Row:
    """Of a study."""
    studied = study(name)
    alone = [strengths_of(studied.of_seed(seed)) for seed in studied.file["seeds"]]
    return over_seeds(studied, strengths_of(studied), alone)


@dataclass(frozen=True)
class Against:
    """The same masks without and with an adversary who is after the person, over seeds."""

    task: Task
    released: str

    def accuracy(self, name: str) -> list[float]:
        """Of a classifier trained on releases."""
        return self.task.accuracy(name)

    def strongest(self, name: str) -> list[float]:
        """The first guesses of the strongest adversary."""
        return self.task.strongest(name)

    @property
    def chance(self) -> float:
        """Of naming the commonest person."""
        return statistics.mean(self.task.figures(AGAINST, "by_values", "chance"))

    @property
    def lost(self) -> list[float]:
        """How much accuracy the adversary costs, seed by seed."""
        pairs = zip(self.accuracy(WITHOUT), self.accuracy(AGAINST), strict=True)
        return [without - against for without, against in pairs]

    @property
    def shares(self) -> list[float]:
        """What the strongest adversary names of what they name without, seed by seed."""
        pairs = zip(self.strongest(WITHOUT), self.strongest(AGAINST), strict=True)
        return [against / without for without, against in pairs]

    @property
    def halved(self) -> int:
        """In how many seeds the strongest adversary names at most half, at a loss of at most EQUAL in accuracy."""
        return sum(share <= 0.5 and lost <= EQUAL for share, lost in zip(self.shares, self.lost, strict=True))


def against() -> list[Against]:
    """The records of studies/masks_against.py, by task and by what is released."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for record in records("masks-against"):
        groups.setdefault((record.target, record.released), []).append(record)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != "smile", item[0]))
    return [Against(Task(of[0].world, target, of), released) for (target, released), of in ordered]


def task(name: str, world: str, target: str) -> Task:
    """The records of one task, of a file."""
    return Task(
        world, target, [each for each in records(name) if (each.world, each.target) == (world, target)]
    )


def values() -> dict[str, Any]:
    """What templates may use."""
    tasks = [task("masks", world, target) for world, target in TASKS]
    learned = [task for task in tasks if not task.unlearned]
    return {
        "mask_tasks": tasks,
        "learned_masks": learned,
        "masks_against": against(),
        "mask_strengths": strengths(),
        "masks_held": {keep: Held(learned, keep) for keep in ("0.25", "0.1")},
    }
