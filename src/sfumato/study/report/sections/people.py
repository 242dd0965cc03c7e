"""What people recognise at a comparable setting."""

from collections.abc import Sequence

from sfumato.assess.people import Recognised, at_blur, at_noise
from sfumato.study.choose.estimates import Study
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """Of the protections that people were asked about; None where there are none."""
    width = study["data"]["shape"][2]
    answers: list[tuple[str, Recognised]] = []
    for spec in study["protections"]:
        name, _, value = spec.partition("=")
        if name == "blur:radius":
            answers.append((spec, at_blur(float(value), side=width)))
        elif name == "gaussian:sigma":
            answers.append((spec, at_noise(float(value))))
    return Section("people", "What people recognise", "People", {"answers": answers}) if answers else None
