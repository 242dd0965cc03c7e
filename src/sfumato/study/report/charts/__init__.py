"""The charts of a report, as SVG that can stand inside a page: the same records give the same bytes.

Every chart is a panel small enough for a telephone; the page lays several out side by side. A
protection has one colour (Okabe & Ito 2008, told apart by colour-blind people) and one mark in all of them,
so that black and white print keeps them apart; learners and adversaries differ in line and fill. Text stays
text: it can be read aloud, searched, and set in the page's font.
"""

from sfumato.study.report.charts.drawing import CHANCE_LOOK, CLEAN_LOOK, Chart, key
from sfumato.study.report.charts.embeddings import CLASS_LOOKS, classes_of, embedding_charts
from sfumato.study.report.charts.families import Family, families, looks
from sfumato.study.report.charts.frontier import frontier_chart
from sfumato.study.report.charts.gain import gain_chart, gains
from sfumato.study.report.charts.panels import accuracy_charts, risk_charts

__all__ = [
    "CHANCE_LOOK",
    "CLASS_LOOKS",
    "CLEAN_LOOK",
    "Chart",
    "Family",
    "accuracy_charts",
    "classes_of",
    "embedding_charts",
    "families",
    "frontier_chart",
    "gain_chart",
    "gains",
    "key",
    "looks",
    "risk_charts",
]
