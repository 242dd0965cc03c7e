"""The ledger: what a device has released of which image, at what cost, and within which budgets.

One SQLite file a device, written through by every release before anything leaves. It knows images by the
digest of their pixels, and near copies of one picture by their fingerprints; it keeps every random release,
and hands out the same one when the same is asked again: drawing noise anew would let an adversary average it
away. It is private: whoever reads it can tell whether a picture they hold was ever released here, and where
it lay.
"""

import hashlib
import json
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import platformdirs

from sfumato import databases
from sfumato.databases import Marks, transaction
from sfumato.device import witness
from sfumato.device.budgets import NO_LIMIT, Budget
from sfumato.device.near_copies import Fingerprint, near_copies
from sfumato.device.scopes import (
    EVERY_IMAGE,
    EVERY_PERSON,
    covers,
    described,
    folder_name,
    is_folder,
    is_named_person,
    kind_of,
    person_scope,
)
from sfumato.device.witness import Witness
from sfumato.dp.guarantee import Guarantee
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError

NearCopies = Literal["charge", "refuse", "ignore"]
_Key = tuple[bytes, bool]  # the scope of a budget, and whether it counts releases

# What a new ledger allows, until somebody says otherwise: of an image, and of all images of one person.
DEFAULT_BUDGETS = {EVERY_IMAGE: Budget.parse("releases=5"), EVERY_PERSON: Budget.parse("releases=30")}

MARKS = Marks(application=0x5346554D, version=2)  # "SFUM": a ledger
# Images that share most keys with a new one are compared with it. Copies share many, and others one or two;
# of those there are more and more as a ledger grows.
_CANDIDATES = 8
_PAGE = 16384  # releases are large: twice as fast as 4096
_TABLES_OF_2 = """
create table settings (key text primary key, value text not null);
create table images (
    id integer primary key,
    image blob not null unique,  -- SHA-256 of its shape and pixels
    picture integer not null,  -- the same number for near copies
    fingerprint blob,  -- by which near copies are told; null where it has none
    releases integer not null default 0  -- as many as it has in `charges`, or one of both is damaged
);
create index images_of_picture on images (picture);
create table fingerprint_keys (
    key integer not null, image integer not null references images, primary key (key, image)
) without rowid;
create table surveyed (  -- files of folders that have a budget
    path blob primary key, stamp text not null
);
create table pins (  -- what each service may have
    service text not null, classifier text not null, spec text not null, since real not null,
    primary key (service, classifier)
);
create table budgets (
    scope blob not null,  -- see scopes; '' is every single image
    counted integer not null,  -- 1 for a number of releases, 0 for what is proved
    definition text not null, amount real not null, pixels integer not null, words text not null,
    spent real not null,  -- by the whole folder; 0 where it is added up when asked
    primary key (scope, counted)
);
"""
_SCHEMA = f"""
create table terms (
    id integer primary key,
    spec text not null, channels integer not null, height integer not null, width integer not null,
    guarantees text not null,  -- JSON: what a release is proved to hide, for one or more numbers of pixels
    unique (spec, channels, height, width)
);
create table charges (
    id integer primary key,
    image blob not null,
    terms integer not null references terms,
    time real not null,  -- seconds since 1970, UTC
    release blob,  -- the values; null where the protection draws no noise
    digest blob,  -- of the image and the release, to notice damage
    unique (image, terms)
);
create table folders (id integer primary key, path blob not null unique);
create table places (  -- where each image ever lay, and who is in it
    image blob not null, folder integer not null references folders, primary key (image, folder)
) without rowid;
{_TABLES_OF_2}"""


