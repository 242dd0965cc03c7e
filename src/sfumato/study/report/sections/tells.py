"""What else a release tells: every label of the data set, beside guessing."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.study.choose.estimates import Estimate, Study, belonging, percent, together
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section

_ABREAST = 7  # labels that fit beside each other on paper


@dataclass(frozen=True)
class Label:
    """How often one label is told rightly by releases of one protection, and how often by guessing."""

    accuracy: Estimate
    guessing: float

    @property
    def is_told(self) -> bool:
        """Whether all of the interval is above guessing."""
        return self.accuracy.low > self.guessing


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row a protection, a column a label; None without such records.

    Neither the task nor the secrets: better learners and adversaries tell these, in sections of their own.
    """
    task = study["task"]
    elsewhere = {task["target"], task.get("sensitive"), *(task.get("attributes") or [])}
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "tells"):
        for name, label in record.result.labels.items():
            if name not in elsewhere:
                results[record.cell.protection, name].append(label)
    if not results:
        return None
    labels = {
        key: Label(
            together(
                study,
                [(seed.accuracy, seed.low, seed.high) for seed in seeds],
                [seed.images for seed in seeds],
            ),
            statistics.fmean(seed.guessing for seed in seeds),
        )
        for key, seeds in results.items()
    }
    names = list(dict.fromkeys(name for _, name in labels))
    guesses = {
        name: sorted({each.guessing for (_, of), each in labels.items() if of == name}) for name in names
    }
    values = {
        "labels": labels,
        "guesses": {
            name: " to ".join(dict.fromkeys(percent(end) for end in (ends[0], ends[-1])))
            for name, ends in guesses.items()
        },
        "parts": [names[first : first + _ABREAST] for first in range(0, len(names), _ABREAST)],
        "protections": [
            spec for spec in study["protections"] if any(spec == protection for protection, _ in labels)
        ],
        "secret": bool(task.get("sensitive")),
    }
    return Section("tells", "What else a release tells", "What else it tells", values)
