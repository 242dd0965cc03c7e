"""What to do when a ledger is lost: bring in a copy, or say that it is gone."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from sfumato.base import databases
from sfumato.base.files import whole
from sfumato.device.ledger import chain, witness
from sfumato.device.ledger.accounts import DamagedError
from sfumato.device.ledger.ledger import Ledger
from sfumato.device.ledger.tables import MARKS
from sfumato.errors import LedgerError


class Restored(NamedTuple):
    """How many releases a restored ledger has, and how many of the lost one at least are missing."""

    releases: int
    missing: int


def restore(copy: str | os.PathLike[str], ledger: str | os.PathLike[str]) -> Restored:
    """Put a copy of a ledger where one is lost; or accept the one that lies there, if both paths are one.

    What was released after the copy was made is unknown to it: asked for again, it is drawn and charged anew.

    Raises:
        LedgerError: the copy is damaged or no ledger; or another ledger lies there and would be lost.
    """
    source, target = Path(copy).absolute(), Path(ledger).absolute()
    _check(source)
    if target.exists() and not source.samefile(target):
        raise LedgerError(f"{target}: a ledger lies here and would be lost: move it away first")
    try:
        known = witness.read(target)
    except LedgerError:  # the witness is damaged: what it said is lost, too
        known = None
    if not target.exists():
        witness.refuse_log(target)
        with whole(target) as temporary:
            temporary.touch(mode=0o600)
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(temporary)) as new:
                old.backup(new)
                new.execute("pragma journal_mode = wal")
            _check(temporary)
    with closing(databases.connect(target)) as database:
        now = witness.seen(target, database)
        missing = 0
        if known is not None and not chain.holds(database, known.last):
            missing = max(1, known.releases - now.releases)
    witness.forget(target)
    witness.write(target, now, None)
    with Ledger(target) as restored:
        return Restored(restored.summary().releases, missing)


def forget(ledger: str | os.PathLike[str]) -> None:
    """Accept that a ledger is lost, so that a new one may begin: every image is then new to this device.

    The journals of folder jobs go with it: releases are written to new folders from then on.

    Raises:
        LedgerError: a ledger lies there.
    """
    path = Path(ledger).absolute()
    if path.exists():
        raise LedgerError(f"{path}: the ledger is here: move it away first, if you want to begin another")
    witness.refuse_log(path)
    witness.forget(path, journals=True)


def _check(path: Path) -> None:
    """Raise LedgerError unless a file is a whole ledger."""
    if not path.is_file():
        raise LedgerError(f"{path}: no such file: name a copy of the ledger")
    try:
        with closing(databases.connect(path)) as database:
            marks = databases.marks_of(database)
            if marks == MARKS:
                with databases.snapshot(database):
                    chain.check(database, releases=True)
    except (sqlite3.Error, DamagedError) as error:
        raise LedgerError(f"{path}: no ledger, or a damaged one ({error}): name another copy") from error
    if marks != MARKS:
        raise LedgerError(f"{path}: no ledger that this version reads: name another copy")