def default_path() -> Path:
    """Where this user's ledger lies when no other is named."""
    return platformdirs.user_data_path("sfumato") / "ledger.db"


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A release that is about to leave.

    Attributes:
        image: digest of the original, sfumato.images.digest.
        spec: the protection, in its canonical form.
        shape: (C, H, W) of the original.
        guarantee: m, or None for the protection's own -> what is proved, or None.
        release: the values as bytes, (C, h, w) uint8 or (d,) float32 of a private feature; None where
            asking again gives the same anyway.
        folder: where the image lies, for the budgets of folders; see scopes.folder_name for a URL.
        person: who is in it, for the budgets of people; None where nobody says.
        fingerprint: by which near copies are told; None where it has none, or the ledger knows the image.
    """

    image: bytes
    spec: str
    shape: tuple[int, int, int]
    guarantee: Callable[[int | None], Guarantee | None]
    release: bytes | None
    folder: str | os.PathLike[str]
    person: str | None = None
    fingerprint: Fingerprint | None = None


class Charged(NamedTuple):
    """What a ledger says to charges.

    Attributes:
        releases: what must leave instead of each `release`: itself, or the one that was kept when this image
            and spec were charged before, which costs nothing now.
        new: how many were charged now.
    """

    releases: list[bytes | None]
    new: int


class Limit(NamedTuple):
    """A budget, what it is for, and what is spent of it: 0 where it is for every image or every person."""

    scope: bytes
    budget: Budget
    spent: float


class Pin(NamedTuple):
    """The protection that a service may have, and since when (seconds since 1970)."""

    spec: str
    since: float


@dataclass(frozen=True)
class Summary:
    """What a ledger holds: distinct images, the pictures that they show, releases, budgets and pins."""

    images: int
    pictures: int
    releases: int
    specs: dict[str, int]
    budgets: list[Limit]
    pins: dict[tuple[str, str], Pin]


class Ledger:
    """The ledger of a device. State: a connection to its file, for one thread.

    Several processes may hold the same ledger: each transaction is whole or not there, also when a process is
    killed or the power fails in the middle.

    Attributes:
        path: of the file.
        begun: whether it was begun by this object: there was none before.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_releases: bool = True) -> None:
        """Open a ledger, or begin one where there is no file and nothing knows of one.

        A new ledger has the budgets DEFAULT_BUDGETS. One of the version before is brought up to this one.

        Args:
            path: of the file.
            keep_releases: False charges without keeping what is released: for copies, to try something.

        Raises:
            LedgerError: the file is damaged, or no ledger, or written by a later version, or its folder
                cannot be written; or it is absent, or an older copy, and its witness knows of another.
                Nothing is changed then: a lost ledger must not pass for an empty one.
        """
        self.path = Path(path).absolute()
        self._keep_releases = keep_releases
        self.begun = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                witness.refuse_to_begin(self.path)
                # One that another process begins meanwhile is as empty.
                with (
                    suppress(FileExistsError),
                    databases.begun(self.path, _SCHEMA, MARKS, page_size=_PAGE) as database,
                ):
                    _fill(database)
                self.begun = True
            file = self.path.stat()
            os.close(os.open(self.path, os.O_RDWR))
        except (OSError, sqlite3.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise LedgerError(f"{self.path}: cannot be opened for writing ({reason})") from error
        if file.st_size == 0:
            raise LedgerError(f"{self.path}: an empty file: restore the ledger from a copy, or name another")
        self._file = (file.st_dev, file.st_ino)
        with self._errors():
            self._database = databases.connect(self.path)
            found = databases.marks_of(self._database)
            self._has_log = self._database.execute("pragma journal_mode").fetchone() == ("wal",)
        if found.application != MARKS.application:
            raise LedgerError(f"{self.path}: a database, but no ledger: name another file")
        if found.version > MARKS.version:
            raise LedgerError(
                f"{self.path}: a ledger of version {found.version}, not {MARKS.version}: upgrade sfumato"
            )
        with self._errors():
            if found.version < MARKS.version:
                _upgrade(self._database)
            settings = dict(self._database.execute("select key, value from settings").fetchall())
            self.name, self._began = settings["name"], float(settings["began"])
            witness.check(self.path, self.name, self._releases())
            self._testify()

    def close(self) -> None:
        """Close the connection, and write down beside the ledger how far it has come."""
        # Closed already; or damaged, which whoever asks something of it is told.
        with suppress(sqlite3.Error, LedgerError):
            if self._is_there():
                self._testify()
        self._database.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, _DamagedError, UnicodeDecodeError, KeyError) as error:
            raise LedgerError(
                f"{self.path}: {error}. Nothing was charged. If it is damaged, restore it from a copy: "
                "without it, releases would be drawn and paid again"
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction, after which the file is still the one that was opened."""
        with self._errors():
            with transaction(self._database):
                yield
            if not self._is_there():
                raise LedgerError(
                    f"{self.path}: was deleted or replaced while it was in use, and what was charged last is "
                    "lost: nothing of it leaves. Put the ledger back, or restore a copy with `sfumato ledger "
                    "restore`"
                )

    def _is_there(self) -> bool:
        try:
            file = self.path.stat()
            if self._has_log:  # SQLite writes there until the last connection closes
                self.path.with_name(f"{self.path.name}-wal").stat()
        except OSError:
            return False
        return (file.st_dev, file.st_ino) == self._file

    def _testify(self) -> None:
        """Write down beside the ledger which one it is and how far it has come, where that is news."""
        known = witness.read(self.path)
        releases = self._releases()
        if known is None or known.releases < releases:
            try:
                witness.write(self.path, Witness(self.name, self._began, releases))
            except OSError as error:
                raise LedgerError(
                    f"{witness.runs_of(self.path)}: cannot be written ({error.strerror}), and says which "
                    "ledger lies beside it: make room there, or name another ledger"
                ) from error

    def _releases(self) -> int:
        releases: int
        # No charge is ever deleted: the last number is their count.
        (releases,) = self._database.execute("select coalesce(max(id), 0) from charges").fetchone()
        return releases

    def kept(self, images: Sequence[bytes], spec: str) -> dict[bytes, bytes]:
        """Digest -> release, for those of the images that this spec released before, with noise.

        Raises:
            LedgerError: a release is not what it was when it was kept.
        """
        found: dict[bytes, bytes] = {}
        with self._errors():
            for image in images:
                row = self._database.execute(
                    "select release, digest from charges join terms on terms.id = terms "
                    "where image = ? and spec = ?",
                    (image, spec),
                ).fetchone()
                if row and row[0] is not None:
                    found[image] = _undamaged(image, *row)
        return found

    def known(self, images: Iterable[bytes]) -> set[bytes]:
        """Those of the images whose fingerprints need not be taken: the ledger has them."""
        with self._errors():
            if self.near_copies == "ignore":
                return set(images)
            query = "select 1 from images where image = ? and fingerprint is not null"
            return {image for image in images if self._database.execute(query, (image,)).fetchone()}

    @property
    def near_copies(self) -> NearCopies:
        """What happens to near copies of images that were released: see set_near_copies."""
        with self._errors():
            row = self._database.execute("select value from settings where key = 'near copies'").fetchone()
        mode: NearCopies = row[0]
        return mode

    def set_near_copies(self, mode: NearCopies) -> None:
        """Say what happens to near copies, from now on: flipped, cut, resized or recompressed images.

        Args:
            mode: "charge" has one budget for all near copies of a picture; "refuse" releases none of them
                once another one was released; "ignore" takes them for different images.
        """
        if mode not in ("charge", "refuse", "ignore"):
            raise ConfigError(f"near copies {mode!r}: choose charge, refuse or ignore")
        with self._changing():
            self._database.execute("update settings set value = ? where key = 'near copies'", (mode,))

    def charge(self, charges: Sequence[Charge]) -> Charged:
        """Charge releases before they leave: all of them, or none. Charging again does no harm.

        Raises:
            BudgetExceededError: one of them would pass the budget of its image (with its near copies), of a
                person in it, or of a folder in which the image or a near copy of it lies or was seen before.
            LedgerError: the file cannot be written, or was deleted or replaced.
        """
        with self._changing():
            budgets = self._budgets()
            mode = self.near_copies
            # Links are followed once a batch: that costs as much as all the rest of a charge.
            folders = {charge.folder: folder_name(charge.folder) for charge in charges}
            results = [self._charge(charge, folders[charge.folder], budgets, mode) for charge in charges]
        return Charged([release for release, _ in results], sum(new for _, new in results))

    def _charge(
        self, charge: Charge, folder: bytes, budgets: dict[_Key, Budget], mode: NearCopies
    ) -> tuple[bytes | None, bool]:
        terms, guarantees = self._terms(charge, {budget.pixels for budget in budgets.values()})
        row = self._database.execute(
            "select release, digest from charges where image = ? and terms = ?", (charge.image, terms)
        ).fetchone()
        new = row is None
        picture = self._see(charge.image, charge.fingerprint, mode)
        if new:
            self._check_releases(charge.image)
        if new and mode == "refuse" and self._another_is_released(charge.image, picture):
            raise BudgetExceededError(
                f"{charge.spec}: this image is a near copy of one that was released before, and near copies "
                "are refused: release one version, or let them share a budget with `sfumato ledger "
                "near-copies charge`",
                cause="a near copy of an image that was released before",
            )

        def check(scope: bytes, budget: Budget, spent: float, brought: float, subject: str) -> float:
            """What is spent with this release. Raises BudgetExceededError if that is more than the budget."""
            cause = f"over the budget of {kind_of(scope)}: {budget}"
            try:
                cost = brought + (budget.cost(guarantees) if new else 0.0)
            except BudgetExceededError as error:
                message = f"{charge.spec}: {error} (budget of {subject}: {budget})"
                raise BudgetExceededError(message, cause=cause) from error
            if cost and (refusal := budget.refusal(spent, cost, subject)):
                raise BudgetExceededError(f"{charge.spec}: {refusal}", cause=cause)
            return spent + cost

        for (scope, counted), budget in budgets.items():
            if scope == EVERY_IMAGE and new:
                check(scope, budget, self._spent_on(picture, budget), 0.0, "this image")
            elif is_folder(scope) and ((known := self._lies_in(scope, picture)) or covers(scope, folder)):
                # A picture that is new to a folder brings along what was released of it elsewhere.
                brought = 0.0 if known else self._spent_on(picture, budget)
                spent = check(scope, budget, self._spent((scope, counted)), brought, described(scope))
                self._set_spent((scope, counted), spent)
        named = [] if charge.person is None else [person_scope(charge.person)]
        people = self._lay(charge.image, picture, [folder, *named])
        for scope, budget in _budgets_of_people(people, budgets):
            if new or scope in named:
                check(scope, budget, self._spent_in(scope, budget), 0.0, described(scope))
        if not new:
            return (None if row[0] is None else _undamaged(charge.image, *row)), False
        self._database.execute("update images set releases = releases + 1 where image = ?", (charge.image,))
        release = charge.release if self._keep_releases else None
        self._database.execute(
            "insert into charges (image, terms, time, release, digest) values (?, ?, ?, ?, ?)",
            (charge.image, terms, time.time(), release, _digest(charge.image, release)),
        )
        return charge.release, True

    def _check_releases(self, image: bytes) -> None:
        """Raise _DamagedError where a release of an image is not found that was charged."""
        (charged,) = self._database.execute(
            "select count(*) from charges where image = ?", (image,)
        ).fetchone()
        (known,) = self._database.execute("select releases from images where image = ?", (image,)).fetchone()
        if charged != known:
            raise _DamagedError(f"damaged ({known} releases of an image are known, and {charged} are here)")

    # Pictures, and where they lie.

    def _see(self, image: bytes, fingerprint: Fingerprint | None, mode: NearCopies) -> int:
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
            if len(pictures) > 2:  # the image joins what were different pictures: their sums are one now
                self._add_up_folders()
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
        return {picture for picture, bits in candidates if near_copies(fingerprint.bits, bits)}

    def _another_is_released(self, image: bytes, picture: int) -> bool:
        query = (
            "select 1 from images join charges on charges.image = images.image "
            "where picture = ? and images.image <> ? limit 1"
        )
        return self._database.execute(query, (picture, image)).fetchone() is not None

    def _lay(self, image: bytes, picture: int, scopes: Sequence[bytes]) -> list[bytes]:
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

    def _lies_in(self, scope: bytes, picture: int) -> bool:
        """Whether a picture was seen before somewhere in this folder."""
        query = (
            "select 1 from images join places on places.image = images.image join folders on "
            f"folders.id = folder where picture = ? and {_WITHIN} limit 1"
        )
        return self._database.execute(query, (picture, *_within(scope))).fetchone() is not None

    def survey(
        self, files: Iterable[tuple[bytes, str]], images: Iterable[tuple[bytes, Fingerprint | None, Path]]
    ) -> None:
        """Write down images that lie in a folder which has a budget, whether they were released or not.

        What is released of them, or of copies of them elsewhere, counts for that folder from now on.

        Args:
            files: paths and stamps, see surveyed.
            images: digests, fingerprints, and the folders in which they lie.
        """
        with self._changing():
            mode = self.near_copies
            for image, fingerprint, folder in images:
                picture = self._see(image, fingerprint, mode)
                self._lay(image, picture, [folder_name(folder)])
            self._database.executemany("insert or replace into surveyed values (?, ?)", files)
            self._add_up_folders()

    def budgeted_folders(self) -> list[bytes]:
        """The folders of this machine that have a budget, but for its root."""
        with self._errors():
            scopes = {scope for scope, _ in self._budgets()}
        return sorted(scope for scope in scopes if scope.startswith(b"/") and scope != b"/")

    def surveyed(self, path: bytes) -> str | None:
        """The stamp that a file had when it was surveyed; None where it never was."""
        with self._errors():
            row = self._database.execute("select stamp from surveyed where path = ?", (path,)).fetchone()
        return None if row is None else str(row[0])

    # What was spent.

    def _terms(self, charge: Charge, pixels: set[int]) -> tuple[int, list[Guarantee]]:
        """The row of a spec and shape, and what is proved of it for its own and for these pixels."""
        key = (charge.spec, *charge.shape)
        row = self._database.execute(
            "select id, guarantees from terms where spec = ? and channels = ? and height = ? and width = ?",
            key,
        ).fetchone()
        known = [] if row is None else _guarantees(row[1])
        missing: list[int | None] = [*sorted(pixels - {guarantee.pixels for guarantee in known})]
        if row is not None and not (known and missing):
            return row[0], known
        for m in [None, *missing] if row is None else missing:
            guarantee = charge.guarantee(m)
            if guarantee is not None and guarantee not in known:
                known.append(guarantee)
        text = json.dumps([asdict(guarantee) for guarantee in known])
        cursor = self._database.execute(
            "insert into terms (spec, channels, height, width, guarantees) values (?, ?, ?, ?, ?)"
            "on conflict do update set guarantees = excluded.guarantees returning id",
            (*key, text),
        )
        return cursor.fetchone()[0], known

    def _spent_on(self, picture: int, budget: Budget) -> float:
        """The sum over all releases of a picture. Infinite where nothing is proved of one of them."""
        return self._sum("select image from images where picture = ?", (picture,), budget)

    def _spent_in(self, scope: bytes, budget: Budget) -> float:
        """The sum over all releases of pictures that lie in a folder, or show a person, each counted once."""
        pictures = (
            "select picture from images join places on places.image = images.image join folders on "
            f"folders.id = folder where {_WITHIN}"
        )
        return self._sum(f"select image from images where picture in ({pictures})", _within(scope), budget)

    def _sum(self, images: str, values: Sequence[object], budget: Budget) -> float:
        """The sum over all releases of the images that a query gives."""
        rows = self._database.execute(
            "select guarantees, count(*) from charges join terms on terms.id = terms "
            f"where image in ({images}) group by terms.id",
            values,
        )
        return math.fsum(count * _cost_or_infinity(budget, _guarantees(text)) for text, count in rows)

    def _add_up_folders(self) -> None:
        """Make what is kept as spent in folders anew from all charges."""
        for key, budget in self._budgets().items():
            if is_folder(key[0]):
                self._set_spent(key, self._spent_in(key[0], budget))

    def _spent(self, key: _Key) -> float:
        spent: float
        (spent,) = self._database.execute(
            "select spent from budgets where scope = ? and counted = ?", key
        ).fetchone()
        return spent

    def _set_spent(self, key: _Key, spent: float) -> None:
        self._database.execute("update budgets set spent = ? where scope = ? and counted = ?", (spent, *key))

    def _budgets(self) -> dict[_Key, Budget]:
        rows = self._database.execute(
            "select scope, counted, definition, amount, pixels, words from budgets order by scope, counted"
        )
        return {
            (scope, bool(counted)): Budget(definition=definition, amount=amount, pixels=pixels, words=words)
            for scope, counted, definition, amount, pixels, words in rows
        }

    def set_budget(
        self,
        budget: Budget | None,
        *,
        folder: str | os.PathLike[str] | None = None,
        person: str | None = None,
    ) -> float:
        """Limit what may be spent from now on; None lifts the limit.

        A number of releases and a budget of what is proved stand beside each other; a new one takes the place
        of the one of its kind, and None lifts both. The budget of a folder is for something that is in every
        image below it: the releases of all of them and of their near copies add up, those from elsewhere too
        once the ledger has seen the image in the folder. That of a single image holds for each picture by
        itself. That of a person takes the place of the one of every person.

        Args:
            budget: the limit; may be below what is spent already, and then nothing more is allowed.
            folder: which one, or the URL of one, see scopes.folder_name.
            person: who; "" for every person by themselves. None, without a folder, for every single image.

        Returns:
            what is spent of it already (0 for single images and every person); infinite where something was
            released of which nothing is proved.

        Raises:
            ConfigError: both a folder and a person.
        """
        if folder is not None and person is not None:
            raise ConfigError("a budget is of a folder or of a person: name one of them")
        scope = EVERY_IMAGE
        if folder is not None:
            scope = folder_name(folder)
        elif person is not None:
            scope = person_scope(person)
        with self._changing():
            if budget is None:
                self._database.execute("delete from budgets where scope = ?", (scope,))
                if person:  # or the budget of every person would hold
                    for counted in (False, True):
                        _insert_budget(self._database, scope, counted, NO_LIMIT, 0.0)
                return 0.0
            total = scope in (EVERY_IMAGE, EVERY_PERSON)
            spent = 0.0 if total else self._spent_in(scope, budget)
            _insert_budget(self._database, scope, budget.definition == "releases", budget, spent)
            return spent

    def spent_on(self, image: bytes, budget: Budget) -> float:
        """What the releases of one image and its near copies cost so far; infinite where unproved."""
        with self._errors():
            row = self._database.execute("select picture from images where image = ?", (image,)).fetchone()
            return 0.0 if row is None else self._spent_on(row[0], budget)

    # What a service may have.

    def pin(self, service: str, classifier: str) -> Pin | None:
        """The protection by which a service may have releases for a classifier; None where nobody agreed."""
        with self._errors():
            row = self._database.execute(
                "select spec, since from pins where service = ? and classifier = ?", (service, classifier)
            ).fetchone()
        return None if row is None else Pin(*row)

    def set_pin(self, service: str, classifier: str, spec: str) -> None:
        """Write down that a service may have releases by a spec, and by no other unasked."""
        with self._changing():
            self._database.execute(
                "insert or replace into pins values (?, ?, ?, ?)", (service, classifier, spec, time.time())
            )

    def unpin(self, service: str) -> int:
        """Forget what a service may have, so that it is asked again. -> for how many classifiers."""
        with self._changing():
            return self._database.execute("delete from pins where service = ?", (service,)).rowcount

    # The whole.

    def summary(self) -> Summary:
        """What the ledger holds."""
        with self._errors():
            images, releases = self._database.execute(
                "select count(distinct image), count(*) from charges"
            ).fetchone()
            (pictures,) = self._database.execute(
                "select count(distinct picture) from images where image in (select image from charges)"
            ).fetchone()
            specs = self._database.execute(
                "select spec, count(*) from charges join terms on terms.id = terms "
                "group by spec order by spec"
            ).fetchall()
            limits = []
            for key, budget in self._budgets().items():
                named = is_named_person(key[0])
                spent = self._spent_in(key[0], budget) if named else self._spent(key)
                limits.append(Limit(key[0], budget, spent))
            pins = {
                (service, classifier): Pin(spec, since)
                for service, classifier, spec, since in self._database.execute(
                    "select * from pins order by service, classifier"
                )
            }
        return Summary(images, pictures, releases, dict(specs), limits, pins)

    def copy_without_releases(self, path: Path) -> None:
        """Write a copy in which every charge is kept but no release: to find out what a run would cost."""
        Ledger(path).close()
        with self._errors():
            self._database.execute("attach ? as copy", (os.fspath(path),))
            with transaction(self._database):
                self._database.execute("delete from copy.budgets")
                self._database.execute(
                    "update copy.settings set value = (select value from main.settings where key = 'near "
                    "copies') where key = 'near copies'"
                )
                for table in ("terms", "folders", "places", "images", "fingerprint_keys", "budgets"):
                    self._database.execute(f"insert into copy.{table} select * from main.{table}")
                self._database.execute(
                    "insert into copy.charges select id, image, terms, time, null, null from main.charges"
                )
            self._database.execute("detach copy")


def _budgets_of_people(
    people: Iterable[bytes], budgets: dict[_Key, Budget]
) -> Iterator[tuple[bytes, Budget]]:
    """The budgets that hold for people: their own, or that of every person."""
    for scope in people:
        for counted in (False, True):
            budget = budgets.get((scope, counted), budgets.get((EVERY_PERSON, counted)))
            if budget is not None and math.isfinite(budget.amount):
                yield scope, budget


_WITHIN = "(path = ? or substr(path, 1, ?) = ?)"


def _within(scope: bytes) -> tuple[bytes, int, bytes]:
    """The values of _WITHIN: a folder with all below it, or a person."""
    if not is_folder(scope):
        return scope, len(scope) + 1, scope  # nothing of that length equals it
    prefix = scope.rstrip(b"/") + b"/"
    return scope, len(prefix), prefix


def _fill(database: sqlite3.Connection) -> None:
    """What a new ledger has, or one that is brought up from the version before."""
    database.executemany(
        "insert into settings values (?, ?)",
        [("name", secrets.token_hex(16)), ("began", repr(time.time())), ("near copies", "charge")],
    )
    for scope, budget in DEFAULT_BUDGETS.items():
        _insert_budget(database, scope, True, budget, 0.0)


def _insert_budget(
    database: sqlite3.Connection, scope: bytes, counted: bool, budget: Budget, spent: float
) -> None:
    database.execute(
        "insert or replace into budgets values (?, ?, ?, ?, ?, ?, ?)",
        (scope, counted, budget.definition, budget.amount, budget.pixels, budget.words, spent),
    )


def _upgrade(database: sqlite3.Connection) -> None:
    """Bring a ledger of version 1 up to this one, in one transaction."""
    database.create_function("digest_of", 2, _digest, deterministic=True)
    with transaction(database):
        if databases.marks_of(database).version == MARKS.version:  # another process was first
            return
        database.execute("alter table charges add column digest blob")
        database.execute("update charges set digest = digest_of(image, release) where release is not null")
        database.execute("alter table budgets rename to old_budgets")
        for statement in _TABLES_OF_2.split(";\n"):
            database.execute(statement)
        database.execute(
            "insert into budgets select folder, 0, definition, amount, pixels, words, spent from old_budgets"
        )
        database.execute("drop table old_budgets")
        database.execute(
            "insert into images (image, picture, releases) select image, row_number() over (order by image), "
            "(select count(*) from charges where charges.image = every.image) from "
            "(select image from charges union select image from places) as every order by image"
        )
        _fill(database)
        database.execute(f"pragma user_version = {MARKS.version}")


class _DamagedError(Exception):
    """What is in a ledger was not written by one."""


def _digest(image: bytes, release: bytes | None) -> bytes | None:
    """By which a kept release is told from a damaged one: 16 bytes."""
    return None if release is None else hashlib.sha256(image + release).digest()[:16]


def _undamaged(image: bytes, release: bytes, digest: bytes) -> bytes:
    if _digest(image, release) != digest:
        raise _DamagedError("damaged (a release is not what it was when it was kept)")
    return release


def _guarantees(text: str) -> list[Guarantee]:
    try:
        return [Guarantee(**fields) for fields in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise _DamagedError(f"damaged ({error})") from error


def _cost_or_infinity(budget: Budget, guarantees: Sequence[Guarantee]) -> float:
    try:
        return budget.cost(guarantees)
    except BudgetExceededError:
        return math.inf
