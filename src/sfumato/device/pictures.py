"""The images that a ledger knows: which show one picture, where they lie, and who is in them."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Literal

from sfumato.device.accounts import WITHIN, within
from sfumato.device.near_copies import Fingerprint, near_copies
from sfumato.device.scopes import EVERY_PERSON

NearCopies = Literal["charge", "refuse", "ignore"]

# Images that share most keys with a new one are compared with it. Copies share many, and others one or two;
# of those there are more and more as a ledger grows.
_CANDIDATES = 8


class Pictures:
    """The images of a ledger. State: the ledger's connection."""

    def __init__(self, database: sqlite3.Connection, *, merged: Callable[[], None]) -> None:
        """`merged` is called where an image joins what were different pictures: their sums are one then."""
        self._database = database
        self._merged = merged

    def see(self, image: bytes, fingerprint: Fingerprint | None, mode: NearCopies) -> int:
        """The picture that an image shows: the number that it shares with its near copies."""
        row = self._database.execute(
            "select id, picture, fingerprint from images where image = ?", (image,)
        ).fetchone()
        if row is None:
            number = self._database.execute(
                "insert into images (image, picture) values "
                "(?, (select coalesce(max(id), 0) + 1 from images)) returning id",
                (image,),
            ).fetchone()[0]
            row = (number, number, None)
        number, picture, known = row
        if fingerprint is None or known is not None or mode == "ignore":
            return int(picture)
        pictures = {picture, *self._near(fingerprint)}
        self._database.execute("update images set fingerprint = ? where id = ?", (fingerprint.bits, number))
        self._database.executemany(
            "insert into fingerprint_keys values (?, ?)", [(key, number) for key in set(fingerprint.keys)]
        )
        if len(pictures) > 1:
            first = min(pictures)
            self._database.executemany(
                "update images set picture = ? where picture = ?", [(first, other) for other in pictures]
            )
            if len(pictures) > 2:
                self._merged()
            return int(first)
        return int(picture)

    def _near(self, fingerprint: Fingerprint) -> set[int]:
        """The pictures of which an image with this fingerprint is a near copy."""
        marks = ", ".join("?" * len(fingerprint.probes))
        candidates = self._database.execute(
            "select picture, fingerprint from (select image as number, count(*) as shared "
            f"from fingerprint_keys where key in ({marks}) group by image order by shared desc "
            f"limit {_CANDIDATES}) join images on id = number",
            fingerprint.probes,
        ).fetchall()
        pictures: set[int] = set()
        for picture, bits in candidates:
            if picture not in pictures and near_copies(fingerprint.bits, bits):
                pictures.add(picture)
        return pictures

    def another_is_released(self, image: bytes, picture: int) -> bool:
        """Whether a near copy of an image was released."""
        query = (
            "select 1 from images join charges on charges.image = images.image "
            "where picture = ? and images.image <> ? limit 1"
        )
        return self._database.execute(query, (picture, image)).fetchone() is not None

    def lay(self, image: bytes, picture: int, scopes: Sequence[bytes]) -> list[bytes]:
        """Write down where an image lies and who is in it. -> who is in its picture."""
        for scope in scopes:
            self._database.execute("insert or ignore into folders (path) values (?)", (scope,))
            self._database.execute(
                "insert or ignore into places select ?, id from folders where path = ?", (image, scope)
            )
        rows = self._database.execute(
            "select distinct path from images join places on places.image = images.image join folders on "
            "folders.id = folder where picture = ? and substr(path, 1, ?) = ?",
            (picture, len(EVERY_PERSON), EVERY_PERSON),
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

    def lies_in(self, scope: bytes, picture: int) -> bool:
        """Whether a picture was seen before somewhere in this folder."""
        query = (
            "select 1 from images join places on places.image = images.image join folders on "
            f"folders.id = folder where picture = ? and {WITHIN} limit 1"
        )
        return self._database.execute(query, (picture, *within(scope))).fetchone() is not None
