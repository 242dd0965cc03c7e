"""`sfumato attack`: one attack on your files, with a picture of the images it rebuilt. A file a command."""

# Each module adds its command when it is imported; help lists them in this order.
from sfumato.cli.attack import invert, labels, first_layer, feature, reidentify  # noqa: F401, I001
from sfumato.cli.attack.family import app

__all__ = ["app"]
