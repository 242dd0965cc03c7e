"""Models queried with other settings than the one they were trained for, and one model for a range of settings."""

from dataclasses import dataclass
from typing import Any

from results_page.engine import Accuracy, Study, apart
from results_page.reading import Record, read


@dataclass(frozen=True)
class Matrix:
    """Models for one setting, queried with another: asked -> trained for -> accuracy."""

    specs: list[str]
    accuracies: dict[str, dict[str, Accuracy]]

    def best(self, asked: str) -> str:
        """The setting whose model is best on images of a setting."""
        return max(self.specs, key=lambda spec: self.accuracies[asked][spec].accuracy)

    @property
    def own(self) -> int:
        """In how many columns the model for the setting is the best one."""
        return sum(self.best(asked) == asked for asked in self.specs)

    @property
    def lost(self) -> list[float]:
        """What a model for another setting loses."""
        return [
            self.accuracies[asked][asked].accuracy - self.accuracies[asked][spec].accuracy
            for asked in self.specs
            for spec in self.specs
            if spec != asked
        ]

    @property
    def half_width(self) -> float:
        """The widest interval's."""
        return max(each.half_width for row in self.accuracies.values() for each in row.values())


def transferred(studied: Study) -> Matrix:
    """The matrix of a study of transfer."""
    return Matrix(studied.file["protections"], studied.transfer())


class Seconds(Record):
    """Of training."""

    alone: dict[str, float]
    together: float


class Range(Record):
    """Models for each of some settings, and one for all."""

    name: str
    settings: list[str]
    between: str
    alone: dict[str, dict[str, Accuracy]]
    together: dict[str, Accuracy]
    mixed: dict[str, Accuracy]
    weights: dict[str, float]
    seconds: Seconds

    @property
    def asked(self) -> list[str]:
        """The settings, and one between them that no model was trained for."""
        return [*self.settings, self.between]

    @property
    def lost(self) -> list[float]:
        """What the model for all is below the one for a setting, setting by setting."""
        return [self.alone[spec][spec].accuracy - self.together[spec].accuracy for spec in self.settings]

    @property
    def weighed(self) -> float:
        """How far the interval of prototypes that weigh by protection is above that of those that do not."""
        return apart(self.mixed["by protection"], self.mixed["alike"])


class Ranges(Record):
    """The record of studies/ranges.py."""

    ranges: list[Range]
    seed: int
    threads: int

    @property
    def seconds(self) -> float:
        """Of all training."""
        return sum(sum(each.seconds.alone.values()) + each.seconds.together for each in self.ranges)


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"transferred": transferred, "ranges": read("ranges", Ranges)}
