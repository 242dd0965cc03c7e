"""sfumato: privacy for images in machine learning. Rooms are listed in docs/papers.md."""

__version__ = "0.1.0"
