"""Attribute inference: how often each further secret is told, beside guessing and the bound of the study."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study, bounds_of_attributes, inferences
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row a protection, a column an attribute; None where the study has none."""
    measured = inferences(study, records)
    if not measured:
        return None
    values = {
        "inferred": measured,
        "bounds": bounds_of_attributes(study),
        "chances": {label: each.chance for (_, label), each in measured.items()},
    }
    return Section("inference", "Attribute inference", "Attribute inference", values)
