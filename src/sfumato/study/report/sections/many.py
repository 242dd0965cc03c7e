"""The risk from many releases of one person: a device sends hundreds in a year."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study, curves
from sfumato.study.choose.recommend import releases_of
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """One row per recorded protection and one column per number of releases, or None if there are none."""
    measured = curves(study, records)
    if not measured:
        return None
    values = {
        "protections": [spec for spec in study["protections"] if spec in measured],
        "curves": measured,
        "sizes": sorted({point.releases for curve in measured.values() for point in curve.points}),
        "releases": releases_of(study),
    }
    return Section("many", "What many releases of one person tell", "Many releases", values)
