"""The charts of a report, each an image that holds SVG: the same records give the same bytes.

Every chart is a panel small enough for a telephone. A protection has one colour (Okabe & Ito 2008) and one
mark in all; learners and adversaries differ in line and fill. A family of one setting has no panel.
"""

import base64
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sfumato.study import vocabulary
from sfumato.study.choose.figures import Estimate, Study, percent
from sfumato.study.choose.results import Results
from sfumato.study.vocabulary import BLACK, GREY, Look, words_of

CLEAN_LOOK = Look(BLACK, "", (0, (8, 3)))
CHANCE_LOOK = Look(GREY, "", (0, (1, 2)))

_RADIUS = 4  # of a mark, in points
_RING = 17  # points, the diameter of the ring about the recommended setting
_LONG = 12  # letters; longer labels of an axis would run into each other
_FILES = ("artefact", "index")  # parameters whose values are paths, or names of tools
_WORDS = ("artefact", "values")  # parameters with nothing between their values
_Line = tuple[float, float, float, float]  # from x, y to x, y


@dataclass(frozen=True)
class Chart:
    """One panel: its title, its image as a data: URI, the same in words, and the names of its series."""

    title: str
    source: str
    words: str
    series: tuple[str, ...] = ()


# The style of figures, as a context.
style = partial(matplotlib.rc_context, fname=Path(__file__).parent / "templates" / "charts.mplstyle")


