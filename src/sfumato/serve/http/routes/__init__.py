"""The resources of the API: each module has the routes of one in its `router`."""

from sfumato.serve.http.routes import (
    answers,
    classes,
    classifiers,
    examples,
    health,
    keys,
    models,
    tables,
    tenant,
)

# Matched in this order: answers are the most frequent.
RESOURCES = (answers, models, classifiers, classes, examples, tables, tenant, keys, health)
