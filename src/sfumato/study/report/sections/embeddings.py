"""How the models see the classes."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A scatter per learner and protection; None if none was drawn."""
    rows = charts.embedding_charts(study, records)
    if not rows:
        return None
    looks = [
        (name, charts.CLASS_LOOKS[number % len(charts.CLASS_LOOKS)])
        for number, name in enumerate(charts.classes_of(study, records))
    ]
    values = {"rows": rows, "class_legend": legend("class", looks)}
    return Section("embeddings", "How the models see the classes", "Embeddings", values)
