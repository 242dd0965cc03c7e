"""Long studies on an accelerator: codes for many releases, and three models on photographs at the paper's epsilon."""

import statistics
from dataclasses import dataclass
from typing import Any

from results_page.engine import rises
from results_page.figures import half_width
from results_page.reading import Record, read_all

RUN = "studies/accelerator/run.sh OUT --only"
PLAIN, BEST = "episodes alone, three times as long", "sets 100, pairs 5, three times as long"
LEARNERS = ("clean", "protected", "denoised")
PHOTOGRAPHS = {"lfw": "LFW", "caltech101": "Caltech-101"}


class MadeBy(Record):
    """On what."""

    device: str
    torch: str


class Task(Record):
    """A line of a piece."""

    task: str
    seconds: float
    made_by: MadeBy


# Codes for many releases


class Naming(Record):
    """How often people are named from sets of one size."""

    share: float
    half_width: float
    worst: float
    over_half: float


class View(Record):
    """What one way to send codes keeps, and lets adversaries name."""

    accuracy: float
    guessing: float
    people: int
    panel: int
    named: dict[str, Naming]


class TrainingSettings(Record):
    """Of an encoder."""

    name: str
    seed: int
    world: int = 0


class TrainingResult(Record):
    """Of an encoder."""

    views: dict[str, View]


class TrainedCode(Task):
    """One training with one seed."""

    settings: TrainingSettings
    result: TrainingResult


@dataclass(frozen=True)
class Sent:
    """One way to send the codes of one training, in one world, over seeds."""

    training: str
    view: str
    seeds: list[View]

    @property
    def accuracy(self) -> list[float]:
        """Seed by seed."""
        return [each.accuracy for each in self.seeds]

    def named(self, size: int) -> list[float]:
        """From so many releases, seed by seed."""
        return [each.named[str(size)].share for each in self.seeds]

    def words(self, size: int) -> str:
        """The mean over seeds, with half of the 95% interval over people of a seed, in %."""
        found = [each.named[str(size)] for each in self.seeds]
        share, half = (statistics.mean(getattr(each, of) for each in found) for of in ("share", "half_width"))
        return f"{100 * share:.1f} ± {100 * half:.1f}"

    def range(self, size: int) -> str:
        """The least and the most of a seed, in %."""
        found = self.named(size)
        return f"{100 * min(found):.1f} to {100 * max(found):.1f}"

    def worst(self, size: int, of: str = "worst") -> float:
        """The most of a seed."""
        return max(getattr(each.named[str(size)], of) for each in self.seeds)


@dataclass(frozen=True)
class ManyReleases:
    """All trainings."""

    lines: list[TrainedCode]
    sizes = (1, 10, 30, 75, 100)
    views = ("as it is", "balanced", "tracked", "flip 0.1", "flip 0.2")

    def sent(self, training: str, view: str = "as it is", world: int = 0) -> Sent:
        """Of one training and view."""
        found = [
            line for line in self.lines if (line.settings.name, line.settings.world) == (training, world)
        ]
        return Sent(training, view, [line.result.views[view] for line in found])

    @property
    def plain(self) -> Sent:
        """Episodes alone, in the other world."""
        return self.sent(PLAIN, world=1)

    @property
    def best(self) -> Sent:
        """What helps most, in the other world."""
        return self.sent(BEST, world=1)

    @property
    def tracked(self) -> Sent:
        """The same where the device tracks its thresholds."""
        return self.sent(BEST, "tracked", world=1)

    @property
    def random(self) -> Sent:
        """Bits drawn by chance, named by the same adversaries."""
        return self.sent("random bits", world=1)

    @property
    def again(self) -> list[Sent]:
        """Of the other world."""
        return [self.sent(name, view, world=1) for name in (PLAIN, BEST) for view in self.views[:3]]

    @property
    def trainings(self) -> list[Sent]:
        """All of the first world, as they are."""
        names = dict.fromkeys(line.settings.name for line in self.lines if not line.settings.world)
        return sorted(map(self.sent, names), key=lambda sent: -statistics.mean(sent.named(100)))

    @property
    def by_devices(self) -> list[Sent]:
        """What devices do with the codes of two trainings of the first world."""
        return [self.sent(name, view) for name in (PLAIN, BEST) for view in self.views]


# Three models on photographs


class ModelSettings(Record):
    """Of a few-shot model."""

    data: str
    learner: str
    protection: str
    seed: int


class Model(Task):
    """One model with one seed; `result` has its curve and, for each protection that it was tested under, what was measured."""

    settings: ModelSettings
    result: dict[str, Any]


@dataclass(frozen=True)
class Photographs:
    """One data set, over seeds."""

    data: str
    lines: list[Model]
    cells = (2, 4, 6, 8, 10)

    def values(self, learner: str, cell: int | None, of: str = "5-way 5-shot") -> list[float]:
        """Of one model under DP-Pix with cells of so many pixels, or on clear images: by seed."""
        spec = "none" if cell is None else f"dp-pix:cell={cell},epsilon=3,variant=published"
        found = {
            line.settings.seed: line.result[spec][of][0]
            for line in self.lines
            if line.settings.learner == learner and spec in line.result
        }
        return [found[seed] for seed in sorted(found)]

    def ahead(self, ours: str, theirs: str, cell: int) -> tuple[float, float]:
        """How far one model is above another, mean over seeds, and half of its 95% interval."""
        gaps = [a - b for a, b in zip(self.values(ours, cell), self.values(theirs, cell), strict=True)]
        return statistics.mean(gaps), half_width(gaps)

    def shown(self, ours: str, theirs: str) -> list[int]:
        """The cells at which one model is above another by more than the interval."""
        return [cell for cell in self.cells if (gap := self.ahead(ours, theirs, cell))[0] > gap[1]]

    def best(self, learner: str) -> int:
        """The cell with the highest mean."""
        return max(self.cells, key=lambda cell: statistics.mean(self.values(learner, cell)))

    @property
    def rising(self) -> tuple[int, int]:
        """Of its trainings of which a cell is shown, how many ended while validation rose, and how many there are."""
        curves = [
            line.result["curve"]
            for line in self.lines
            if line.settings.protection.startswith(("none", "dp-pix"))
        ]
        return sum(bool(rises(tuple(curve))) for curve in curves), len(curves)


def values() -> dict[str, Any]:
    """What templates may use."""
    models = read_all("accelerator-photographs", Model)
    return {
        "many_releases": ManyReleases(read_all("accelerator-releases", TrainedCode)),
        "photographs": [
            Photographs(name, [line for line in models if line.settings.data == key])
            for key, name in PHOTOGRAPHS.items()
        ],
    }
