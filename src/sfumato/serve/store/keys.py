"""Access to the service: tenants, their keys, and the requests that each makes."""

import hashlib
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, get_args

from sfumato.errors import ConfigError, needs_extra
from sfumato.serve.store.database import Database
from sfumato.serve.store.errors import ConflictError, NotFoundError, QuotaError
from sfumato.serve.store.journal import note
from sfumato.serve.store.rows import ID, Key, Role, check_new_name, check_text, moment, new_id, now
from sfumato.serve.store.schema import keys, signing, tenants, windows

with needs_extra("the store", "serve"):
    from sqlalchemy import Double, case, cast, extract, func, insert, literal, select, update

REMEMBERED = 1.0  # seconds that a key is cached

_MOST_REMEMBERED = 10_000  # keys
_DRAWS = 100  # draws of requests by a process that uses up a whole window
_WINDOW = 60.0  # seconds over which the requests of a key are counted


@dataclass
class _Remembered:
    """A cached key, its expiry on the monotonic clock, and whether a request already refreshes it."""

    key: Key
    until: float
    asked: bool = False


@dataclass
class _Drawn:
    """Requests that a key may still make through this process, and the end of their window."""

    requests: int
    until: float


class Admissions:
    """A process's cache of keys. Threads share it.

    State: keys that were found within REMEMBERED seconds, requests that were drawn for keys, and the number
    of keys revoked here.
    """

    def __init__(self) -> None:
        self.revocations = 0
        self._lock = threading.Lock()  # held only for a look-up
        self._remembered: dict[bytes, _Remembered] = {}  # by the hash of the secret
        self._drawn: dict[str, _Drawn] = {}  # by the id of the key

    def admit(self, hashed: bytes) -> Key | None:
        """See Keys.admit."""
        at = time.monotonic()
        with self._lock:
            remembered = self._remembered.get(hashed)
            if remembered is None or at >= remembered.until:
                return None
            if not remembered.asked and at >= remembered.until - REMEMBERED / 4:
                remembered.asked = True
                return None
            key = remembered.key
            return key if key.rate is None or self._spend(key, at) else None

    def remember(self, hashed: bytes, key: Key, *, asked: float, revocations: int) -> None:
        """Cache a key that was read at a time, unless a key was revoked since: it may be this one."""
        with self._lock:
            if self.revocations == revocations:
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                left = REMEMBERED if key.expires is None else min(REMEMBERED, key.expires.timestamp() - now())
                self._remembered[hashed] = _Remembered(key, asked + left)

    def revoke(self) -> None:
        """Empty the cache, so that the database is asked for every key."""
        with self._lock:
            self.revocations += 1
            self._remembered.clear()

    def spend(self, key: Key, at: float) -> bool:
        """Count a request against those drawn before. Returns whether any were left."""
        with self._lock:
            return self._spend(key, at)

    def keep(self, key: Key, requests: int, *, until: float) -> None:
        """Store drawn requests for later, until their window ends."""
        at = time.monotonic()
        with self._lock:
            kept = self._drawn.get(key.id)
            if kept is not None and at < kept.until:  # another thread drew in the same window
                requests, until = requests + kept.requests, min(until, kept.until)
            self._drawn[key.id] = _Drawn(requests, until)

    def _spend(self, key: Key, at: float) -> bool:
        drawn = self._drawn.get(key.id)
        if drawn is None or not drawn.requests or at >= drawn.until:
            return False
        drawn.requests -= 1
        return True


