"""What a device knows of its ledger beside it: that there was one, which one, and its last charge.

A ledger that vanished must not be begun anew in silence, and an older copy, or one that lived on elsewhere,
must not take its place: noise would be drawn again for images that were released before, and their budgets
would be whole again. So a small file in the folder of the journals, the witness, holds the link of the last
charge (see chain). It is evidence against accidents; who wants to get rid of both files can.

A batch of charges leaves in four steps. A kill or a power cut between any two of them is harmless:

1. The charges are made in a transaction. Killed before its end, there are none, and nothing has left.
2. The transaction is on the disk. Killed now, the ledger is ahead of its witness: the next one who opens it
   follows the chain from the charge that the witness knows, and writes down the last. Nothing has left.
3. The witness is written and on the disk. It has two lines, which are written in turn: killed in the middle,
   the broken line does not count, and the other one is that of step 2. Nothing has left.
4. The releases leave. Killed from now on, the witness knows a charge that no older copy has.

So everything that left is in every ledger that has the charge of the witness, whatever follows it there.
Where the ledger's file is not the one that was written last (by its inode, size and time), it was copied or
changed by others, and all of it is read: SQLite's log of a killed process may have been written over a copy.
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
    """What is known of a ledger.

    Attributes:
        ledger: its random name.
        began: when it was begun, in seconds since 1970.
        releases: how many it had charged.
        head: the link of the last of them, in hexadecimal; see chain.
        stamp: tells whether the file of the ledger was changed since: its inode, size, and time in ns.
        turn: how often the witness was written.
    """

    ledger: str
    began: float
    releases: int
    head: str
    stamp: tuple[int, int, int]
    turn: int = 0

    @property
    def last(self) -> Last:
        """The last charge that is known."""
        return Last(self.releases, bytes.fromhex(self.head))

    @property
    def words(self) -> str:
        """For messages."""
        day = datetime.fromtimestamp(self.began, UTC).date()
        releases = "release" if self.releases == 1 else "releases"
        return f"a ledger that was begun on {day} and had charged at least {self.releases:,} {releases}"


_JSON = TypeAdapter(Witness)


def runs_of(ledger: Path) -> Path:
    """The folder beside a ledger that has its witness, and the journals of folder jobs."""
    return ledger.with_name(f"{ledger.name}.runs")


def seen(ledger: Path, database: sqlite3.Connection) -> Witness:
    """What is to be known of a ledger, read from itself."""
    settings = dict(database.execute("select key, value from settings").fetchall())
    number, link = chain.last(database)
    file = ledger.stat()
    stamp = (file.st_ino, file.st_size, file.st_mtime_ns)
    return Witness(settings["name"], float(settings["began"]), number, link.hex(), stamp)


def read(ledger: Path) -> Witness | None:
    """What is known of the ledger at a path; None where there is no witness.

    Raises:
        LedgerError: the witness is damaged.
    """
    path, reason = _path(ledger), "damaged"
    try:
        content = path.read_bytes()
        known = [_parsed(line) for line in (content[:_LINE], content[_LINE:])]
        return max(filter(None, known), key=lambda witness: witness.turn)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = str(error.strerror)
    except ValueError:  # no line is whole
        pass
    raise LedgerError(
        f"{path}: cannot be read ({reason}). It says which ledger lies beside it: put it back, or accept the "
        "ledger as it is with `sfumato ledger restore LEDGER`; if that is lost, say so with `sfumato ledger "
        "forget`"
    )


def _parsed(line: bytes) -> Witness | None:
    """What a line of the file says; None of a broken one."""
    check, _, text = line.rstrip().partition(b" ")
    return _JSON.validate_json(text) if text and check == _check_of(text) else None


def write(ledger: Path, now: Witness, before: Witness | None, *, lasting: bool = True) -> None:
    """Write down what is known of a ledger, over the line that was not written last.

    Args:
        ledger: its path.
        now: what is known now.
        before: what was, as `read` returns it. None begins the file.
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
    for folder in (path.parent, ledger.parent):  # where its name has to last, too
        handle = os.open(folder, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def refuse_to_begin(ledger: Path, witness: Witness | None) -> None:
    """Raise LedgerError where something beside an absent ledger knows of one, as its witness does."""
    journals = sorted(runs_of(ledger).glob("*.db"))
    if witness is None and not journals:
        return refuse_log(ledger)
    known = (
        witness.words if witness is not None else f"a ledger by which {len(journals)} folders were released"
    )
    raise LedgerError(
        f"{ledger}: no ledger is here, and {runs_of(ledger)} knows of {known}. Without it, noise would be "
        "drawn and charged again: put it back, bring in a copy with `sfumato ledger restore COPY`, or say "
        "with `sfumato ledger forget` that it is lost"
    )


def refuse_log(ledger: Path) -> None:
    """Raise LedgerError where SQLite's log of an absent ledger lies: SQLite would write it over the next."""
    log = ledger.with_name(f"{ledger.name}-wal")
    if log.exists() and not ledger.exists():
        raise LedgerError(
            f"{log}: has the last releases of the ledger that was here: put both back, or move it away"
        )


def check(
    ledger: Path, known: Witness | None, now: Witness, database: sqlite3.Connection, command: str
) -> None:
    """Raise LedgerError unless all that left by the ledger of a witness is in a ledger.

    Args:
        ledger: its path.
        known: by the witness.
        now: what is known of the ledger itself, see seen.
        database: the ledger.
        command: which accepts the ledger as it is.
    """
    again = "would be drawn and charged again: put the latest copy back, or accept this one"
    accept = f"as it is with `{command}`"
    if known is None:
        if now.releases:
            raise LedgerError(
                f"{ledger}: its witness {_path(ledger)} is not here, which knows whether this is the latest "
                f"copy. What an older one does not know {again} {accept}"
            )
    elif known.ledger != now.ledger:
        raise LedgerError(
            f"{ledger}: is not the ledger that lay here before, {known.words}, whose releases {again} "
            f"{accept}"
        )
    elif now.releases < known.releases:
        raise LedgerError(
            f"{ledger}: is a copy from before its last {known.releases - now.releases:,} releases, which "
            f"{again} {accept}"
        )
    elif not chain.holds(database, known.last):
        raise LedgerError(
            f"{ledger}: is a copy that went on elsewhere: its release {known.releases:,} is not the one that "
            f"left here. What left here after the copy was made {again} {accept}"
        )


def forget(ledger: Path, *, journals: bool = False) -> None:
    """Remove what is known of a ledger: its witness, and if asked the journals of its folders."""
    _path(ledger).unlink(missing_ok=True)
    if journals:
        for path in [*runs_of(ledger).glob("*.db*"), *runs_of(ledger).glob("*.lock")]:
            path.unlink()


def _path(ledger: Path) -> Path:
    return runs_of(ledger) / "witness"


def _check_of(text: bytes) -> bytes:
    """By which a line is told from a broken one."""
    return hashlib.sha256(text).hexdigest()[:16].encode()
