"""The sections of a report, a module each, and a template of the same name: in the order of the page.

Each has `section(study, records)`, what its template shows; None where there is nothing to show.
"""

from sfumato.study.report.sections import (
    accuracy,
    embeddings,
    frontier,
    gain,
    guarantees,
    inference,
    made,
    people,
    pictures,
    reconstruction,
    risk,
    several,
    stored,
    tables,
    tells,
    training,
    transfer,
)

SECTIONS = (
    frontier,
    accuracy,
    gain,
    risk,
    several,
    inference,
    stored,
    reconstruction,
    tells,
    transfer,
    pictures,
    people,
    embeddings,
    guarantees,
    training,
    tables,
    made,
)
