"""Our own SQLite files: created whole or not at all, recognised by marks, changed in whole transactions."""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from sfumato.base.files import PART, why_no_locks


class Marks(NamedTuple):
    """The marks of a database of one purpose: SQLite's application_id and user_version."""

    application: int
    version: int


@contextmanager
def begin(path: Path, schema: str, marks: Marks, *, page_size: int = 0) -> Iterator[sqlite3.Connection]:
    """Yields a new database to fill, which appears at `path` when the block ends well, or not at all.

    Only its owner may read it; SQLite's side files get the same mode. Raises FileExistsError if a file is at
    `path` when the block ends, and sqlite3.Error if it cannot be written, as on a full disk.
    """
    temporary = path.with_name(PART.replace("*", secrets.token_hex(8)))
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with closing(sqlite3.connect(temporary, isolation_level=None)) as database:
            if page_size:
                database.execute(f"pragma page_size = {page_size}")
            database.execute("pragma journal_mode = wal")
            database.executescript(schema)
            database.execute(f"pragma application_id = {marks.application}")
            database.execute(f"pragma user_version = {marks.version}")
            with transaction(database):
                yield database
            # Move everything into the one file that is linked; a full disk ends here.
            busy, pages, written = database.execute("pragma wal_checkpoint(truncate)").fetchone()
            if busy or written < pages or database.execute("pragma quick_check").fetchone() != ("ok",):
                raise sqlite3.OperationalError("database or disk is full")
        os.link(temporary, path)
    finally:
        for side in ("", "-wal", "-shm", "-journal"):
            temporary.with_name(temporary.name + side).unlink(missing_ok=True)


def connect(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Opens an existing database; whatever is committed to it survives a power cut.

    Transactions wait a minute for another process. With `any_thread`, other threads may use it in turn.
    """
    database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=not any_thread)
    database.execute("pragma synchronous = full")
    return database


def why_locked(error: BaseException, path: Path) -> str | None:
    """Why a database is locked, and the cure; None for another error.

    SQLite also says that others hold it if its file system has no locks.
    """
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF
    if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_PROTOCOL):
        return None
    held = "another process holds it: ask again" if code == sqlite3.SQLITE_BUSY else None
    return why_no_locks(path.parent) or held


def marks_of(database: sqlite3.Connection) -> Marks:
    """Reads the marks of a database."""
    marks = ("application_id", "user_version")
    return Marks(*(database.execute(f"pragma {mark}").fetchone()[0] for mark in marks))


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Changes a database by the whole block or not at all; other writers wait."""
    database.execute("begin immediate")
    try:
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise


@contextmanager
def snapshot(database: sqlite3.Connection) -> Iterator[None]:
    """Reads a database, in the whole block, at one moment; writers need not wait."""
    database.execute("begin")
    try:
        yield
    finally:
        if database.in_transaction:
            database.execute("rollback")
