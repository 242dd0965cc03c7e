"""Some images: original, released, denoised and restored, and how much of them is left."""

import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sfumato.study.choose.estimates import Study, belonging
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section
from sfumato.study.vocabulary import MEASURES, MeasureWords


@dataclass(frozen=True)
class Row:
    """A row of the grid of pictures, each a data: URI."""

    protection: str
    originals: list[int]  # numbers among all originals
    released: list[str]
    denoised: list[str] | None
    restored: list[str] | None


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A row for each protection that releases images; without pictures the amount that is left of them.

    None if there is neither.
    """
    results: dict[str, Any] = {}
    for record in belonging(study, records, "pictures"):
        results.setdefault(record.cell.protection, record.result)
    similarities = _similarities(study, records)
    seen = {*results, *(spec for spec, view in similarities if view == "released")}
    if not seen:
        return None
    numbers: dict[str, int] = {}  # of each original, which several rows show
    rows = []
    for spec in [spec for spec in study["protections"] if spec in seen]:
        if (result := results.get(spec)) is None:
            rows.append(Row(spec, [], [], None, None))
        else:
            originals = [numbers.setdefault(uri, len(numbers)) for uri in result.original]
            rows.append(Row(spec, originals, result.released, result.denoised, result.restored))
    views = {view for _, view in similarities}
    values = {
        "rows": rows,
        "originals": list(numbers),
        "denoised": any(row.denoised for row in rows) or (not numbers and "denoised" in views),
        "restored": any(row.restored for row in rows) or (not numbers and "restored" in views),
        "similarities": similarities,
    }
    title, contents = (
        ("What is seen", "Pictures") if numbers else ("How much of an image is left", "Likeness")
    )
    return Section("pictures", title, contents, values, originals=bool(numbers))


def _similarities(study: Study, records: Sequence[Record]) -> dict[tuple[str, str | None], str]:
    """(protection, view) -> "SSIM 0.41, PSNR 17.2 dB", means over seeds."""
    results: dict[tuple[str, str | None], list[dict[str, float | None]]] = defaultdict(list)
    for record in belonging(study, records, "similarity"):
        strangers = (record.result.model_extra or {}).get("face-similarity_of_two")
        means = {**record.result.measures, "face-similarity_of_two": strangers}
        results[record.cell.protection, record.cell.view].append(means)
    return {key: ", ".join(in_words(over_seeds)) for key, over_seeds in results.items()}


def in_words(results: Sequence[dict[str, float | None]]) -> list[str]:
    """The measures that all seeds have, "SSIM 0.41" and so on."""
    words = []
    for name, measure in MEASURES.items():
        if measure.beside_pictures and all(name in means for means in results):
            mean = _mean(results, name)
            words.append(f"{measure.words} {_value(measure, mean)}")
            infinite = sum(means[name] is None for means in results)
            if 0 < infinite < len(results):
                words[-1] += f" (an image is unchanged in {infinite} of {len(results)} seeds)"
            strangers = _mean(results, f"{name}_of_two")
            if strangers is not None:
                words[-1] += f" (of two people {_value(measure, strangers)})"
    return words


def _value(measure: MeasureWords, mean: float | None) -> str:
    """Its printed form; without the sign of a zero, and None, which is not finite, as infinite."""
    if mean is None:
        return "∞"
    text = measure.form.format(mean)
    return text if re.search("[1-9]", text) else text.removeprefix("-")


def _mean(results: Sequence[dict[str, float | None]], name: str) -> float | None:
    """Of all seeds: infinite if one is, as PSNR is if an image came back unchanged."""
    values = [value for means in results if (value := means.get(name)) is not None]
    return statistics.fmean(values) if len(values) == len(results) else None
