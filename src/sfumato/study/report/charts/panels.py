"""Series against the parameter of a protection, a panel per family: accuracies, and risks.

A panel has the colour and the mark of its protection; line and fill distinguish its series. A family of one
setting varies in nothing, and has no panel.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import matplotlib.ticker

from sfumato.study.choose.estimates import (
    Estimate,
    Study,
    accuracies,
    clean_learner,
    guessing,
    learners_in_study,
    percent,
    risks,
)
from sfumato.study.records import Record
from sfumato.study.report.charts.drawing import (
    CHANCE_LOOK,
    CLEAN_LOOK,
    Chart,
    axes_of,
    chart,
    errors,
    percent_tick,
    style,
)
from sfumato.study.report.charts.families import Family, families, looks
from sfumato.study.vocabulary import ADVERSARY_LOOKS, ATTACKS, LEARNERS, Look

_LONG = 12  # letters; longer labels would run into each other

Points = list[tuple[float, Estimate]]  # places on the axis, and the measurement at each


def accuracy_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Accuracy against the parameter for each learner (Parnami et al. 2022, Fig. 3); one panel per family."""
    estimates = accuracies(study, records)
    clean, chance = estimates.get(("none", clean_learner(study))), guessing(study, records)
    lines = [(CLEAN_LOOK, "clean images", clean.value)] if clean else []
    lines += [(CHANCE_LOOK, "chance", chance)] if chance is not None else []
    known = {name: LEARNERS[name].look for name in learners_in_study(study)}
    return _panels("accuracy", study, estimates, known, lines, ylabel="accuracy", top=1.0)


def risk_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Re-identification by the strongest static and the strongest adaptive adversary (Fig. 5).

    One panel per family, against its parameter.
    """
    measured = risks(study, records)
    if not measured:
        return []
    estimates: dict[tuple[str, str], Estimate] = {}
    for (spec, attack), risk in measured.items():
        key = spec, "adaptive" if ATTACKS[attack].adaptive else "static"
        if key not in estimates or risk.top1.value > estimates[key].value:
            estimates[key] = risk.top1
    clear = measured.get(("none", "reidentify-static"))
    lines = [(CLEAN_LOOK, "no protection", clear.top1.value)] if clear else []
    lines.append((CHANCE_LOOK, "chance", next(iter(measured.values())).chance))
    top = max(estimate.high for estimate in estimates.values())
    return _panels("risk", study, estimates, ADVERSARY_LOOKS, lines, ylabel="re-identified", top=top)


def _panels(
    kind: str,
    study: Study,
    estimates: Mapping[tuple[str, str], Estimate],
    known: Mapping[str, Look],
    lines: Iterable[tuple[Look, str, float]],
    *,
    ylabel: str,
    top: float,
) -> list[Chart]:
    """A panel for each family that has two settings with an estimate of one series."""
    panels = []
    for family in families(study):
        series = {name: _along(family, estimates, name) for name in known}
        if max(map(len, series.values()), default=0) > 1:
            own = looks(study)[family.name]
            drawn = {name: replace(own, line=look.line, fill=look.fill) for name, look in known.items()}
            panels.append(_panel(kind, family, series, drawn, lines, ylabel=ylabel, top=top))
    return panels


def _along(family: Family, estimates: Mapping[tuple[str, str], Estimate], name: str) -> Points:
    places, _ = family.places()
    pairs = zip(family.specs, places, strict=True)
    return sorted(
        ((place, estimates[spec, name]) for spec, place in pairs if (spec, name) in estimates),
        key=lambda point: point[0],
    )


def _panel(
    kind: str,
    family: Family,
    series: Mapping[str, Points],
    known: Mapping[str, Look],
    lines: Iterable[tuple[Look, str, float]],
    *,
    ylabel: str,
    top: float,
) -> Chart:
    _, is_number = family.places()
    with style():
        figure, axes = axes_of(3.1, 2.6)
        for look, _, value in lines:
            axes.axhline(value, color=look.colour, linestyle=look.line, linewidth=1.0, zorder=1)
        words = []
        for name, points in series.items():
            xs = [x for x, _ in points]
            estimates = [estimate for _, estimate in points]
            errors(axes, xs, estimates, known[name], line=is_number or family.is_scale)
            if points:
                values = ", ".join(f"{percent(estimate.value)} at {place:g}" for place, estimate in points)
                words.append(f"{name}: {values}")
        _set_places(axes, family)
        axes.set_xlabel(family.axis)
        axes.set_ylabel(ylabel)
        axes.set_ylim(0, min(1.02, 1.07 * top))
        axes.yaxis.set_major_formatter(percent_tick)
        words += [f"{label}: {percent(value)}" for _, label, value in lines]
        shown = [name for name, points in series.items() if points]
        return chart(figure, f"{kind} {family.name}", family.title, "; ".join(words), shown)


def _set_places(axes: Any, family: Family) -> None:
    """The horizontal axis: its scale, and a label at the place of each setting."""
    places, is_number = family.places()
    ordered = sorted(places)
    if is_number and len(places) > 2 and ordered[0] > 0 and ordered[-1] > 20 * ordered[0]:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    labels = [family.label(spec) or family.name for spec in family.specs]
    axes.set_xticks(places, labels)
    if not is_number and len(family.varying) > 1 and len(places) > 4:
        axes.tick_params(axis="x", labelrotation=40)
    elif max(map(len, labels)) > _LONG:
        axes.set_xticks(places, labels, rotation=25, ha="right", rotation_mode="anchor")
    axes.margins(x=0.08)
