"""What a device, a service and its answers do, beside what a study measured: the record of studies/served.py."""

from typing import Any

from pydantic import Field

from results_page.reading import RESULTS, Record, read


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
    def largest(self) -> float:
        """The largest difference of a served accuracy from the studied one."""
        return max(abs(row.difference(store)) for row, store in self.pairs)


def values() -> dict[str, Any]:
    """What templates may use."""
    path = RESULTS / "served.json"
    return {"served_record": read(path, ServedRecord) if path.exists() else None}
