"""The errors of a store."""

from sfumato.errors import SfumatoError


class StoreError(SfumatoError):
    """The database cannot be used now: unreachable, full, read-only, damaged, or not a store.

    Attributes:
        full: whether its disk is full or fails; nothing was saved.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class NotFoundError(SfumatoError, LookupError):
    """The tenant has no such classifier, class, example or key."""


class ConflictError(SfumatoError):
    """The name is taken."""


class QuotaError(SfumatoError):
    """The key may not store this many examples: nothing was enrolled."""
