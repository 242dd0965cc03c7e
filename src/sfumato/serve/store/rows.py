"""What the parts of the store share: ids, times, texts, and whose a row is."""

import re
import secrets
import time
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from sfumato.errors import DataError
from sfumato.serve.store.errors import NotFoundError
from sfumato.serve.store.schema import classes, classifiers

ID = re.compile("[0-9a-f]{24}")
WITH_CLASSES = classifiers.outerjoin(
    classes, (classes.c.tenant == classifiers.c.tenant) & (classes.c.classifier == classifiers.c.id)
)

_LABEL = 200  # characters

Role = Literal["read", "write", "admin"]


@dataclass(frozen=True)
class Key:
    """Who asks, for which tenant, and what they may do; never the secret itself."""

    id: str
    tenant: str
    role: Role
    name: str
    rate: int | None  # requests a minute
    quota: int | None  # examples stored at most
    created: datetime
    expires: datetime | None  # from when it is worthless
    revoked: datetime | None


def new_id() -> str:
    """A name that no other row has."""
    return secrets.token_hex(12)


def now() -> float:
    """Seconds since 1970, in whole microseconds, as datetime has them."""
    return round(time.time(), 6)


def moment(seconds: float) -> datetime:
    """A time of the tables, in UTC."""
    return datetime.fromtimestamp(seconds, UTC)


def of(table: Any, tenant: str) -> Any:
    """The condition that a row is a tenant's."""
    return table.c.tenant == tenant


def named(tenant: str, classifier: str) -> tuple[Any, Any]:
    """The condition of one classifier. Raises NotFoundError as check_id does."""
    check_id(classifier)
    return of(classifiers, tenant), classifiers.c.id == classifier


def check_id(classifier: str) -> None:
    """Raise NotFoundError for what no database could look for."""
    if not ID.fullmatch(classifier):
        raise no_classifier()


def for_update(query: Any) -> Any:
    """Lock the rows in PostgreSQL; in SQLite, writers take turns anyway."""
    return query.with_for_update(key_share=True)


def no_classifier() -> NotFoundError:
    """What a tenant is told of a classifier that is not there, or another's."""
    return NotFoundError("no such classifier here: list those there are")


def check_text(what: str, value: str) -> None:
    """Raise DataError for a name or label that cannot be kept."""
    if not 1 <= len(value) <= _LABEL or not storable(value):
        raise DataError(
            f"{what}: 1 to {_LABEL} characters, none of them a control character; this has {len(value)}"
        )


def storable(value: str) -> bool:
    """Whether databases can keep a text.

    Control characters would break lines, and neither they nor halves of characters can all be stored.
    """
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in value)
