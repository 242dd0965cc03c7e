"""The database behind a store, SQLite or PostgreSQL: its connections, transactions, versions and failures."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Self

from sqlalchemy import Connection, Row, Select, create_engine, event, func, insert, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, SQLAlchemyError

from sfumato.base import databases
from sfumato.errors import ConfigError, SfumatoError
from sfumato.serve.store.schema import VERSION, metadata, tenants, versions

_WAIT = 30  # seconds for another writer, or for a free connection
_LOCK = 0x5346554D  # "SFUM": PostgreSQL's advisory lock while tables are made


class StoreError(SfumatoError):
    """The database cannot be used now: unreachable, full, read-only, damaged, or not a store.

    `full`: whether its disk is full or fails; nothing was saved.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


class NotFoundError(SfumatoError, LookupError):
    """The tenant has no such classifier, class, example or key."""


class ConflictError(SfumatoError):
    """The state of an object forbids this: a name is taken, or a model is not served."""


class QuotaError(SfumatoError):
    """The key may not store this many examples: nothing was enrolled."""


class Database:
    """Connections to the database of a store.

    State: the connections, which threads share. If the database went away, the next call connects again:
    nothing has to be reopened after StoreError.
    """

    def __init__(self, url: str) -> None:
        """Open or create "sqlite:///FILE", or "postgresql+psycopg://USER:PASSWORD@HOST/DATABASE".

        Raises:
            ConfigError: the url is of another kind.
            StoreError: the database cannot be used, belongs to another program, or is of another version.
        """
        self._url = _parse(url)
        self.is_postgresql = self._url.get_backend_name() == "postgresql"
        self._insert = (postgresql if self.is_postgresql else sqlite).insert
        # SQLite waits by sleeping, in no order: threads of one process queue up instead.
        self._turn = nullcontext() if self.is_postgresql else threading.Lock()
        arguments: dict[str, Any] = {"timeout": _WAIT}
        if self.is_postgresql:
            # A process that hangs in a transaction must not hold up the others.
            options = f"-c idle_in_transaction_session_timeout={_WAIT}s"
            # Nor must a network that goes silent hold up this one.
            alive = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
            arguments = {"connect_timeout": 5, "options": options, **alive}
        else:
            _begin_file(self._url)
        self._engine = create_engine(
            self._url,
            connect_args=arguments,
            pool_size=10,
            pool_timeout=_WAIT,
            pool_pre_ping=self.is_postgresql,
            hide_parameters=True,  # they contain labels and embeddings
        )
        if not self.is_postgresql:
            event.listen(self._engine, "connect", _prepare)
            event.listen(self._engine, "begin", _begin)
        try:
            self._make_tables()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ping(self) -> None:
        """Check that the database answers. Raises StoreError if not."""
        self._all(select(tenants.c.name).limit(1))

    def _all(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with self._transaction() as connection:
            return connection.execute(query).all()

    @contextmanager
    def _transaction(self, conflict: str | None = None, **options: Any) -> Iterator[Connection]:
        """Open a transaction. Raises as `_errors` does; `options` are of SQLAlchemy's connection."""
        engine = self._engine.execution_options(**options)
        with self._errors(conflict), engine.begin() as connection:
            yield connection

    @contextmanager
    def _writing(self, conflict: str | None = None) -> Iterator[Connection]:
        """Open a transaction that changes something."""
        with self._turn, self._transaction(conflict, sfumato_write=True) as connection:
            yield connection

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """Yield a cursor of the driver itself."""
        with (
            self._errors(),
            closing(self._engine.raw_connection()) as connection,
            closing(connection.cursor()) as cursor,
        ):
            yield cursor

    @contextmanager
    def _errors(self, conflict: str | None = None) -> Iterator[None]:
        """Raise StoreError for an error of the database; ConflictError for a row that exists, if named."""
        try:
            yield
        except (SQLAlchemyError, self._engine.dialect.loaded_dbapi.Error) as error:
            if conflict is not None and isinstance(error, IntegrityError):
                raise ConflictError(conflict) from None
            cure = _cure(error, self._url.database)
            # PostgreSQL shows stored values in the lines below the first one.
            what = str(getattr(error, "orig", None) or error).partition("\n")[0]
            raise StoreError(f"{self._url!r}: {what}: {cure}", full=cure in (_ROOM, _DISK)) from None

    def _make_tables(self) -> None:
        """Create the tables of a new store. Raises StoreError for those of another program or version."""
        with self._transaction() as connection:
            if _version(connection) == VERSION:
                return
        with self._writing() as connection:
            if self.is_postgresql:  # SQLite has one writer in any case
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            version = _version(connection)
            if version == VERSION:  # another process was first
                return
            if version is not None:
                raise StoreError(f"{self._url!r}: is of version {version}, not {VERSION}: create a new store")
            if inspect(connection).get_table_names():
                cure = "name a database of its own"
                raise StoreError(f"{self._url!r}: has the tables of another program: {cure}")
            if self.is_postgresql:
                connection.execute(text("create extension if not exists vector"))
            metadata.create_all(connection)
            connection.execute(insert(versions).values(version=VERSION))


def _parse(url: str) -> URL:
    forms = "write sqlite:///FILE or postgresql+psycopg://USER:PASSWORD@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ConfigError(f"the store is not a URL of a database: {forms}") from None
    if parsed.drivername not in {"sqlite", "postgresql", "postgresql+psycopg"}:
        raise ConfigError(f"a store of {parsed.drivername!r}: {forms}")
    if parsed.drivername == "sqlite" and parsed.database in {None, "", ":memory:"}:
        raise ConfigError(f"a store in memory would vanish with the process: {forms}")
    return parsed.set(drivername="postgresql+psycopg") if parsed.drivername == "postgresql" else parsed


def _begin_file(url: URL) -> None:
    """Create the file if it is missing, for its owner only; SQLite's side files get the same mode."""
    assert url.database is not None
    try:
        os.close(os.open(url.database, os.O_CREAT | os.O_RDONLY, 0o600))
    except OSError as error:
        message = f"{url.database}: {error.strerror}: name a writable file in an existing folder"
        raise StoreError(message) from error


def _prepare(connection: sqlite3.Connection, _: object) -> None:
    connection.isolation_level = None  # transactions are begun by _begin
    until = time.monotonic() + _WAIT
    while connection.execute("pragma journal_mode").fetchone() != ("wal",):
        try:
            connection.execute("pragma journal_mode = wal")
        except sqlite3.OperationalError as error:  # SQLite does not wait for another that does the same
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)
    connection.execute("pragma synchronous = full")  # acknowledged changes are on the disk
    connection.execute("pragma foreign_keys = on")
    connection.execute("pragma secure_delete = on")


