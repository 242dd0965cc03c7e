"""`sfumato assess`: how alike images are, and how well numbers identify people. A file a command."""

# Each module adds its command when it is imported; help lists them in this order.
from sfumato.cli.assess import agreement, images, log_rank  # noqa: F401
from sfumato.cli.assess.family import app

__all__ = ["app"]
