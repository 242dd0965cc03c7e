"""The parts that charts share: style, points with intervals, samples for legends, SVG to stand in a page."""

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from sfumato.study.choose.estimates import Estimate
from sfumato.study.vocabulary import BLACK, GREY, Look

MARK = 4  # points, the radius of a mark
CLEAN_LOOK = Look(BLACK, "", (0, (8, 3)))
CHANCE_LOOK = Look(GREY, "", (0, (1, 2)))


@dataclass(frozen=True)
class Chart:
    """One panel.

    Attributes:
        name: unique in the page.
        title: at its head.
        svg: its element, which describes it in words, too.
        series: the names of its series, if it needs a legend.
    """

    name: str
    title: str
    svg: str
    series: tuple[str, ...] = ()


@contextmanager
def style() -> Iterator[None]:
    """The style of figures."""
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
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "savefig.facecolor": "none",
        "savefig.bbox": None,
    }
    with matplotlib.rc_context(settings):
        yield


def axes_of(width: float, height: float) -> tuple[Any, Any]:
    """A figure of that size in inches, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def errors(
    axes: Any,
    xs: Sequence[float],
    estimates: Sequence[Estimate],
    look: Look,
    *,
    line: bool = False,
    across: Sequence[Estimate] | None = None,
) -> None:
    """Points with the intervals of their numbers; `across` gives intervals along the horizontal axis."""

    def reach(estimates: Sequence[Estimate]) -> list[list[float]]:
        return [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]

    axes.errorbar(
        xs,
        [estimate.value for estimate in estimates],
        yerr=reach(estimates),
        xerr=reach(across) if across else None,
        color=look.colour,
        linestyle=look.line if line else "",
        **_mark(look),
        elinewidth=0.9,
        capsize=2,
        capthick=0.9,
        zorder=3,
    )


def _mark(look: Look) -> dict[str, Any]:
    """The drawing of a mark; its uncoloured parts are white, so that no line shows through."""
    return {
        "marker": look.marker,
        "markersize": 9 if look.marker == "*" else 6.5,
        "fillstyle": "full" if look.fill == "none" else look.fill,
        "markerfacecolor": "white" if look.fill == "none" else look.colour,
        "markerfacecoloralt": "white",
        "markeredgecolor": look.colour,
        "markeredgewidth": 1.1,
    }


def percent_tick(value: float, _: int) -> str:
    """The text at a tick of an axis of shares."""
    return f"{100 * value:g}%"


def chart(figure: Any, name: str, title: str, words: str, series: Sequence[str] = ()) -> Chart:
    """The chart of a finished figure, with its words for people who do not see it."""
    slug = _slug(f"chart {name}")
    labelled = f'<svg class="chart" role="img" aria-labelledby="{slug}-title {slug}-words"'
    svg = _svg(figure, slug).replace("<svg", labelled, 1)
    head, _, rest = svg.partition(">")  # the end of the opening tag
    heading = (
        f'<title id="{slug}-title">{escape(title)}</title><desc id="{slug}-words">{escape(words)}</desc>'
    )
    return Chart(slug, title, f"{head}>{heading}{rest}", tuple(series))


def key(name: str, look: Look) -> str:
    """A sample of a look for a legend, as an SVG element that is decoration to a reader of text.

    `name` is unique in the page.
    """
    with style():
        figure = Figure(figsize=(0.42, 0.17))
        across = [0.08, 0.92] if look.line else []
        figure.add_artist(Line2D(across, [0.5] * len(across), color=look.colour, linestyle=look.line))
        if look.marker:
            figure.add_artist(Line2D([0.5], [0.5], color=look.colour, **_mark(look)))
        slug = _slug(f"key {name}")
        return _svg(figure, slug).replace("<svg", '<svg class="key" aria-hidden="true"', 1)


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
