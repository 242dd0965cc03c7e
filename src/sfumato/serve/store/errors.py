"""What goes wrong with a store."""

from sfumato.errors import SfumatoError


class StoreError(SfumatoError):
    """The database cannot be used now: unreachable, full, read-only, damaged, or no store.

    Attributes:
        full: its disk has no room, or fails; nothing was saved.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class NotFoundError(SfumatoError, LookupError):
    """The tenant has no such classifier, class, example or key."""


class ConflictError(SfumatoError):
    """There is one of that name already."""


class QuotaError(SfumatoError):
    """More examples than the key may store: nothing was enrolled."""
