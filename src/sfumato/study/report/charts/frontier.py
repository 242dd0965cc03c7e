"""Best accuracy against strongest re-identification: the possible gains, and their risks."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from sfumato.study.choose.estimates import Estimate, Study, percent
from sfumato.study.choose.frontier import Setting
from sfumato.study.choose.recommend import Recommendation
from sfumato.study.report.charts.drawing import MARK, Chart, axes_of, chart, errors, percent_tick, style
from sfumato.study.report.charts.families import families, family, looks
from sfumato.study.report.charts.labels import place_labels
from sfumato.study.vocabulary import BLACK, GREEN, GREY

_RING = 17  # points, the diameter of the ring about the recommended setting

_Point = tuple[Setting, Estimate, Estimate]  # a setting, its risk and its accuracy
_Line = tuple[float, float, float, float]  # from x, y to x, y


def frontier_chart(
    study: Study, settings: Sequence[Setting], recommendation: Recommendation, *, name: str, title: str
) -> Chart | None:
    """All settings, of any release kind, with Pareto line and bound; None for fewer than two."""
    points = [
        (setting, setting.risk.top1, setting.accuracy)
        for setting in settings
        if setting.risk and setting.accuracy
    ]
    if len(points) < 2:
        return None
    with style():
        figure, axes = axes_of(4.4, 3.7)
        lines = _steps(axes, points)
        texts = []
        known = {"none": family("none", ["none"]), **{kin.name: kin for kin in families(study)}}
        for setting, risk, accuracy in points:
            spec = setting.protection
            kin = known[spec.partition(":")[0]]
            look = looks(study)[kin.name]
            look = look if setting.complete else replace(look, fill="none")
            errors(axes, [risk.value], [accuracy], look, across=[risk])
            radius = _RING / 2 if setting == recommendation.setting else MARK
            texts.append((risk.value, accuracy.value, kin.label(spec) or spec, look.colour, radius))
            lines += [(risk.low, accuracy.value, risk.high, accuracy.value)]
            lines += [(risk.value, accuracy.low, risk.value, accuracy.high)]
        chosen = recommendation.setting
        if chosen and chosen.risk and chosen.accuracy:
            at = (chosen.risk.top1.value, chosen.accuracy.value)
            axes.plot(*at, "o", markersize=_RING, markerfacecolor="none", markeredgecolor=BLACK, zorder=5)
        lines += _frame(axes, points, recommendation.bound)
        place_labels(figure, axes, texts, lines)
        words = "; ".join(
            f"{setting.protection}: accuracy {percent(accuracy.value)}, "
            f"re-identification {percent(risk.value)}" + (", on the frontier" if setting.on_frontier else "")
            for setting, risk, accuracy in points
        )
        return chart(figure, name, title, words)


def _steps(axes: Any, points: Sequence[_Point]) -> list[_Line]:
    """Draws the Pareto line, and returns its pieces."""
    best = sorted((risk.value, accuracy.value) for setting, risk, accuracy in points if setting.on_frontier)
    if not best:
        return []
    # A step: nothing was measured between two settings, so that the left one holds.
    xs, ys = zip(*best, strict=True)
    axes.step(xs, ys, where="post", color=GREY, linewidth=1.1, alpha=0.8, zorder=1)
    lines = []
    for (x, y), (next_x, next_y) in pairwise(best):
        lines += [(x, y, next_x, y), (next_x, y, next_x, next_y)]
    return lines


def _frame(axes: Any, points: Sequence[_Point], bound: float | None) -> list[_Line]:
    """Fits both axes to the points, and draws the bound. Returns its line."""
    axes.set_xlabel("strongest re-identification (lower is better)")
    axes.set_ylabel("best accuracy (higher is better)")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(percent_tick)
    highest = max(risk.high for _, risk, _ in points)
    axes.set_xlim(0, max(highest, bound or 0) * 1.06)
    low = min(accuracy.low for _, _, accuracy in points)
    high = max(accuracy.high for _, _, accuracy in points)
    pad = max(0.02, 0.09 * (high - low))
    axes.set_ylim(max(0, low - pad), min(1.0, high + pad) if high + pad > 1 else high + pad)
    if bound is None:
        return []
    axes.axvline(bound, color=BLACK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
    axes.axvspan(0, bound, color=GREEN, alpha=0.07, linewidth=0, zorder=0)
    bottom, top = axes.get_ylim()
    return [(bound, bottom, bound, top)]
