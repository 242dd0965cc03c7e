"""The ledger: what a device has released of which image, at what cost, and within which budgets.

One SQLite file a device, written through by every release before anything leaves. It knows images by the
digest of their pixels, keeps every random release, and hands out the same one when the same is asked again:
drawing noise anew would let an adversary average it away. It is private: whoever reads it can tell whether a
picture they hold was ever released here, and where it lay.
"""

import json
import math
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import platformdirs

from sfumato import databases
from sfumato.databases import Marks, transaction
from sfumato.dp.guarantee import SYMBOLS, Guarantee, rounded_up
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError

_MARKS = Marks(application=0x5346554D, version=1)  # "SFUM": a ledger
_PAGE = 16384  # releases are large: twice as fast as 4096
_SCHEMA = """
create table terms (
    id integer primary key,
    spec text not null, channels integer not null, height integer not null, width integer not null,
    guarantees text not null,  -- JSON: what a release is proved to hide, for one or more numbers of pixels
    unique (spec, channels, height, width)
);
create table charges (
    id integer primary key,
    image blob not null,  -- SHA-256 of its shape and pixels
    terms integer not null references terms,
    time real not null,  -- seconds since 1970, UTC
    release blob,  -- the values; null where the protection draws no noise
    unique (image, terms)
);
create table folders (id integer primary key, path blob not null unique);
create table places (  -- where each image was ever released from
    image blob not null, folder integer not null references folders, primary key (image, folder)
) without rowid;
create table budgets (
    folder blob primary key,  -- '' is the budget of every single image
    definition text not null, amount real not null, pixels integer not null, words text not null,
    spent real not null  -- by the whole folder; 0 for single images, whose charges are added up when asked
);
"""


def default_path() -> Path:
    """Where this user's ledger lies when no other is named."""
    return platformdirs.user_data_path("sfumato") / "ledger.db"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that releases may cost in total, for neighbours that differ in up to `pixels` pixels.

    One definition holds for all that is added up: ε adds (basic composition), μ in squares (Dong, Roth & Su
    2022, Corollary 3.3), ρ adds (Bun & Steinke 2016, Lemma 1.7). Those sums hold also where later settings
    depend on earlier releases, as long as the budget was fixed before (privacy filters: Rogers et al. 2016,
    Smith & Thakurta 2022, Feldman & Zrnic 2021). An (ε, δ) budget is turned into the ρ that implies it.

    Attributes:
        definition: what is added up.
        amount: the sum that may be reached: ε, μ^2 or ρ.
        pixels: m of the neighbours.
        words: the budget as it was written.
    """

    definition: Literal["pure", "gaussian", "concentrated"]
    amount: float
    pixels: int
    words: str

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """Read "epsilon=10", "epsilon=10,delta=1e-6", "mu=2" or "rho=1", each with ",pixels=4" at will.

        Raises:
            ConfigError: another key, a number that is not above 0, or a delta that is not below 1.
        """
        values: dict[str, float] = {}
        for part in text.split(","):
            key, _, number = part.strip().partition("=")
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if not 0 < value < _MOST:
                raise ConfigError(f"budget {text!r}: {part.strip()!r} is not KEY=NUMBER above 0: {_FORMS}")
            if key in values:
                raise ConfigError(f"budget {text!r}: {key} is there twice: {_FORMS}")
            values[key] = value
        pixels = values.pop("pixels", 1.0)
        if not pixels.is_integer():
            raise ConfigError(f"budget {text!r}: pixels={pixels:g} is not a whole number")
        match sorted(values):
            case ["epsilon"]:
                found: tuple[Any, float] = ("pure", values["epsilon"])
            case ["mu"]:
                found = ("gaussian", values["mu"] ** 2)
            case ["rho"]:
                found = ("concentrated", values["rho"])
            case ["delta", "epsilon"]:
                found = ("concentrated", _rho_of(values["epsilon"], values["delta"]))
            case _:
                raise ConfigError(f"budget {text!r}: {_FORMS}")
        if found[1] <= 0:
            raise ConfigError(f"budget {text!r} is so small that nothing fits it: {_FORMS}")
        return cls(definition=found[0], amount=found[1], pixels=int(pixels), words=text.replace(" ", ""))

    def cost(self, guarantees: Sequence[Guarantee]) -> float:
        """What a release adds to the sum, by the best of the guarantees that are known of it.

        Raises:
            BudgetExceededError: nothing is proved of it, or nothing that could be added up here.
        """
        if not guarantees:
            raise BudgetExceededError("nothing is proved of it, so that no budget can hold it")
        costs = []
        for guarantee in guarantees:
            # What hides m pixels hides fewer as well; for more, take steps of m.
            group = guarantee if guarantee.pixels >= self.pixels else guarantee.group(self.pixels)
            try:
                value = group.to(self.definition).value
            except ConfigError as error:
                raise BudgetExceededError(
                    f"it is {guarantee.definition} and the budget is {self.definition}: {error}; "
                    "budgets in rho, or in epsilon with a delta, hold every definition"
                ) from error
            costs.append(value * value if self.definition == "gaussian" else value)
        return min(costs)

    def __str__(self) -> str:
        return f"{self.words} for any {self.pixels} pixel{'s' * (self.pixels > 1)}"


_MOST = 1e18  # for the numbers of a budget, so that nothing that is done with them overflows
_FORMS = "write epsilon=10, epsilon=10,delta=1e-6, mu=2 or rho=1, and pixels=4 behind it for 4 pixels"


def _rho_of(epsilon: float, delta: float) -> float:
    """A ρ, for small δ the largest, whose zCDP implies (ε, δ)-DP. Raises ConfigError unless δ is below 1."""
    low, high = 0.0, epsilon + 1  # only for a large δ there is a larger one
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        one = Guarantee(definition="concentrated", value=middle, pixels=1, whole_image=middle, source="")
        low, high = (middle, high) if one.to("approximate", delta=delta).value <= epsilon else (low, middle)
    return low


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
        folder: where the image lies, for the budgets of folders; see folder_name for one at a URL.
    """

    image: bytes
    spec: str
    shape: tuple[int, int, int]
    guarantee: Callable[[int | None], Guarantee | None]
    release: bytes | None
    folder: str | os.PathLike[str]


