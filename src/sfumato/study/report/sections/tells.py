"""What else a release tells: every label of the data set, beside guessing."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.study.estimates import Estimate, Study, belonging, over_seeds
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


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
    """A row a protection, a column a label; None without such records."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "tells"):
        for name, label in record.result.labels.items():
            results[record.cell.protection, name].append(label)
    if not results:
        return None
    labels = {
        key: Label(
            over_seeds([(seed.accuracy, seed.low, seed.high) for seed in seeds]),
            statistics.fmean(seed.guessing for seed in seeds),
        )
        for key, seeds in results.items()
    }
    values = {
        "labels": labels,
        "names": list(dict.fromkeys(name for _, name in labels)),
        "protections": [
            spec for spec in study["protections"] if any(spec == protection for protection, _ in labels)
        ],
        "roles": {
            **dict.fromkeys(study["task"].get("attributes") or [], "a secret"),
            study["task"]["target"]: "the task",
            study["task"].get("sensitive"): "the secret",
        },
    }
    return Section("tells", "What else a release tells", "What else it tells", values)
