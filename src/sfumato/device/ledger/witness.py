"""The chain of charges, its witness in a file of its own, and what to do once a ledger is lost.

Each charge digests the one before, so that none can be lost or changed unnoticed. The last link tells a
ledger from a copy made before its last releases, and from one that continued elsewhere. Neither these nor a
new ledger must silently replace a lost one: noise would be drawn again, and budgets would be full again. So
the witness, in the folder of the journals, holds the last link. It protects against accidents: people who
want to can forge a chain, which has no secret, or delete both files.

A batch of charges leaves in four steps. A kill or a power cut between any two of them is harmless:

1. The charges are made in a transaction. If it does not end, there are none, and nothing has left.
2. The transaction is on the disk. If killed now, the ledger is ahead of its witness: the next process that
   opens it follows the chain from the charge that the witness knows, and records the last.
3. The witness is on the disk. It has two lines, which are written in turn: if killed while writing, the
   broken line does not count, and the other one is that of step 2.
4. The releases leave. From now on, the witness knows a charge that no older copy has.

So every ledger that has the charge of the witness has everything that left, whatever comes after that charge.
If the inode, size or time of the ledger's file differ from those of the last write, the file was copied or
changed by others, and all of it is checked: SQLite may have applied a killed process's log to a copy.
"""

import hashlib
import os
import sqlite3
from collections.abc import Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from sfumato.base import databases
from sfumato.base.files import whole
from sfumato.device.ledger.tables import MARKS, DamagedError, digest_of_release
from sfumato.errors import LedgerError

Charge = tuple[int, bytes]  # its number, which counts all charges, and its link
_NONE: Charge = (0, b"")


def link(before: bytes, row: Iterable[object]) -> bytes:
    """Return the link of a charge, 16 bytes: of the link before and of its row, see check_after."""
    return hashlib.sha256(before + ascii(tuple(row)).encode()).digest()[:16]


def last(database: sqlite3.Connection) -> Charge:
    """Return the last charge of a ledger; (0, b"") without charges."""
    return database.execute("select id, link from charges order by id desc limit 1").fetchone() or _NONE


def holds(database: sqlite3.Connection, charge: Charge) -> bool:
    """Whether a charge is in the chain of a ledger."""
    query = "select 1 from charges where id = ? and link = ?"
    return charge == _NONE or database.execute(query, charge).fetchone() is not None


def check_all(database: sqlite3.Connection, *, releases: bool = True) -> int:
    """Read all pages, charges and stored releases. Returns their number; raises DamagedError."""
    (state,) = database.execute("pragma integrity_check(1)").fetchone()
    if state != "ok":
        raise DamagedError(f"damaged ({state})")
    count = check_after(database, _NONE, releases=releases)
    (known,) = database.execute("select coalesce(sum(releases), 0) from images").fetchone()
    if known != count:
        raise DamagedError(f"damaged ({known} releases of images are recorded, and {count} are here)")
    return count


def check_after(database: sqlite3.Connection, charge: Charge, *, releases: bool = False) -> int:
    """Follow the chain after a charge. Returns the number of the last; raises DamagedError."""
    number, expected = charge
    rows = database.execute(
        f"select charges.id, images.image, spec, channels, height, width, time, number, digest, link, "
        f"{'release' if releases else 'null'} from charges left join images on images.id = charges.image "
        "left join terms on terms.id = terms where charges.id > ? order by charges.id",
        (number,),
    )
    for *row, stored, release in rows:
        number += 1
        expected = link(expected, row)
        if row[0] != number or stored != expected:
            raise DamagedError(f"damaged (charge {number} is missing, or was changed)")
        if releases and digest_of_release(row[1], release) != row[-1]:
            raise DamagedError(f"damaged (release {number} was changed)")
    return number


# The witness.

_LINE = 512  # bytes: a sector, which a disk writes whole or not at all


@dataclass(frozen=True)
class Witness:
    """The last known state of a ledger."""

    ledger: str  # its random name
    began: float  # seconds since 1970
    releases: int
    head: str  # the link of the last of them, in hexadecimal
    stamp: tuple[int, int, int]  # inode, size and time in ns of the ledger's file, to notice changes
    turn: int = 0  # how often the witness was written

    @property
    def last(self) -> Charge:
        """The last known charge."""
        return self.releases, bytes.fromhex(self.head)

    def __str__(self) -> str:
        day, count = datetime.fromtimestamp(self.began, UTC).date(), f"{self.releases:,} release"
        return (
            f"a ledger that was begun on {day} and had charged at least {count}{'s' * (self.releases != 1)}"
        )


_JSON = TypeAdapter(Witness)


def runs_of(ledger: Path) -> Path:
    """Return the folder next to a ledger that holds its witness and the journals of folder jobs."""
    return ledger.with_name(f"{ledger.name}.runs")


def _path(ledger: Path) -> Path:
    return runs_of(ledger) / "witness"


def _check_of(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:16].encode()


def observe(ledger: Path, database: sqlite3.Connection) -> Witness:
    """Read the present state of a ledger from the ledger."""
    settings = dict(database.execute("select key, value from settings").fetchall())
    (number, head), file = last(database), ledger.stat()
    stamp = (file.st_ino, file.st_size, file.st_mtime_ns)
    return Witness(settings["name"], float(settings["began"]), number, head.hex(), stamp)


