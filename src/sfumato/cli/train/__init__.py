"""`sfumato train`: train a model, save it as an artefact, and test it. A module a method."""

# Each module adds its command when it is imported; help lists them in this order.
from sfumato.cli.train import few_shot, meta, mask, classifier, feature, code, semsim  # noqa: F401, I001
from sfumato.cli.train.shared import app

__all__ = ["app"]
