"""Where learners put the images of a few classes: a scatter of points a panel."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sfumato.study.estimates import Study, belonging
from sfumato.study.records import Record
from sfumato.study.report.charts.drawing import Chart, chart, style
from sfumato.study.report.charts.families import CYCLE
from sfumato.study.vocabulary import LEARNERS


def embedding_charts(study: Study, records: Sequence[Record]) -> list[tuple[str, list[Chart]]]:
    """t-SNE of 100 test images for each learner (Fig. 7): (protection, its panels), "none" first."""
    results: dict[tuple[str, str | None], Any] = {}
    for record in belonging(study, records, "embeddings"):
        results.setdefault((record.cell.protection, record.cell.learner), record.result)
    rows = []
    for spec in study["protections"]:
        panels = [
            _scatter(f"{spec} {learner}", learner, results[spec, learner])
            for learner in LEARNERS
            if (spec, learner) in results
        ]
        if panels:
            rows.append((spec, panels))
    return rows


def classes_of(study: Study, records: Sequence[Record]) -> list[str]:
    """The classes that the embeddings show, sorted: their looks are those of CYCLE, in this order."""
    shown = belonging(study, records, "embeddings")
    return sorted({name for record in shown for name in record.result.classes})


def scatter(axes: Any, result: Any) -> None:
    """Draw the points of a record of embeddings, each class with a look of CYCLE."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#d5d3cc")
    for number, class_name in enumerate(sorted(set(result.classes))):
        look = CYCLE[number % len(CYCLE)]
        labelled = zip(result.points, result.classes, strict=True)
        points = [point for point, label in labelled if label == class_name]
        axes.plot(
            *zip(*points, strict=True),
            look.marker,
            color=look.colour,
            markersize=3.4,
            markeredgewidth=0.3,
            markeredgecolor="white",
        )


def _scatter(name: str, title: str, result: Any) -> Chart:
    with style():
        figure = Figure(figsize=(1.5, 1.35))
        scatter(figure.add_axes((0.01, 0.01, 0.98, 0.98)), result)
        shown = ", ".join(sorted(set(result.classes)))
        words = f"t-SNE of {len(result.points)} embeddings of the classes {shown}"
        return chart(figure, f"embeddings {name}", title, words)
