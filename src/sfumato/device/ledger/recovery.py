"""Recovery of a lost ledger: restore a copy, or accept the loss."""

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
    """The releases of a restored ledger, and at least how many of the lost one are missing."""

    releases: int
    missing: int


def restore(copy: str | os.PathLike[str], ledger: str | os.PathLike[str]) -> Restored:
    """Restore a ledger from a copy; or accept the one at this path, if both paths are the same.

    Releases after the copy was made are unknown to it: they are drawn and charged anew if asked for.

    Raises:
        LedgerError: the copy is damaged or not a ledger; or another ledger lies at the path and would be
            lost.
    """
    source, target = Path(copy).absolute(), Path(ledger).absolute()
    _check(source)
    if target.exists() and not source.samefile(target):
        raise LedgerError(f"{target}: another ledger lies here and would be lost: move it away first")
    try:
        known = witness.read(target)
    except LedgerError:  # the witness is damaged: its contents are lost, too
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
        now = witness.observe(target, database)
        missing = 0
        if known is not None and not chain.holds(database, known.last):
            missing = max(1, known.releases - now.releases)
    witness.forget(target)
    witness.write(target, now, None)
    with Ledger(target) as restored:
        return Restored(restored.summary().releases, missing)


def forget(ledger: str | os.PathLike[str]) -> None:
    """Accept that a ledger is lost and allow a new one, to which every image is new.

    The journals of folder jobs are removed with it: releases then need new folders.

    Raises:
        LedgerError: a ledger lies at the path.
    """
    path = Path(ledger).absolute()
    if path.exists():
        raise LedgerError(f"{path}: the ledger is here: to begin another, move it away first")
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
        raise LedgerError(f"{path}: not a ledger, or damaged ({error}): name another copy") from error
    if marks != MARKS:
        raise LedgerError(f"{path}: not a ledger that this version reads: name another copy")
