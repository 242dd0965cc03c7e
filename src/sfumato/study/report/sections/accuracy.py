"""Accuracy of every learner at every setting."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import (
    Study,
    accuracies,
    episodic,
    interval_in_words,
    learners_in_study,
)
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Column, RecordTable, Section, legend, show_estimate
from sfumato.study.vocabulary import LEARNERS


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A chart per family of several settings, and a table of all; None without accuracies."""
    rates = accuracies(study, records)
    if not rates:
        return None
    tested = {name for _, name in rates}
    learners = [LEARNERS[name] for name in learners_in_study(study) if name in tested]
    panels = charts.accuracy_charts(study, records)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((learner.name, learner.look) for learner in learners if learner.name in drawn),
        ("clean images, clean learner", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    table = RecordTable(
        "Table of accuracies",
        f"Accuracy of every learner at every setting; small numbers are the {interval_in_words(study)} in "
        "percent. A dash: not measured.",
        [Column(learner.name) for learner in learners],
        [
            [
                (spec, [show_estimate(rates.get((spec, learner.name))) for learner in learners])
                for spec in study["protections"]
                if any(spec == key for key, _ in rates)
            ]
        ],
    )
    values = {
        "panels": panels,
        "table": table,
        # Others know all classes from training, and have their own paragraph.
        "models": [learner for learner in learners if not learner.knows_classes or not episodic(study)],
        "classifiers_beside": episodic(study) and "classifier" in study,
        "learner_legend": legend("learner", looks),
    }
    return Section("accuracy", "Accuracy of every learner", "Accuracy", values)
