"""The charts of a report, as SVG that can stand inside a page: the same records give the same bytes.

Every chart is a panel small enough for a telephone; the page lays several out side by side. Series differ
in colour (Okabe & Ito 2008, told apart by colour-blind people), in marker and in line, so that black and
white print keeps them apart. Text stays text: it can be read aloud, searched, and set in the page's font.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sfumato.study.recommend import (
    Estimate,
    Recommendation,
    Record,
    Setting,
    Study,
    accuracies,
    belonging,
    clean_learner,
    guessing,
    percent,
    risks,
)

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "#6b6f76"

# Sizes in points: the radius of a mark, and the diameter of the ring about the recommended one.
_MARK, _RING = 4, 17

_LONG = 12  # letters, of labels that would run into each other


@dataclass(frozen=True)
class Look:
    """How one series is drawn, everywhere in the report; points alone have no line."""

    colour: str
    marker: str
    line: Any = ""


@dataclass(frozen=True)
class Chart:
    """One panel: its name, unique in the page; its title; its SVG element, which says it in words, too."""

    name: str
    title: str
    svg: str


LEARNER_LOOKS = {
    "clean": Look(VERMILION, "s", (0, (5, 2))),
    "protected": Look(BLUE, "o", "-"),
    "denoised": Look(GREEN, "^", (0, (6, 1.5, 1.5, 1.5))),
    "meta": Look(PURPLE, "D", (0, (3, 1.5))),
    "classifier-clean": Look(ORANGE, "v", (0, (9, 1.5, 3, 1.5))),
    "classifier-protected": Look(SKY, "P", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5))),
    "classifier-shape": Look(BLACK, "X", (0, (1.5, 1.5))),
}
ATTACK_LOOKS = {
    "reidentify-static": Look(BLUE, "s", (0, (5, 2))),
    "reidentify-adaptive": Look(VERMILION, "o", "-"),
    "reidentify-denoised": Look(GREEN, "^", (0, (6, 1.5, 1.5, 1.5))),
    "reidentify-denoised-adaptive": Look(ORANGE, "v", (0, (9, 1.5, 3, 1.5))),
    "reidentify-restored": Look(PURPLE, "D", (0, (3, 1.5))),
    "reidentify-restored-adaptive": Look(SKY, "P", (0, (6, 1.5, 1.5, 1.5, 1.5, 1.5))),
    "reidentify-shape": Look(BLACK, "X", (0, (1.5, 1.5))),
}
CLEAN_LOOK = Look(BLACK, "", (0, (8, 3)))
NONE_LOOK = Look(BLACK, "*")
CHANCE_LOOK = Look(GREY, "", (0, (1, 2)))
# For families and classes, in their order; a ninth begins again with the other markers.
CYCLE = [
    Look(colour, marker)
    for colour, marker in zip(
        (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, YELLOW), "osD^vPX*", strict=True
    )
]

FAMILIES = {
    "none": "No protection",
    "blur": "Gaussian blur",
    "pixelize": "Pixelization",
    "gaussian": "Gaussian noise",
    "dp-pix": "DP-Pix",
    "block": "Black block",
    "centre-blur": "Blurred centre",
    "mask": "Learned mask",
    "feature": "Private feature",
    "outside": "Outside tool",
}
PARAMETERS = {
    ("blur", "radius"): "radius r (pixels)",
    ("centre-blur", "radius"): "radius r (pixels)",
    ("pixelize", "cell"): "side of a cell b (pixels)",
    ("dp-pix", "cell"): "side of a cell b (pixels)",
    ("gaussian", "sigma"): "noise σ (grey levels of 255)",
    ("dp-pix", "epsilon"): "privacy ε",
    ("dp-pix", "pixels"): "hidden pixels m",
    ("block", "share"): "share of the image's side",
    ("centre-blur", "share"): "share of the image's side",
    ("mask", "keep"): "share of pixels kept (%)",
    ("mask", "artefact"): "mask",
    ("outside", "index"): "tool",
}


@dataclass(frozen=True)
class Family:
    """The settings of a study that share a protection, and the parameters that tell them apart.

    Attributes:
        name: of the protection, such as "dp-pix".
        specs: its settings, in the order of the study.
        varying: the parameters that are not the same in all of them.
        fixed: the others, as "epsilon = 3".
    """

    name: str
    specs: tuple[str, ...]
    varying: tuple[str, ...]
    fixed: str

    @property
    def title(self) -> str:
        """ "DP-Pix (epsilon = 3)"."""
        title = FAMILIES.get(self.name, self.name)
        return f"{title} ({self.fixed})" if self.fixed else title

    @property
    def axis(self) -> str:
        """The name of the horizontal axis, with its unit."""
        return ", ".join(PARAMETERS.get((self.name, key), key) for key in self.varying)

    def label(self, spec: str) -> str:
        """What tells a setting from the others of its family: "4", or "4, 3" where two parameters vary."""
        values = parameters(spec)
        # Of a path the name tells enough, and all of it is in the tables.
        return ", ".join(
            Path(values[key]).stem
            if key in ("artefact", "index") and key in values
            else values.get(key, "default")
            for key in self.varying
        )

    def places(self) -> tuple[list[float], bool]:
        """Where each setting stands on the axis, and whether that is its parameter's value.

        A single varying number is an axis; anything else is a row of places.
        """
        if len(self.varying) == 1:
            try:
                values = [float(self.label(spec)) for spec in self.specs]
            except ValueError:
                pass
            else:
                return values, True
        return [float(place) for place in range(len(self.specs))], False


def parameters(spec: str) -> dict[str, str]:
    """The parameters written in a canonical spec: "dp-pix:cell=4,epsilon=3" -> {cell: 4, epsilon: 3}."""
    pairs = (part.partition("=") for part in spec.partition(":")[2].split(",") if part)
    return {key: value for key, _, value in pairs}


def families(study: Study) -> list[Family]:
    """The families of a study in its order, without "none"."""
    names = dict.fromkeys(spec.partition(":")[0] for spec in study["protections"] if spec != "none")
    return [_family(name, study["protections"]) for name in names]


def _family(name: str, protections: Sequence[str]) -> Family:
    specs = [spec for spec in protections if spec.partition(":")[0] == name]
    values = [parameters(spec) for spec in specs]
    keys = list(dict.fromkeys(key for each in values for key in each))
    varying = [key for key in keys if len({each.get(key) for each in values}) > 1]
    fixed = [key for key in keys if key not in varying]
    if len(specs) == 1 and fixed:
        # One setting varies in nothing: its first parameter is the axis, with one place on it.
        varying, fixed = fixed[:1], fixed[1:]
    words = ", ".join(f"{key} = {values[0][key]}" for key in fixed)
    return Family(name, tuple(specs), tuple(varying), words)


def looks(study: Study) -> dict[str, Look]:
    """The look of each family, "none" first and black."""
    names = dict.fromkeys(spec.partition(":")[0] for spec in study["protections"] if spec != "none")
    cycled = {name: CYCLE[number % len(CYCLE)] for number, name in enumerate(names)}
    return {"none": NONE_LOOK, **cycled}


def accuracy_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Accuracy against the parameter for each learner (Parnami et al. 2022, Fig. 3); one panel a family."""
    found = accuracies(study, records)
    clean, chance = found.get(("none", clean_learner(study))), guessing(study, records)
    lines = [(CLEAN_LOOK, "clean images", clean.value)] if clean else []
    lines += [(CHANCE_LOOK, "chance", chance)] if chance is not None else []
    charts = []
    for family in families(study):
        series = {name: _along(family, found, name) for name in study["learners"]}
        if any(series.values()):
            charts.append(
                _panel("accuracy", family, series, LEARNER_LOOKS, lines, ylabel="accuracy", top=1.0)
            )
    return charts


