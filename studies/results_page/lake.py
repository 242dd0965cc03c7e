"""One-shot classification within an alphabet: the records of studies/lake.py."""

from typing import Any

from results_page.engine import rises
from results_page.reading import Record, read_all


class Error(Record):
    """How often the wrong character is named, over tasks."""

    error: float
    half_width: float

    @property
    def words(self) -> str:
        """With half its 95% interval, in %."""
        return f"{100 * self.error:.1f} ± {100 * self.half_width:.1f}"


class LakeTraining(Record):
    """Of the network."""

    encoder: str = "conv4"
    pretraining_steps: int
    episodes: int
    warps: float
    within: bool = False
    curve: tuple[float, ...]

    @property
    def options(self) -> str:
        """Of the command that trains it."""
        encoder = "" if self.encoder == "conv4" else f" --encoder {self.encoder}"
        warps = f" --warps {self.warps:g}" if self.warps else ""
        return encoder + warps + (" --within" if self.within else "")


class Lake(Record):
    """A record of studies/lake.py; the first ones have no views."""

    tasks: int
    training: LakeTraining
    one_place: Error
    nine_places: Error
    views: Error | None = None

    @property
    def least(self) -> Error:
        """The lower of the two means over views; both are of the same tasks."""
        return min((each for each in (self.nine_places, self.views) if each), key=lambda each: each.error)

    @property
    def rises(self) -> bool:
        """See engine.rises."""
        return bool(rises(self.training.curve))


def lake() -> list[Lake]:
    """The records: by encoder, and drawings as they are first."""
    found = read_all("lake", Lake)
    return sorted(found, key=lambda each: (each.training.encoder, each.training.warps, each.training.within))


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"lake": lake()}
