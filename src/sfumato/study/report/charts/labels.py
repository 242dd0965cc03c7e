"""The places of labels of points: each covers as little as possible. Greedy and without chance."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.lines import Line2D

_Box = tuple[float, float, float, float]  # left, bottom, right, top


def place_labels(
    figure: Any,
    axes: Any,
    texts: Sequence[tuple[float, float, str, str, float]],
    lines: Sequence[tuple[float, float, float, float]],
) -> None:
    """Writes each label next to its point, at the place that covers least of points, lines and labels.

    Labels in their order, each trying places on growing rings round its point. A label far from its point
    gets a thin line to it.

    Args:
        figure: the figure, all but done.
        axes: its axes.
        texts: x, y, label, colour and radius (in points) of each mark.
        lines: level or upright lines to keep clear of, from x, y to x, y.
    """
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # labels were fitted to this place of the axes
    renderer = canvas.get_renderer()
    frame = axes.get_window_extent(renderer)
    points = [axes.transData.transform((x, y)) for x, y, *_ in texts]
    taken: list[_Box] = [(x - r, y - r, x + r, y + r) for (x, y), (*_, r) in zip(points, texts, strict=True)]
    for x0, y0, x1, y1 in lines:
        (left, bottom), (right, top) = axes.transData.transform([(x0, y0), (x1, y1)])
        taken.append((min(left, right) - 1, min(bottom, top) - 1, max(left, right) + 1, max(bottom, top) + 1))
    for (x, y), (_, _, label, colour, radius) in zip(points, texts, strict=True):
        if not label:
            continue
        text = axes.text(0, 0, label, transform=None, color=_darker(colour), fontsize=9, zorder=6)
        extent = text.get_window_extent(renderer)
        candidates = [
            (
                sum(_overlap(box, other) for other in taken) + 3 * _outside(box, frame) + gap * gap / 20,
                gap,
                box,
            )
            for gap, box in _rings(x, y, radius, extent)
        ]
        _, gap, box = min(candidates, key=lambda candidate: candidate[0])
        # (x, y) of a text is its baseline; its extent begins below it by the font's descent.
        text.set_position((box[0] - extent.x0, box[1] - extent.y0))
        taken.append(box)
        if gap > 9:
            near = (min(max(x, box[0]), box[2]), min(max(y, box[1]), box[3]))
            lead = Line2D([x, near[0]], [y, near[1]], transform=None, color=colour, linewidth=0.6, zorder=2)
            axes.add_artist(lead)


def _rings(x: float, y: float, radius: float, extent: Any) -> Iterator[tuple[int, _Box]]:
    """Places for a text of that extent on rings round a mark: (gap to the mark, box)."""
    for gap, step in product((2, 5, 9, 14, 20, 28), range(16)):
        ring = radius + gap
        angle = math.pi * (0.25 + step / 8)
        dx, dy = math.cos(angle), math.sin(angle)
        left = x + ring * dx - extent.width * (1 - dx) / 2
        bottom = y + ring * dy - extent.height * (1 - dy) / 2
        yield gap, (left, bottom, left + extent.width, bottom + extent.height)


def _overlap(box: _Box, other: _Box) -> float:
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    return width * height if width > 0 and height > 0 else 0.0


def _outside(box: _Box, frame: Any) -> float:
    area = (box[2] - box[0]) * (box[3] - box[1])
    return area - _overlap(box, (frame.x0, frame.y0, frame.x1, frame.y1))


def _darker(colour: str) -> str:
    """The colour for small text: three quarters as bright, to be read on white."""
    levels = [int(int(colour[i : i + 2], 16) * 0.75) for i in (1, 3, 5)]
    return "#{:02x}{:02x}{:02x}".format(*levels)
