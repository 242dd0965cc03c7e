"""Shared parts of the store: keys, ids, times, texts, and conditions for rows."""

import re
import secrets
import time
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sfumato.base.alike import look
from sfumato.errors import DataError
from sfumato.serve.store.errors import ConflictError, NotFoundError
from sfumato.serve.store.schema import classes, classifiers
from sfumato.wire.labels import as_kept

ID = re.compile("[0-9a-f]{24}")
WITH_CLASSES = classifiers.outerjoin(
    classes, (classes.c.tenant == classifiers.c.tenant) & (classes.c.classifier == classifiers.c.id)
)

_LABEL = 200  # characters

Role = Literal["read", "write", "admin"]


@dataclass(frozen=True)
class Key:
    """A key: its tenant, role and limits; never the secret itself."""

    id: str
    tenant: str
    role: Role
    name: str
    rate: int | None  # requests a minute
    quota: int | None  # examples stored at most
    created: datetime
    expires: datetime | None  # invalid from then on
    revoked: datetime | None


def new_id() -> str:
    """Draw an id that no other row has."""
    return secrets.token_hex(12)


def now() -> float:
    """Return the time in seconds since 1970, in whole microseconds like datetime."""
    return round(time.time(), 6)


def moment(seconds: float) -> datetime:
    """Convert a time of the tables to UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def of(table: Any, tenant: str) -> Any:
    """Return the condition that a row belongs to a tenant."""
    return table.c.tenant == tenant


def is_classifier(tenant: str, classifier: str) -> tuple[Any, Any]:
    """Return the condition for one classifier. Raises NotFoundError as check_id does."""
    check_id(classifier)
    return of(classifiers, tenant), classifiers.c.id == classifier


def check_id(classifier: str) -> None:
    """Raise NotFoundError for an id that no row can have."""
    if not ID.fullmatch(classifier):
        raise no_classifier()


def for_update(query: Any) -> Any:
    """Lock the rows in PostgreSQL; in SQLite, writers take turns anyway."""
    return query.with_for_update(key_share=True)


def no_classifier() -> NotFoundError:
    """Make the error for a classifier that does not exist, or belongs to another tenant."""
    return NotFoundError("no such classifier here: list your classifiers")


def check_text(what: str, value: str) -> None:
    """Raise DataError for a name or label that cannot be stored."""
    if not 1 <= len(value) <= _LABEL or not storable(value):
        raise DataError(f"{what}: 1 to {_LABEL} characters without control characters; this has {len(value)}")


def check_new_name(what: str, value: str, others: Iterable[str]) -> None:
    """Raise DataError for a name that cannot be stored or seen, ConflictError if it looks like another."""
    check_text(what, value)
    try:
        as_kept(value)
    except ValueError as error:
        raise DataError(f"{what}: {error}") from None
    for other in others:
        if other != value and look(other) == look(value):
            raise ConflictError(f"{what}: {value!a} looks like {other!a}, which exists: choose another")


def storable(value: str) -> bool:
    """Whether databases can store a text.

    Control characters would break lines; neither they nor surrogates can be stored everywhere.
    """
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in value)
