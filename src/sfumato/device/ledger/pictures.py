"""The images that a ledger knows: which are near copies of each other, where they lie, and who is in them."""

import os
import sqlite3
from collections.abc import Callable, Iterable
from typing import Literal

from sfumato.device.ledger.accounts import LYING_IN, within
from sfumato.device.ledger.near_copies import Fingerprint, near_copies
from sfumato.device.ledger.scopes import EVERY_PERSON

NearCopies = Literal["charge", "refuse", "ignore"]

# Images that share most keys with a new one are compared with it. Copies share many, and others one or two;
# of those there are more and more as a ledger grows.
_CANDIDATES = 8


class Pictures:
    """The images of a ledger. State: the ledger's connection.

    Near copies are pairs, and a copy of a copy need not be one: a chain of exposures, each a little unlike
    the next, does not become one picture. Which pairs there are does not depend on the order in which images
    come, as far as the index finds them both ways.
    """

    def __init__(self, database: sqlite3.Connection, *, joined: Callable[[], None]) -> None:
        """`joined` is called if an image that was there before gets copies: sums of folders change."""
        self._database = database
        self._joined = joined

    def see(
        self, image: bytes, name: str, fingerprint: Fingerprint | None, mode: NearCopies
    ) -> tuple[int, bool]:
        """The number of an image, which gets its near copies when its fingerprint comes first.

        Returns:
            the number, and whether it was here before and has copies only from now on.
        """
        row = self._database.execute(
            "select id, fingerprint from images where image = ?", (image,)
        ).fetchone()
        if row is None:
            (number,) = self._database.execute(
                "insert into images (image, name) values (?, ?) returning id", (image, os.fsencode(name))
            ).fetchone()
            self._database.execute("insert into copies values (?, ?)", (number, number))
        else:
            number = row[0]
        if fingerprint is None or mode == "ignore" or (row is not None and row[1] is not None):
            return int(number), False
        copies = self._near(fingerprint)
        self._database.execute("update images set fingerprint = ? where id = ?", (fingerprint.bits, number))
        self._database.executemany(
            "insert into fingerprint_keys values (?, ?)", [(key, number) for key in set(fingerprint.keys)]
        )
        self._database.executemany(
            "insert into copies values (?, ?)",
            [pair for copy in copies for pair in ((number, copy), (copy, number))],
        )
        joined = bool(copies) and row is not None
        if joined:
            self._joined()
        return int(number), joined

    def _near(self, fingerprint: Fingerprint) -> list[int]:
        """The images of which one with this fingerprint is a near copy."""
        marks = ", ".join("?" * len(fingerprint.probes))
        candidates = self._database.execute(
            "select id, fingerprint from (select image as number, count(*) as shared "
            f"from fingerprint_keys where key in ({marks}) group by image order by shared desc "
            f"limit {_CANDIDATES}) join images on id = number",
            fingerprint.probes,
        ).fetchall()
        return [number for number, bits in candidates if near_copies(fingerprint.bits, bits)]

    def copies(self, number: int) -> list[int]:
        """An image and its near copies, itself first."""
        rows = self._database.execute(
            "select copy from copies where image = ? order by copy <> image, copy", (number,)
        )
        return [copy for (copy,) in rows]

    def released_copy(self, number: int) -> str | None:
        """The name of a near copy of an image that was released; "" if it has none, None without a copy."""
        row = self._database.execute(
            "select name from copies join images on id = copy "
            "where copies.image = ? and copy <> copies.image and releases > 0 "
            "order by length(name) = 0, copy limit 1",
            (number,),
        ).fetchone()
        return None if row is None else os.fsdecode(row[0])

    def lay(self, image: bytes, scopes: Iterable[bytes]) -> None:
        """Write down where an image lies and who is in it."""
        for scope in scopes:
            self._database.execute("insert or ignore into folders (path) values (?)", (scope,))
            self._database.execute(
                "insert or ignore into places select ?, id from folders where path = ?", (image, scope)
            )

    def people_in(self, number: int) -> list[bytes]:
        """The scopes of who is in an image or a near copy of it."""
        rows = self._database.execute(
            "select distinct path from copies join images on images.id = copy join places on "
            "places.image = images.image join folders on folders.id = folder "
            "where copies.image = ? and substr(path, 1, ?) = ?",
            (number, len(EVERY_PERSON), EVERY_PERSON),
        )
        return [path for (path,) in rows]

    def people(self) -> list[str]:
        """Who is in any of them, by name."""
        rows = self._database.execute(
            "select distinct path from places join folders on folders.id = folder "
            "where substr(path, 1, ?) = ? order by path",
            (len(EVERY_PERSON), EVERY_PERSON),
        )
        return [path.removeprefix(EVERY_PERSON).decode("utf-8", "surrogateescape") for (path,) in rows]

    def lies_in(self, scope: bytes, number: int) -> bool:
        """Whether an image or a near copy was seen before somewhere in this folder."""
        query = f"select 1 {LYING_IN} and copies.image = ? limit 1"
        return self._database.execute(query, (*within(scope), number)).fetchone() is not None
