"""Log-rank privacy of numbers, and the curve of accuracy and privacy of each feature (DPFE, Fig. 6)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from typing import Any

from sfumato.base.proportions import wilson
from sfumato.study.choose.estimates import Estimate, Study, belonging, interval_in_words, percent, together
from sfumato.study.records import Record
from sfumato.study.report.charts import CHANCE_LOOK, Chart, drawing, looks
from sfumato.study.report.charts.families import family, parameters
from sfumato.study.report.charts.labels import place_labels
from sfumato.study.report.sections.section import Column, RecordTable, Section, Value, legend, show_estimate
from sfumato.study.vocabulary import Look

_LINES = (("-", "full"), ((0, (5, 2)), "none"), ((0, (1.5, 1.5)), "left"), ((0, (6, 1.5, 1.5, 1.5)), "top"))
_WORDS = (
    "The rank of the right person among an adversary’s guesses, by its logarithm (Osia et al. 2018): 0 if "
    "everybody is named at once. The strongest of a kernel density, a linear discriminant and a network "
    "counts. It is an average: nothing follows from it for one person. A feature is drawn once for all its "
    "noise; better is up and to the right."
)

_Point = tuple[str, Estimate, Estimate]  # noise, log-rank privacy, accuracy


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """The curves, and a row for each setting; None without such records."""
    results: dict[str, list[Any]] = defaultdict(list)
    for record in belonging(study, records, "log-rank"):
        results[record.cell.protection].append(record.result)
    if not results:
        return None
    (one, *_), rows = next(iter(results.values())), []
    curves: dict[str, dict[str, _Point]] = defaultdict(dict)  # by all but the noise
    for spec, seeds in results.items():
        privacy = together(study, [(each.lrp, each.low, each.high) for each in seeds], [None])
        interval = f"{privacy.low:.3f}–{privacy.high:.3f}"
        strongest = ", ".join(dict.fromkeys(each.strongest for each in seeds))
        right = [(each.accuracy, each.images) for each in seeds if each.accuracy is not None]
        shares = [(share, *wilson(round(share * images), images)) for share, images in right]
        accuracy = together(study, shares, [images for _, images in right]) if right else None
        rows.append(
            (spec, [Value(f"{privacy.value:.3f}", (interval,)), Value(strongest), show_estimate(accuracy)])
        )
        if accuracy:
            others = {**parameters(spec), "noise": ""}
            curves[str(others)][spec] = (parameters(spec)["noise"], privacy, accuracy)
    table = RecordTable(
        "Table of log-rank privacy",
        f"Among {one.identities} people. Small numbers are the {interval_in_words(study)}.",
        [
            Column("log-rank privacy", f"blind guessing {one.guessing:.3f}"),
            Column("strongest adversary", number=False),
            Column("accuracy", "by the feature’s own classifier"),
        ],
        [rows],
    )
    look = looks(study)["feature"] if curves else CHANCE_LOOK
    drawn = {
        family("feature", [*curve]).title: (
            replace(look, line=line, fill=fill),
            sorted(curve.values(), key=_noise),
        )
        for curve, (line, fill) in zip(curves.values(), cycle(_LINES), strict=False)
    }
    names = [*((name, look) for name, (look, _) in drawn.items()), ("guessing", CHANCE_LOOK)]
    values = {
        "paragraphs": [_WORDS],
        "tables": [table],
        "chart": _chart(drawn, one) if drawn else None,
        "chart_legend": legend("log-rank", names),
        "chart_words": "Labels give the noise: in shares of the feature’s own variance, or its variance if a "
        f"norm clips the feature. Bars are the {interval_in_words(study)}.",
    }
    return Section("log-rank", "How late the right person is guessed", "Log-rank privacy", values, "records")


def _noise(point: _Point) -> float:
    return float(point[0])


def _chart(drawn: Mapping[str, tuple[Look, Sequence[_Point]]], one: Any) -> Chart:
    with drawing.style():
        figure, axes = drawing.axes_of(4.6, 3.6)
        texts, lines, words = [], [], []
        for name, (look, points) in drawn.items():
            xs = [privacy for _, privacy, _ in points]
            ys = [accuracy for *_, accuracy in points]
            drawing.errors(axes, [x.value for x in xs], ys, look, line=True, across=xs)
            for noise, x, y in points:
                texts.append((x.value, y.value, noise, look.colour, drawing.MARK))
                lines += [(x.low, y.value, x.high, y.value), (x.value, y.low, x.value, y.high)]
                at = f"accuracy {percent(y.value)}, log-rank privacy {x.value:.3f}"
                words.append(f"{name}, noise {noise}: {at}")
        words.append(f"guessing: accuracy {percent(one.chance)}, log-rank privacy {one.guessing:.3f}")
        for line, value in ((axes.axvline, one.guessing), (axes.axhline, one.chance)):
            line(value, color=CHANCE_LOOK.colour, linestyle=CHANCE_LOOK.line, linewidth=1.0, zorder=1)
        axes.set_xlabel("log-rank privacy (higher is better)")
        axes.set_ylabel("accuracy (higher is better)")
        axes.yaxis.set_major_formatter(drawing.percent_tick)
        place_labels(figure, axes, texts, lines)
        return drawing.chart(figure, "log-rank", "Accuracy and privacy as noise grows", "; ".join(words))