class Keys(Database):
    """Tenants and their keys. State: connections, and the cache of keys."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._admissions = Admissions()

    def create_tenant(self, name: str) -> None:
        """Create a tenant, of 1 to 200 characters. Raises ConflictError if it exists."""
        check_new_name("tenant", name, self.tenants())
        with self._conflicts(f"a tenant {name!r} already exists"), self._writing() as connection:
            connection.execute(insert(tenants).values(name=name, created=now()))

    def tenants(self) -> list[str]:
        """List the names of all tenants, in order."""
        with self._reading() as connection:
            return sorted(connection.scalars(select(tenants.c.name)))

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
            tenant: the owner.
            role: "read" to list and classify, "write" to enrol and forget as well, "admin" for everything.
            name: of the device or person, 1 to 200 characters.
            rate: requests a minute, 1 or more; None for any number.
            quota: examples that the key may store, 0 or more; None for any number.
            expires: when it becomes invalid, with a time zone; None for never. The clock is that of the
                serving machine.
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
        secret = f"sfumato_{secrets.token_urlsafe(32)}"
        key_id = f"k-{new_id()}"
        row = {
            **{"id": key_id, "tenant": tenant, "role": role, "name": name, "rate": rate},
            **{"quota": quota, "created": now(), "expires": until, "revoked": None},
        }
        with self._writing() as connection:
            if connection.scalar(select(tenants.c.name).where(tenants.c.name == tenant)) is None:
                raise NotFoundError(
                    f"no tenant {tenant!r}: create it with --new-tenant, or by `sfumato keys tenant`"
                )
            connection.execute(insert(keys).values(hash=_hash(secret), **row))
            connection.execute(insert(windows).values(key=key_id, tenant=tenant, started=0.0, used=0))
            if by is not None:
                note(connection, by, "create key", label=key_id)
        return _key(row), secret

    def key(self, secret: str) -> Key | None:
        """Find the key of a secret; None if there is none, or if it was revoked or has expired."""
        hashed, asked, revocations = _hash(secret), time.monotonic(), self._admissions.revocations
        lasts = keys.c.expires.is_(None) | (keys.c.expires > now())
        query = select(*_KEY).where(keys.c.hash == hashed, keys.c.revoked.is_(None), lasts)
        with self._reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        key = _key(row)
        self._admissions.remember(hashed, key, asked=asked, revocations=revocations)
        return key

    def admit(self, secret: str) -> Key | None:
        """Find the key of a secret and count a request, by the cache alone.

        A key that `key` found is cached for REMEMBERED seconds. During these it admits requests even if
        another process revokes it; `revoke` of this store takes effect at once.

        Returns:
            None if the database has to be asked: call `key`, then `take`. Shortly before a cached key
            expires, one of many simultaneous requests gets None, so that the others need not wait.
        """
        return self._admissions.admit(_hash(secret))

    def signing_key(self) -> bytes:
        """Return the private Ed25519 key that signs answer tables: 32 bytes, drawn at first use."""
        private = self._signing_key()
        if private is None:
            drawn = insert(signing).values(id=1, private=secrets.token_bytes(32))
            # If another process was first, its key counts.
            with suppress(ConflictError), self._conflicts("drawn already"), self._writing() as connection:
                connection.execute(drawn)
            private = self._signing_key()
        assert private is not None
        return private

    def _signing_key(self) -> bytes | None:
        with self._reading() as connection:
            private = connection.scalar(select(signing.c.private))
        return None if private is None else bytes(private)

    def keys(self, tenant: str) -> list[Key]:
        """List all keys of a tenant, revoked and expired ones too, the oldest first."""
        query = select(*_KEY).where(keys.c.tenant == tenant).order_by(keys.c.created, keys.c.id)
        with self._reading() as connection:
            return [_key(row) for row in connection.execute(query).mappings()]

    def revoke(self, key_id: str, *, by: Key | None = None) -> None:
        """Revoke a key for good, from the next call on; see `admit` for other processes.

        Its examples stay.

        Args:
            key_id: of any tenant; with `by`, of its tenant.
            by: the key that revokes it, for the audit log; None for the operator.

        Raises:
            NotFoundError: no such key.
            ConflictError: it is `by` itself: the tenant might be left without an admin key.
        """
        if by is not None and by.id == key_id:
            raise ConflictError("this is the key that asks: revoke it with another key of the role admin")
        with self._writing() as connection:
            revoked = func.coalesce(keys.c.revoked, now())
            revoke = update(keys).where(keys.c.id == key_id).values(revoked=revoked)
            if by is not None:
                revoke = revoke.where(keys.c.tenant == by.tenant)
            if not ID.fullmatch(key_id.removeprefix("k-")) or not connection.execute(revoke).rowcount:
                raise NotFoundError(f"no key {key_id!r}: list the keys")
            if by is not None:
                note(connection, by, "revoke key", label=key_id)
        self._admissions.revoke()

    def take(self, key: Key) -> float:
        """Count a request of a key. Returns 0.0 if it is allowed, else the seconds to wait.

        Guarantees: of the requests of all processes together, at most `key.rate` are allowed in a window. A
        window begins with a request and lasts 60 s; 60 s across two windows can hold twice as many. At high
        rates, a process draws a hundredth at a time and counts it down by itself; no other process can use
        requests that it drew and did not need by the end of the window.

        The clock is PostgreSQL's own; for SQLite it is the monotonic one, which all processes of a machine
        share. So setting the clock of a serving machine changes nothing. Setting that of PostgreSQL's machine
        forward ends the current windows early, once; setting it back lengthens them, to 120 s at most.
        """
        if key.rate is None:
            return 0.0
        began = time.monotonic()
        if self._admissions.spend(key, began):
            return 0.0
        drawn = max(1, key.rate // _DRAWS)
        now: Any = literal(began)
        if self._postgresql:
            now = cast(extract("epoch", func.statement_timestamp()), Double)
        passed = now - windows.c.started
        # A restart of the machine resets the monotonic clock, like a clock set back by far.
        over = (passed >= _WINDOW) | (passed < -_WINDOW)
        query = (
            update(windows)
            .where(windows.c.tenant == key.tenant, windows.c.key == key.id)
            .values(
                used=case(
                    (passed >= _WINDOW, drawn),
                    (windows.c.used >= key.rate, key.rate + drawn),  # none was left
                    else_=windows.c.used + drawn,
                ),
                started=case((over, now), else_=windows.c.started),
            )
            .returning(windows.c.used, windows.c.started + _WINDOW - now)
        )
        with self._writing(volatile=True) as connection:
            used, left = connection.execute(query).one()
        granted = drawn - max(0, used - key.rate)
        if not granted:
            return max(float(left), 0.001)
        if granted > 1:
            self._admissions.keep(key, granted - 1, until=began + float(left))
        return 0.0


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


def _key(row: Any) -> Key:
    times: dict[str, Any] = {
        name: row[name] and moment(row[name]) for name in ("created", "expires", "revoked")
    }
    return Key(**{name: row[name] for name in ("id", "tenant", "role", "name", "rate", "quota")}, **times)