def read(ledger: Path) -> Witness | None:
    """Read the witness of a ledger; None if there is none. Raises LedgerError if it is damaged."""
    path = _path(ledger)
    try:
        content = path.read_bytes()
        lines = [line.rstrip().partition(b" ") for line in (content[:_LINE], content[_LINE:])]
        known = [_JSON.validate_json(text) for check, _, text in lines if text and check == _check_of(text)]
        return max(known, key=lambda witness: witness.turn)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # or no line is whole
        reason = error.strerror if isinstance(error, OSError) else "damaged"
        raise LedgerError(
            f"{path}: cannot be read ({reason}). It names the ledger here: put it back, or accept the "
            "ledger as it is with `sfumato ledger restore LEDGER`; if that is lost, say so with `sfumato "
            "ledger forget`"
        ) from error


def write(ledger: Path, now: Witness, before: Witness | None) -> None:
    """Record the state of a ledger over the older of the two lines; without a state before, in a new file."""
    turn, path = 0 if before is None else before.turn + 1, _path(ledger)
    text = _JSON.dump_json(replace(now, turn=turn))
    line = b"%s %s" % (_check_of(text), text.ljust(_LINE - 18) + b"\n")
    assert len(line) == _LINE
    if before is not None and path.exists():
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), line, _LINE * (turn % 2))
            os.fsync(file.fileno())
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with whole(path) as temporary:
        temporary.touch(mode=0o600)
        with temporary.open("r+b", buffering=0) as file:
            file.write(2 * line)
            os.fsync(file.fileno())
    for folder in (path.parent, ledger.parent):  # the file's name must be on the disk, too
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def refuse_to_begin(ledger: Path) -> None:
    """Raise LedgerError if the witness or the journals of an absent ledger exist."""
    known, journals = read(ledger), sorted(runs_of(ledger).glob("*.db"))
    if known is None and not journals:
        return refuse_log(ledger)
    what = known or f"a ledger by which {len(journals)} folders were released"
    raise LedgerError(
        f"{ledger}: no ledger is here, but {runs_of(ledger)} knows of {what}. Without it, noise would be "
        "drawn and charged again: put it back, bring in a copy with `sfumato ledger restore COPY`, or say "
        "with `sfumato ledger forget` that it is lost"
    )


def refuse_log(ledger: Path) -> None:
    """Raise LedgerError if SQLite's log of an absent ledger exists: SQLite would apply it to the next."""
    log = ledger.with_name(f"{ledger.name}-wal")
    if log.exists() and not ledger.exists():
        raise LedgerError(
            f"{log}: holds the last releases of the ledger that was here: put both back, or move it away"
        )


def check(
    ledger: Path, known: Witness | None, now: Witness, database: sqlite3.Connection, command: str
) -> None:
    """Raise LedgerError, with the command that accepts it, unless a ledger has all that its witness knows."""
    again = "would be drawn and charged again: put the latest copy back, or accept this one"
    if known is None and not now.releases:
        return
    if known is None:
        reason = (
            f"its witness {_path(ledger)} is missing, which records whether this is the latest copy. "
            f"Releases that an older copy lacks {again}"
        )
    elif known.ledger != now.ledger:
        reason = f"is not the ledger that lay here before, {known}, whose releases {again}"
    elif now.releases < known.releases:
        reason = f"is a copy made before its last {known.releases - now.releases:,} releases, which {again}"
    elif not holds(database, known.last):
        reason = (
            f"is a copy that continued elsewhere: its release {known.releases:,} is not the one that left "
            f"here. Releases made here after the copy {again}"
        )
    else:
        return
    raise LedgerError(f"{ledger}: {reason} as it is with `{command}`")


# A lost ledger.


def restore(copy: str | os.PathLike[str], ledger: str | os.PathLike[str]) -> tuple[int, int]:
    """Restore a ledger from a copy; or accept the one at this path, if both paths are the same.

    Returns its releases, and at least how many of the lost one are missing. Raises LedgerError if the copy is
    damaged or not a ledger, or if another ledger lies at the path and would be lost.
    """
    source, target = Path(copy).absolute(), Path(ledger).absolute()
    _check_copy(source)
    if target.exists() and not source.samefile(target):
        raise LedgerError(f"{target}: another ledger lies here and would be lost: move it away first")
    known = None
    with suppress(LedgerError):  # the witness is damaged: its contents are lost, too
        known = read(target)
    if not target.exists():
        refuse_log(target)
        with whole(target) as temporary:
            temporary.touch(mode=0o600)
            with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(temporary)) as new:
                old.backup(new)
                new.execute("pragma journal_mode = wal")
            _check_copy(temporary)
    with closing(databases.connect(target)) as database:
        now = observe(target, database)
        lacks = known is not None and not holds(database, known.last)
    missing = max(1, known.releases - now.releases) if known is not None and lacks else 0
    _path(target).unlink(missing_ok=True)
    write(target, now, None)
    return now.releases, missing


def forget(ledger: str | os.PathLike[str]) -> None:
    """Accept that a ledger is lost, with the journals of folder jobs: releases then need new folders.

    Raises LedgerError if a ledger lies at the path.
    """
    path = Path(ledger).absolute()
    if path.exists():
        raise LedgerError(f"{path}: the ledger is here: to begin another, move it away first")
    refuse_log(path)
    for file in [_path(path), *runs_of(path).glob("*.db*"), *runs_of(path).glob("*.lock")]:
        file.unlink(missing_ok=True)


def _check_copy(path: Path) -> None:
    if not path.is_file():
        raise LedgerError(f"{path}: no such file: name a copy of the ledger")
    try:
        with closing(databases.connect(path)) as database:
            if databases.marks_of(database) != MARKS:
                raise LedgerError(f"{path}: not a ledger that this version reads: name another copy")
            with databases.snapshot(database):
                check_all(database)
    except (sqlite3.Error, DamagedError) as error:
        raise LedgerError(f"{path}: not a ledger, or damaged ({error}): name another copy") from error
