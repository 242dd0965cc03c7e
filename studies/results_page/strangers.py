"""What the library says of photographs that it was not made for, and how many faces it covers."""

from typing import Any

from results_page.figures import Interval
from results_page.reading import RESULTS, Record, read, read_all

WORDS = {
    "gender": "gender, 710 faces of LFW",
    "gender-encoder": "gender, 710 faces of LFW, on MobileFaceNet's file",
    "smile": "smile, 710 faces of LFW",
    "sunglasses": "sunglasses, 624 faces of CMU",
    "objects": "objects, ten images of each class of Caltech-101, 5-way 5-shot",
    "objects-encoder": "objects, ten images of each class of Caltech-101, 5-way 5-shot, on SqueezeNet's file",
    "sixty": "gender, 60 faces",
}


class Clean(Record):
    """The accuracy of clear images: over test images, or over episodes."""

    accuracy: float
    low: float | None = None
    high: float | None = None
    half_width: float | None = None
    chance: float | None = None

    @property
    def estimate(self) -> Interval:
        """With its 95% interval."""
        half = self.half_width or 0.0
        low = self.accuracy - half if self.low is None else self.low
        high = self.accuracy + half if self.high is None else self.high
        return Interval(value=self.accuracy, low=max(0.0, low), high=min(1.0, high))


class Ends(Record):
    """A share with the ends of its interval."""

    value: float
    low: float
    high: float


class Setting(Record):
    """A protection with its best learner and strongest adversary."""

    protection: str
    accuracy: Ends | None
    reidentification: Ends | None


class Stranger(Record):
    """A record of studies/strangers.py."""

    name: str
    images: int
    learner: str
    start: str = "random"
    clean: Clean
    recommended: str | None
    headline: str
    settings: tuple[Setting, ...]
    seconds: float

    @property
    def words(self) -> str:
        """What it is about."""
        return WORDS[self.name]

    @property
    def chosen(self) -> Setting | None:
        """The recommended setting; None where there is none."""
        return next((each for each in self.settings if each.protection == self.recommended), None)


class Clip(Record):
    """A video of studies/regions.py."""

    seconds_of_video: float
    seconds: float
    faces: int
    covered: float


class Covered(Record):
    """What a finder covers of some scenes."""

    scenes: int
    faces: int
    covered: float
    low: float
    high: float
    false_alarms: int
    area: float
    milliseconds: float

    @property
    def estimate(self) -> Interval:
        """With its 95% interval."""
        return Interval(value=self.covered, low=self.low, high=self.high)


class Regions(Record):
    """The record of studies/regions.py."""

    finders: dict[str, dict[str, Covered]]
    video: Clip
    threads: int
    seed: int


def values() -> dict[str, Any]:
    """What templates may use."""
    records = {record.name: record for record in read_all("strangers/*.json", Stranger)}
    return {
        "strangers": [records[name] for name in WORDS if name in records],
        "regions": read("regions.json", Regions) if (RESULTS / "regions.json").exists() else None,
    }
