"""What the cloud keeps: tenants, keys, classifiers, embeddings of examples, and who enrolled and forgot what.

One schema in SQLite, a file beside the service, or in PostgreSQL with pgvector, which several machines may
share. What a method acknowledged is on the disk, whole; what it did not acknowledge is there whole or not at
all. Every query names the tenant, and to one tenant the objects of another are missing, not forbidden.

There are no images and no releases here, and of a key the SHA-256 of its secret alone. Embeddings are private
all the same: see the threat model. What is forgotten is deleted: SQLite overwrites it with zeros in the file,
and empties its write-ahead log. PostgreSQL keeps deleted rows in its files until `VACUUM` has run, which it
does by itself, and in its write-ahead log until that is recycled; and no database reaches into backups that
were made before: keep those no longer than you may keep what is in them.
"""

import hashlib
import os
import re
import secrets
import sqlite3
import threading
import time
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from sfumato.errors import ConfigError, DataError, SfumatoError, needs_extra
from sfumato.serve.schema import audit, classes, classifiers, examples, keys, tenants, windows

with needs_extra("the store", "serve"):
    import alembic.command
    from alembic.config import Config
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from pgvector.sqlalchemy import VECTOR
    from sqlalchemy import (
        Connection,
        Double,
        bindparam,
        case,
        cast,
        create_engine,
        delete,
        event,
        extract,
        func,
        insert,
        inspect,
        literal,
        select,
        text,
        update,
    )
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

Role = Literal["read", "write", "admin"]
Action = Literal[
    "create classifier", "delete classifier", "enrol", "forget example", "forget class", "forget everything"
]

MANY = 100_000  # prototypes of a classifier, from which on `Store.index` makes an index

REMEMBERED = 1.0  # seconds, for which a key that was found is known without the database

_MOST_REMEMBERED = 10_000  # keys
_DRAWS = 100  # of requests by a process, in a window of which it gets all
_WAIT = 30  # seconds for another writer, or for a free connection
_WINDOW = 60.0  # seconds, in which the requests of a key are counted
_LABEL = 200  # characters
_DIMENSION = 16_000  # the most that pgvector holds
_INDEXED = 2_000  # the longest vectors that its HNSW takes
_CANDIDATES = 200  # of an HNSW search; pgvector takes up to 1,000
_VERSIONS = "sfumato_version"  # the table with the last migration
_LOCK = 0x5346554D  # "SFUM": PostgreSQL's advisory lock around migrations


class StoreError(SfumatoError):
    """The database cannot be used now: unreachable, full, read-only, damaged, or no store."""


class NotFoundError(SfumatoError, LookupError):
    """The tenant has no such classifier, class, example or key."""


class ConflictError(SfumatoError):
    """There is one of that name already."""


class QuotaError(SfumatoError):
    """More examples than the key may store: nothing was enrolled."""


@dataclass(frozen=True)
class Key:
    """Who asks, for which tenant, and what he may do; never the secret itself."""

    id: str
    tenant: str
    role: Role
    name: str
    rate: int | None  # requests a minute
    quota: int | None  # examples stored at most
    created: datetime
    revoked: datetime | None


@dataclass(frozen=True)
class Classifier:
    """A named set of classes for the embeddings of one model; `version` grows with every change of them."""

    id: str
    name: str
    model: str
    created: datetime
    version: int


@dataclass(frozen=True)
class ClassInfo:
    """A class of a classifier, and of how many examples."""

    label: str
    examples: int
    created: datetime


@dataclass(frozen=True)
class Example:
    """What is kept of one released image: its digest, its embedding, and what that weighs in a prototype."""

    digest: str
    embedding: np.ndarray  # (D,) float32
    weight: float = 1.0


@dataclass(frozen=True)
class Enrolled:
    """Ids of the examples that are new, and of those that the class had already."""

    new: tuple[str, ...]
    known: tuple[str, ...]


@dataclass(frozen=True)
class Prototypes:
    """The classes of a classifier at one moment: a row of `vectors` for each label."""

    version: int
    labels: tuple[str, ...]
    vectors: np.ndarray  # (K, D) float32
    examples: tuple[int, ...]


@dataclass(frozen=True)
class Neighbour:
    """A class near a query, and of how many examples its prototype is."""

    label: str
    squared_euclidean: float
    examples: int


@dataclass(frozen=True)
class AuditEntry:
    """Who changed what, and when."""

    time: datetime
    key: str
    action: Action
    classifier: str | None
    label: str | None  # None: the entry is about no class, or everything was forgotten since
    example: str | None
    examples: int  # how many were enrolled or forgotten


@dataclass
class _Remembered:
    """A key as the database had it, until when on the monotonic clock that will do, and who asks before."""

    key: Key
    until: float
    asked: bool = False


@dataclass
class _Drawn:
    """Requests that a key may still make by this process, in a window that lasts until then."""

    requests: int
    until: float