class Charged(NamedTuple):
    """What a ledger says to charges.

    Attributes:
        releases: what must leave instead of each `release`: itself, or the one that was kept when this image
            and spec were charged before, which costs nothing now.
        new: how many were charged now.
    """

    releases: list[bytes | None]
    new: int


@dataclass(frozen=True)
class Summary:
    """What a ledger holds: distinct images, releases of them, and each budget with what is spent of it."""

    images: int
    releases: int
    specs: dict[str, int]
    budgets: dict[str, tuple[Budget, float]]


class Ledger:
    """The ledger of a device. State: a connection to its file, for one thread.

    Several processes may hold the same ledger: each transaction is whole or not there, also when a process is
    killed or the power fails in the middle.
    """

    def __init__(self, path: str | os.PathLike[str], *, keep_releases: bool = True) -> None:
        """Open a ledger, or begin one where there is no file.

        Args:
            path: of the file.
            keep_releases: False charges without keeping what is released: for copies, to try something.

        Raises:
            LedgerError: the file is damaged, or no ledger, or written by a later version, or its folder
                cannot be written. Nothing is changed then: a lost ledger must not pass for an empty one.
        """
        self.path = Path(path).absolute()
        self._keep_releases = keep_releases
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not self.path.exists():
                # One that another process begins meanwhile is as empty.
                with suppress(FileExistsError), databases.begun(self.path, _SCHEMA, _MARKS, page_size=_PAGE):
                    pass
            empty = self.path.stat().st_size == 0
            os.close(os.open(self.path, os.O_RDWR))
        except OSError as error:
            raise LedgerError(f"{self.path}: cannot be opened for writing ({error.strerror})") from error
        if empty:
            raise LedgerError(f"{self.path}: an empty file: restore the ledger from a copy, or name another")
        with self._errors():
            self._database = databases.connect(self.path)
            found = databases.marks_of(self._database)
        if found.application != _MARKS.application:
            raise LedgerError(f"{self.path}: a database, but no ledger: name another file")
        if found.version != _MARKS.version:
            raise LedgerError(
                f"{self.path}: a ledger of version {found.version}, not {_MARKS.version}: upgrade sfumato"
            )

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, _DamagedError, UnicodeDecodeError) as error:
            raise LedgerError(
                f"{self.path}: {error}. Nothing was charged. If it is damaged, restore it from a copy: "
                "without it, releases would be drawn and paid again"
            ) from error

    def kept(self, images: Sequence[bytes], spec: str) -> dict[bytes, bytes]:
        """Digest -> release, for those of the images that this spec released before, with noise."""
        found: dict[bytes, bytes] = {}
        with self._errors():
            for image in images:
                row = self._database.execute(
                    "select release from charges join terms on terms.id = terms where image = ? and spec = ?",
                    (image, spec),
                ).fetchone()
                if row and row[0] is not None:
                    found[image] = row[0]
        return found

    def charge(self, charges: Sequence[Charge]) -> Charged:
        """Charge releases before they leave: all of them, or none. Charging again does no harm.

        Raises:
            BudgetExceededError: one of them would pass the budget of its image, or of a folder in which the
                image lies or from which it was released before.
            LedgerError: the file cannot be written.
        """
        with self._errors(), transaction(self._database):
            budgets = self._budgets()
            results = [self._charge(one, budgets) for one in charges]
        return Charged([release for release, _ in results], sum(new for _, new in results))

    def _charge(self, one: Charge, budgets: dict[bytes, Budget]) -> tuple[bytes | None, bool]:
        terms, guarantees = self._terms(one, {budget.pixels for budget in budgets.values()})
        row = self._database.execute(
            "select release from charges where image = ? and terms = ?", (one.image, terms)
        ).fetchone()
        new = row is None
        if new and b"" in budgets:
            spent = self._spent_on(one.image, budgets[b""])
            cost = _cost(one, budgets[b""], guarantees, "this image")
            self._check(one, budgets[b""], spent, cost, "this image")
        folder = folder_name(one.folder)
        for path, budget in budgets.items():
            if path and (known := self._lies_below(path, one.image)) | _covers(path, folder):
                # An image that is new to a folder brings along what was released of it elsewhere.
                cost = 0.0 if known else self._spent_on(one.image, budget)
                subject = os.fsdecode(path)
                if new:
                    cost += _cost(one, budget, guarantees, subject)
                if cost:
                    spent = self._check(one, budget, self._spent(path), cost, subject)
                    self._database.execute("update budgets set spent = ? where folder = ?", (spent, path))
        if new:
            self._database.execute(
                "insert into charges (image, terms, time, release) values (?, ?, ?, ?)",
                (one.image, terms, time.time(), one.release if self._keep_releases else None),
            )
        self._database.execute("insert or ignore into folders (path) values (?)", (folder,))
        self._database.execute(
            "insert or ignore into places select ?, id from folders where path = ?", (one.image, folder)
        )
        return one.release if new else row[0], new

    def _check(self, one: Charge, budget: Budget, spent: float, cost: float, subject: str) -> float:
        """What is spent with the cost. Raises BudgetExceededError if that is more than the budget."""
        # The tolerance is for sums of decimals: three times 0.1 is within 0.3.
        if spent + cost > budget.amount * (1 + 1e-9):
            symbol = SYMBOLS[budget.definition] + "^2" * (budget.definition == "gaussian")
            raise BudgetExceededError(
                f"{one.spec}: this release costs {symbol} = {rounded_up(cost)}, and "
                f"{max(0.0, budget.amount - spent):.4g} of {budget.amount:.4g} is left for {subject} "
                f"({budget}): ask for more noise, or set a larger budget with `sfumato ledger budget`"
            )
        return spent + cost

    def _terms(self, one: Charge, pixels: set[int]) -> tuple[int, list[Guarantee]]:
        """The row of a spec and shape, and what is proved of it for its own and for these pixels."""
        key = (one.spec, *one.shape)
        row = self._database.execute(
            "select id, guarantees from terms where spec = ? and channels = ? and height = ? and width = ?",
            key,
        ).fetchone()
        known = [] if row is None else _guarantees(row[1])
        missing: list[int | None] = [*sorted(pixels - {guarantee.pixels for guarantee in known})]
        if row is not None and not (known and missing):
            return row[0], known
        for m in [None, *missing] if row is None else missing:
            guarantee = one.guarantee(m)
            if guarantee is not None and guarantee not in known:
                known.append(guarantee)
        text = json.dumps([asdict(guarantee) for guarantee in known])
        cursor = self._database.execute(
            "insert into terms (spec, channels, height, width, guarantees) values (?, ?, ?, ?, ?)"
            "on conflict do update set guarantees = excluded.guarantees returning id",
            (*key, text),
        )
        return cursor.fetchone()[0], known

    def _spent_on(self, image: bytes, budget: Budget) -> float:
        """The sum over all releases of one image. Infinite where nothing is proved of one of them."""
        rows = self._database.execute(
            "select guarantees from charges join terms on terms.id = terms where image = ?", (image,)
        )
        return math.fsum(_cost_or_infinity(budget, _guarantees(text)) for (text,) in rows)

    def _spent_in(self, path: bytes, budget: Budget) -> float:
        """The sum over all releases of images that lie in a folder, each counted once."""
        rows = self._database.execute(
            "select guarantees, count(*) from charges join terms on terms.id = terms where image in (select "
            f"image from places join folders on folders.id = folder where {_BELOW}) group by terms.id",
            _below(path),
        )
        return math.fsum(count * _cost_or_infinity(budget, _guarantees(text)) for text, count in rows)

    def _lies_below(self, path: bytes, image: bytes) -> bool:
        """Whether an image was released before from somewhere in this folder."""
        query = (
            f"select 1 from places join folders on folders.id = folder where image = ? and {_BELOW} limit 1"
        )
        return self._database.execute(query, (image, *_below(path))).fetchone() is not None

    def _spent(self, path: bytes) -> float:
        spent: float
        (spent,) = self._database.execute("select spent from budgets where folder = ?", (path,)).fetchone()
        return spent

    def _budgets(self) -> dict[bytes, Budget]:
        rows = self._database.execute("select folder, definition, amount, pixels, words from budgets")
        return {
            folder: Budget(definition=definition, amount=amount, pixels=pixels, words=words)
            for folder, definition, amount, pixels, words in rows
        }

    def set_budget(self, budget: Budget | None, *, folder: str | os.PathLike[str] | None = None) -> float:
        """Limit what may be spent from now on; None lifts the limit.

        The budget of a folder is for something that is in every image below it: the releases of all of them
        add up, those from elsewhere too once the ledger has seen the image in the folder. That of a single
        image holds for each image by itself.

        Args:
            budget: the limit; may be below what is spent already, and then nothing more is allowed.
            folder: which one, or the URL of one, see folder_name; None for every single image.

        Returns:
            what is spent of it already (0 for single images); infinite where something was released of which
            nothing is proved.
        """
        path = b"" if folder is None else folder_name(folder)
        with self._errors(), transaction(self._database):
            self._database.execute("delete from budgets where folder = ?", (path,))
            if budget is None:
                return 0.0
            spent = self._spent_in(path, budget) if path else 0.0
            self._database.execute(
                "insert into budgets values (?, ?, ?, ?, ?, ?)",
                (path, budget.definition, budget.amount, budget.pixels, budget.words, spent),
            )
            return spent

    def spent_on(self, image: bytes, budget: Budget) -> float:
        """What the releases of one image cost so far, in the terms of a budget; infinite where unproved."""
        with self._errors():
            return self._spent_on(image, budget)

    def summary(self) -> Summary:
        """What the ledger holds."""
        with self._errors():
            images, releases = self._database.execute(
                "select count(distinct image), count(*) from charges"
            ).fetchone()
            specs = self._database.execute(
                "select spec, count(*) from charges join terms on terms.id = terms "
                "group by spec order by spec"
            ).fetchall()
            spent = dict(self._database.execute("select folder, spent from budgets"))
            budgets = {os.fsdecode(path): (one, spent[path]) for path, one in self._budgets().items()}
        return Summary(images, releases, dict(specs), budgets)

    def copy_without_releases(self, path: Path) -> None:
        """Write a copy in which every charge is kept but no release: to find out what a run would cost."""
        Ledger(path).close()
        with self._errors():
            self._database.execute("attach ? as copy", (os.fspath(path),))
            with transaction(self._database):
                for table in ("terms", "folders", "places", "budgets"):
                    self._database.execute(f"insert into copy.{table} select * from main.{table}")
                self._database.execute(
                    "insert into copy.charges select id, image, terms, time, null from main.charges"
                )
            self._database.execute("detach copy")


