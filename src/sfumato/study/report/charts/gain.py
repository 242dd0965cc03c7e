"""The gain of the denoiser, against how much of the picture it brings back."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

import matplotlib.ticker

from sfumato.study.choose.estimates import Estimate, Study, accuracies, belonging
from sfumato.study.records import Record
from sfumato.study.report.charts.drawing import MARK, Chart, axes_of, chart, errors, style
from sfumato.study.report.charts.families import families, looks
from sfumato.study.report.charts.labels import place_labels
from sfumato.study.vocabulary import GREY


def gains(study: Study, records: Sequence[Record]) -> dict[str, Estimate]:
    """Protection -> the gain of the denoiser, in percent of the accuracy without it (Sec. VI-B).

    The interval treats the two accuracies as independent; they share test episodes, so that it is rather
    too wide than too narrow.
    """
    accuracy = accuracies(study, records)
    gained = {}
    for spec in study["protections"]:
        without, with_it = accuracy.get((spec, "protected")), accuracy.get((spec, "denoised"))
        if without and with_it and without.value > 0:
            ratio = with_it.value / without.value
            both = [estimate for estimate in (without, with_it) if estimate.value]
            spreads = [(estimate.high - estimate.low) / 2 / estimate.value for estimate in both]
            half = 100 * ratio * math.hypot(*spreads)
            gain = 100 * (ratio - 1)
            gained[spec] = Estimate(gain, gain - half, gain + half, with_it.seeds)
    return gained


def gain_chart(study: Study, records: Sequence[Record]) -> Chart | None:
    """% gain of the denoiser against SSIM of the denoised image (Fig. 4); None below two settings."""
    gained = gains(study, records)
    ssim: dict[str, list[float]] = defaultdict(list)
    for record in belonging(study, records, "similarity"):
        mean = record.result.measures.get("ssim")
        if record.cell.view == "denoised" and mean is not None:
            ssim[record.cell.protection].append(mean)
    points = {spec: (statistics.fmean(ssim[spec]), gain) for spec, gain in gained.items() if spec in ssim}
    if len(points) < 2:
        return None
    with style():
        figure, axes = axes_of(4.3, 3.3)
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
        texts, lines = [], []
        for family in families(study):
            look = looks(study)[family.name]
            for spec in family.specs:
                if spec in points:
                    x, gain = points[spec]
                    errors(axes, [x], [gain], look)
                    texts.append((x, gain.value, family.label(spec), look.colour, MARK))
                    lines.append((x, gain.low, x, gain.high))
        axes.set_xlabel("SSIM of denoised and original image (1 = equal)")
        axes.set_ylabel("gain in accuracy (%)")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:+g}" if value else "0")
        axes.margins(0.09)
        left, right = axes.get_xlim()
        spare = max(0.0, 0.2 - (right - left)) / 2  # few points, near each other, are not blown up
        axes.set_xlim(left - spare, right + spare)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        place_labels(figure, axes, texts, lines)
        words = "; ".join(
            f"{spec}: SSIM {x:.2f}, gain {gain.value:+.1f}%" for spec, (x, gain) in points.items()
        )
        return chart(figure, "gain", "Gain in accuracy against likeness to the original", words)
