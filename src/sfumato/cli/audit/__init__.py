"""`sfumato audit`: attack your own models and updates before others do. A file a command."""

# Each module adds its command when it is imported; help lists them in this order.
from sfumato.cli.audit import folder, gallery, protection, training, update, vectors  # noqa: F401
from sfumato.cli.audit.family import app

__all__ = ["app"]
