"""What goes wrong with a store."""

from sfumato.errors import SfumatoError


class StoreError(SfumatoError):
    """The database cannot be used now: unreachable, full, read-only, damaged, or no store."""


class NotFoundError(SfumatoError, LookupError):
    """The tenant has no such classifier, class, example or key."""


class ConflictError(SfumatoError):
    """There is one of that name already."""


class QuotaError(SfumatoError):
    """More examples than the key may store: nothing was enrolled."""
