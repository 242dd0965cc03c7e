"""The images that a ledger knows: which are near copies of each other, and who is in them."""

import os
import sqlite3
from collections.abc import Iterable
from typing import Literal

from sfumato.device.ledger.near_copies import Fingerprint, near_copies
from sfumato.device.ledger.scopes import EVERY_PERSON

NearCopies = Literal["charge", "refuse", "ignore"]

# A new image is compared with the images that share the most keys with it. Copies share many keys, others one
# or two; the number of others grows with the ledger.
_CANDIDATES = 8


class Pictures:
    """The images of a ledger. State: the ledger's connection.

    Near copies are pairs, and a copy of a copy need not be one: a chain of exposures, each a little unlike
    the next, does not become one picture. The pairs do not depend on the order in which images arrive, if
    the index finds them both ways.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def see(
        self, image: bytes, name: str, fingerprint: Fingerprint | None, mode: NearCopies
    ) -> tuple[int, bool]:
        """Return the number of an image; find its near copies once its fingerprint is known.

        Returns:
            the number, and whether the image was known before and has copies only from now on.
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
        return int(number), bool(copies) and row is not None

    def _near(self, fingerprint: Fingerprint) -> list[int]:
        """Find the images of which one with this fingerprint is a near copy."""
        marks = ", ".join("?" * len(fingerprint.probes))
        candidates = self._database.execute(
            "select id, fingerprint from (select image as number, count(*) as shared "
            f"from fingerprint_keys where key in ({marks}) group by image order by shared desc "
            f"limit {_CANDIDATES}) join images on id = number",
            fingerprint.probes,
        ).fetchall()
        # Copies of a copy too: there may be more of them than candidates.
        query = (
            "select id, fingerprint from copies join images on id = copy "
            "where copies.image = ? and fingerprint is not null"
        )
        found, seen = [], dict(candidates)
        while candidates:
            number, bits = candidates.pop()
            if near_copies(fingerprint.bits, bits):
                found.append(number)
                others = self._database.execute(query, (number,)).fetchall()
                candidates += [other for other in others if other[0] not in seen]
                seen |= dict(others)
        return found

    def copies(self, number: int) -> list[int]:
        """List an image and its near copies, itself first."""
        rows = self._database.execute(
            "select copy from copies where image = ? order by copy <> image, copy", (number,)
        )
        return [copy for (copy,) in rows]

    def name_released_copy(self, number: int) -> str | None:
        """Name a near copy that was released; "" if it has no name, None if there is no copy."""
        row = self._database.execute(
            "select name from copies join images on id = copy "
            "where copies.image = ? and copy <> copies.image and releases > 0 "
            "order by length(name) = 0, copy limit 1",
            (number,),
        ).fetchone()
        return None if row is None else os.fsdecode(row[0])

    def lay(self, image: bytes, scopes: Iterable[bytes]) -> None:
        """Record who is in an image."""
        for scope in scopes:
            self._database.execute("insert or ignore into folders (path) values (?)", (scope,))
            self._database.execute(
                "insert or ignore into places select ?, id from folders where path = ?", (image, scope)
            )

    def people_in(self, number: int) -> list[bytes]:
        """List the scopes of the people in an image or its near copies."""
        rows = self._database.execute(
            "select distinct path from copies join images on images.id = copy join places on "
            "places.image = images.image join folders on folders.id = folder "
            "where copies.image = ? and substr(path, 1, ?) = ?",
            (number, len(EVERY_PERSON), EVERY_PERSON),
        )
        return [path for (path,) in rows]

    def people(self) -> list[str]:
        """List the names of all people in the images."""
        rows = self._database.execute(
            "select distinct path from places join folders on folders.id = folder "
            "where substr(path, 1, ?) = ? order by path",
            (len(EVERY_PERSON), EVERY_PERSON),
        )
        return [path.removeprefix(EVERY_PERSON).decode("utf-8", "surrogateescape") for (path,) in rows]
