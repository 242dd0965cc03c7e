"""The ledger: which releases of which image a device made, at which cost, within which budgets.

One SQLite file a device; every release is recorded in it before anything leaves. It knows images by the
digest of their pixels, and near copies of one picture by their fingerprints. It stores every random release
and returns the same one when asked again: fresh noise would let an adversary average it away. It is private:
people who read it can tell whether a picture they hold was ever released here, and who is in it.
"""

import difflib
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import platformdirs

from sfumato.base import databases
from sfumato.base.alike import look
from sfumato.base.databases import snapshot, transaction
from sfumato.device.ledger import chain, tables, witness
from sfumato.device.ledger.accounts import Accounts, DamagedError, copies_of
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.charges import Charge, Charged, Charges
from sfumato.device.ledger.pictures import NearCopies, Pictures
from sfumato.device.ledger.scopes import (
    EVERY_IMAGE,
    EVERY_PERSON,
    describe,
    is_named_person,
    scope_of,
    service_name,
)
from sfumato.device.ledger.summary import Limit, Pin, Summary, summarise
from sfumato.device.ledger.tables import DEFAULT_BUDGETS, MARKS
from sfumato.dp import naming
from sfumato.dp.naming import Assumption, Naming
from sfumato.errors import ConfigError, LedgerError, did_you_mean

__all__ = [
    "DEFAULT_BUDGETS",
    "MARKS",
    "Charge",
    "Charged",
    "Ledger",
    "Limit",
    "NearCopies",
    "Pin",
    "Summary",
    "default_path",
]


def default_path() -> Path:
    """Return the path of this user's ledger."""
    return platformdirs.user_data_path("sfumato") / "ledger.db"


