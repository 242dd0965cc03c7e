"""The board: rows of protections by fixed settings."""

import tomllib
from typing import Any

from results_page.reading import RESULTS, ROOT
from sfumato.study import board, records

FILES = ("board", "board-weak", "board-undone", "board-lfw")
SHUFFLED = "dct:way=shuffle"
TASKS = ("expression", "glasses", "hair_color", "headwear")


def published() -> list[str]:
    """The names of published protections, which a package outside sfumato has; those planted are none."""
    with (ROOT / "studies/rivals/pyproject.toml").open("rb") as opened:
        points = tomllib.load(opened)["project"]["entry-points"]["sfumato.protections"]
    return [name for name in points if name != "planted"]


def values() -> dict[str, Any]:
    """What templates may use."""
    runs = {name: board.Run.read(RESULTS / f"{name}.jsonl") for name in FILES}
    rows = board.join([runs[name].path for name in FILES[:2]])
    fixed = {row.protection: row for row in runs["board"].rows(runs["board"])}
    theirs = [row for row in rows if _name(row.protection) in published()]
    answer = fixed["answer"]
    # This process does not have the package of that adversary, and needs its record alone.
    gram = next(
        row["result"]
        for _, row in records.read_run(runs["board-undone"].path)
        if (cell := row.get("cell", {})).get("attack") == "gram" and cell["protection"] == SHUFFLED
    )
    return {
        "board": {
            "rows": rows,
            "tasks": TASKS,
            "fixed": fixed,
            "published": theirs,
            # As accurate as the device's own answer, and named as rarely, within the intervals.
            "as_good": [
                row
                for row in theirs
                if not row.marks
                and row.tasks["expression"].high >= answer.tasks["expression"].low
                and row.named[10].low <= answer.named[10].high
            ],
            "lfw": {row.protection: row for row in runs["board-lfw"].rows(runs["board-lfw"])},
            "shuffled": fixed[SHUFFLED],
            "gram": max(gram["scores"], key=lambda score: score["top1"]),
            "marked": [row for row in rows if row.marks and row.protection != board.CONTROL],
            "seconds": sum(row.seconds for row in fixed.values()),
            "processor_seconds": sum(row.processor_seconds for row in fixed.values()),
        }
    }


def _name(spec: str) -> str:
    return spec.partition(":")[0]
