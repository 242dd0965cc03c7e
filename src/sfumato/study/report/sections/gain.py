"""The gain of the denoiser."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """Its gain against how much of the picture it brings back; None without such records."""
    chart = charts.gain_chart(study, records)
    if chart is None:
        return None
    looks, gained = charts.looks(study), charts.gains(study, records)
    families = [
        (family.legend, looks[family.name])
        for family in charts.families(study)
        if gained.keys() & set(family.specs)
    ]
    values = {"chart": chart, "gain_legend": legend("gain", families)}
    return Section("gain", "What the denoiser adds", "The denoiser", values)
