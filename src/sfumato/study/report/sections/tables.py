"""The full tables, to read and to download."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section
from sfumato.study.report.tables import tables


def section(study: Study, records: Sequence[Record]) -> Section:
    """Every table with a row."""
    return Section("tables", "Full tables", "Full tables", {"tables": tables(study, records)})