def _begin(connection: Connection) -> None:
    """Begin a transaction of SQLite."""
    writes = connection.get_execution_options().get("sfumato_write", False)
    connection.exec_driver_sql("begin immediate" if writes else "begin")


def _version(connection: Connection) -> int | None:
    """Read the version of the tables; None if they do not exist."""
    exists = inspect(connection).has_table(versions.name)
    version: int | None = connection.scalar(select(versions.c.version)) if exists else None
    return version


def _cure(error: Exception, file: str | None) -> str:
    """Say what to do. `file` is the database of SQLite."""
    original: Any = getattr(error, "orig", None) or error
    if file and (words := databases.why_locked(original, Path(file))):
        return f"{words}; nothing was saved"
    code = getattr(original, "sqlite_errorcode", None)
    return _CURES.get(code & 0xFF if code is not None else getattr(original, "sqlstate", None), _OTHERWISE)


_OTHERWISE = "check that the database runs and can be reached, then ask again: examples count once"
_ROOM = "the disk is full: make room and ask again; nothing was saved"
_DISK = "the disk fails, or is full: make room, or replace it, and ask again; nothing was saved"
_READ_ONLY = "it cannot be written: check its permissions and those of its folder; nothing was saved"
_DAMAGED = "damaged, or not a store: restore it from a backup"
_CURES: dict[Any, str] = {
    # SQLite's result codes.
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR: _DISK,  # also without room for the file that processes share
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _READ_ONLY,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    # PostgreSQL's states.
    "53100": _ROOM,
    "58030": _DISK,
    "25006": _READ_ONLY,
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
    "53300": "it has no free connection: raise max_connections, or run fewer processes",
    "42501": "give its user the right; for pgvector, a superuser runs `create extension vector` in it once",
    "0A000": "install pgvector on the machine of the database",
}