def risk_charts(study: Study, records: Sequence[Record]) -> list[Chart]:
    """Re-identification against the parameter for each adversary (Fig. 5); one panel a family."""
    found = risks(study, records)
    estimates = {key: risk.top1 for key, risk in found.items()}
    if not found:
        return []
    clear = found.get(("none", "reidentify-static"))
    lines = [(CLEAN_LOOK, "no protection", clear.top1.value)] if clear else []
    lines.append((CHANCE_LOOK, "chance", next(iter(found.values())).chance))
    top = max(estimate.high for estimate in estimates.values())
    charts = []
    for family in families(study):
        series = {name: _along(family, estimates, name) for name in ATTACK_LOOKS}
        if any(series.values()):
            charts.append(
                _panel("risk", family, series, ATTACK_LOOKS, lines, ylabel="re-identified", top=top)
            )
    return charts


def gains(study: Study, records: Sequence[Record]) -> dict[str, Estimate]:
    """Protection -> what the denoiser adds, in percent of the accuracy without it (Sec. VI-B).

    The interval treats the two accuracies as independent; they share test episodes, so that it is rather
    too wide than too narrow.
    """
    found = accuracies(study, records)
    gained = {}
    for spec in study["protections"]:
        without, with_it = found.get((spec, "protected")), found.get((spec, "denoised"))
        if without and with_it and without.value > 0:
            ratio = with_it.value / without.value
            spreads = [(one.high - one.low) / 2 / one.value for one in (without, with_it) if one.value]
            half = 100 * ratio * math.hypot(*spreads)
            gain = 100 * (ratio - 1)
            gained[spec] = Estimate(gain, gain - half, gain + half, with_it.seeds)
    return gained


