"""Accuracy against the strength of protection, of every learner."""

from collections.abc import Sequence

from sfumato.study.estimates import Study, episodic, studied_learners
from sfumato.study.records import Record
from sfumato.study.report import charts
from sfumato.study.report.sections.section import Section, legend
from sfumato.study.vocabulary import LEARNERS


def section(study: Study, records: Sequence[Record]) -> Section | None:
    """A chart a family; None where no accuracy is recorded."""
    panels = charts.accuracy_charts(study, records)
    if not panels:
        return None
    learners = [LEARNERS[name] for name in studied_learners(study)]
    looks = [
        *((learner.name, learner.look) for learner in learners),
        ("clean images, clean learner", charts.CLEAN_LOOK),
        ("chance", charts.CHANCE_LOOK),
    ]
    values = {
        "panels": panels,
        # Others know all classes from training, and are spoken of apart.
        "models": [learner for learner in learners if not learner.knows_classes or not episodic(study)],
        "classifiers_beside": episodic(study) and "classifier" in study,
        "learner_legend": legend("learner", looks),
    }
    return Section("accuracy", "Accuracy against the strength of protection", "Accuracy", values)
