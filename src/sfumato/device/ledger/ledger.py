"""The ledger: which releases of which image a device made, at which cost, within which budgets.

One SQLite file a device; every release is recorded in it before anything leaves. It knows images by the
digest of their pixels, and near copies of one picture by their fingerprints. It stores every random release
and returns the same one when asked again: fresh noise would let an adversary average it away. It is private:
people who read it can tell whether a picture they hold was ever released here, and who is in it.
"""

import os
import shlex
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import platformdirs

from sfumato.base import databases
from sfumato.base.databases import snapshot, transaction
from sfumato.device.ledger import charging, shares, tables, witness
from sfumato.device.ledger.budgets import NO_LIMIT, Budget
from sfumato.device.ledger.charging import Charge, Charged, NearCopies
from sfumato.device.ledger.shares import Plan, Prepared
from sfumato.device.ledger.tables import MARKS, DamagedError, person_of, scope_of, service_name
from sfumato.dp import naming
from sfumato.dp.naming import Assumption, Naming
from sfumato.errors import ConfigError, LedgerError, SfumatoError


def default_path() -> Path:
    """Return the path of this user's ledger."""
    return platformdirs.user_data_path("sfumato") / "ledger.db"


class Pin(NamedTuple):
    """The protection agreed with a service, and the time of the agreement (seconds since 1970)."""

    spec: str
    since: float


@dataclass(frozen=True)
class Summary:
    """The contents of a ledger: distinct images, releases, budgets, pins."""

    images: int
    releases: int
    specs: dict[str, int]
    budgets: list[tuple[bytes, Budget, float]]  # scope, budget, spent: 0 for every image and every person
    pins: dict[tuple[str, str], Pin]