def axes_of(width: float, height: float, *, fit: bool = False) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes; `fit` makes room for long labels, which takes longer."""
    figure = Figure(figsize=(width, height), layout="constrained" if fit else None)
    if fit:
        return figure, figure.add_subplot()
    left, bottom, spare = 0.74, 0.5, 0.12  # for a name and numbers
    size = 1 - (left + spare) / width, 1 - (bottom + spare) / height
    return figure, figure.add_axes((left / width, bottom / height, *size))


@cache
def key(look: Look) -> str:
    """A sample of a look for a legend, as a data: URI."""
    with style():
        figure = Figure(figsize=(0.42, 0.17))
        across = [0.08, 0.92] if look.line else []
        figure.add_artist(Line2D(across, [0.5] * len(across), color=look.colour, linestyle=look.line))
        if look.marker:
            figure.add_artist(Line2D([0.5], [0.5], color=look.colour, **_mark(look)))
        return _source(figure)


def _source(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = re.sub(r"(\.\d\d)\d+", r"\1", buffer.getvalue())  # hundredths of a point are enough
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _mark(look: Look) -> dict[str, Any]:
    return {
        "marker": look.marker,
        "markersize": 9 if look.marker == "*" else 6.5,
        "fillstyle": "full" if look.fill == "none" else look.fill,
        "markerfacecolor": "white" if look.fill == "none" else look.colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.colour,
        "markeredgewidth": 1.1,
    }


def _errors(axes: Any, points: Iterable[tuple[Any, Estimate]], look: Look, *, line: bool = False) -> None:
    xs, ys = zip(*points, strict=True)
    both = isinstance(xs[0], Estimate)

    def reach(estimates: Sequence[Estimate]) -> list[list[float]]:
        return [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]

    axes.errorbar(
        [x.value for x in xs] if both else xs,
        [y.value for y in ys],
        yerr=reach(ys),
        xerr=reach(xs) if both else None,
        color=look.colour,
        linestyle=look.line if line else "",
        **_mark(look),
        elinewidth=0.9,
        capsize=2,
        capthick=0.9,
        zorder=3,
    )


@contextmanager
def _frame(width: float, height: float, x: str, y: str, *, fit: bool = False) -> Iterator[tuple[Any, Any]]:
    with style():
        figure, axes = axes_of(width, height, fit=fit)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.yaxis.set_major_formatter(_percent_tick)
        yield figure, axes


def _percent_tick(value: float, _: int) -> str:
    return f"{100 * value:g}%"


@dataclass(frozen=True)
class Family:
    """The settings of a study that share a protection, and the parameters that distinguish them."""

    name: str  # of the protection, such as "dp-pix"
    specs: tuple[str, ...]  # its settings, in the order of the study
    varying: tuple[str, ...]  # the parameters that differ between them
    fixed: str  # the others, as "epsilon = 3"

    @property
    def title(self) -> str:
        """ "DP-Pix (epsilon = 3)"."""
        return words_of(self.name).title + (f" ({self.fixed})" if self.fixed else "")

    @property
    def axis(self) -> str:
        """The name of the horizontal axis, with its unit."""
        return ", ".join(words_of(self.name).axes.get(key, key) for key in self.varying)

    @property
    def legend(self) -> str:
        """ "DP-Pix (epsilon = 3), by side of a cell b (pixels)"."""
        return f"{self.title}, by {self.axis}" if self.axis else self.title

    def label(self, spec: str) -> str:
        """The label of a setting within its family: "4", or "4, 3" if two parameters vary."""
        values = {**words_of(self.name).defaults, **parameters(spec)}
        if self.varying and not values.keys() & set(self.varying):
            return "default"
        # A path is clear by its name, and the tables have all of it.
        return ", ".join(
            Path(values[key]).stem if key in _FILES else values[key] for key in self.varying if key in values
        )

    def places(self) -> tuple[list[float], bool]:
        """The place of each setting on the axis, and whether it is the value of its one number."""
        if len(self.varying) == 1:
            with suppress(ValueError):
                return [float(self.label(spec)) for spec in self.specs], True
        return [float(place) for place in range(len(self.specs))], False


def parameters(spec: str) -> dict[str, str]:
    """The parameters written in a canonical spec: "dp-pix:cell=4,epsilon=3" -> {cell: 4, epsilon: 3}."""
    pairs = (part.partition("=") for part in spec.partition(":")[2].split(",") if part)
    return {key: value for key, _, value in pairs}


def families(study: Study) -> list[Family]:
    """The families of a study in its order, without "none"."""
    settings, made = defaultdict(list), []
    for spec in study["protections"]:
        settings[spec.partition(":")[0]].append(spec)
    settings.pop("none", None)
    for name, specs in settings.items():
        values = [parameters(spec) for spec in specs]
        keys = list(dict.fromkeys(key for setting in values for key in setting))
        varying = [key for key in keys if len({setting.get(key) for setting in values}) > 1]
        fixed = [key for key in keys if key not in varying]
        if len(specs) == 1 and fixed:
            # One setting varies in nothing: its first parameter is the axis, with one place on it.
            varying, fixed = fixed[:1], fixed[1:]
        words = ", ".join(f"{key} = {values[0][key]}" for key in fixed)
        made.append(Family(name, tuple(specs), tuple(varying), words))
    return made


def looks(study: Study) -> dict[str, Look]:
    """The look of each family, "none" first; protections of a user's own get spare ones in turn."""
    spare = cycle(vocabulary.SPARE_LOOKS)
    names = ["none", *(family.name for family in families(study))]
    return {name: words_of(name).look or next(spare) for name in names}