_BELOW = "(path = ? or substr(path, 1, ?) = ?)"


def _below(path: bytes) -> tuple[bytes, int, bytes]:
    prefix = path.rstrip(b"/") + b"/"
    return path, len(prefix), prefix


def _covers(path: bytes, folder: bytes) -> bool:
    return folder == path or folder.startswith(path.rstrip(b"/") + b"/")


def folder_name(where: str | os.PathLike[str]) -> bytes:
    """What tells a folder from all others: its path without links; or a URL, without user and password.

    A URL is a folder of its own, whatever it leads to, with all below it: a budget of `s3://photos/anna` is
    for `s3://photos/anna/2024` too. A budget of a folder of this machine, `/` among them, is for what lies on
    this machine; `file:///photos` is `/photos`.
    """
    if is_url(where) and not str(where).startswith("file://"):
        return os.fsencode(without_password(str(where)).rstrip("/"))
    return os.fsencode(Path(os.fspath(where).removeprefix("file://")).resolve())


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether something names a place by a URL, such as s3://bucket/folder; a Path never does."""
    return isinstance(where, str) and re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", where) is not None


def without_password(url: str) -> str:
    """A URL without the "user:password@" that it may have; a user alone stays, and a container is no user."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    before, _, host = authority.rpartition("@")
    return f"{scheme.lower()}://{host if ':' in before else authority}{slash}{path}"


class _DamagedError(Exception):
    """What is in a ledger was not written by one."""


def _guarantees(text: str) -> list[Guarantee]:
    try:
        return [Guarantee(**fields) for fields in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise _DamagedError(f"damaged ({error})") from error


def _cost(one: Charge, budget: Budget, guarantees: Sequence[Guarantee], subject: str) -> float:
    try:
        return budget.cost(guarantees)
    except BudgetExceededError as error:
        raise BudgetExceededError(f"{one.spec}: {error} (budget of {subject}: {budget})") from error


def _cost_or_infinity(budget: Budget, guarantees: Sequence[Guarantee]) -> float:
    try:
        return budget.cost(guarantees)
    except BudgetExceededError:
        return math.inf
