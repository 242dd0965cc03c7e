"""Scenarios that disturb something and check what must hold: run one by one, each leaves a row."""

import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sfumato

sys.path.append(str(Path(__file__).parents[2] / "studies"))
from rows import RESULTS, Rows

RECORD = RESULTS / "endurance.jsonl"

Row = dict[str, Any]


class LeftOut(Exception):  # noqa: N818 - nothing failed
    """This machine lacks something that the scenario needs."""


@dataclass
class Trial:
    """One run of a scenario. State: its figures and its problems so far."""

    folder: Path  # for its files; removed afterwards
    seed: int = 0  # of all that is drawn
    share: float = 1.0  # of the full size of a scenario, for a short run
    figures: dict[str, float] = field(default_factory=dict)  # "20 kills" is {"kills": 20}
    problems: list[str] = field(default_factory=list)  # what did not hold

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def size(self, full: int) -> int:
        """How many of something, which are `full` in a full run."""
        return max(1, round(self.share * full))

    def count(self, name: str, more: float = 1) -> None:
        """Add to a figure."""
        self.figures[name] = self.figures.get(name, 0) + more

    def most(self, name: str, value: float) -> None:
        """Keep the largest value of a figure."""
        self.figures[name] = max(self.figures.get(name, 0), round(value, 2))

    def check(self, held: bool, problem: str) -> None:
        """Note a problem, unless something held."""
        if not held:
            self.problems.append(problem)


Run = Callable[[Trial], None]


@dataclass(frozen=True)
class Scenario:
    """What is disturbed, and what must hold."""

    name: str  # on the command line and in the record
    group: str  # the table that it stands in
    happens: str  # half a sentence, for the table
    holds: str
    run: Run


SCENARIOS: dict[str, Scenario] = {}


def scenario(group: str, happens: str, holds: str) -> Callable[[Run], Run]:
    """Registers a function under its name, with spaces."""

    def register(run: Run) -> Run:
        name = run.__name__.replace("_", " ")
        SCENARIOS[name] = Scenario(name, group, happens, holds, run)
        return run

    return register


def run(chosen: Scenario, *, seed: int = 0, share: float = 1.0) -> Row:
    """Runs a scenario. An error of it is a problem like any other."""
    began, left_out = time.monotonic(), None
    with tempfile.TemporaryDirectory(prefix="endurance-", ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), seed, share)
        try:
            chosen.run(trial)
        except LeftOut as reason:
            left_out = str(reason)
        except Exception as error:
            traceback.print_exc()
            trial.problems.append(f"{type(error).__name__}: {error}"[:500])
    return {
        **{"group": chosen.group, "happens": chosen.happens, "holds": chosen.holds},
        **{"figures": trial.figures, "problems": trial.problems, "left_out": left_out},
        **{"seed": seed, "seconds": round(time.monotonic() - began, 1), "version": sfumato.__version__},
    }


def run_all(names: list[str], *, seed: int, record: Path = RECORD) -> Iterator[tuple[str, Row]]:
    """Runs scenarios, all if none is named, and puts the row of each into the record."""
    for name in names or SCENARIOS:
        Rows(record)[name] = row = run(SCENARIOS[name], seed=seed)
        yield name, row


def line(name: str, row: Row) -> str:
    """A row as a line of the printed table."""
    state = "left out" if row["left_out"] else "FAILS" if row["problems"] else "holds"
    figures = ", ".join(f"{value:,} {what}" for what, value in row["figures"].items())
    said = "; ".join(filter(None, [row["left_out"], *row["problems"][:3], figures]))
    return f"{state:8}  {row['seconds']:6.1f} s  {name:28}  {said}"
