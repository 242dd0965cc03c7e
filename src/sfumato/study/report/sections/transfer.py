"""Queries with another setting than the one that a model was trained for."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sfumato.study.choose.estimates import Study, belonging, learner_in_words
from sfumato.study.records import Record
from sfumato.study.report.sections.section import Section

Accuracies = Mapping[tuple[str, str], float]  # (trained for, queried with) -> a mean over seeds


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """The transfer matrix; None without such records."""
    shown = belonging(study, records, "transfer")
    if not shown:
        return None
    over_seeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in shown:
        for spec, model in record.result.trained.items():
            over_seeds[spec, record.cell.protection].append(model.accuracy)
    accuracy = {key: statistics.fmean(values) for key, values in over_seeds.items()}
    queried = [spec for spec in study["protections"] if any(spec == asked for _, asked in accuracy)]
    trained = [spec for spec in study["protections"] if any(spec == model for model, _ in accuracy)]
    columns = {
        asked: [accuracy[model, asked] for model in trained if (model, asked) in accuracy]
        for asked in queried
    }
    low, high = min(accuracy.values()), max(accuracy.values())
    values: dict[str, Any] = {
        "learner": learner_in_words(shown[0].cell.learner or ""),
        "trained": trained,
        "queried": queried,
        "accuracy": accuracy,
        # The best model of each column; all of equals.
        "best": {key for key, value in accuracy.items() if value == max(columns[key[1]])},
        "tints": {key: tint((value - low) / (high - low or 1)) for key, value in accuracy.items()},
        "sentences": _in_words(accuracy, queried, columns),
    }
    return Section("transfer", "When the setting is not the one trained for", "Transfer", values)


def _in_words(
    accuracy: Accuracies, queried: Sequence[str], columns: Mapping[str, Sequence[float]]
) -> list[str]:
    own = [spec for spec in queried if (spec, spec) in accuracy]
    lost = {
        (model, asked): accuracy[asked, asked] - value
        for (model, asked), value in accuracy.items()
        if asked in own and model != asked
    }
    sentences = []
    if own:
        best = sum(accuracy[spec, spec] == max(columns[spec]) for spec in own)
        sentences.append(
            f"For {best} of {len(own)} settings the model trained for that very setting is the best."
        )
    if lost:
        sentences.append(
            "Where images are protected in another way than the model was trained for, accuracy is "
            f"{_points(statistics.fmean(lost.values()))} on average"
        )
        (worst, asked), most = max(lost.items(), key=lambda item: item[1])
        if most > 0:
            sentences[-1] += f", and {_points(most)} at worst (trained for {worst}, queried with {asked})"
        sentences[-1] += "."
    clean = [loss for (model, _), loss in lost.items() if model == "none"]
    if clean:
        sentences.append(
            f"For the model trained on clean images it is {_points(statistics.fmean(clean))} on average."
        )
    return sentences


def _points(loss: float) -> str:
    """0.123 -> "12.3 points lower", of a hundred."""
    return f"{abs(100 * loss):.1f} points {'lower' if loss >= 0 else 'higher'}"


def tint(share: float) -> str:
    """From white at 0 to a teal at 1 on which the page's ink has a contrast of more than 8 to 1."""
    light, full = (255, 255, 255), (143, 200, 208)
    levels = (round(a + (b - a) * share) for a, b in zip(light, full, strict=True))
    return "#{:02x}{:02x}{:02x}".format(*levels)
