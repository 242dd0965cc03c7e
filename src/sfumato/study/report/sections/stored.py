"""What stored embeddings tell whoever steals them."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sfumato.study.choose.estimates import Study, belonging, learner_in_words, percent, risks, strongest_score
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row a protection, a column a learner; beside it, what releases tell. None without such records."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "stored"):
        results[record.cell.protection, record.cell.learner or ""].append(record.result)
    if not results:
        return None
    of_releases: dict[str, Any] = {}
    for (spec, _), risk in risks(study, records).items():
        if spec not in of_releases or risk.top1.value > of_releases[spec].value:
            of_releases[spec] = risk.top1
    every = [result for seeds in results.values() for result in seeds]
    values = {
        "thefts": {key: strongest_score(seeds) for key, seeds in results.items()},
        "of_releases": of_releases,
        "learners": {name: learner_in_words(name) for name in dict.fromkeys(name for _, name in results)},
        "protections": [spec for spec in study["protections"] if spec in {stolen for stolen, _ in results}],
        "chance": percent(statistics.fmean(result.chance for result in every)),
        "embeddings": max(result.embeddings for result in every),
    }
    return Section("stored", "What stored embeddings tell their thief", "Stored embeddings", values)