class Ledger:
    """The ledger of a device. State: a connection to its file, for one thread.

    Several processes may open the same ledger: each transaction is whole or absent, even if power fails.

    Attributes:
        path: of the file.
        begun: whether this object created the ledger.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_releases: bool = True) -> None:
        """Open a ledger, or create one if there is no file and no trace of an earlier one.

        A new ledger has the budgets DEFAULT_BUDGETS.

        Args:
            path: of the file.
            keep_releases: False charges without storing releases: for a trial on a copy.

        Raises:
            LedgerError: the file is damaged, not a ledger, or of another version; its folder cannot be
                written; its witness knows of releases that it lacks (it is absent, an older copy, or one
                that continued elsewhere); or the witness is absent. Nothing is changed then: a lost ledger
                must not pass for an empty one.
        """
        self.path = Path(path).absolute()
        self.begun = False
        file = self._begin_or_find()
        self._file = (file.st_dev, file.st_ino)
        with self._errors():
            self._database = databases.connect(self.path)
            marks = databases.marks_of(self._database)
            self._has_log = self._database.execute("pragma journal_mode").fetchone() == ("wal",)
        if marks.application != MARKS.application:
            raise LedgerError(f"{self.path}: a database, but not a ledger: name another file")
        if marks.version != MARKS.version:
            raise LedgerError(
                f"{self.path}: a ledger of version {marks.version}, not {MARKS.version}: use the version of "
                "sfumato that wrote it, or name another file"
            )
        option = "" if self.path == default_path() else f" --ledger {shlex.quote(str(self.path))}"
        self._accept = f"sfumato ledger restore {shlex.quote(str(self.path))}{option}"
        self._keep_releases = keep_releases
        self._accounts = Accounts(self._database)
        self._pictures = Pictures(self._database)
        self._charges = Charges(
            self._database,
            self._accounts,
            self._pictures,
            keep_releases=keep_releases,
            option=option,
        )
        try:
            self._check_copied()
            with self._errors():
                tables.join_names(self._database)
            self._testify()
        except BaseException:
            self._database.close()
            raise

    def _begin_or_find(self) -> os.stat_result:
        """Create the file if it is absent. Returns its status."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                witness.refuse_to_begin(self.path, witness.read(self.path))
                # Another process may create it meanwhile: that one is as empty.
                with (
                    suppress(FileExistsError),
                    databases.begin(self.path, tables.SCHEMA, MARKS, page_size=tables.PAGE) as database,
                ):
                    tables.fill(database)
                self.begun = True
            file = self.path.stat()
            os.close(os.open(self.path, os.O_RDWR))
        except (OSError, sqlite3.Error) as error:
            reason = databases.why_locked(error, self.path) or getattr(error, "strerror", None) or error
            raise LedgerError(f"{self.path}: cannot be opened for writing ({reason})") from error
        if file.st_size == 0:
            raise LedgerError(f"{self.path}: is empty: restore the ledger from a copy, or name another")
        return file

    def close(self) -> None:
        """Close the connection, and record the final state of the file in the witness."""
        # Closed already; or damaged, which the next query reports.
        with suppress(sqlite3.Error, LedgerError):
            if self._is_there():
                self._database.execute("pragma wal_checkpoint(passive)")
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
        except (sqlite3.Error, DamagedError, UnicodeDecodeError, KeyError) as error:
            if words := databases.why_locked(error, self.path):
                raise LedgerError(f"{self.path}: {words}. Nothing was released") from error
            raise LedgerError(
                f"{self.path}: {error}. Nothing was released. If it is damaged, restore it from a copy: "
                "without it, releases would be drawn and charged again"
            ) from error

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction that fails if the file was replaced since it was opened."""
        with self._errors():
            with transaction(self._database):
                yield
            if not self._is_there():
                raise self._loss()

    def _loss(self) -> LedgerError:
        return LedgerError(
            f"{self.path}: was deleted or replaced while in use. The last charges are lost, and nothing of "
            "them leaves. Put the ledger back, or restore a copy with `sfumato ledger restore`"
        )

    def _is_there(self) -> bool:
        try:
            file = self.path.stat()
            if self._has_log:  # SQLite writes there until the last connection closes
                self.path.with_name(f"{self.path.name}-wal").stat()
        except OSError:
            return False
        return (file.st_dev, file.st_ino) == self._file

    def _observe(self) -> witness.Witness:
        """Read the state of the ledger from the file that is open, if it still lies at its path."""
        try:
            now = witness.observe(self.path, self._database)
        except FileNotFoundError as error:
            raise self._loss() from error
        if not self._is_there():
            raise self._loss()
        return now

    def _check_copied(self) -> None:
        """Check the charges that the witness does not know, or all if something else wrote the file."""
        known = witness.read(self.path)
        if known is None:
            return
        with self._errors(), snapshot(self._database):
            now = self._observe()
            witness.check(self.path, known, now, self._database, self._accept)
            if now.stamp == known.stamp:
                chain.check_after(self._database, known.last)
            else:
                chain.check(self._database, releases=self._keep_releases)

    def _testify(self) -> None:
        """Record the last charge in the witness, after checking the ledger against it.

        It holds the write lock: the slower of two processes cannot set the witness back.
        """
        with self._errors(), transaction(self._database):
            known, now = witness.read(self.path), self._observe()
            witness.check(self.path, known, now, self._database, self._accept)
            if known is not None and (known.last, known.stamp) == (now.last, now.stamp):
                return
            try:
                witness.write(self.path, now, known, lasting=known is None or now.last != known.last)
            except OSError as error:
                raise LedgerError(
                    f"{witness.runs_of(self.path)}: cannot be written ({error.strerror}), and has to record "
                    "what leaves: make room there, or name another ledger"
                ) from error

    def find_releases(self, images: Sequence[bytes], spec: str) -> dict[bytes, bytes]:
        """Map digests to stored random releases, for the images that this spec released before.

        Args:
            images: digests.
            spec: see sfumato.device.ledger.tables.protection_key.

        Raises:
            LedgerError: a release was changed.
        """
        with self._errors():
            releases = {image: self._charges.find_release(image, spec) for image in images}
        return {image: release for image, release in releases.items() if release is not None}

    def find_fingerprinted(self, images: Iterable[bytes]) -> set[bytes]:
        """Return the images that need no new fingerprint: the ledger has it."""
        with self._errors():
            if self.near_copies == "ignore":
                return set(images)
            query = "select 1 from images where image = ? and fingerprint is not null"
            return {image for image in images if self._database.execute(query, (image,)).fetchone()}

    @property
    def near_copies(self) -> NearCopies:
        """How near copies of released images are treated: see set_near_copies."""
        with self._errors():
            row = self._database.execute("select value from settings where key = 'near copies'").fetchone()
        mode: NearCopies = row[0]
        return mode

    def set_near_copies(self, mode: NearCopies) -> None:
        """Set how near copies are treated from now on: flipped, cropped, resized or recompressed images.

        Args:
            mode: "charge" gives all near copies of a picture one budget; "refuse" releases none of them once
                another was released; "ignore" treats them as different images.
        """
        if mode not in ("charge", "refuse", "ignore"):
            raise ConfigError(f"near copies {mode!r}: choose charge, refuse or ignore")
        with self._changing():
            self._database.execute("update settings set value = ? where key = 'near copies'", (mode,))

    def charge(self, charges: Sequence[Charge]) -> Charged:
        """Charge releases before they leave: all of them, or none. It is safe to repeat.

        When this returns, the charges and the witness are on the disk. If the process is killed earlier,
        nothing has left, and a retry returns the releases as charged (sfumato.device.ledger.witness).

        Raises:
            BudgetExceededError: one of them would pass the budget of its image (with its near copies), or
                of a person in it.
            LedgerError: the file cannot be written, or was deleted or replaced.
        """
        with self._changing():
            budgets = self._accounts.budgets()
            mode = self.near_copies
            results = [self._charges.add(charge, budgets, mode) for charge in charges]
        if self._keep_releases:  # nothing leaves by a trial copy
            self._testify()
        releases, numbers, new = zip(*results, strict=True) if results else ((), (), ())
        return Charged(list(releases), sum(new), list(numbers))

    def set_budget(self, budget: Budget | None, *, person: str | None = None) -> float:
        """Set or lift a limit on further spending.

        A scope has at most one budget of releases and one of proved guarantees. A new budget replaces the one
        of its kind; None lifts both. The budget of a single image holds for each picture by itself. The
        budget of a person replaces that of every person.

        Args:
            budget: the limit. It may be below the sum spent already; then nothing more is allowed.
            person: a name; "" for every person by themselves. None for every single image.

        Returns:
            the sum spent of it already (0 for single images and every person); infinite if nothing is proved
            about one of the releases.

        Raises:
            ConfigError: naming without a person.
        """
        scope = scope_of(person)
        if budget is not None and budget.definition == "naming" and person is None:
            raise ConfigError(
                "a budget of naming needs a person: write --person NAME, or '' for every person"
            )
        with self._changing():
            if budget is None:
                self._accounts.lift(scope)
                return 0.0
            total = scope in (EVERY_IMAGE, EVERY_PERSON)
            spent = 0.0 if total else self._accounts.sum_in(scope, budget)
            self._accounts.set(scope, budget)
            return spent

    def count_unheld(self, budget: Budget) -> int:
        """Count the images of which nothing more can be released under a budget for every image."""
        with self._errors():
            return self._accounts.count_unheld(budget)

    def sum_on(self, image: bytes, budget: Budget) -> float:
        """Add up the releases of one image and its near copies; infinite if one has no proof."""
        with self._errors():
            row = self._database.execute("select id from images where image = ?", (image,)).fetchone()
            return 0.0 if row is None else self._accounts.sum_of(copies_of(row[0]), budget)

    # Pins: the protection that a service may ask for.

    def pin(self, service: str, classifier: str) -> Pin | None:
        """Return the protection agreed with a service for a classifier; None without an agreement."""
        with self._errors():
            row = self._database.execute(
                "select spec, since from pins where service = ? and classifier = ?",
                (service_name(service), classifier),
            ).fetchone()
        return None if row is None else Pin(*row)

    def set_pin(self, service: str, classifier: str, spec: str) -> None:
        """Record that a service may have releases by a spec; another spec needs a new agreement."""
        with self._changing():
            self._database.execute(
                "insert or replace into pins values (?, ?, ?, ?)",
                (service_name(service), classifier, spec, time.time()),
            )

    def unpin(self, service: str) -> int:
        """Remove the agreements with a service. Returns their number."""
        with self._changing():
            query = "delete from pins where service = ?"
            return self._database.execute(query, (service_name(service),)).rowcount

    # The whole.

    def check(self) -> int:
        """Read every page, every charge in its chain, every release. Returns the number of releases.

        Raises:
            LedgerError: something changed after it was written.
        """
        with self._errors(), snapshot(self._database):
            chain.check(self._database, releases=self._keep_releases)
            return chain.last(self._database).number

    def summary(self) -> Summary:
        """Summarise the ledger."""
        with self._errors():
            return summarise(self._database, self._accounts)

    def people(self) -> list[str]:
        """List the people who are named in images of the ledger, as their names look."""
        with self._errors():
            return self._pictures.people()

    def check_person(self, name: str, *, new: bool = False) -> None:
        """Raise ConfigError with the nearest name unless the ledger knows a person.

        Args:
            name: their name; "" for every person.
            new: allow a name that it does not know, unless it looks like a slip: one that is near a known
                one, and differs in more than digits.
        """
        with self._errors():
            scopes = {scope for scope, _ in self._accounts.budgets() if is_named_person(scope)}
        known = {*self.people(), *(describe(scope).removeprefix("the person ") for scope in scopes)}
        near = difflib.get_close_matches(look(name), known, n=1, cutoff=0.8)
        if new and (not near or re.sub(r"\d", "", near[0]) == re.sub(r"\d", "", look(name))):
            return
        if name and look(name) not in known:
            raise ConfigError(
                f"{self.path} knows nobody called {name!r}: {did_you_mean(look(name), known)}. A person is "
                "known from their first release with --people"
            )

    @property
    def clock(self) -> str:
        """Why the clock of this device is wrong, and the cure; "" if nothing says so."""
        with self._errors():
            return self._accounts.why_clock_is_wrong()

    def namings(
        self,
        candidates: Sequence[int],
        *,
        person: str,
        assuming: Assumption = "none",
    ) -> list[Naming]:
        """State how far all releases so far bound naming a person.

        Releases of near copies count. Unlike releases are composed (see dp.naming.compose),
        with the proofs that were known when they were charged.

        Args:
            candidates: numbers of equally likely people; one statement for each.
            person: a name.
            assuming: the assumption on the releases by each spec; near copies are one draw.

        Raises:
            ConfigError: a number below 1.
        """
        scope = scope_of(person)
        with self._errors():
            proofs = self._accounts.proofs_in(scope)
        releases = sum(proof.releases for proof in proofs)
        return [
            naming.make_statement(
                naming.compose(naming.prior_of(count, None), proofs, assuming=assuming),
                candidates=count,
                prior=None,
                releases=releases,
                assuming=assuming,
            )
            for count in candidates
        ]

    def copy_without_releases(self, path: Path) -> None:
        """Write a copy with every charge but no release, to find out the cost of a run."""
        Ledger(path).close()
        with self._errors():
            tables.copy_without_releases(self._database, path)
            with closing(databases.connect(path)) as copy:
                witness.write(path, witness.observe(path, copy), witness.read(path))