class Store:
    """Everything the cloud keeps.

    State: connections to the database, which threads share; keys that were asked for within a second, and
    requests that were drawn for them, see `take`.

    Any number of threads and processes may hold the same store, and each sees at once what another has
    enrolled. A database that went away is asked again by the next call: after StoreError nothing needs to be
    opened anew.

    Methods raise StoreError, with the cure, where the database cannot be used; and NotFoundError for what the
    tenant does not have, be it that nobody has it or that another tenant does.
    """

    def __init__(self, url: str) -> None:
        """Open a store, or begin one, and take its tables to the present version.

        Args:
            url: "sqlite:///FILE", or "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE".

        Raises:
            ConfigError: another kind of url.
            StoreError: as above, or the database is another program's or of a later version.
        """
        self._url = _parse(url)
        self._postgresql = self._url.get_backend_name() == "postgresql"
        # SQLite's own waiting is by sleeping, in no order: threads of one process rather queue up.
        self._turn = nullcontext() if self._postgresql else threading.Lock()
        self._memory = threading.Lock()  # of what follows; held for no longer than a look takes
        self._remembered: dict[bytes, _Remembered] = {}
        self._revocations = 0
        self._drawn: dict[str, _Drawn] = {}
        if self._postgresql:
            # A process that hangs in a transaction must not hold up the others.
            options = f"-c idle_in_transaction_session_timeout={_WAIT}s"
            # Nor must a network that goes silent hold up this one.
            alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
            arguments = {"connect_timeout": 5, "options": options, **alive}
        else:
            _begin_file(self._url)
            arguments = {"timeout": _WAIT}
        self._engine = create_engine(
            self._url,
            connect_args=arguments,
            pool_size=10,
            pool_timeout=_WAIT,
            pool_pre_ping=self._postgresql,
            hide_parameters=True,  # labels and embeddings
        )
        if not self._postgresql:
            event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "begin", _begin)
        try:
            with self._errors():
                self._migrate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ping(self) -> None:
        """Ask the database for a sign of life. Raises StoreError where there is none."""
        with self._reading() as connection:
            connection.execute(select(tenants.c.name).limit(1))

    # Who may ask.

    def create_tenant(self, name: str) -> None:
        """Begin a tenant, of 1 to 200 characters. Raises ConflictError where it is there already."""
        _check_text("tenant", name)
        with self._conflicts(f"there is a tenant {name!r} already"), self._writing() as connection:
            connection.execute(insert(tenants).values(name=name, created=_now()))

    def tenants(self) -> list[str]:
        """The names of all, in order."""
        with self._reading() as connection:
            return sorted(connection.scalars(select(tenants.c.name)))

    def create_key(
        self, tenant: str, *, role: Role, name: str, rate: int | None = None, quota: int | None = None
    ) -> tuple[Key, str]:
        """Make a key, and its secret of 256 bits, which nothing can show again.

        Args:
            tenant: who it is for.
            role: "read" to list and classify, "write" to enrol and forget as well, "admin" for everything.
            name: of the device or person, 1 to 200 characters.
            rate: requests a minute, 1 or more; None for any number.
            quota: examples that may lie in the store by this key, 0 or more; None for any number.

        Raises:
            ConfigError: a role, rate or quota that cannot be.
            NotFoundError: no such tenant.
        """
        if role not in get_args(Role):
            raise ConfigError(f"role {role!r}: choose one of {', '.join(get_args(Role))}")
        if rate is not None and not 1 <= rate < 2**31:
            raise ConfigError(f"rate={rate}: requests a minute are 1 or more; to stop a key, revoke it")
        if quota is not None and not 0 <= quota < 2**31:
            raise ConfigError(f"quota={quota}: the most examples of a key is 0 or more")
        _check_text("tenant", tenant)
        _check_text("name of a key", name)
        secret = f"sfumato_{secrets.token_urlsafe(32)}"
        row = {
            **{"id": f"k-{_new_id()}", "tenant": tenant, "role": role, "name": name, "rate": rate},
            **{"quota": quota, "created": _now(), "revoked": None},
        }
        with self._writing() as connection:
            if connection.scalar(select(tenants.c.name).where(tenants.c.name == tenant)) is None:
                raise NotFoundError(f"no tenant {tenant!r}: create it first")
            connection.execute(insert(keys).values(hash=_hash(secret), **row))
            connection.execute(insert(windows).values(key=row["id"], tenant=tenant, started=0.0, used=0))
        return _key(row), secret

    def key(self, secret: str) -> Key | None:
        """Whose secret it is; None where it is nobody's, or was revoked."""
        hashed, asked, revocations = _hash(secret), time.monotonic(), self._revocations
        query = select(*_KEY).where(keys.c.hash == hashed, keys.c.revoked.is_(None))
        with self._reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        key = _key(row)
        with self._memory:
            if self._revocations == revocations:  # none that was read before and is remembered after
                if len(self._remembered) >= _MOST_REMEMBERED:
                    self._remembered.clear()
                self._remembered[hashed] = _Remembered(key, asked + REMEMBERED)
        return key

    def admitted(self, secret: str) -> Key | None:
        """Whose secret it is, and one more request of that key, without asking the database.

        A key that `key` found is remembered for REMEMBERED seconds, in which it is good for requests even
        where another process revokes it; `revoke` of this store is obeyed at once.

        Returns:
            None where only the database can tell: ask `key`, then `take`. Of many requests at once one is
            told so a little early, so that not all have to wait.
        """
        now = time.monotonic()
        with self._memory:
            found = self._remembered.get(_hash(secret))
            if found is None or now >= found.until:
                return None
            if not found.asked and now >= found.until - REMEMBERED / 4:
                found.asked = True
                return None
            return found.key if found.key.rate is None or self._spent(found.key, now) else None

    def keys(self, tenant: str) -> list[Key]:
        """All keys of a tenant, revoked ones too, the oldest first."""
        query = select(*_KEY).where(keys.c.tenant == tenant).order_by(keys.c.created, keys.c.id)
        with self._reading() as connection:
            return [_key(row) for row in connection.execute(query).mappings()]

    def revoke(self, key_id: str) -> None:
        """Make a key worthless for good, from the next call on; see `admitted` for other processes.

        What it enrolled stays.
        """
        with self._writing() as connection:
            revoked = func.coalesce(keys.c.revoked, _now())
            known = _ID.fullmatch(key_id.removeprefix("k-"))
            if (
                not known
                or not connection.execute(
                    update(keys).where(keys.c.id == key_id).values(revoked=revoked)
                ).rowcount
            ):
                raise NotFoundError(f"no key {key_id!r}: list those there are")
        with self._memory:
            self._revocations += 1
            self._remembered.clear()

    def take(self, key: Key) -> float:
        """Count a request of a key. Returns 0.0 where it is allowed, else the seconds to wait.

        Guarantees: of the requests of all processes together, at most `key.rate` are allowed in a window. A
        window begins with a request and lasts 60 s; 60 s that lie across two of them can hold twice as many.
        Of high rates, a process draws a hundredth at a time, which it then counts down by itself: what it has
        drawn and does not need by the end of the window, no other process can use.

        The clock is PostgreSQL's own; or for SQLite the monotonic one, which all processes of a machine have.
        So it changes nothing to set the clock of a machine that serves. To set that of PostgreSQL's machine
        forward ends the windows under way early, once; to set it back lengthens them, to 120 s at most.
        """
        if key.rate is None:
            return 0.0
        began = time.monotonic()
        with self._memory:
            if self._spent(key, began):
                return 0.0
        drawn = max(1, key.rate // _DRAWS)
        now: Any = literal(began)
        if self._postgresql:
            now = cast(extract("epoch", func.statement_timestamp()), Double)
        passed = now - windows.c.started
        # After a restart of the machine the monotonic clock begins again, as if a clock were set back by far.
        over = (passed >= _WINDOW) | (passed < -_WINDOW)
        query = (
            update(windows)
            .where(windows.c.tenant == key.tenant, windows.c.key == key.id)
            .values(
                used=case(
                    (passed >= _WINDOW, drawn),
                    (windows.c.used >= key.rate, key.rate + drawn),  # none of them was left
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
            self._keep(key, granted - 1, until=began + float(left))
        return 0.0

    def _spent(self, key: Key, now: float) -> bool:
        """Count a request by what was drawn before, if anything is left of it. `_memory` is held."""
        drawn = self._drawn.get(key.id)
        if drawn is None or not drawn.requests or now >= drawn.until:
            return False
        drawn.requests -= 1
        return True

    def _keep(self, key: Key, requests: int, *, until: float) -> None:
        """Keep requests that were drawn for later, until their window is over."""
        now = time.monotonic()
        with self._memory:
            kept = self._drawn.get(key.id)
            if kept is not None and now < kept.until:  # another thread drew in the same window
                requests, until = requests + kept.requests, min(until, kept.until)
            self._drawn[key.id] = _Drawn(requests, until)

    # Classifiers.

    def create_classifier(self, tenant: str, *, name: str, model: str, by: Key) -> Classifier:
        """Begin a classifier, without classes. Raises ConflictError where the tenant has one of that name."""
        _check_text("name of a classifier", name)
        _check_text("model", model)
        new = Classifier(_new_id(), name, model, _time(_now()), version=0)
        conflict = f"there is a classifier {name!r} already: use it, or choose another name"
        with self._conflicts(conflict), self._writing(tenant, by) as connection:
            row = asdict(new) | {"created": new.created.timestamp()}
            connection.execute(insert(classifiers).values(tenant=tenant, **row))
            _note(connection, by, "create classifier", 0, classifier=new.id)
        return new

    def classifier(self, tenant: str, classifier: str) -> Classifier:
        """The one with this id."""
        query = select(*_CLASSIFIER).where(*_named(tenant, classifier))
        with self._reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise _no_classifier()
        return _classifier(row)

    def classifiers(self, tenant: str) -> list[Classifier]:
        """All of a tenant, the oldest first."""
        query = select(*_CLASSIFIER).where(classifiers.c.tenant == tenant)
        query = query.order_by(classifiers.c.created, classifiers.c.id)
        with self._reading() as connection:
            return [_classifier(row) for row in connection.execute(query).mappings()]

    def delete_classifier(self, tenant: str, classifier: str, *, by: Key) -> int:
        """Forget a classifier with all its classes. Returns how many examples were forgotten."""
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            forgotten = _drop(connection, tenant, [classifier])
            _note(connection, by, "delete classifier", forgotten, classifier=classifier)
        self._drop_indices([classifier])
        return forgotten

    # Examples.

    def enrol(
        self, tenant: str, classifier: str, label: str, examples: Sequence[Example], *, by: Key
    ) -> Enrolled:
        """Add examples to a class, and begin the class where it is new: all of them, or none.

        The prototype is the weighted mean of the embeddings. An example whose digest the class has already is
        left as it is, so that the same call can be sent again.

        Args:
            tenant, classifier: where.
            label: of the class, 1 to 200 characters.
            examples: with finite embeddings, as long as all others of the classifier, and weights above 0.
            by: whose examples they are.

        Raises:
            DataError: a label or an embedding that cannot be.
            QuotaError: the key would pass its quota.
        """
        _check_text("label", label)
        distinct = {example.digest: example for example in examples}
        for example in distinct.values():
            _check(example)
        with self._writing(tenant, by) as connection:
            if by.quota is not None:  # two calls of one key, for two classifiers, take turns
                mine = (_of(keys, tenant), keys.c.id == by.id)
                connection.execute(_for_update(select(keys.c.id).where(*mine)))
            dimension = _lock(connection, tenant, classifier)
            return _enrol(connection, tenant, classifier, dimension, label, distinct, by)

    def classes(self, tenant: str, classifier: str) -> list[ClassInfo]:
        """The classes of a classifier, the oldest first."""
        # Without classes, one row of nulls.
        query = (
            select(classes.c.label, classes.c.examples, classes.c.created)
            .select_from(classifiers.outerjoin(classes, _JOINED))
            .where(*_named(tenant, classifier))
            .order_by(classes.c.id)
        )
        with self._reading() as connection:
            rows = connection.execute(query).all()
        if not rows:
            raise _no_classifier()
        return [ClassInfo(label, count, _time(at)) for label, count, at in rows if label is not None]

    def forget_example(self, tenant: str, classifier: str, example: str, *, by: Key) -> int:
        """Forget one example: 1. Its class goes with the last.

        The prototype is computed anew from the examples that are left, so that nothing of this one stays in
        it, as it would by rounding if it were subtracted.
        """
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            query = (
                select(classes.c.id, classes.c.label)
                .join(examples, _of(examples, tenant) & (examples.c["class"] == classes.c.id))
                .where(_of(classes, tenant), classes.c.classifier == classifier, examples.c.id == example)
            )
            row = connection.execute(query).one_or_none() if _ID.fullmatch(example) else None
            if row is None:
                raise NotFoundError("no such example in this classifier")
            connection.execute(delete(examples).where(_of(examples, tenant), examples.c.id == example))
            _recompute(connection, tenant, row.id)
            _grow(connection, tenant, classifier)
            what = {"classifier": classifier, "label": row.label, "example": example}
            _note(connection, by, "forget example", 1, **what)
        return 1

    def forget_class(self, tenant: str, classifier: str, label: str, *, by: Key) -> int:
        """Forget a class. Returns how many examples were forgotten.

        The audit log names it still, until `forget_everything`.
        """
        with self._forgetting(tenant, by) as connection:
            _lock(connection, tenant, classifier)
            mine = (_of(classes, tenant), classes.c.classifier == classifier, classes.c.label == label)
            found = connection.scalar(select(classes.c.id).where(*mine)) if _storable(label) else None
            if found is None:
                raise NotFoundError("no such class in this classifier: list those there are")
            gone = delete(examples).where(_of(examples, tenant), examples.c["class"] == found)
            forgotten = connection.execute(gone).rowcount
            connection.execute(delete(classes).where(*mine))
            _grow(connection, tenant, classifier)
            _note(connection, by, "forget class", forgotten, classifier=classifier, label=label)
        return forgotten

    def forget_everything(self, tenant: str, *, by: Key) -> int:
        """Forget all classifiers of a tenant, and the labels in its audit log. Returns how many examples.

        Its keys stay, and so do the entries of its audit log, which name no class any more.
        """
        with self._forgetting(tenant, by) as connection:
            query = select(classifiers.c.id).where(_of(classifiers, tenant)).order_by(classifiers.c.id)
            mine = list(connection.scalars(_for_update(query)))
            forgotten = _drop(connection, tenant, mine)
            connection.execute(update(audit).where(_of(audit, tenant)).values(label=None))
            _note(connection, by, "forget everything", forgotten)
        self._drop_indices(mine)
        return forgotten

    # Asking.

    def prototypes(self, tenant: str, classifier: str, *, newer_than: int | None = None) -> Prototypes | None:
        """The prototypes of a classifier, all of one version; None where that is `newer_than` still."""
        named = _named(tenant, classifier)
        # One statement sees one moment.
        query = (
            select(
                *(classifiers.c.version, classifiers.c.dimension),
                *(classes.c.label, classes.c.sum, classes.c.weight, classes.c.examples),
            )
            .select_from(classifiers.outerjoin(classes, _JOINED))
            .where(*named)
            .order_by(classes.c.id)
        )
        with self._reading() as connection:
            version = connection.scalar(select(classifiers.c.version).where(*named))
            if version is not None and version == newer_than:
                return None
            rows = connection.execute(query).all()
        if not rows:
            raise _no_classifier()
        version, dimension = rows[0][:2]
        rows = [row for row in rows if row.label is not None]
        sums = np.frombuffer(b"".join(row.sum for row in rows), "<f8").reshape(len(rows), dimension or 0)
        weights = np.array([row.weight for row in rows])
        return Prototypes(
            version,
            tuple(row.label for row in rows),
            (sums / weights[:, None]).astype(np.float32),
            tuple(row.examples for row in rows),
        )

    def nearest(
        self, tenant: str, classifier: str, queries: np.ndarray, *, count: int
    ) -> list[list[Neighbour]]:
        """The classes with the nearest prototypes, found in the database: for galleries of 100,000 and more.

        Exact; or where `index` has made one, by an HNSW index, which may miss some (benchmarks/store.py).
        SQLite reads all prototypes in every call: better keep them at hand, see `prototypes`.

        Args:
            tenant, classifier: where.
            queries: (Q, D) finite.
            count: how many for each, the nearest first.

        Raises:
            DataError: queries of another dimension.
        """
        if not self._postgresql:
            found = self.prototypes(tenant, classifier)
            assert found is not None
            if not found.labels:
                return [[] for _ in queries]
            _check_queries(queries, found.vectors.shape[1])
            return _nearest(found, queries, count)
        with self._reading() as connection:
            row = connection.execute(
                select(classifiers.c.dimension).where(*_named(tenant, classifier))
            ).one_or_none()
            if row is None:
                raise _no_classifier()
            if row.dimension is None:
                return [[] for _ in queries]
            _check_queries(queries, row.dimension)
            vector: Any = classes.c.vector
            if count <= _CANDIDATES and _has_index(connection, classifier):
                vector = cast(vector, VECTOR(row.dimension))
                # Never by reading and sorting all, which the planner likes for queries of many columns.
                connection.execute(text("set local enable_sort = off"))
                connection.execute(text(f"set local hnsw.ef_search = {_CANDIDATES}"))
                # Past what was deleted and not yet vacuumed.
                connection.execute(text("set local hnsw.iterative_scan = strict_order"))
            wanted = bindparam("wanted", type_=VECTOR(row.dimension))
            distance = vector.op("<->", return_type=Double)(cast(wanted, wanted.type))
            # A partial index is used where its condition stands in the query, as text.
            only = classes.c.classifier == bindparam("only", classifier, literal_execute=True)
            query = (
                select(classes.c.label, distance.label("distance"), classes.c.examples)
                .where(_of(classes, tenant), only)
                .order_by(distance)
                .limit(count)
            )
            return [
                [
                    Neighbour(each.label, each.distance**2, each.examples)
                    for each in connection.execute(query, {"wanted": one.astype(np.float32)})
                ]
                for one in queries
            ]

    def index(self, tenant: str, classifier: str) -> bool:
        """Make `nearest` fast for a classifier of 100,000 classes and more: an HNSW index of its own.

        Source: Malkov & Yashunin 2018, as pgvector builds it: M = 16 links, 64 candidates. Enrolment goes on
        meanwhile, and keeps the index up to date later. It takes minutes: call it in the background, as often
        as you like. SQLite has no such index, and pgvector none for vectors of more than 2,000 numbers.

        Returns:
            Whether there is one now.
        """
        if not self._postgresql:
            return False
        found = self.classifier(tenant, classifier)
        name, lock = _index_name(found.id), int.from_bytes(hashlib.sha256(found.id.encode()).digest()[:7])
        with self._errors(), self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            count, dimension = connection.execute(
                select(func.count(classes.c.id), func.max(classifiers.c.dimension))
                .select_from(classifiers.outerjoin(classes, _JOINED))
                .where(*_named(tenant, classifier))
            ).one()
            if _has_index(connection, classifier):
                return True
            if count < MANY or dimension > _INDEXED:
                return False
            if not connection.scalar(select(func.pg_try_advisory_lock(lock))):
                return False  # another process makes it now
            try:
                # One that was interrupted is there, and of no use.
                connection.execute(text(f'drop index concurrently if exists "{name}"'))
                connection.execute(
                    text(
                        f'create index concurrently "{name}" on classes using hnsw '
                        f"((vector::vector({dimension})) vector_l2_ops) where classifier = '{found.id}'"
                    )
                )
            finally:
                connection.execute(select(func.pg_advisory_unlock(lock)))
        return True

    def audit(self, tenant: str, *, since: datetime | None = None, most: int = 1000) -> list[AuditEntry]:
        """Who changed what, the newest first, and no more than `most` entries."""
        query = select(audit).where(_of(audit, tenant))
        if since is not None:
            query = query.where(audit.c.time >= since.timestamp())
        with self._reading() as connection:
            rows = connection.execute(query.order_by(audit.c.id.desc()).limit(most)).all()
        return [
            AuditEntry(
                *(_time(row.time), row.key, row.action, row.classifier, row.label, row.example, row.examples)
            )
            for row in rows
        ]

    # The database.

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._errors(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _writing(
        self, tenant: str | None = None, by: Key | None = None, *, volatile: bool = False
    ) -> Iterator[Connection]:
        """A transaction that changes something: for `tenant`, by one of its keys.

        Args:
            tenant, by: None for what the operator does.
            volatile: it may be lost if the machine fails, and need not wait for the disk.
        """
        if by is not None and by.tenant != tenant:
            raise NotFoundError(f"no key {by.id!r} in this tenant")
        with self._errors(), self._turn, self._engine.connect() as connection:
            connection = connection.execution_options(sfumato_write=True, sfumato_volatile=volatile)
            with connection.begin():
                yield connection

    @contextmanager
    def _forgetting(self, tenant: str, by: Key) -> Iterator[Connection]:
        """As _writing; and then SQLite's write-ahead log is emptied, which still has what was there."""
        with self._writing(tenant, by) as connection:
            yield connection
        if not self._postgresql:
            with (
                self._errors(),
                self._engine.connect() as connection,
                closing(connection.connection.cursor()) as cursor,
            ):
                # In no transaction. It waits for those who read, and at last leaves the work to the next one.
                cursor.execute("pragma wal_checkpoint(truncate)")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, sqlite3.Error) as error:
            where = self._url.render_as_string(hide_password=True)
            # The error behind it may show what was being stored.
            raise StoreError(f"{where}: {_cure(error)}") from None

    @contextmanager
    def _conflicts(self, message: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            if isinstance(error.__context__, IntegrityError):
                raise ConflictError(message) from None
            raise

    def _migrate(self) -> None:
        config = Config()
        folder = Path(__file__).parent / "migrations"
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        scripts = ScriptDirectory.from_config(config)
        with self._engine.begin() as connection:
            if _revision(connection) == scripts.get_current_head():
                return
        with self._writing() as connection:
            if self._postgresql:  # SQLite has one writer in any case
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            revision = _revision(connection)
            where = self._url.render_as_string(hide_password=True)
            if revision is None and inspect(connection).get_table_names():
                raise StoreError(f"{where}: has the tables of another program: name a database of its own")
            if revision not in {None, *(script.revision for script in scripts.walk_revisions())}:
                raise StoreError(f"{where}: of a later version ({revision}): upgrade sfumato")
            config.attributes["connection"] = connection
            config.attributes["version_table"] = _VERSIONS
            alembic.command.upgrade(config, "head")

    def _drop_indices(self, gone: Sequence[str]) -> None:
        if not self._postgresql:
            return
        with self._errors(), self._engine.connect() as connection:
            connection = connection.execution_options(isolation_level="AUTOCOMMIT")
            for classifier in gone:
                connection.execute(text(f'drop index concurrently if exists "{_index_name(classifier)}"'))


_KEY = [column for column in keys.c if column.name != "hash"]
_CLASSIFIER = [classifiers.c[name] for name in ("id", "name", "model", "created", "version")]
_JOINED = (classes.c.tenant == classifiers.c.tenant) & (classes.c.classifier == classifiers.c.id)


def _of(table: Any, tenant: str) -> Any:
    return table.c.tenant == tenant


def _named(tenant: str, classifier: str) -> tuple[Any, Any]:
    """The condition of one classifier. Raises NotFoundError for what no database could look for."""
    if not _ID.fullmatch(classifier):
        raise _no_classifier()
    return _of(classifiers, tenant), classifiers.c.id == classifier


def _for_update(query: Any) -> Any:
    """Lock the rows in PostgreSQL; in SQLite, writers take turns anyway."""
    return query.with_for_update(key_share=True)


def _lock(connection: Connection, tenant: str, classifier: str) -> int | None:
    """Make other writers of this classifier wait. Returns its dimension; None before the first example."""
    query = select(classifiers.c.dimension).where(*_named(tenant, classifier))
    row = connection.execute(_for_update(query)).one_or_none()
    if row is None:
        raise _no_classifier()
    return row.dimension  # type: ignore[no-any-return]


def _grow(connection: Connection, tenant: str, classifier: str, **values: Any) -> None:
    connection.execute(
        update(classifiers)
        .where(*_named(tenant, classifier))
        .values(version=classifiers.c.version + 1, **values)
    )


def _note(connection: Connection, by: Key, action: Action, count: int, **what: str) -> None:
    row = {"tenant": by.tenant, "time": _now(), "key": by.id, "action": action, "examples": count}
    connection.execute(insert(audit).values(**row, **what))


def _enrol(
    connection: Connection,
    tenant: str,
    classifier: str,
    dimension: int | None,
    label: str,
    distinct: dict[str, Example],
    by: Key,
) -> Enrolled:
    """See Store.enrol; the classifier is locked, and `distinct` has an example for each digest."""
    found = connection.execute(
        select(classes.c.id, classes.c.sum, classes.c.weight, classes.c.examples).where(
            _of(classes, tenant), classes.c.classifier == classifier, classes.c.label == label
        )
    ).one_or_none()
    known: dict[str, str] = {}
    if found is not None:
        query = select(examples.c.digest, examples.c.id).where(
            _of(examples, tenant), examples.c["class"] == found.id, examples.c.digest.in_(distinct)
        )
        known = {row.digest: row.id for row in connection.execute(query)}
    new = [example for digest, example in distinct.items() if digest not in known]
    if not new:
        return Enrolled((), tuple(known.values()))
    for example in new:
        dimension = dimension or len(example.embedding)
        if len(example.embedding) != dimension:
            raise DataError(
                f"an embedding of {len(example.embedding)} numbers, where this classifier has {dimension}: "
                "embed with the model that the classifier was made for"
            )
    if by.quota is not None:
        mine = connection.scalar(
            select(func.count()).select_from(examples).where(_of(examples, tenant), examples.c.key == by.id)
        )
        assert mine is not None
        if mine + len(new) > by.quota:
            raise QuotaError(
                f"{len(new)} new examples, where {max(by.quota - mine, 0)} of the {by.quota} of this key are "
                "left: forget some, or ask the operator for a key with a larger quota"
            )
    embeddings = np.stack([example.embedding for example in new]).astype(np.float64)  # (K, D)
    weights = np.array([example.weight for example in new], np.float64)
    total, weight, count = weights @ embeddings, float(weights.sum()), len(new)
    if found is not None:
        total = total + np.frombuffer(found.sum, "<f8")
        weight, count = weight + found.weight, count + found.examples
    prototype = _prototype(total, weight, count)
    now = _now()
    if found is None:
        row = {"tenant": tenant, "classifier": classifier, "label": label, "created": now}
        added = connection.execute(insert(classes).values(**row, **prototype).returning(classes.c.id))
        place = added.scalar_one()
    else:
        place = found.id
        connection.execute(
            update(classes).where(_of(classes, tenant), classes.c.id == place).values(**prototype)
        )
    rows = [
        {
            **{"id": _new_id(), "tenant": tenant, "class": place, "key": by.id, "digest": example.digest},
            **{"embedding": example.embedding.astype("<f4").tobytes()},
            **{"weight": float(example.weight), "created": now},
        }
        for example in new
    ]
    connection.execute(insert(examples), rows)
    _grow(connection, tenant, classifier, dimension=dimension)
    _note(connection, by, "enrol", len(new), classifier=classifier, label=label)
    return Enrolled(tuple(row["id"] for row in rows), tuple(known.values()))


def _prototype(total: np.ndarray, weight: float, count: int) -> dict[str, Any]:
    """The columns of a class that depend on its examples."""
    return {
        **{"sum": total.astype("<f8").tobytes(), "weight": weight, "examples": count},
        **{"vector": (total / weight).astype(np.float32)},
    }


def _recompute(connection: Connection, tenant: str, place: int) -> None:
    """Make the prototype of a class from its examples; the class goes where there are none."""
    rows = connection.execute(
        select(examples.c.embedding, examples.c.weight).where(
            _of(examples, tenant), examples.c["class"] == place
        )
    ).all()
    this = (_of(classes, tenant), classes.c.id == place)
    if not rows:
        connection.execute(delete(classes).where(*this))
        return
    embeddings = np.frombuffer(b"".join(row.embedding for row in rows), "<f4").reshape(len(rows), -1)
    weights = np.array([row.weight for row in rows], np.float64)
    prototype = _prototype(weights @ embeddings.astype(np.float64), float(weights.sum()), len(rows))
    connection.execute(update(classes).where(*this).values(**prototype))


def _drop(connection: Connection, tenant: str, gone: Sequence[str]) -> int:
    """Delete classifiers with all they have. Returns how many examples that were."""
    mine = select(classes.c.id).where(_of(classes, tenant), classes.c.classifier.in_(gone))
    forgotten = connection.execute(
        delete(examples).where(_of(examples, tenant), examples.c["class"].in_(mine))
    ).rowcount
    connection.execute(delete(classes).where(_of(classes, tenant), classes.c.classifier.in_(gone)))
    connection.execute(delete(classifiers).where(_of(classifiers, tenant), classifiers.c.id.in_(gone)))
    return forgotten


def _nearest(gallery: Prototypes, queries: np.ndarray, count: int) -> list[list[Neighbour]]:
    vectors = gallery.vectors.astype(np.float64)  # (K, D)
    squares = np.einsum("kd,kd->k", vectors, vectors)
    found = []
    for query in queries:  # one by one: all at once would take Q * K numbers
        distances = (squares - 2 * (vectors @ query) + query @ query).clip(min=0)
        places = np.argpartition(distances, min(count, len(distances)) - 1)[:count]
        places = places[distances[places].argsort(kind="stable")]
        found.append(
            [
                Neighbour(gallery.labels[place], float(distances[place]), gallery.examples[place])
                for place in places
            ]
        )
    return found


def _has_index(connection: Connection, classifier: str) -> bool:
    query = text("select indisvalid from pg_index where indexrelid = to_regclass(:name)")
    return bool(connection.scalar(query, {"name": f'"{_index_name(classifier)}"'}))


def _index_name(classifier: str) -> str:
    return f"hnsw_{classifier}"


def _check(example: Example) -> None:
    vector = example.embedding
    if vector.ndim != 1 or not 1 <= len(vector) <= _DIMENSION:
        raise DataError(f"an embedding of shape {vector.shape}: it is one row of 1 to {_DIMENSION:,} numbers")
    if not np.isfinite(vector.astype(np.float32)).all():
        raise DataError("an embedding that is not finite: nothing was enrolled")
    if not 0 < example.weight < np.inf:
        raise DataError(f"a weight of {example.weight}: it is above 0 and finite")


def _check_queries(queries: np.ndarray, dimension: int) -> None:
    if queries.ndim != 2 or queries.shape[1] != dimension or not np.isfinite(queries).all():
        raise DataError(f"queries of shape {queries.shape}: here they are rows of {dimension} finite numbers")


def _check_text(what: str, value: str) -> None:
    if not 1 <= len(value) <= _LABEL or not _storable(value):
        raise DataError(
            f"{what}: 1 to {_LABEL} characters, none of them a control character; this has {len(value)}"
        )


def _storable(value: str) -> bool:
    # Control characters would break lines, and neither they nor halves of characters can all be stored.
    return not any(unicodedata.category(each) in {"Cc", "Cs"} for each in value)


_ID = re.compile("[0-9a-f]{24}")


def _new_id() -> str:
    return secrets.token_hex(12)


def _hash(secret: str) -> bytes:
    # A secret of 256 random bits needs no slow hash: nobody can try them all.
    return hashlib.sha256(secret.encode(errors="surrogatepass")).digest()


def _now() -> float:
    return round(time.time(), 6)  # whole microseconds, as datetime has them


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _key(row: Any) -> Key:
    revoked = row["revoked"]
    return Key(
        **{name: row[name] for name in ("id", "tenant", "role", "name", "rate", "quota")},
        created=_time(row["created"]),
        revoked=None if revoked is None else _time(revoked),
    )


def _classifier(row: Any) -> Classifier:
    return Classifier(row["id"], row["name"], row["model"], _time(row["created"]), row["version"])


def _no_classifier() -> NotFoundError:
    return NotFoundError("no such classifier here: list those there are")


def _parse(url: str) -> URL:
    forms = "write sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"the store is no url of a database: {forms}") from None
    if parsed.drivername not in {"sqlite", "postgresql", "postgresql+psycopg"}:
        raise ConfigError(f"a store of {parsed.drivername!r}: {forms}")
    if parsed.drivername == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise ConfigError(f"a store in memory would be gone with the process: {forms}")
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _begin_file(url: URL) -> None:
    """Make the file where it is missing, for its owner alone; SQLite's side files take the same mode."""
    assert url.database is not None
    try:
        os.close(os.open(url.database, os.O_CREAT | os.O_RDONLY, 0o600))
    except OSError as error:
        message = (
            f"{url.database}: {error.strerror}: name a file that can be written, in a folder that is there"
        )
        raise StoreError(message) from error


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    """A new connection to SQLite."""
    connection.isolation_level = None  # transactions are begun by _begin
    if connection.execute("pragma journal_mode").fetchone() != ("wal",):
        _to_wal(connection)
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma secure_delete = on")


def _to_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log, for which SQLite does not wait by itself when another does the same."""
    until = time.monotonic() + _WAIT
    while True:
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


def _begin(connection: Connection) -> None:
    """A new transaction, as `Store._writing` wants it."""
    options = connection.get_execution_options()
    volatile = options.get("sfumato_volatile", False)
    if connection.dialect.name == "postgresql":
        if volatile:
            connection.exec_driver_sql("set local synchronous_commit = off")
        return
    if options.get("sfumato_write", False):
        # FULL: what is acknowledged is on the disk.
        connection.exec_driver_sql(f"pragma synchronous = {'normal' if volatile else 'full'}")
        connection.exec_driver_sql("begin immediate")
    else:
        connection.exec_driver_sql("begin")


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection, opts={"version_table": _VERSIONS}).get_current_revision()


def _cure(error: SQLAlchemyError | sqlite3.Error) -> str:
    """What happened, without the values that were being stored, and what to do."""
    found: Any = getattr(error, "orig", None) or error
    code = getattr(found, "sqlite_errorcode", None)
    # PostgreSQL shows values in the lines below the first one.
    happened = str(found).partition("\n")[0]
    cure = _CURES.get(code & 0xFF if code is not None else getattr(found, "sqlstate", None), _OTHERWISE)
    return f"{happened}: {cure}"


_OTHERWISE = "see that the database runs and can be reached, then ask again: what was enrolled counts once"
_ROOM = "the disk is full: make room and ask again; nothing was saved"
_READ_ONLY = "it cannot be written: see to its permissions, and those of its folder; nothing was saved"
_DAMAGED = "damaged, or no store: restore it from a backup"
_BUSY = "another process holds it: ask again; nothing was saved"
_NO_VECTOR = "install pgvector on the machine of the database"
_NO_RIGHT = "give its user the right; for pgvector, let a superuser run `create extension vector` in it, once"
_CURES: dict[Any, str] = {
    # SQLite's result codes.
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_BUSY: _BUSY,
    # PostgreSQL's states.
    "53100": _ROOM,
    "25006": _READ_ONLY,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
    "53300": "it has no connection left: raise max_connections, or run fewer processes",
    "42501": _NO_RIGHT,
    "0A000": _NO_VECTOR,
}