class Ledger(AbstractContextManager["Ledger"]):
    """The ledger of a device. State: a connection to its file, for one thread.

    Several processes may open the same ledger: each transaction is whole or absent, even if power fails.
    Attributes: the `path` of the file, and whether this object created it (`begun`).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a ledger, or create one, with DEFAULT_BUDGETS, if there is no trace of an earlier one.

        Raises LedgerError if the file is damaged or not a ledger, if its folder cannot be written, or if its
        witness is absent or knows of releases that it lacks: a lost ledger must not pass for an empty one.
        """
        self.path = Path(path).absolute()
        self.begun = False
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                witness.refuse_to_begin(self.path)
                # Another process may create it meanwhile: that one is as empty.
                with suppress(FileExistsError), tables.begin(self.path) as database:
                    tables.fill(database)
                self.begun = True
            file = self.path.stat()
            os.close(os.open(self.path, os.O_RDWR))
        except (OSError, sqlite3.Error) as error:
            reason = databases.why_locked(error, self.path) or getattr(error, "strerror", None) or error
            raise LedgerError(f"{self.path}: cannot be opened for writing ({reason})") from error
        if file.st_size == 0:
            raise LedgerError(f"{self.path}: is empty: restore the ledger from a copy, or name another")
        self._file = (file.st_dev, file.st_ino)
        self._option = "" if self.path == default_path() else f" --ledger {shlex.quote(str(self.path))}"
        with self._errors():
            self._database = databases.connect(self.path)
        try:
            with self._errors():
                marks = databases.marks_of(self._database)
                self._has_log = self._database.execute("pragma journal_mode").fetchone() == ("wal",)
            if marks.application != MARKS.application:
                raise LedgerError(f"{self.path}: a database, but not a ledger: name another file")
            if marks.version != MARKS.version:
                raise LedgerError(
                    f"{self.path}: a ledger of version {marks.version}, not {MARKS.version}: use the version "
                    "of sfumato that wrote it, or name another file"
                )
            self._check_copied()
            self._testify()
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        """Close the connection, and record the final state of the file in the witness."""
        # Closed already; or damaged, which the next query reports.
        with suppress(sqlite3.Error, LedgerError):
            self._check_there()
            self._database.execute("pragma wal_checkpoint(passive)")
            self._testify()
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except SfumatoError:
            raise
        except (sqlite3.Error, DamagedError, AttributeError, KeyError, TypeError, ValueError) as error:
            if words := databases.why_locked(error, self.path):
                raise LedgerError(f"{self.path}: {words}. Nothing was released") from error
            raise LedgerError(
                f"{self.path}: {error}. Nothing was released. If it is damaged, restore it from a copy: "
                "without it, releases would be drawn and charged again"
            ) from error

    def _read(self, query: str, *values: object) -> list[Any]:
        with self._errors():
            return self._database.execute(query, values).fetchall()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction that fails if the file was replaced since it was opened."""
        with self._errors():
            with transaction(self._database):
                yield
            self._check_there()

    def _check_there(self) -> None:
        with suppress(OSError):
            file = self.path.stat()
            if self._has_log:  # SQLite writes there until the last connection closes
                self.path.with_name(f"{self.path.name}-wal").stat()
            if (file.st_dev, file.st_ino) == self._file:
                return
        raise LedgerError(
            f"{self.path}: was deleted or replaced while in use. The last charges are lost, and nothing of "
            "them leaves. Put the ledger back, or restore a copy with `sfumato ledger restore`"
        )

    def _compare(self) -> tuple[witness.Witness | None, witness.Witness]:
        """Return what the witness knows, and the state of the ledger. Raises LedgerError if they differ."""
        known = witness.read(self.path)
        with suppress(FileNotFoundError):
            state = witness.observe(self.path, self._database)
        self._check_there()
        cure = f"sfumato ledger restore {shlex.quote(str(self.path))}{self._option}"
        witness.check(self.path, known, state, self._database, cure)
        return known, state

    def _check_copied(self) -> None:
        """Check the charges that the witness does not know, or all if something else wrote the file."""
        with self._errors(), snapshot(self._database):
            known, state = self._compare()
            if known is not None and state.stamp == known.stamp:
                witness.check_after(self._database, known.last)
            elif known is not None:
                witness.check_all(self._database)

    def _testify(self) -> None:
        """Record the last charge in the witness, after checking the ledger against it.

        It holds the write lock: the slower of two processes cannot set the witness back.
        """
        with self._errors(), transaction(self._database):
            known, state = self._compare()
            if known is not None and (known.last, known.stamp) == (state.last, state.stamp):
                return
            try:
                witness.write(self.path, state, known)
            except OSError as error:
                raise LedgerError(
                    f"{witness.runs_of(self.path)}: cannot be written ({error.strerror}), and has to record "
                    "what leaves: make room there, or name another ledger"
                ) from error

    # Releases.

    def charge(self, charges: Sequence[Charge]) -> Charged:
        """Charge releases before they leave: all of them, or none. It is safe to repeat.

        When this returns, the charges and the witness are on the disk (sfumato.device.ledger.witness). Raises
        BudgetExceededError if one would pass the budget of its image, with its near copies, or of a person in
        it; LedgerError if the file cannot be written, or was deleted or replaced.
        """
        with self._changing():
            charged = charging.charge(self._database, charges, option=self._option)
        self._testify()
        return charged

    def gather(self, service: str, classifier: str, answers: Mapping[bytes, str | None]) -> None:
        """Keep answers by the digests of their images, until they leave; the last one of an image counts."""
        rows = [(service_name(service), classifier, image, label) for image, label in answers.items()]
        with self._changing():
            self._database.executemany("insert or replace into gathered values (?, ?, ?, ?)", rows)

    def prepare_shares(self, plan: Plan, *, person: str | None = None) -> Prepared:
        """Charge the histogram or alarm of a period before it leaves: see sfumato.device.ledger.shares."""
        plan = replace(plan, service=service_name(plan.service))
        with self._changing():
            prepared = shares.prepare(self._database, plan, person=person, option=self._option)
        self._testify()
        return prepared

    def note_sent(self, prepared: Prepared) -> None:
        """Record that the service has it: it is not sent again."""
        query = "update shares set sent = 1 where image = (select image from charges where number = ?)"
        with self._changing():
            self._database.execute(query, (prepared.number,))

    def find_releases(self, images: Sequence[bytes], spec: str) -> dict[bytes, bytes]:
        """Map digests of images to their stored random releases by a spec, see tables.protection_key."""
        query = (
            "select release, digest from images join charges on charges.image = images.id join terms on "
            "terms.id = terms where images.image = ? and spec = ?"
        )
        found = {}
        with self._errors():
            for image in images:
                release, digest = self._database.execute(query, (image, spec)).fetchone() or (None, None)
                if tables.digest_of_release(image, release) != digest:
                    raise DamagedError("damaged (a release was changed)")
                if release is not None:
                    found[image] = release
        return found

    @property
    def near_copies(self) -> NearCopies:
        """How near copies of released images are treated: see set_near_copies."""
        ((mode,),) = self._read("select value from settings where key = 'near copies'")
        return cast("NearCopies", mode)

    def set_near_copies(self, mode: NearCopies) -> None:
        """Set how near copies are treated from now on.

        "charge" gives those of a picture one budget; "ignore" tells them apart.
        """
        if mode not in ("charge", "ignore"):
            raise ConfigError(f"near copies {mode!r}: choose charge or ignore")
        with self._changing():
            self._database.execute("update settings set value = ? where key = 'near copies'", (mode,))

    # Budgets and people.

    def set_budget(self, budget: Budget | None, *, person: str | None = None) -> float:
        """Set or lift the limit of a person, of every person by themselves (""), or of every image (None).

        There is at most one budget of releases and one of proved guarantees. A new budget replaces the one of
        its kind, and may be below the sum spent already; None lifts both. That of a person replaces that of
        every person; lifted, they have no limit. Returns the sum spent already (0 for single images and every
        person); infinite if nothing is proved about one of the releases.
        """
        if budget is not None and budget.definition == "naming" and person is None:
            raise ConfigError(
                "a budget of naming needs a person: write --person NAME, or '' for every person"
            )
        scope = scope_of(person)
        with self._changing():
            if budget is not None:
                tables.insert_budget(self._database, scope, budget)
                return charging.sum_by_person(self._database, scope, budget)
            self._database.execute("delete from budgets where scope = ?", (scope,))
            for counted in (False, True) if person else ():
                tables.insert_budget(self._database, scope, NO_LIMIT, counted=counted)
            return 0.0

    def people(self) -> list[str]:
        """List the people who are named in images of the ledger, as their names look."""
        rows = self._read("select distinct scope from people order by scope")
        return [person_of(scope) for (scope,) in rows]

    def namings(
        self, candidates: Sequence[int], *, person: str, assuming: Assumption = "none"
    ) -> list[Naming]:
        """State how far all releases so far bound naming a person, one statement for each of `candidates`.

        Releases of near copies count, as one draw. Unlike releases are composed (see dp.naming.compose).
        """
        with self._errors():
            proofs = charging.proofs_of(self._database, scope_of(person))
        releases = sum(proof.releases for proof in proofs)
        state = partial(naming.make_statement, prior=None, releases=releases, assuming=assuming)
        return [
            state(naming.compose(naming.prior_of(count, None), proofs, assuming=assuming), candidates=count)
            for count in candidates
        ]

    # Pins: the protection that a service may ask for.

    def pin(self, service: str, classifier: str) -> Pin | None:
        """Return the protection agreed with a service for a classifier; None without an agreement."""
        query = "select spec, since from pins where service = ? and classifier = ?"
        rows = self._read(query, service_name(service), classifier)
        return Pin(*rows[0]) if rows else None

    def set_pin(self, service: str, classifier: str, spec: str) -> None:
        """Record that a service may have releases by a spec; another spec needs a new agreement."""
        row = (service_name(service), classifier, spec, time.time())
        with self._changing():
            self._database.execute("insert or replace into pins values (?, ?, ?, ?)", row)

    def unpin(self, service: str) -> int:
        """Remove the agreements with a service. Returns their number."""
        with self._changing():
            query = "delete from pins where service = ?"
            return self._database.execute(query, (service_name(service),)).rowcount

    # The whole.

    def check(self) -> int:
        """Read everything. Returns the number of releases; raises LedgerError if something was changed."""
        with self._errors(), snapshot(self._database):
            return witness.check_all(self._database)

    @property
    def clock(self) -> str:
        """Why the clock of this device is wrong, and the cure; "" if nothing says so."""
        with self._errors():
            return charging.why_clock_is_wrong(self._database)

    def summary(self) -> Summary:
        """Summarise the ledger."""
        shown = "select count(*) from images where releases > 0 and id not in (select image from shares)"
        specs = "select spec, count(*) from charges join terms on terms.id = terms group by 1 order by 1"
        spent = partial(charging.sum_by_person, self._database)
        with self._errors(), snapshot(self._database):
            ((images,),) = self._read(shown)
            counts = dict(self._read(specs))
            budgets = charging.read_budgets(self._database)
            limits = [(scope, budget, spent(scope, budget)) for (scope, _), budget in budgets.items()]
            rows = self._read("select * from pins order by service, classifier")
        pins = {(service, classifier): Pin(spec, since) for service, classifier, spec, since in rows}
        return Summary(images, sum(counts.values()), counts, limits, pins)
