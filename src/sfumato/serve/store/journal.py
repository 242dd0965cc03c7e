"""The audit log of a tenant: a row for every change, written in the transaction of the change."""

from collections.abc import Sequence
from typing import Any, Literal

from sfumato.errors import needs_extra
from sfumato.serve.store.rows import Key, now
from sfumato.serve.store.schema import audit

with needs_extra("the store", "serve"):
    from sqlalchemy import Connection, insert

Action = Literal[
    "create classifier",
    "delete classifier",
    "enrol",
    "forget example",
    "forget class",
    "forget everything",
    "create key",
    "revoke key",
]


def note(connection: Connection, by: Key, action: Action, count: int = 0, **what: str) -> None:
    """Record an action of a key.

    Args:
        connection: the transaction of the change.
        by: the key.
        action: the action.
        count: the number of examples concerned.
        what: the classifier, label or example concerned; for keys, `label` is the id of the key.
    """
    note_each(connection, by, action, [{"examples": count}], **what)


def note_each(
    connection: Connection, by: Key, action: Action, entries: Sequence[dict[str, Any]], **what: str
) -> None:
    """Record a row for each entry, with its own columns; otherwise like `note`."""
    row = {"tenant": by.tenant, "time": now(), "key": by.id, "action": action, **what}
    connection.execute(insert(audit), [row | entry for entry in entries])
