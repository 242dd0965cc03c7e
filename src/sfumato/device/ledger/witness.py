"""The witness: a small file that records which ledger a device has, and its last charge.

A new ledger must not silently replace a lost one, nor must an older copy, or one that continued elsewhere:
noise would be drawn again for images that were released before, and their budgets would be full again. So the
witness, in the folder of the journals, holds the link of the last charge (see chain). It protects against
accidents; people who want to can delete both files.

A batch of charges leaves in four steps. A kill or a power cut between any two of them is harmless:

1. The charges are made in a transaction. If it does not end, there are none, and nothing has left.
2. The transaction is on the disk. If killed now, the ledger is ahead of its witness: the next process that
   opens it follows the chain from the charge that the witness knows, and records the last. Nothing has left.
3. The witness is on the disk. It has two lines, which are written in turn: if killed while writing, the
   broken line does not count, and the other one is that of step 2. Nothing has left.
4. The releases leave. From now on, the witness knows a charge that no older copy has.

So every ledger that has the charge of the witness has everything that left, whatever comes after that charge.
If the inode, size or time of the ledger's file differ from those of the last write, the file was copied or
changed by others, and all of it is checked: SQLite may have applied a killed process's log to a copy.
"""

import hashlib
import os
import sqlite3
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import TypeAdapter

from sfumato.base.files import whole
from sfumato.device.ledger import chain
from sfumato.device.ledger.chain import Last
from sfumato.errors import LedgerError

_LINE = 512  # bytes: a sector, which a disk writes whole or not at all


@dataclass(frozen=True)
class Witness:
    """The last known state of a ledger.

    Attributes:
        ledger: its random name.
        began: its creation, in seconds since 1970.
        releases: the number that it had charged.
        head: the link of the last of them, in hexadecimal; see chain.
        stamp: inode, size and time in ns of the ledger's file, to notice changes.
        turn: the number of times that the witness was written.
    """

    ledger: str
    began: float
    releases: int
    head: str
    stamp: tuple[int, int, int]
    turn: int = 0

    @property
    def last(self) -> Last:
        """The last known charge."""
        return Last(self.releases, bytes.fromhex(self.head))

    @property
    def words(self) -> str:
        """For messages."""
        day = datetime.fromtimestamp(self.began, UTC).date()
        releases = "release" if self.releases == 1 else "releases"
        return f"a ledger that was begun on {day} and had charged at least {self.releases:,} {releases}"


_JSON = TypeAdapter(Witness)


def runs_of(ledger: Path) -> Path:
    """Return the folder next to a ledger that holds its witness and the journals of folder jobs."""
    return ledger.with_name(f"{ledger.name}.runs")


def observe(ledger: Path, database: sqlite3.Connection) -> Witness:
    """Read the present state of a ledger from the ledger."""
    settings = dict(database.execute("select key, value from settings").fetchall())
    number, link = chain.last(database)
    file = ledger.stat()
    stamp = (file.st_ino, file.st_size, file.st_mtime_ns)
    return Witness(settings["name"], float(settings["began"]), number, link.hex(), stamp)


def read(ledger: Path) -> Witness | None:
    """Read the witness of the ledger at a path; None if there is none.

    Raises:
        LedgerError: the witness is damaged.
    """
    path, reason = _path(ledger), "damaged"
    try:
        content = path.read_bytes()
        known = [_parse(line) for line in (content[:_LINE], content[_LINE:])]
        return max(filter(None, known), key=lambda witness: witness.turn)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = str(error.strerror)
    except ValueError:  # no line is whole
        pass
    raise LedgerError(
        f"{path}: cannot be read ({reason}). It names the ledger here: put it back, or accept the "
        "ledger as it is with `sfumato ledger restore LEDGER`; if that is lost, say so with `sfumato ledger "
        "forget`"
    )


def _parse(line: bytes) -> Witness | None:
    """Parse a line of the file; None if it is broken."""
    check, _, text = line.rstrip().partition(b" ")
    return _JSON.validate_json(text) if text and check == _check_of(text) else None


def write(ledger: Path, now: Witness, before: Witness | None, *, lasting: bool = True) -> None:
    """Record the state of a ledger, over the older of the two lines.

    Args:
        ledger: its path.
        now: its state now.
        before: its last known state, from `read`. None creates the file.
        lasting: whether to wait until it is on the disk.

    Raises:
        OSError: it cannot be written.
    """
    turn = 0 if before is None else before.turn + 1
    text = _JSON.dump_json(replace(now, turn=turn))
    line = b"%s %s" % (_check_of(text), text)
    assert len(line) < _LINE
    line = line.ljust(_LINE - 1) + b"\n"
    path = _path(ledger)
    if before is not None and path.exists():
        with path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), line, _LINE * (turn % 2))
            if lasting:
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


def refuse_to_begin(ledger: Path, witness: Witness | None) -> None:
    """Raise LedgerError if the witness or the journals of an absent ledger exist."""
    journals = sorted(runs_of(ledger).glob("*.db"))
    if witness is None and not journals:
        return refuse_log(ledger)
    known = (
        witness.words if witness is not None else f"a ledger by which {len(journals)} folders were released"
    )
    raise LedgerError(
        f"{ledger}: no ledger is here, but {runs_of(ledger)} knows of {known}. Without it, noise would be "
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
    """Raise LedgerError unless a ledger has every release that its witness knows.

    Args:
        ledger: its path.
        known: the state by the witness.
        now: the present state, see observe.
        database: the ledger.
        command: the command that accepts the ledger as it is.
    """
    again = "would be drawn and charged again: put the latest copy back, or accept this one"
    accept = f"as it is with `{command}`"
    if known is None:
        if now.releases:
            raise LedgerError(
                f"{ledger}: its witness {_path(ledger)} is missing, which records whether this is the latest "
                f"copy. Releases that an older copy lacks {again} {accept}"
            )
    elif known.ledger != now.ledger:
        raise LedgerError(
            f"{ledger}: is not the ledger that lay here before, {known.words}, whose releases {again} "
            f"{accept}"
        )
    elif now.releases < known.releases:
        raise LedgerError(
            f"{ledger}: is a copy made before its last {known.releases - now.releases:,} releases, which "
            f"{again} {accept}"
        )
    elif not chain.holds(database, known.last):
        raise LedgerError(
            f"{ledger}: is a copy that continued elsewhere: its release {known.releases:,} is not the one "
            f"that left here. Releases made here after the copy {again} {accept}"
        )


def forget(ledger: Path, *, journals: bool = False) -> None:
    """Remove the witness of a ledger, and if asked the journals of its folders."""
    _path(ledger).unlink(missing_ok=True)
    if journals:
        for path in [*runs_of(ledger).glob("*.db*"), *runs_of(ledger).glob("*.lock")]:
            path.unlink()


def _path(ledger: Path) -> Path:
    return runs_of(ledger) / "witness"


def _check_of(text: bytes) -> bytes:
    """Compute the checksum of a line."""
    return hashlib.sha256(text).hexdigest()[:16].encode()
