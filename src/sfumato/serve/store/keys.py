"""Access to the service: tenants, their keys, the requests of each, and the log of their changes."""

import hashlib
import re
import secrets
import threading
import time
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel
from sqlalchemy import Connection, func, insert, select, update

from sfumato.base.alike import look
from sfumato.errors import ConfigError, DataError
from sfumato.serve.store.database import ConflictError, Database, NotFoundError, QuotaError
from sfumato.serve.store.schema import audit, keys, signing, tenants
from sfumato.wire.labels import as_kept
from sfumato.wire.messages import KeyInfo

REMEMBERED = 1.0  # seconds that a key is cached
ID = re.compile("[0-9a-f]{24}")

_MOST_REMEMBERED = 10_000  # keys
_WINDOW = 60.0  # seconds over which the requests of a key are counted
_LABEL = 200  # characters

Role = Literal["read", "write", "admin"]
_Record = TypeVar("_Record", bound=BaseModel)


class Key(KeyInfo):
    """A key: its tenant, role and limits; never the secret itself."""

    tenant: str
    role: Role


class Keys(Database):
    """Tenants and their keys. State: connections, keys found lately, and the requests of each key."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._remembered: dict[bytes, tuple[Key, float]] = {}  # by the hash of the secret
        self._revocations = 0
        self._windows: dict[str, tuple[float, int]] = {}  # by the id of the key: the start, and requests
        self._lock = threading.Lock()  # held only for a look-up

    def create_tenant(self, name: str) -> None:
        """Create a tenant, of 1 to 200 characters. Raises ConflictError if it exists."""
        check_new_name("tenant", name, self.tenants())
        with self._writing(f"a tenant {name!r} already exists") as connection:
            connection.execute(insert(tenants).values(name=name, created=now()))

    def tenants(self) -> list[str]:
        """List the names of all tenants, in order."""
        return sorted(row.name for row in self._all(select(tenants.c.name)))

    def create_key(
        self,
        tenant: str,
        *,
        role: Role,
        name: str,
        rate: int | None = None,
        quota: int | None = None,
        expires: datetime | None = None,
        by: Key | None = None,
    ) -> tuple[Key, str]:
        """Create a key, and its secret of 256 bits, which cannot be shown again.

        Args:
            role: "read" to list and classify, "write" to enrol and forget as well, "admin" for everything.
            name: of the device or person, 1 to 200 characters.
            rate, quota, expires: see Key; None for no limit. The clock is that of the serving machine.
            by: the key of the tenant that creates it, for the audit log; None for the operator.

        Raises:
            ConfigError: an invalid role, rate, quota or end.
            NotFoundError: no such tenant, or `by` belongs to another.
            QuotaError: `by` has a limit or an end that the new key would lift.
        """
        if role not in get_args(Role):
            raise ConfigError(f"role {role!r}: choose one of {', '.join(get_args(Role))}")
        if rate is not None and not 1 <= rate < 2**31:
            raise ConfigError(f"rate={rate}: at least 1 request a minute; to stop a key, revoke it")
        if quota is not None and not 0 <= quota < 2**31:
            raise ConfigError(f"quota={quota}: the quota of examples is at least 0")
        until = None if expires is None else expires.timestamp()
        if until is not None and until <= now():
            raise ConfigError(f"expires={expires:%Y-%m-%d %H:%M %Z}: this time is past: choose a later one")
        check_text("tenant", tenant)
        check_text("name of a key", name)
        if by is not None:
            _check_maker(by, tenant, until)
        secret, key_id = f"sfumato_{secrets.token_urlsafe(32)}", f"k-{new_id()}"
        row = {
            **{"id": key_id, "tenant": tenant, "role": role, "name": name, "rate": rate},
            **{"quota": quota, "created": now(), "expires": until, "revoked": None},
        }
        with self._writing() as connection:
            if connection.scalar(select(tenants.c.name).where(tenants.c.name == tenant)) is None:
                raise NotFoundError(f"no tenant {tenant!r}: create it with --new-tenant")
            connection.execute(insert(keys).values(hash=_hash(secret), **row))
            note(connection, by, "create key", label=key_id)
        return record(Key, row), secret

    def key(self, secret: str) -> Key | None:
        """Find the key of a secret; None if there is none, or if it was revoked or has expired."""
        hashed, asked, revocations = _hash(secret), time.monotonic(), self._revocations
        lasts = keys.c.expires.is_(None) | (keys.c.expires > now())
        rows = self._all(select(*_KEY).where(keys.c.hash == hashed, keys.c.revoked.is_(None), lasts))
        if not rows:
            return None
        key = record(Key, rows[0])
        left = REMEMBERED if key.expires is None else min(REMEMBERED, key.expires.timestamp() - now())
        with self._lock:
            if self._revocations == revocations:  # otherwise it may have been revoked meanwhile
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[hashed] = key, asked + left
        return key

    def recall(self, secret: str) -> Key | None:
        """Find the key of a secret that `key` found within REMEMBERED seconds, without the database.

        Another process may have revoked it meanwhile; `revoke` of this store takes effect at once.
        """
        key, until = self._remembered.get(_hash(secret), (None, 0.0))
        return key if time.monotonic() < until else None

    def take(self, key: Key) -> float:
        """Count a request of a key. Returns 0.0 if it is allowed, else the seconds to wait.

        Guarantees: this process allows at most `key.rate` requests in a window. A window begins with a
        request and lasts 60 s by the monotonic clock; 60 s across two windows can hold twice as many. Each
        process of a service counts for itself.
        """
        if key.rate is None:
            return 0.0
        at = time.monotonic()
        with self._lock:
            started, used = self._windows.get(key.id, (at, 0))
            if at - started >= _WINDOW:
                started, used = at, 0
            if used >= key.rate:
                return started + _WINDOW - at
            if len(self._windows) >= _MOST_REMEMBERED:
                self._windows = {each: w for each, w in self._windows.items() if at - w[0] < _WINDOW}
            self._windows[key.id] = started, used + 1
        return 0.0

    def signing_key(self) -> bytes:
        """Return the private Ed25519 key that signs answer tables: 32 bytes, drawn at first use."""
        drawn = self._insert(signing).values(id=1, private=secrets.token_bytes(32))
        with self._writing() as connection:
            connection.execute(drawn.on_conflict_do_nothing())
            return bytes(connection.execute(select(signing.c.private)).scalar_one())

    def keys(self, tenant: str) -> list[Key]:
        """List all keys of a tenant, revoked and expired ones too, the oldest first."""
        query = select(*_KEY).where(keys.c.tenant == tenant).order_by(keys.c.created, keys.c.id)
        return [record(Key, row) for row in self._all(query)]

    def revoke(self, key_id: str, *, by: Key | None = None) -> None:
        """Revoke a key for good, from the next call on; see `recall` for other processes.

        Its examples stay.

        `by` is the key that revokes a key of its tenant, for the audit log; None for the operator.

        Raises:
            NotFoundError: no such key.
            ConflictError: it is `by` itself: the tenant might be left without an admin key.
        """
        revoke = update(keys).values(revoked=func.coalesce(keys.c.revoked, now())).where(keys.c.id == key_id)
        if by is not None:
            if by.id == key_id:
                raise ConflictError("this is the key that asks: revoke it with another key of the role admin")
            revoke = revoke.where(keys.c.tenant == by.tenant)
        with self._writing() as connection:
            if not ID.fullmatch(key_id.removeprefix("k-")) or not connection.execute(revoke).rowcount:
                raise NotFoundError(f"no key {key_id!r}: list the keys")
            note(connection, by, "revoke key", label=key_id)
        with self._lock:
            self._revocations += 1
            self._remembered.clear()


_KEY = [column for column in keys.c if column.name != "hash"]


def _check_maker(by: Key, tenant: str, until: float | None) -> None:
    """Raise NotFoundError for a key of another tenant, QuotaError if the new key would lift a limit."""
    if by.tenant != tenant:
        raise NotFoundError(f"no key {by.id!r} in this tenant")
    if by.rate is not None or by.quota is not None:
        raise QuotaError(
            "this key has a limit, which a new key would lift: ask the operator of the service for new keys"
        )
    if by.expires is not None and (until is None or until > by.expires.timestamp()):
        raise QuotaError(f"this key expires at {by.expires:%Y-%m-%d %H:%M %Z}: a new key must expire by then")


def _hash(secret: str) -> bytes:
    # A secret of 256 random bits needs no slow hash: nobody can try them all.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def record(kind: type[_Record], row: Any) -> _Record:
    """Make a record of a row; its times, in seconds since 1970, become UTC."""
    return kind.model_validate(row, from_attributes=True)


def note(connection: Connection, by: Key | None, action: str, *rows: dict[str, Any], **what: Any) -> None:
    """Record an action of a key, or nothing of the operator's, in the transaction of the change.

    One row, or these: the classifier, label (for a key, its id) and example, and the number of examples.
    """
    if by is not None:
        row = {"tenant": by.tenant, "time": now(), "key": by.id, "action": action, "examples": 0, **what}
        connection.execute(insert(audit), [row | each for each in rows or ({},)])


def new_id() -> str:
    """Draw an id that no other row has."""
    return secrets.token_hex(12)


def now() -> float:
    """Return the time in seconds since 1970, in whole microseconds like datetime."""
    return round(time.time(), 6)


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
    """Whether every database can store a text: without control characters and surrogates."""
    return not any(unicodedata.category(character) in {"Cc", "Cs"} for character in value)
