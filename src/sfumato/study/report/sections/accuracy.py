"""Accuracy of every learner at every setting."""

from collections.abc import Sequence

from sfumato.study.choose.estimates import Study, accuracies, episodic, studied_learners
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend
from sfumato.study.vocabulary import LEARNERS


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A chart a family of several settings, and a table of all; None without accuracies."""
    measured = accuracies(study, records)
    if not measured:
        return None
    tested = {name for _, name in measured}
    learners = [LEARNERS[name] for name in studied_learners(study) if name in tested]
    panels = charts.accuracy_charts(study, records)
    drawn = {name for panel in panels for name in panel.series}
    looks = [
        *((learner.name, learner.look) for learner in learners if learner.name in drawn),
        ("clean images, clean learner", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    values = {
        "panels": panels,
        "measured": measured,
        "protections": [spec for spec in study["protections"] if any(spec == key for key, _ in measured)],
        "learners": learners,
        # Others know all classes from training, and are spoken of apart.
        "models": [learner for learner in learners if not learner.knows_classes or not episodic(study)],
        "classifiers_beside": episodic(study) and "classifier" in study,
        "learner_legend": legend("learner", looks),
    }
    return Section("accuracy", "Accuracy of every learner", "Accuracy", values)
