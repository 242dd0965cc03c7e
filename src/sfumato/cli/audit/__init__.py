"""`sfumato audit`: attack your own models, releases and updates before others do."""

# Each module adds its commands when it is imported; help lists them in this order.
from sfumato.cli.audit import releases, updates, models  # noqa: F401, I001
from sfumato.cli.audit.family import app

__all__ = ["app"]
