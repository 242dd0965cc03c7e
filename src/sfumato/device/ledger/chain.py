"""The chain of charges: each digests the one before, so that none can be lost or changed unnoticed.

The last link stands for all of them: it distinguishes the ledger from a copy made before its last releases,
and from a copy that continued elsewhere. A person can still forge a ledger: the chain has no secret.
"""

import hashlib
import sqlite3
from collections.abc import Iterable
from typing import Any, NamedTuple

from sfumato.device.ledger.accounts import DamagedError
from sfumato.device.ledger.tables import digest_of_release

_ROWS = (
    "select charges.id, image, spec, channels, height, width, time, number, digest, link, {release} "
    "from charges join terms on terms.id = terms where charges.id > ? order by charges.id"
)


class Last(NamedTuple):
    """The last charge: its number, which counts all charges, and its link. 0 and b"" without charges."""

    number: int
    link: bytes


def link(before: bytes, row: Iterable[object]) -> bytes:
    """Return the link of a charge: 16 bytes of SHA-256.

    Args:
        before: the link of the charge before; b"" for the first.
        row: the number of the charge, its image, the spec, C, H and W, the time, the number of the release,
            and its digest.
    """
    return hashlib.sha256(before + ascii(tuple(row)).encode()).digest()[:16]


def last(database: sqlite3.Connection) -> Last:
    """Return the last charge of a ledger."""
    row = database.execute("select id, link from charges order by id desc limit 1").fetchone()
    return Last(0, b"") if row is None else Last(*row)


def holds(database: sqlite3.Connection, charge: Last) -> bool:
    """Whether a charge is in the chain of a ledger."""
    query = "select 1 from charges where id = ? and link = ?"
    return charge == (0, b"") or database.execute(query, charge).fetchone() is not None


def check_after(database: sqlite3.Connection, charge: Last) -> None:
    """Raise DamagedError unless all charges after one are complete and unchanged."""
    _check(charge, database.execute(_ROWS.format(release="null"), (charge.number,)), releases=False)


def check(database: sqlite3.Connection, *, releases: bool) -> None:
    """Read a whole ledger: every page, the whole chain of charges and, if it keeps them, every release.

    Raises:
        DamagedError: something changed after it was written.
    """
    (state,) = database.execute("pragma integrity_check(1)").fetchone()
    if state != "ok":
        raise DamagedError(f"damaged ({state})")
    rows = database.execute(_ROWS.format(release="release" if releases else "null"), (0,))
    count = _check(Last(0, b""), rows, releases=releases)
    (known,) = database.execute("select coalesce(sum(releases), 0) from images").fetchone()
    if known != count:
        raise DamagedError(f"damaged ({known} releases of images are recorded, and {count} are here)")


def _check(before: Last, rows: Iterable[tuple[Any, ...]], *, releases: bool) -> int:
    """Follow the chain from one charge on. Returns the number of the last."""
    number, expected = before
    for *row, stored, release in rows:
        number += 1
        expected = link(expected, row)
        if row[0] != number or stored != expected:
            raise DamagedError(f"damaged (charge {number} is missing, or was changed)")
        if releases and digest_of_release(row[1], release) != row[-1]:
            raise DamagedError(f"damaged (release {number} was changed)")
    return number
