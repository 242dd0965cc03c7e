"""Long studies on an accelerator: codes for many releases, and three models on photographs at the paper's epsilon."""

import statistics
from dataclasses import dataclass
from typing import Any

from results_page.engine import rises
from results_page.figures import half_width
from results_page.reading import Row, records

PLAIN, BEST = "episodes alone, three times as long", "sets 100, pairs 5, three times as long"
PHOTOGRAPHS = {"lfw": "LFW", "caltech101": "Caltech-101"}
VIEWS = ("as it is", "balanced", "tracked", "flip 0.1", "flip 0.2")


@dataclass(frozen=True)
class Sent:
    """One way to send the codes of one training, in one world, over seeds."""

    training: str
    view: str
    seeds: list[Row]

    @property
    def accuracy(self) -> list[float]:
        """Seed by seed."""
        return [each.accuracy for each in self.seeds]

    def named(self, size: int, of: str = "share") -> list[float]:
        """From so many releases, seed by seed."""
        return [each.named[str(size)][of] for each in self.seeds]

    def words(self, size: int) -> str:
        """The mean over seeds, with half of the 95% interval over people of a seed, in %."""
        share, half = (statistics.mean(self.named(size, of)) for of in ("share", "half_width"))
        return f"{100 * share:.1f} ± {100 * half:.1f}"

    def range(self, size: int) -> str:
        """The least and the most of a seed, in %."""
        return f"{100 * min(self.named(size)):.1f} to {100 * max(self.named(size)):.1f}"

    def worst(self, size: int, of: str = "worst") -> float:
        """The most of a seed."""
        return max(self.named(size, of))


def sent(training: str, view: str = "as it is", world: int = 0) -> Sent:
    """Of one training and view."""
    own = [
        line
        for line in records("accelerator-releases")
        if (line.settings.name, line.settings.get("world", 0)) == (training, world)
    ]
    return Sent(training, view, [line.result.views[view] for line in own])


def many_releases() -> Row:
    """All trainings: `again` and what is named are of the other world, `trainings` and `by_devices` of the first."""
    lines = records("accelerator-releases")
    names = dict.fromkeys(line.settings.name for line in lines if not line.settings.get("world", 0))
    return Row(
        made_by=lines[0].made_by,
        sizes=(1, 10, 30, 75, 100),
        plain=sent(PLAIN, world=1),
        best=sent(BEST, world=1),
        tracked=sent(BEST, "tracked", world=1),
        random=sent("random bits", world=1),
        again=[sent(name, view, world=1) for name in (PLAIN, BEST) for view in VIEWS[:3]],
        trainings=sorted(map(sent, names), key=lambda each: -statistics.mean(each.named(100))),
        by_devices=[sent(name, view) for name in (PLAIN, BEST) for view in VIEWS],
    )


@dataclass(frozen=True)
class Photographs:
    """Three models on one data set, over seeds."""

    data: str
    lines: list[Row]
    cells = (2, 4, 6, 8, 10)

    def values(self, learner: str, cell: int | None, of: str = "5-way 5-shot") -> list[float]:
        """Of one model under DP-Pix with cells of so many pixels, or on clear images: by seed."""
        spec = "none" if cell is None else f"dp-pix:cell={cell},epsilon=3,variant=published"
        known = [line for line in self.lines if line.settings.learner == learner and spec in line.result]
        found = {line.settings.seed: line.result[spec][of][0] for line in known}
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
        shown = [line for line in self.lines if line.settings.protection.startswith(("none", "dp-pix"))]
        return sum(bool(rises(line.result.curve)) for line in shown), len(shown)


def values() -> dict[str, Any]:
    """What templates may use."""
    models = records("accelerator-photographs")
    of = {name: [line for line in models if line.settings.data == key] for key, name in PHOTOGRAPHS.items()}
    return {
        "many_releases": many_releases(),
        "photographs": [Photographs(name, lines) for name, lines in of.items()],
    }
