"""The embeddings of a few classes by each learner: a scatter of points per panel."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from sfumato.study.choose.estimates import Study, belonging
from sfumato.study.records import Record
from sfumato.study.report.charts.drawing import Chart, chart, style
from sfumato.study.vocabulary import BLACK, BLUE, GREEN, LEARNERS, ORANGE, PURPLE, SKY, VERMILION, Look

# The looks of classes, in their order; a ninth begins again. Strokes and letters: no protection has them.
CLASS_LOOKS = [
    Look(colour, marker)
    for colour, marker in zip(
        (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, BLUE), "1x+2|3_4", strict=True
    )
]


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
    """The classes that the embeddings show, sorted: their looks are CLASS_LOOKS, in this order."""
    shown = belonging(study, records, "embeddings")
    return sorted({name for record in shown for name in record.result.classes})


def scatter(axes: Any, result: Any) -> None:
    """Draws the points of a record of embeddings, each class with its look."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#d5d3cc")
    for number, class_name in enumerate(sorted(set(result.classes))):
        look = CLASS_LOOKS[number % len(CLASS_LOOKS)]
        labelled = zip(result.points, result.classes, strict=True)
        points = [point for point, label in labelled if label == class_name]
        axes.plot(
            *zip(*points, strict=True),
            look.marker,
            color=look.colour,
            markersize=4.2,
            markeredgewidth=0.9,
        )


def _scatter(name: str, title: str, result: Any) -> Chart:
    with style():
        figure = Figure(figsize=(1.5, 1.35))
        scatter(figure.add_axes((0.01, 0.01, 0.98, 0.98)), result)
        shown = ", ".join(sorted(set(result.classes)))
        words = f"t-SNE of {len(result.points)} embeddings of the classes {shown}"
        return chart(figure, f"embeddings {name}", title, words)