def gain_chart(study: Study, records: Sequence[Record]) -> Chart | None:
    """% gain of the denoiser against SSIM of the denoised image (Fig. 4); None without such records."""
    gained = gains(study, records)
    ssim: dict[str, list[float]] = {}
    for record in belonging(study, records, "similarity"):
        if record["cell"]["view"] == "denoised" and "ssim" in record["result"]:
            ssim.setdefault(record["cell"]["protection"], []).append(record["result"]["ssim"])
    points = {
        spec: (sum(ssim[spec]) / len(ssim[spec]), gain) for spec, gain in gained.items() if spec in ssim
    }
    if not points:
        return None
    with _style():
        figure, axes = _axes(4.3, 3.3)
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        texts, lines = [], []
        for family in families(study):
            look = looks(study)[family.name]
            for spec in family.specs:
                if spec in points:
                    x, gain = points[spec]
                    _errors(axes, [x], [gain], look)
                    texts.append((x, gain.value, family.label(spec), look.colour, _MARK))
                    lines.append((x, gain.low, x, gain.high))
        axes.set_xlabel("SSIM of denoised and original image (1 = equal)")
        axes.set_ylabel("gain in accuracy (%)")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
        axes.margins(0.09)
        left, right = axes.get_xlim()
        spare = max(0.0, 0.2 - (right - left)) / 2  # few points, near each other, are not blown up
        axes.set_xlim(left - spare, right + spare)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        _place_labels(figure, axes, texts, lines)
        words = "; ".join(
            f"{spec}: SSIM {x:.2f}, gain {gain.value:+.1f}%" for spec, (x, gain) in points.items()
        )
        return _chart(figure, "gain", "Gain in accuracy against likeness to the original", words)


