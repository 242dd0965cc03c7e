"""sfumato: privacy for images in machine learning. Rooms are listed in docs/papers.md."""

from sfumato.base.registry import register

__all__ = ["register"]
__version__ = "0.1.0"
