"""What people use: answers of a service beside what a study measured, and the walks of five strangers."""

from typing import Any

from pydantic import Field

from results_page.reading import Record, read, read_all


class Share(Record):
    """A mean over episodes, with half of its 95% interval."""

    mean: float
    half_width: float

    @property
    def words(self) -> str:
        """In %."""
        return f"{100 * self.mean:.1f} ± {100 * self.half_width:.1f}"


class Answered(Record):
    """What a service answered."""

    right: Share
    accepted: Share
    accepted_right: Share
    refused: Share


class Stated(Record):
    """What a card states of a refusal."""

    classes: int
    shot: int
    accepted: float
    refused: float


class Row(Record):
    """A kind of release; `served`: by the name of the database."""

    kind: str
    spec: str
    studied: Share
    accepted_right: float | None = None
    stated: Stated | None = None
    served: dict[str, Answered] = Field(default_factory=dict)

    def difference(self, store: str) -> float:
        """Of the accuracy that was served from the one that was studied."""
        return self.served[store].right.mean - self.studied.mean


class ServedRecord(Record):
    """The record."""

    episodes: int
    shape: str
    seconds: float
    rows: tuple[Row, ...]

    @property
    def stores(self) -> tuple[str, ...]:
        """The databases."""
        return tuple(next(row.served for row in self.rows if row.served))

    @property
    def pairs(self) -> list[tuple[Row, str]]:
        """Each kind that is served, by each database."""
        return [(row, store) for row in self.rows for store in row.served]

    @property
    def fewer(self) -> float:
        """By how much fewer queries of enrolled classes were accepted than a card states, at most."""
        stated = [(row.stated, row.served[store]) for row, store in self.pairs if row.stated is not None]
        return max((card.accepted - answered.accepted.mean for card, answered in stated), default=0.0)

    def of_noise(self, *, drawn: bool) -> float:
        """The largest difference among kinds that draw noise, or among the others."""
        own = [(row, store) for row, store in self.pairs if ("flip" in row.spec) == drawn]
        return max(abs(row.difference(store)) for row, store in own)

    @property
    def largest(self) -> float:
        """The largest difference of a served accuracy from the studied one."""
        return max(abs(row.difference(store)) for row, store in self.pairs)


class Step(Record):
    """A command that a stranger typed: its exit code, its seconds, and the last lines of what it said."""

    command: str
    code: int
    seconds: float
    said: tuple[str, ...]


class Walk(Record):
    """A record of studies/walks.py."""

    name: str
    photographs: int
    steps: tuple[Step, ...]
    facts: dict[str, float]
    seconds: float

    @property
    def words(self) -> str:
        """What was counted of the outcome."""
        counted = [f"{name}: {number:g}" for name, number in self.facts.items()]
        return "; ".join(counted) or "nothing was released"

    @property
    def answers(self) -> tuple[int, int, int]:
        """How many photographs a service was asked about, answered with a class, and answered rightly."""
        asked, answered, right = (
            int(self.facts.get(name, 0)) for name in ("asked", "answered with a class", "right")
        )
        return asked, answered, right

    @property
    def headline(self) -> str:
        """What a study recommended, or why it did not, or the command for a device; "" if none ran."""
        lines = [line for step in self.steps for line in step.said]
        firsts = ("recommended:", "no recommendation:"), ("on a device:", "to try it nevertheless")
        return next((line for starts in firsts for line in lines if line.startswith(starts)), "")


def values() -> dict[str, Any]:
    """What templates may use."""
    return {
        "served_record": read("served", ServedRecord),
        "walks": (walks := read_all("walks", Walk)),
        "walked": [sum(counts) for counts in zip(*(walk.answers for walk in walks), strict=True)],
    }
