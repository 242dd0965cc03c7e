"""The audit log of a tenant: a row for every change, written in the transaction that makes the change."""

from typing import TYPE_CHECKING, Literal

from sfumato.errors import needs_extra
from sfumato.serve.store.rows import now
from sfumato.serve.store.schema import audit

if TYPE_CHECKING:
    from sfumato.serve.store.keys import Key

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


def note(connection: Connection, by: "Key", action: Action, count: int = 0, **what: str) -> None:
    """Write that a key did something.

    Args:
        connection: the transaction of the change.
        by: whose key.
        action: what was done.
        count: how many examples it was.
        what: the classifier, label or example it was done to; of keys, `label` is the id of that key.
    """
    row = {"tenant": by.tenant, "time": now(), "key": by.id, "action": action, "examples": count}
    connection.execute(insert(audit).values(**row, **what))
