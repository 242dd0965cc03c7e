"""Series against the parameter of a protection, a panel a family: accuracies, and risks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import matplotlib.ticker

from sfumato.study.estimates import (
    Estimate,
    Study,
    accuracies,
    clean_learner,
    guessing,
    percent,
    risks,
    studied_learners,
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
from sfumato.study.report.charts.families import Family, families
from sfumato.study.vocabulary import ATTACKS, LEARNERS, Look

_LONG = 12  # letters, of labels that would run into each other

Points = list[tuple[float, Estimate]]  # places on the axis, and what was measured there


def accuracy_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Accuracy against the parameter for each learner (Parnami et al. 2022, Fig. 3); one panel a family."""
    estimates = accuracies(study, records)
    clean, chance = estimates.get(("none", clean_learner(study))), guessing(study, records)
    lines = [(CLEAN_LOOK, "clean images", clean.value)] if clean else []
    lines += [(CHANCE_LOOK, "chance", chance)] if chance is not None else []
    known = {name: LEARNERS[name].look for name in studied_learners(study)}
    return _panels("accuracy", study, estimates, known, lines, ylabel="accuracy", top=1.0)


def risk_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Re-identification against the parameter for each adversary (Fig. 5); one panel a family."""
    measured = risks(study, records)
    if not measured:
        return []
    estimates = {key: risk.top1 for key, risk in measured.items()}
    clear = measured.get(("none", "reidentify-static"))
    lines = [(CLEAN_LOOK, "no protection", clear.top1.value)] if clear else []
    lines.append((CHANCE_LOOK, "chance", next(iter(measured.values())).chance))
    top = max(estimate.high for estimate in estimates.values())
    known = {name: attack.look for name, attack in ATTACKS.items()}
    return _panels("risk", study, estimates, known, lines, ylabel="re-identified", top=top)


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
    """A panel for each family of which something was measured."""
    panels = []
    for family in families(study):
        series = {name: _along(family, estimates, name) for name in known}
        if any(series.values()):
            panels.append(_panel(kind, family, series, known, lines, ylabel=ylabel, top=top))
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
                words.append(f"{name.removeprefix('reidentify-')}: {values}")
        _set_places(axes, family)
        axes.set_xlabel(family.axis)
        axes.set_ylabel(ylabel)
        axes.set_ylim(0, min(1.02, 1.07 * top))
        axes.yaxis.set_major_formatter(percent_tick)
        words += [f"{label}: {percent(value)}" for _, label, value in lines]
        return chart(figure, f"{kind} {family.name}", family.title, "; ".join(words))


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
    elif len(places) > 1 and max(map(len, labels)) > _LONG:
        axes.set_xticks(places, labels, rotation=25, ha="right", rotation_mode="anchor")
    if len(places) == 1:
        axes.set_xlim(places[0] - 1, places[0] + 1)
    else:
        axes.margins(x=0.08)
