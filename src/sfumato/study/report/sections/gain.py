"""The gain of the denoiser."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend

_WORDS = (
    "The gain is (accuracy with denoiser − accuracy without) ÷ accuracy without, in percent. It is drawn "
    "against how much the denoised image resembles the original: far left, little of the picture came back; "
    "above zero, the denoiser helped all the same."
)


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
    values = {
        "paragraphs": [_WORDS],
        "tables": [],
        "chart": chart,
        "chart_legend": legend("gain", families),
        "chart_words": "Labels give the parameter. Bars combine the intervals of both accuracies.",
    }
    return Section("gain", "What the denoiser adds", "The denoiser", values, "records")
