"""The sections of a report, in the order of the page.

Each is a function of a study and its records; None if there is nothing to show. Sections of records are a
paragraph or two and a table, by one template; those with charts or pictures are a module and a template each.
"""

from sfumato.study.report.sections import (
    accuracy,
    embeddings,
    frontier,
    gain,
    guarantees,
    log_rank,
    made,
    of_records,
    pictures,
    reconstruction,
    risk,
    tables,
    training,
    transfer,
)

SECTIONS = (
    frontier.section,
    accuracy.section,
    gain.section,
    risk.section,
    of_records.many,
    log_rank.section,
    of_records.inference,
    of_records.stored,
    reconstruction.section,
    of_records.tells,
    transfer.section,
    pictures.section,
    of_records.people,
    embeddings.section,
    guarantees.section,
    training.section,
    tables.section,
    made.section,
)