def frontier_chart(results: Results) -> Chart | None:
    """All settings, of any release kind, with Pareto line and bound; None for fewer than two."""
    settings = results.settings
    points = [(each, each.risk.top1, each.accuracy) for each in settings if each.risk and each.accuracy]
    if len(points) < 2:
        return None
    bound, chosen, study = results.bound, results.advice.setting, results.study
    known, look = {each.name: each for each in families(study)}, looks(study)
    best = sorted((risk.value, accuracy.value) for each, risk, accuracy in points if each.on_frontier)
    lines: list[_Line] = []
    for (x, y), (next_x, next_y) in pairwise(best):
        lines += [(x, y, next_x, y), (next_x, y, next_x, next_y)]
    names = "strongest re-identification (lower is better)", "best accuracy (higher is better)"
    with _frame(4.4, 3.7, *names) as (figure, axes):
        if best:  # a step: nothing was measured between two settings, so that the left one holds
            axes.step(*zip(*best, strict=True), where="post", color=GREY, linewidth=1.1, alpha=0.8, zorder=1)
        if chosen and chosen.risk and chosen.accuracy:
            at = (chosen.risk.top1.value, chosen.accuracy.value)
            ring = {"markersize": _RING, "markerfacecolor": "none", "markeredgecolor": BLACK, "zorder": 5}
            axes.plot(*at, "o", clip_on=False, **ring)
        axes.xaxis.set_major_formatter(_percent_tick)
        axes.set_xlim(0, max(bound or 0, *(risk.high for _, risk, _ in points)) * 1.06)
        low, high = min(each.low for *_, each in points), max(each.high for *_, each in points)
        pad = max(0.02, 0.09 * (high - low))
        axes.set_ylim(max(0, low - pad), min(1.0, high + pad) if high + pad > 1 else high + pad)
        if bound is not None:
            axes.axvline(bound, color=BLACK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
            axes.axvspan(0, bound, color=vocabulary.GREEN, alpha=0.07, linewidth=0, zorder=0)
            lines.append((bound, axes.get_ylim()[0], bound, axes.get_ylim()[1]))
        texts = []
        for setting, risk, accuracy in points:
            spec = setting.protection
            name = spec.partition(":")[0]
            label = known[name].label(spec) if name in known else ""
            mark = look[name] if setting.complete else replace(look[name], fill="none")
            x, y = risk.value, accuracy.value
            _errors(axes, [(risk, accuracy)], mark)
            lines += [(risk.low, y, risk.high, y), (x, accuracy.low, x, accuracy.high)]
            radius = _RING / 2 if chosen and chosen.protection == spec else _RADIUS
            texts.append((x, y, label or spec, mark.colour, radius))
        place_labels(figure, axes, texts, lines)
        words = "; ".join(
            f"{each.protection}: accuracy {percent(accuracy.value)}, re-identification {percent(risk.value)}"
            + (", on the frontier" if each.on_frontier else "")
            for each, risk, accuracy in points
        )
        return Chart("Best accuracy against strongest re-identification", _source(figure), words)


def place_labels(
    figure: Any, axes: Any, texts: Sequence[tuple[float, float, str, str, float]], lines: Sequence[_Line]
) -> None:
    """Writes each label next to its point, so that it covers least of points, lines and labels.

    Greedy and without chance: labels in their order, each trying places on growing rings round its point. A
    label far from its point gets a thin line to it. Texts are x, y, label, colour and radius of a mark, in
    points; lines are level or upright.
    """
    renderer = FigureCanvasAgg(figure).get_renderer()
    axes.autoscale_view()
    frame = np.array(axes.get_window_extent(renderer).extents)
    points = [axes.transData.transform(text[:2]) for text in texts]
    taken = [np.r_[point - text[4], point + text[4]] for point, text in zip(points, texts, strict=True)]
    for x0, y0, x1, y1 in lines:
        ends = axes.transData.transform([(x0, y0), (x1, y1)])
        taken.append(np.r_[ends.min(0) - 1, ends.max(0) + 1])
    # Gaps to the mark, and directions, of places on rings round it.
    gaps, steps = np.array([*product((2, 5, 9, 14, 20, 28), range(16))], float).T
    dx, dy = np.cos(math.pi * (0.25 + steps / 8)), np.sin(math.pi * (0.25 + steps / 8))
    for (x, y), (_, _, label, colour, radius) in zip(points, texts, strict=True):
        if not label:
            continue
        darker = "#{:02x}{:02x}{:02x}".format(*(int(int(colour[i : i + 2], 16) * 0.75) for i in (1, 3, 5)))
        text = axes.text(0, 0, label, transform=None, color=darker, fontsize=9, zorder=6)
        extent = text.get_window_extent(renderer)
        left = x + (radius + gaps) * dx - extent.width * (1 - dx) / 2
        bottom = y + (radius + gaps) * dy - extent.height * (1 - dy) / 2
        boxes = np.stack([left, bottom, left + extent.width, bottom + extent.height], 1)
        covered = _overlap(boxes[:, None], np.array(taken)).sum(1)
        outside = extent.width * extent.height - _overlap(boxes, frame)
        best = int(np.argmin(covered + 3 * outside + gaps**2 / 20))
        box = boxes[best]
        # (x, y) of a text is its baseline; its extent begins below it by the font's descent.
        text.set_position((box[0] - extent.x0, box[1] - extent.y0))
        taken.append(box)
        if gaps[best] > 9:
            near = np.clip((x, y), box[:2], box[2:])
            ends = [x, near[0]], [y, near[1]]
            axes.add_artist(Line2D(*ends, transform=None, color=colour, linewidth=0.6, zorder=2))


def _overlap(boxes: Any, others: Any) -> Any:
    """The area that boxes share, (..., 4): left, bottom, right, top."""
    across = np.minimum(boxes[..., 2:], others[..., 2:]) - np.maximum(boxes[..., :2], others[..., :2])
    return across.clip(min=0).prod(-1)


def accuracy_charts(results: Results) -> list[Chart]:
    """Accuracy against the parameter for each learner (Parnami et al. 2022, Fig. 3).

    A panel for each family that has two settings with an estimate of one learner.
    """
    levels = [(CLEAN_LOOK, "clean images", results.clean.value)] if results.clean else []
    levels += [(CHANCE_LOOK, "chance", results.guessing)] if results.guessing is not None else []
    known = {name: vocabulary.LEARNERS[name].look for name in results.learners}
    estimates = results.accuracies
    panels, own = [], looks(results.study)
    for family in families(results.study):
        places, is_number = family.places()
        of = sorted(zip(places, family.specs, strict=True))
        found = {
            name: [(place, estimates[spec, name]) for place, spec in of if (spec, name) in estimates]
            for name in known
        }
        series = {name: points for name, points in found.items() if points}
        if max(map(len, series.values()), default=0) < 2:
            continue
        labels = [family.label(spec) or family.name for spec in family.specs]
        crowded = not is_number and len(family.varying) > 1 and len(places) > 4
        turn = 40 if crowded else 25 if max(map(len, labels)) > _LONG else 0
        with _frame(3.1, 2.6, family.axis, "accuracy", fit=turn > 0) as (figure, axes):
            for look, _, value in levels:
                axes.axhline(value, color=look.colour, linestyle=look.line, linewidth=1.0, zorder=1)
            # A line from setting to setting has no meaning between files, nor between places in a row.
            joined = is_number or (len(family.varying) < 2 and not {*family.varying} & {*_WORDS})
            for name, points in series.items():
                look = replace(own[family.name], line=known[name].line, fill=known[name].fill)
                _errors(axes, points, look, line=joined)
            ordered = sorted(places)
            if is_number and len(places) > 2 and ordered[0] > 0 and ordered[-1] > 20 * ordered[0]:
                axes.set_xscale("log")
                axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
            anchor = {"ha": "right", "rotation_mode": "anchor", "rotation": turn} if turn else {}
            axes.set_xticks(places, labels, **anchor)
            axes.margins(x=0.08)
            axes.set_ylim(0, 1.02)
            words = [
                f"{name}: {', '.join(f'{percent(at.value)} at {x:g}' for x, at in points)}"
                for name, points in series.items()
            ]
            words += [f"{label}: {percent(value)}" for _, label, value in levels]
            panels.append(Chart(family.title, _source(figure), "; ".join(words), tuple(series)))
    return panels
