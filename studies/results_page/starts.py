"""What the shipped start is worth, beside random weights."""

import statistics
from typing import Any

from results_page.figures import Interval
from results_page.reading import Record, read

SPECS = {"none": "in clear", "pixelize:cell=8": "pixelized by 8"}


class Trained(Record):
    """Several trainings of one setting, each on another draw of the images."""

    mean: float
    low: float
    high: float
    least: float
    most: float

    @property
    def estimate(self) -> Interval:
        """With its 95% interval over the images tested."""
        return Interval(value=self.mean, low=self.low, high=self.high)


class Starts(Record):
    """The record of studies/starts.py."""

    start: str
    seconds: float
    rows: dict[str, Trained]

    def table(self) -> list[dict[str, Any]]:
        """A row for each task, number of images and protection that both starts were measured for."""
        rows = []
        for key, drawn in self.rows.items():
            task, count, spec, start = key.split("|")
            other = self.rows.get(f"{task}|{count}|{spec}|random")
            if start == "drawn" and other is not None:
                row = {
                    "task": task,
                    "count": int(count),
                    "shown": SPECS[spec],
                    "drawn": drawn,
                    "random": other,
                }
                rows.append({**row, "gain": drawn.mean - other.mean, "ahead": drawn.mean > other.mean})
        return rows

    def gain(self, count: int) -> float:
        """The mean difference over the tasks of so many images in clear."""
        rows = [row for row in self.table() if row["shown"] == SPECS["none"]]
        return statistics.mean(row["gain"] for row in rows if row["count"] == count)


def values() -> dict[str, Any]:
    """What templates may use."""
    return {"starts": read("starts", Starts)}
