"""Databases of our own say why they are locked: others hold them, or nothing can be locked at all."""

import errno
import fcntl
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sfumato.base import databases, files
from sfumato.device.ledger import Ledger
from sfumato.errors import DataError, LedgerError

WORDS = r"its file system has no locks \(.*\), as NFS without its lock service: name a file on a disk of this"


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", fails)
    monkeypatch.setattr(fcntl, "flock", fails)


def busy(path: Path) -> sqlite3.OperationalError:
    """What SQLite says where another process writes, and where nothing can be locked."""
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        one.execute("begin exclusive")
        with pytest.raises(sqlite3.OperationalError, match="database is locked") as raised:
            other.execute("begin exclusive")
    return raised.value


def test_a_database_that_another_process_holds_is_said_to_be_held_and_no_other_error_is(tmp_path: Path):
    assert databases.why_locked(busy(tmp_path / "a.db"), tmp_path / "a.db") == (
        "another process holds it: ask again"
    )
    database = sqlite3.connect(tmp_path / "a.db")
    with closing(database), pytest.raises(sqlite3.OperationalError) as raised:
        database.execute("select * from nothing")
    assert databases.why_locked(raised.value, tmp_path / "a.db") is None
    assert files.why_no_locks(tmp_path) is None


@pytest.mark.usefixtures("without_locks")
def test_a_file_system_without_locks_is_named_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    error = busy(tmp_path / "a.db")

    def begun(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(databases, "begin", begun)
    with pytest.raises(LedgerError, match=rf"new.db: cannot be opened for writing \({WORDS}"):
        Ledger(tmp_path / "new.db")
    with pytest.raises(DataError, match=WORDS), files.claim(tmp_path / "made"):
        pass
