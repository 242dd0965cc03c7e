"""The ledger: what a device has released of which image, at what cost, and within which budgets.

One SQLite file a device, written through by every release before anything leaves. It knows images by the
digest of their pixels, and near copies of one picture by their fingerprints; it keeps every random release,
and hands out the same one when the same is asked again: drawing noise anew would let an adversary average it
away. It is private: whoever reads it can tell whether a picture they hold was ever released here, and where
it lay.
"""

import os
import shlex
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import platformdirs

from sfumato.base import databases
from sfumato.base.databases import snapshot, transaction
from sfumato.device.ledger import chain, tables, witness
from sfumato.device.ledger.accounts import Accounts, DamagedError, copies_of
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.charges import Charge, Charged, Charges
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.pictures import NearCopies, Pictures
from sfumato.device.ledger.scopes import EVERY_IMAGE, EVERY_PERSON, folder_name, scope_of
from sfumato.device.ledger.summary import Limit, Pin, Summary, summarised
from sfumato.device.ledger.tables import DEFAULT_BUDGETS, MARKS
from sfumato.dp import naming
from sfumato.dp.naming import Assumption, Naming
from sfumato.errors import ConfigError, LedgerError

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
    """Where this user's ledger lies when no other is named."""
    return platformdirs.user_data_path("sfumato") / "ledger.db"


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

        A new ledger has the budgets DEFAULT_BUDGETS.

        Args:
            path: of the file.
            keep_releases: False charges without keeping what is released: for copies, to try something.

        Raises:
            LedgerError: the file is damaged, or no ledger, or of another version, or its folder
                cannot be written; or its witness knows of releases that it does not have: it is absent, an
                older copy, or one that went on elsewhere; or the witness itself is absent. Nothing is changed
                then: a lost ledger must not pass for an empty one.
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
        self._pictures = Pictures(self._database, joined=self._accounts.add_up_folders)
        self._charges = Charges(
            self._database,
            self._accounts,
            self._pictures,
            keep_releases=keep_releases,
            option=option,
        )
        try:
            self._check_copied()
            self._testify()
        except BaseException:
            self._database.close()
            raise

    def _begin_or_find(self) -> os.stat_result:
        """Have a file at the path. -> what it is."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                witness.refuse_to_begin(self.path, witness.read(self.path))
                # One that another process begins meanwhile is as empty.
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
            raise LedgerError(f"{self.path}: an empty file: restore the ledger from a copy, or name another")
        return file

    def close(self) -> None:
        """Close the connection; the witness gets to know the file as it is left."""
        # Closed already; or damaged, which whoever asks something of it is told.
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

    def _check_copied(self) -> None:
        """Read the charges that the witness does not know; all of them, if others wrote the file."""
        known = witness.read(self.path)
        if known is None:
            return
        with self._errors(), snapshot(self._database):
            now = witness.seen(self.path, self._database)
            witness.check(self.path, known, now, self._database, self._accept)
            if now.stamp == known.stamp:
                chain.check_after(self._database, known.last)
            else:
                chain.check(self._database, releases=self._keep_releases)

    def _testify(self) -> None:
        """Have the witness know the last charge. What left by it before must be here.

        Under the lock of those who write: of two processes, the slower one takes nothing back.
        """
        with self._errors(), transaction(self._database):
            known, now = witness.read(self.path), witness.seen(self.path, self._database)
            witness.check(self.path, known, now, self._database, self._accept)
            if known is not None and (known.last, known.stamp) == (now.last, now.stamp):
                return
            try:
                witness.write(self.path, now, known, lasting=known is None or now.last != known.last)
            except OSError as error:
                raise LedgerError(
                    f"{witness.runs_of(self.path)}: cannot be written ({error.strerror}), and has to know "
                    "what leaves: make room there, or name another ledger"
                ) from error

    def kept(self, images: Sequence[bytes], spec: str) -> dict[bytes, bytes]:
        """Digest -> release, for those of the images that this spec released before, with noise.

        Args:
            images: digests.
            spec: as it stands in charges, see sfumato.device.ledger.tables.protection_key.

        Raises:
            LedgerError: a release is not what it was when it was kept.
        """
        with self._errors():
            releases = {image: self._charges.kept(image, spec) for image in images}
        return {image: release for image, release in releases.items() if release is not None}

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

        When this returns, the charges and what the witness knows of them are on the disk; killed before, none
        of them has left, and asked again, they leave as they were charged (sfumato.device.ledger.witness).

        Raises:
            BudgetExceededError: one of them would pass the budget of its image (with its near copies), of a
                person in it, or of a folder in which the image or a near copy of it lies or was seen before.
            LedgerError: the file cannot be written, or was deleted or replaced.
        """
        with self._changing():
            budgets = self._accounts.budgets()
            mode = self.near_copies
            # Links are followed once a batch: that costs as much as all the rest of a charge.
            folders = {charge.folder: folder_name(charge.folder) for charge in charges}
            results = [self._charges.add(charge, folders[charge.folder], budgets, mode) for charge in charges]
        if self._keep_releases:  # by a copy for trying, nothing leaves
            self._testify()
        releases, numbers, new = zip(*results, strict=True) if results else ((), (), ())
        return Charged(list(releases), sum(new), list(numbers))

    # Folders and budgets.

    def survey(
        self, files: Iterable[tuple[bytes, str]], images: Iterable[tuple[bytes, Fingerprint | None, Path]]
    ) -> None:
        """Write down images that lie in a folder which has a budget, whether they were released or not.

        What is released of them, or of copies of them elsewhere, counts for that folder from now on.

        Args:
            files: paths and stamps, see surveyed.
            images: digests, fingerprints, and the files.
        """
        with self._changing():
            mode = self.near_copies
            for image, fingerprint, file in images:
                self._pictures.see(image, file.name, fingerprint, mode)
                self._pictures.lay(image, [folder_name(file.parent)])
            self._database.executemany("insert or replace into surveyed values (?, ?)", files)
            self._accounts.add_up_folders()

    def budgeted_folders(self) -> list[bytes]:
        """The folders of this machine that have a budget, but for its root."""
        with self._errors():
            scopes = {scope for scope, _ in self._accounts.budgets()}
        return sorted(scope for scope in scopes if scope.startswith(b"/") and scope != b"/")

    def surveyed(self, path: bytes) -> str | None:
        """The stamp that a file had when it was surveyed; None where it never was."""
        with self._errors():
            row = self._database.execute("select stamp from surveyed where path = ?", (path,)).fetchone()
        return None if row is None else str(row[0])

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
            ConfigError: both a folder and a person; or naming without a person.
        """
        scope = scope_of(folder, person)
        if budget is not None and budget.definition == "naming" and person is None:
            raise ConfigError(
                "a budget of naming is of a person: write --person NAME, or '' for every person"
            )
        with self._changing():
            if budget is None:
                self._accounts.lift(scope)
                return 0.0
            total = scope in (EVERY_IMAGE, EVERY_PERSON)
            spent = 0.0 if total else self._accounts.spent_in(scope, budget)
            self._accounts.set(scope, budget, spent)
            return spent

    def spent_on(self, image: bytes, budget: Budget) -> float:
        """What the releases of one image and its near copies cost so far; infinite where unproved."""
        with self._errors():
            row = self._database.execute("select id from images where image = ?", (image,)).fetchone()
            return 0.0 if row is None else self._accounts.sum_of(copies_of(row[0]), budget)

    def unheld(self, budget: Budget) -> int:
        """Of how many images nothing more can be released under a budget for every image."""
        with self._errors():
            return self._accounts.unheld(budget)

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

    def check(self) -> int:
        """Read all of it: every page, every charge in its chain, every release. -> how many releases.

        Raises:
            LedgerError: something is not what it was when it was written.
        """
        with self._errors(), snapshot(self._database):
            chain.check(self._database, releases=self._keep_releases)
            return chain.last(self._database).number

    def summary(self) -> Summary:
        """What the ledger holds."""
        with self._errors():
            return summarised(self._database, self._accounts)

    def people(self) -> list[str]:
        """Who is on the images that the ledger knows, as far as somebody said so."""
        with self._errors():
            return self._pictures.people()

    def namings(
        self,
        candidates: Sequence[int],
        *,
        folder: str | os.PathLike[str] | None = None,
        person: str | None = None,
        assuming: Assumption = "none",
    ) -> list[Naming]:
        """What all releases so far prove of naming a person, or who is on all images of a folder.

        Those of near copies count, wherever they lie. Unlike releases are composed (see dp.naming.compose),
        from what was known of their protections when they were charged.

        Args:
            candidates: numbers of equally likely people: a statement for each.
            folder: which one, or the URL of one.
            person: who.
            assuming: what of the releases by each spec; near copies are one draw.

        Raises:
            ConfigError: both a folder and a person, or neither; or a number below 1.
        """
        scope = scope_of(folder, person)
        if scope in (EVERY_IMAGE, EVERY_PERSON):
            raise ConfigError("what is proved of naming is of one person or folder: name one of them")
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
        """Write a copy in which every charge is kept but no release: to find out what a run would cost."""
        Ledger(path).close()
        with self._errors():
            tables.copy_without_releases(self._database, path)
            with closing(databases.connect(path)) as copy:
                witness.write(path, witness.seen(path, copy), witness.read(path))
