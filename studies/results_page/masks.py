"""Learned masks beside classical obfuscations: what they keep of a task and hide of a person."""

import statistics
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from results_page.engine import Study, begun
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


@dataclass(frozen=True)
class Family:
    """One kind of obfuscation at several strengths: what each lets be named, and how accurate it is."""

    kind: str
    specs: list[str]
    points: list[tuple[float, float]]  # (named, accuracy)

    def accuracy_at(self, named: float) -> float | None:
        """The accuracy at so much naming, between two strengths on the straight line; None below the strongest.

        Whoever may be named more than by the weakest has its accuracy.
        """
        points = sorted(self.points)
        if named < points[0][0]:
            return None
        best = max(accuracy for name, accuracy in points if name <= named)
        for (less, low), (more, high) in pairwise(points):
            if less <= named < more:
                return max(best, low + (high - low) * (named - less) / (more - less))
        return best


@dataclass(frozen=True)
class Strengths:
    """Masks beside several strengths of each classical obfuscation, in one study of the engine."""

    masks: dict[str, tuple[float, float]]  # spec -> (named, accuracy)
    families: list[Family]

    @property
    def points(self) -> dict[str, tuple[float, float]]:
        """Spec -> (named, accuracy), of masks first."""
        of_families = {
            spec: point
            for family in self.families
            for spec, point in zip(family.specs, family.points, strict=True)
        }
        return {**self.masks, **of_families}

    @property
    def quietest(self) -> tuple[str, float, float]:
        """The obfuscation by which the fewest are named: its spec, how many are, and its accuracy."""
        points = [(spec, *point) for spec, point in self.points.items() if spec not in self.masks]
        return min(points, key=lambda point: point[1])

    @property
    def quieter(self) -> bool:
        """Whether every mask lets fewer be named than any obfuscation does, at any strength."""
        return all(named < self.quietest[1] for named, _ in self.masks.values())

    def leads(self, mask: str) -> dict[str, float | None]:
        """Kind -> how far the mask's accuracy is above it at the mask's naming; None where it names more."""
        named, accuracy = self.masks[mask]
        found = {family.kind: family.accuracy_at(named) for family in self.families}
        return {kind: None if other is None else accuracy - other for kind, other in found.items()}

    def ahead(self, mask: str) -> bool:
        """Whether no obfuscation is as accurate where it lets as few be named."""
        return all(lead is None or lead > 0 for lead in self.leads(mask).values())


def strengths_of(studied: Study) -> Strengths | None:
    """Of the settings that are wholly measured; None where no mask, or no obfuscation, is."""
    points = {
        row.protection: (row.risk.top1.value, row.accuracy.value)
        for row in studied.settings
        if row.protection != "none" and row.complete and row.risk and row.accuracy
    }
    kinds: dict[str, list[str]] = {}
    for spec in points:
        kinds.setdefault(spec.partition(":")[0], []).append(spec)
    masks = {spec: points[spec] for spec in kinds.pop("mask", [])}
    families = [Family(kind, specs, [points[spec] for spec in specs]) for kind, specs in kinds.items()]
    return Strengths(masks, families) if masks and families else None


@dataclass(frozen=True)
class SeveralStrengths:
    """The same over seeds: each alone, and all of them together."""

    studied: Study
    together: Strengths
    alone: list[Strengths]

    @property
    def seeds(self) -> int:
        """How many there are."""
        return len(self.alone)

    @property
    def points(self) -> dict[str, tuple[list[float], list[float]]]:
        """Spec -> what is named, and the accuracy, seed by seed."""
        of = {
            spec: [each.points[spec] for each in self.alone if spec in each.points]
            for spec in self.together.points
        }
        return {
            spec: ([named for named, _ in each], [right for _, right in each]) for spec, each in of.items()
        }

    @property
    def quieter(self) -> int:
        """In how many seeds every mask lets fewer be named than any obfuscation does, at any strength."""
        return sum(each.quieter for each in self.alone)

    def ahead(self, mask: str) -> int:
        """In how many seeds no obfuscation is as accurate where it lets as few be named."""
        return sum(each.ahead(mask) for each in self.alone)


def strengths(name: str = "lfw-smile-strengths") -> SeveralStrengths | None:
    """Of a study; None where nothing can be compared yet."""
    studied = begun(name)
    together = None if studied is None else strengths_of(studied)
    if studied is None or together is None:
        return None
    alone = [strengths_of(studied.of_seed(seed)) for seed in studied.file["seeds"]]
    return SeveralStrengths(studied, together, [each for each in alone if each is not None])


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
