"""The resources of the API: each module has the routes of one, in its `router`."""

from sfumato.serve.routes import answers, classes, classifiers, examples, health, keys, models, tenant

RESOURCES = (models, classifiers, classes, examples, answers, tenant, keys, health)
