"""What holds while things break: the scenarios of tests/endurance, near copies, honest releases."""

from typing import Any

from pydantic import Field

from results_page.figures import Interval
from results_page.reading import Record, read, read_all

LIGHT = (
    "one pixel",
    "1% of the pixels",
    "JPEG 30",
    "JPEG 30 to 95",
    "WebP 50 to 95",
    "resized by 0.5 to 2, Lanczos",
    "resized by 0.5 to 2, bilinear",
    "mirrored",
    "mirrored, JPEG 30 to 95",
    "turned by 90, 180 or 270 degrees",
    "grey",
    "brightness +-10%",
    "contrast +-10%",
)


class Scenario(Record):
    """A row of tests/endurance: what was disturbed, what must hold, and what was counted."""

    group: str
    happens: str
    holds: str
    figures: dict[str, int | float]
    problems: list[str]
    left_out: str | None
    seed: int
    seconds: float

    @property
    def kills(self) -> float:
        """Of processes, nodes and servers."""
        return sum(count for name, count in self.figures.items() if "kill" in name)


class Noticed(Record):
    """Changed images that are noticed as near copies."""

    noticed: int
    of: int
    ends: tuple[float, float] = Field(alias="interval")

    @property
    def interval(self) -> Interval:
        """The share, and its interval."""
        return Interval(self.noticed / self.of, *self.ends)


class Pairs(Record):
    """Different images that are taken for copies."""

    pairs: int
    alarms: int
    ends: tuple[float, float] = Field(alias="interval")


class Labelled(Record):
    """Pairs, by their labels, and how many images have a near copy of the same label."""

    images: int
    photographs: int
    different: Pairs = Field(alias="of different labels")


class Copying(Record):
    """Settings of studies/near_copies.py."""

    count: int
    seed: int


class NearCopies(Record):
    """The record of studies/near_copies.py: data set -> change -> what is noticed."""

    noticed: dict[str, dict[str, Noticed]]
    bursts: dict[str, dict[str, Noticed]]
    pairs: dict[str, Labelled]
    settings: Copying
    seconds: float

    @property
    def changes(self) -> list[str]:
        """In the order of the study."""
        return list(next(iter(self.noticed.values())))

    def rates(self, *changes: str) -> list[float]:
        """How many are noticed of some changes, over the sets whose pictures are not small: all but CIFAR-10."""
        large = [noticed for name, noticed in self.noticed.items() if name != "CIFAR-10"]
        return [noticed[change].interval.value for noticed in large for change in changes]


class Refused(Record):
    """Honest releases that are refused."""

    refused: int
    releases: int
    interval: tuple[float, float]


class Guard(Record):
    """The record of studies/guard.py."""

    noise: Refused
    plain: Refused = Field(alias="without noise")
    stated: float
    seed: int


def values() -> dict[str, Any]:
    """What templates may use."""
    return {
        "endurance": read_all("endurance", Scenario),
        "near_copies": read("near-copies", NearCopies),
        "light_changes": LIGHT,
        "guard": read("guard", Guard),
    }