def frontier_chart(
    study: Study, settings: Sequence[Setting], recommendation: Recommendation, *, name: str, title: str
) -> Chart | None:
    """Best accuracy against strongest re-identification, with the Pareto line and the bound."""
    shown = [
        (one.protection, one.risk.top1, one.accuracy, one) for one in settings if one.risk and one.accuracy
    ]
    if not shown:
        return None
    known = {family.name: family for family in [_family("none", ["none"]), *families(study)]}
    with _style():
        figure, axes = _axes(4.4, 3.7)
        texts, lines = [], []
        best = sorted((risk.value, accuracy.value) for _, risk, accuracy, one in shown if one.on_frontier)
        if best:
            # A step: between two settings nothing was measured, and the left one is what is to be had.
            xs, ys = zip(*best, strict=True)
            axes.step(xs, ys, where="post", color=GREY, linewidth=1.1, alpha=0.8, zorder=1)
            for (x, y), (next_x, next_y) in pairwise(best):
                lines += [(x, y, next_x, y), (next_x, y, next_x, next_y)]
        for spec, risk, accuracy, one in shown:
            family = spec.partition(":")[0]
            look = looks(study)[family]
            _errors(axes, [risk.value], [accuracy], look, across=[risk], hollow=not one.complete)
            label = known[family].label(spec) or spec
            radius = _RING / 2 if one == recommendation.setting else _MARK
            texts.append((risk.value, accuracy.value, label, look.colour, radius))
            lines += [(risk.low, accuracy.value, risk.high, accuracy.value)]
            lines += [(risk.value, accuracy.low, risk.value, accuracy.high)]
        setting = recommendation.setting
        if setting and setting.risk and setting.accuracy:
            at = (setting.risk.top1.value, setting.accuracy.value)
            axes.plot(*at, "o", markersize=_RING, markerfacecolor="none", markeredgecolor=BLACK, zorder=5)
        if recommendation.bound is not None:
            axes.axvline(recommendation.bound, color=BLACK, linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
            axes.axvspan(0, recommendation.bound, color=GREEN, alpha=0.07, linewidth=0, zorder=0)
        axes.set_xlabel("strongest re-identification (lower is better)")
        axes.set_ylabel("best accuracy (higher is better)")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(_percent_tick)
        highest = max(risk.high for _, risk, _, _ in shown)
        axes.set_xlim(0, max(highest, recommendation.bound or 0) * 1.06)
        low = min(accuracy.low for _, _, accuracy, _ in shown)
        high = max(accuracy.high for _, _, accuracy, _ in shown)
        pad = max(0.02, 0.09 * (high - low))
        axes.set_ylim(max(0, low - pad), min(1.0, high + pad) if high + pad > 1 else high + pad)
        if recommendation.bound is not None:
            bottom, top = axes.get_ylim()
            lines.append((recommendation.bound, bottom, recommendation.bound, top))
        _place_labels(figure, axes, texts, lines)
        words = "; ".join(
            f"{spec}: accuracy {percent(accuracy.value)}, re-identification {percent(risk.value)}"
            + (", on the frontier" if one.on_frontier else "")
            for spec, risk, accuracy, one in shown
        )
        return _chart(figure, name, title, words)


def embedding_charts(study: Study, records: Sequence[Record]) -> list[tuple[str, list[Chart]]]:
    """t-SNE of 100 test images for each learner (Fig. 7): (protection, its panels), "none" first."""
    first: dict[tuple[str, str], Record] = {}
    for record in belonging(study, records, "embeddings"):
        first.setdefault((record["cell"]["protection"], record["cell"]["learner"]), record)
    rows = []
    for spec in study["protections"]:
        panels = [
            _scatter(f"{spec} {learner}", learner, first[spec, learner]["result"])
            for learner in ("clean", "protected", "denoised")
            if (spec, learner) in first
        ]
        if panels:
            rows.append((spec, panels))
    return rows


def classes_of(study: Study, records: Sequence[Record]) -> list[str]:
    """The classes that the embeddings show, sorted: their looks are those of CYCLE, in this order."""
    shown = belonging(study, records, "embeddings")
    return sorted({name for record in shown for name in record["result"]["classes"]})


def key(name: str, look: Look) -> str:
    """A sample of a look for a legend, as an SVG element that is decoration to a reader of text.

    `name` is unique in the page.
    """
    with _style():
        figure = Figure(figsize=(0.42, 0.17))
        across = [0.08, 0.92] if look.line else []
        figure.add_artist(Line2D(across, [0.5] * len(across), color=look.colour, linestyle=look.line))
        if look.marker:
            size = 8 if look.marker == "*" else None
            figure.add_artist(Line2D([0.5], [0.5], color=look.colour, marker=look.marker, markersize=size))
        slug = _slug(f"key {name}")
        return _svg(figure, slug).replace("<svg", '<svg class="key" aria-hidden="true"', 1)


def _along(
    family: Family, found: Mapping[tuple[str, str], Estimate], name: str
) -> list[tuple[float, Estimate]]:
    places, _ = family.places()
    pairs = zip(family.specs, places, strict=True)
    return sorted(
        ((place, found[spec, name]) for spec, place in pairs if (spec, name) in found),
        key=lambda point: point[0],
    )


def _panel(
    kind: str,
    family: Family,
    series: Mapping[str, list[tuple[float, Estimate]]],
    known: Mapping[str, Look],
    lines: Iterable[tuple[Look, str, float]],
    *,
    ylabel: str,
    top: float,
) -> Chart:
    places, is_number = family.places()
    with _style():
        figure, axes = _axes(3.1, 2.6)
        for look, _, value in lines:
            axes.axhline(value, color=look.colour, linestyle=look.line, linewidth=1.0, zorder=1)
        words = []
        for name, points in series.items():
            look = known[name]
            xs = [x for x, _ in points]
            estimates = [estimate for _, estimate in points]
            # Places in a row are no scale: a line between them would mean nothing.
            line = is_number or (len(family.varying) < 2 and family.varying != ("artefact",))
            _errors(axes, xs, estimates, look, line=line)
            told = ", ".join(f"{percent(one.value)} at {place:g}" for place, one in points)
            if told:
                words.append(f"{name.removeprefix('reidentify-')}: {told}")
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
        axes.set_xlabel(family.axis)
        axes.set_ylabel(ylabel)
        axes.set_ylim(0, min(1.02, 1.07 * top))
        axes.yaxis.set_major_formatter(_percent_tick)
        told = "; ".join([*words, *(f"{label}: {percent(value)}" for _, label, value in lines)])
        return _chart(figure, f"{kind} {family.name}", family.title, told)


def _scatter(name: str, title: str, result: Mapping[str, Any]) -> Chart:
    with _style():
        figure = Figure(figsize=(1.5, 1.35))
        axes = figure.add_axes((0.01, 0.01, 0.98, 0.98))
        axes.set_xticks([])
        axes.set_yticks([])
        for side in axes.spines.values():
            side.set_visible(True)
            side.set_color("#d5d3cc")
        names = sorted(set(result["classes"]))
        for number, each in enumerate(names):
            look = CYCLE[number % len(CYCLE)]
            mine = [
                point for point, of in zip(result["points"], result["classes"], strict=True) if of == each
            ]
            axes.plot(
                *zip(*mine, strict=True),
                look.marker,
                color=look.colour,
                markersize=3.4,
                markeredgewidth=0.3,
                markeredgecolor="white",
            )
        words = f"t-SNE of {len(result['points'])} embeddings of the classes {', '.join(names)}"
        return _chart(figure, f"embeddings {name}", title, words)


@contextmanager
def _style() -> Iterator[None]:
    settings = {
        "font.family": "DejaVu Sans",  # comes with matplotlib: the layout is the same on every machine
        "figure.dpi": 72,  # that of SVG, so that labels placed on the canvas stand there in the file
        "font.size": 9.5,
        "text.parse_math": False,  # a "$" in a name is a "$"
        "svg.fonttype": "none",
        "svg.hashsalt": "sfumato",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#8b8e94",
        "axes.labelcolor": "#33363b",
        "axes.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e7e5df",
        "grid.linewidth": 0.7,
        "xtick.color": "#5b5f66",
        "ytick.color": "#5b5f66",
        "xtick.labelcolor": "#33363b",
        "ytick.labelcolor": "#33363b",
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "lines.linewidth": 1.6,
        "lines.markersize": 5.5,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "savefig.bbox": None,
    }
    with matplotlib.rc_context(settings):
        yield


def _axes(width: float, height: float) -> tuple[Any, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def _errors(
    axes: Any,
    xs: Sequence[float],
    estimates: Sequence[Estimate],
    look: Look,
    *,
    line: bool = False,
    across: Sequence[Estimate] | None = None,
    hollow: bool = False,
) -> None:
    """Points with the intervals of their numbers; `across` gives intervals along the horizontal axis."""

    def reach(them: Sequence[Estimate]) -> list[list[float]]:
        return [[e.value - e.low for e in them], [e.high - e.value for e in them]]

    axes.errorbar(
        xs,
        [estimate.value for estimate in estimates],
        yerr=reach(estimates),
        xerr=reach(across) if across else None,
        color=look.colour,
        marker=look.marker,
        linestyle=look.line if line else "",
        markerfacecolor="white" if hollow else look.colour,
        markersize=9 if look.marker == "*" else None,
        markeredgecolor=look.colour if hollow else "white",
        markeredgewidth=1.2 if hollow else 0.5,
        elinewidth=0.9,
        capsize=2,
        capthick=0.9,
        zorder=3,
    )


def _percent_tick(value: float, _: int) -> str:
    return f"{100 * value:g}%"


def _place_labels(
    figure: Any,
    axes: Any,
    texts: Sequence[tuple[float, float, str, str, float]],
    lines: Sequence[tuple[float, float, float, float]],
) -> None:
    """Write each label beside its point, where it covers least of points, lines and other labels.

    Greedy and without chance: labels in their order, each trying places on growing rings round its point.
    A label that had to move away gets a thin line to its point.

    Args:
        figure: the figure, all but done.
        axes: its axes.
        texts: x, y, label, colour and radius (in points) of each mark.
        lines: level or upright lines to keep clear of, from x, y to x, y.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # the axes stay where the labels were fitted to
    renderer = canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    points = [axes.transData.transform((x, y)) for x, y, *_ in texts]
    taken = [(x - r, y - r, x + r, y + r) for (x, y), (*_, r) in zip(points, texts, strict=True)]
    for x0, y0, x1, y1 in lines:
        (left, bottom), (right, top) = axes.transData.transform([(x0, y0), (x1, y1)])
        taken.append((min(left, right) - 1, min(bottom, top) - 1, max(left, right) + 1, max(bottom, top) + 1))
    for (x, y), (_, _, label, colour, radius) in zip(points, texts, strict=True):
        if not label:
            continue
        text = axes.text(0, 0, label, transform=None, color=_darker(colour), fontsize=9, zorder=6)
        box = text.get_window_extent(renderer)
        candidates = []
        for gap, step in product((2, 5, 9, 14, 20, 28), range(16)):
            ring = radius + gap
            angle = math.pi * (0.25 + step / 8)
            dx, dy = math.cos(angle), math.sin(angle)
            left = x + ring * dx - box.width * (1 - dx) / 2
            bottom = y + ring * dy - box.height * (1 - dy) / 2
            place = (left, bottom, left + box.width, bottom + box.height)
            cost = sum(_shared(place, other) for other in taken) + 3 * _outside(place, frame)
            candidates.append((cost + gap * gap / 20, gap, place))
        _, gap, place = min(candidates, key=lambda candidate: candidate[0])
        # (x, y) of a text is its baseline; the box begins below it by the font's descent.
        text.set_position((place[0] - box.x0, place[1] - box.y0))
        taken.append(place)
        if gap > 9:
            near = (min(max(x, place[0]), place[2]), min(max(y, place[1]), place[3]))
            lead = Line2D([x, near[0]], [y, near[1]], transform=None, color=colour, linewidth=0.6, zorder=2)
            axes.add_artist(lead)


def _shared(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def _outside(place: tuple[float, ...], frame: Any) -> float:
    area = (place[2] - place[0]) * (place[3] - place[1])
    return area - _shared(place, (frame.x0, frame.y0, frame.x1, frame.y1))


def _darker(colour: str) -> str:
    """The colour for small text: three quarters as bright, to be read on white."""
    levels = [int(int(colour[i : i + 2], 16) * 0.75) for i in (1, 3, 5)]
    return "#{:02x}{:02x}{:02x}".format(*levels)


def _chart(figure: Any, name: str, title: str, words: str) -> Chart:
    slug = _slug(f"chart {name}")
    labelled = f'<svg class="chart" role="img" aria-labelledby="{slug}-title {slug}-words"'
    svg = _svg(figure, slug).replace("<svg", labelled, 1)
    head, _, rest = svg.partition(">")  # the end of the opening tag
    told = f'<title id="{slug}-title">{escape(title)}</title><desc id="{slug}-words">{escape(words)}</desc>'
    return Chart(slug, title, f"{head}>{told}{rest}")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _svg(figure: Any, slug: str) -> str:
    """The figure as an SVG element for a page that holds others: no prologue, no style, no shared id."""
    buffer = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(buffer, format="svg", metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = svg.replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").replace("xlink:href", "href")
    svg = svg.replace(' xmlns="http://www.w3.org/2000/svg"', "").replace(' version="1.1"', "")
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r'\bid="', f'id="{slug}-', svg)
    svg = svg.replace('href="#', f'href="#{slug}-').replace("url(#", f"url(#{slug}-")
    svg = re.sub(r"; font-family: [^;\"]*", "", svg)  # the page's
    svg = re.sub(r' transform="rotate\(-?0 [^)]*\)"', "", svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = re.sub(r"(?<=[ \"(])(-?\d+\.\d\d)\d+(?=[ \n\")])", r"\1", svg)
    return re.sub(r"<g([^>]*)>((?:<use [^>]*/>){2,})</g>", _style_once, svg)


def _style_once(match: re.Match[str]) -> str:
    """Move the style that all markers of a group share to the group: a scatter shrinks by half."""
    styles = set(re.findall(r' style="[^"]*"', match[2]))
    if len(styles) != 1 or "style=" in match[1]:
        return match[0]
    style = styles.pop()
    return f"<g{match[1]}{style}>{match[2].replace(style, '')}</g>"
