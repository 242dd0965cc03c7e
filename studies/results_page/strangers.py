"""What the library says of photographs that it was not made for, and how many faces it covers."""

from typing import Any

from results_page.figures import Interval
from results_page.reading import Record, read, read_all

LITE = ", on efficientnet-lite0"
WORDS = {
    "gender": "gender, 710 faces of LFW",
    "gender-encoder": f"gender, 710 faces of LFW{LITE}",
    "smile": "smile, 710 faces of LFW",
    "smile-encoder": f"smile, 710 faces of LFW{LITE}",
    "sixty": "gender, 60 faces",
    "forty": "gender, ten faces of each of 40 people",
    "forty-encoder": f"gender, ten faces of each of 40 people{LITE}",
    "six": "gender, 30 faces of each of six people",
    "sunglasses": "sunglasses, 624 faces of CMU",
    "sunglasses-encoder": f"sunglasses, 624 faces of CMU{LITE}",
    "emotion": "emotion, 2,914 faces of FER2013, nobody's name known",
    "objects": f"objects, ten images of each class of Caltech-101{LITE}",
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


class Took(Record):
    """How long a command took."""

    seconds: float
    processor_seconds: float


class Stranger(Record):
    """A record of studies/strangers.py."""

    name: str
    images: int
    clean: Clean | None = None  # of those whose study was run
    recommended: str | None = None
    headline: str
    settings: tuple[Setting, ...] = ()
    seconds: float | None = None
    processor_seconds: float | None = None
    check: Took | None = None

    @property
    def words(self) -> str:
        """What it is about."""
        return WORDS[self.name]

    @property
    def minutes(self) -> float | None:
        """Of two cores that do nothing else; None if the study was not run."""
        if self.processor_seconds is not None:
            return self.processor_seconds / 120
        return None if self.seconds is None else self.seconds / 60

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
    records = {record.name: record for record in read_all("strangers", Stranger)}
    return {
        "strangers": [records[name] for name in WORDS if name in records],
        "regions": read("regions", Regions),
    }
