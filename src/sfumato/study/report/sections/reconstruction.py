"""Adversaries' reconstructions of the images behind releases."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.study.choose.estimates import Study, belonging
from sfumato.study.records import Record
from sfumato.study.report.sections.pictures import in_words
from sfumato.study.report.sections.section import Section
from sfumato.study.vocabulary import RECONSTRUCTIONS


@dataclass(frozen=True)
class Row:
    """The reconstructions by one attack from the releases of one protection.

    Attributes:
        protection: its spec.
        attack: in words.
        measures: how much of the images is left, such as "SSIM 0.41"; means over seeds.
        originals, pictures: some images and their reconstructions, data: URIs.
    """

    protection: str
    attack: str
    measures: list[str]
    originals: tuple[str, ...]
    pictures: tuple[str, ...]


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row for each protection and attack; None without such records."""
    results: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for record in belonging(study, records, "reconstruction"):
        results[record.cell.protection, record.cell.attack or ""].append(record.result)
    if not results:
        return None
    tried = [attack for name, attack in RECONSTRUCTIONS.items() if any(name == made for _, made in results)]
    rows = [
        Row(
            spec,
            attack.words,
            in_words([result.measures for result in results[spec, attack.name]]),
            results[spec, attack.name][0].originals,
            results[spec, attack.name][0].pictures,
        )
        for spec in study["protections"]
        for attack in tried
        if (spec, attack.name) in results
    ]
    values: dict[str, Any] = {
        "rows": rows,
        "attacks": tried,
        "images": max(seeds[0].images for seeds in results.values()),
    }
    values["pictured"] = pictured = any(row.originals for row in rows)
    return Section("reconstruction", "What adversaries rebuild", "Reconstruction", values, originals=pictured)
