"""Charging: releases of images, recorded before they leave, within all budgets that apply.

Near copies are pairs, and a copy of a copy need not be one: a chain of exposures, each a little unlike the
next, does not become one picture. If the index finds pairs both ways, their order does not matter.
"""

import json
import math
import os
import secrets
import shlex
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import product
from typing import Any, Literal, NamedTuple

from sfumato.device.ledger import tables, witness
from sfumato.device.ledger.budgets import NO_LIMIT, PERIODS, Budget
from sfumato.device.ledger.near_copies import Fingerprint, near_copies
from sfumato.device.ledger.tables import EVERY_IMAGE, EVERY_PERSON, DamagedError, describe, scope_of
from sfumato.dp.guarantee import Guarantee, proof_of
from sfumato.dp.naming import NOTHING_KNOWN, Information, Proof, compose
from sfumato.errors import BudgetExceededError, ConfigError

NearCopies = Literal["charge", "ignore"]

# 2025, in seconds since 1970: no release was made before there was a ledger. A clock that says so is wrong.
_EARLIEST = 1_735_689_600.0
_UNNOTICED = 60.0  # seconds that a clock may be behind the last charge without a word
# A new image is compared with the images that share the most keys with it. Copies share many keys, others one
# or two; the number of others grows with the ledger.
_CANDIDATES = 8

# Queries for numbers of images: an image and its near copies; the images of a person and their near copies;
# of an image and its near copies, those that do not count for a person yet.
_COPIES = "select copy from copies where image = ?"
# Few of millions of images show one person: the order of the tables matters.
_OF_PERSON = (
    "select copies.copy from people cross join copies on copies.image = people.image where people.scope = ?"
)
_NEW = f"{_COPIES} and copy not in ({_OF_PERSON})"
# For charges grouped by terms: how many are the first release of their image and its near copies.
_DRAWS = (
    "sum(not exists (select 1 from copies join charges as before on before.image = copy "
    "where copies.image = charges.image and before.id < charges.id))"
)


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A release that is about to leave."""

    image: bytes  # digest of the original, sfumato.images.digest
    spec: str  # the protection, see sfumato.device.ledger.tables.protection_key
    shape: tuple[int, int, int]  # (C, H, W) of the original
    guarantee: Callable[[int | None], Guarantee | None]  # for m pixels (None: the protection's own)
    # (C, h, w) uint8, (d,) float32 of a private feature or (b,) bool of a code; None if deterministic
    release: bytes | None
    name: str = ""  # of its file, for messages on this device
    person: str | None = None  # who is in it, if known
    fingerprint: Fingerprint | None = None  # of the picture as read; None without one, or if it is known
    information: Information = NOTHING_KNOWN  # the most that the release can tell


class Charged(NamedTuple):
    """A ledger's answer to charges."""

    # To send: for each its own, or the stored one if its image and spec were charged, which costs nothing now
    releases: list[bytes | None]
    new: int  # how many were charged now
    numbers: list[bytes]  # 16 random bytes for each, drawn at its first charge: the name of that release


Budgets = dict[tuple[bytes, bool], Budget]  # by scope, and whether it counts releases
Proofs = tuple[list[Guarantee], Information]  # that hold for releases by one spec


def charge(database: sqlite3.Connection, charges: Sequence[Charge], *, option: str) -> Charged:
    """Charge releases, within a transaction; `option` names the ledger to a command: see Ledger.charge."""
    settings = dict(database.execute("select key, value from settings").fetchall())
    mode, budgets = settings["near copies"], read_budgets(database)
    added = [_Charging(database, budgets, mode, option, each).add() for each in charges]
    releases, numbers, new = map(list, zip(*added, strict=True)) if added else ([], [], [])
    return Charged(releases, sum(new), numbers)


@dataclass(frozen=True)
class _Charging:
    """A charge, under the budgets and settings that hold in its transaction."""

    database: sqlite3.Connection
    budgets: Budgets
    mode: NearCopies
    option: str
    charge: Charge

    def add(self) -> tuple[bytes | None, bytes, bool]:
        """Charge the release. Returns the one to send, its number, and whether it is new."""
        charge = self.charge
        terms, proofs = self._terms()
        image = self._see()
        row = self.database.execute(
            "select release, number from charges where image = ? and terms = ?", (image, terms)
        ).fetchone()
        rows = self.database.execute(f"select scope from people where image in ({_COPIES})", (image,))
        people = {scope for (scope,) in rows}
        named = set() if charge.person is None else {scope_of(charge.person)}
        self._check_sums(image, None if row else proofs, people, named)
        for scope in named:
            self.database.execute("insert or ignore into people values (?, ?)", (image, scope))
        release, number = row or self._insert(image, terms)
        if row is None or not named <= people:
            self._check_naming(people | named)
        return release, number, row is None

    def _terms(self) -> tuple[int, Proofs]:
        """Read or update the row of a spec and shape, proved for its own pixels and those of all budgets."""
        charge, key = self.charge, (self.charge.spec, *self.charge.shape)
        row = self.database.execute(
            "select guarantees, outputs, leakage, id from terms "
            "where spec = ? and channels = ? and height = ? and width = ?",
            key,
        ).fetchone()
        known, before = ([], NOTHING_KNOWN) if row is None else _proofs(*row[:3])
        information = Information(
            outputs=min(before.outputs, charge.information.outputs),
            leakage=min(before.leakage, charge.information.leakage),
        )
        pixels: list[int | None] = [*sorted({budget.pixels for budget in self.budgets.values()})]
        pixels = [m for m in pixels if m not in [guarantee.pixels for guarantee in known]]
        new = map(charge.guarantee, [None, *pixels] if row is None else pixels if known else ())
        proved = [*dict.fromkeys([*known, *filter(None, new)])]
        if row is not None and (proved, information) == (known, before):
            return row[3], (known, information)
        text = json.dumps([asdict(guarantee) for guarantee in proved])
        bits = [bits if math.isfinite(bits) else None for bits in (information.outputs, information.leakage)]
        (number,) = self.database.execute(
            "insert into terms (spec, channels, height, width, guarantees, outputs, leakage) "
            "values (?, ?, ?, ?, ?, ?, ?) on conflict do update set guarantees = excluded.guarantees, "
            "outputs = excluded.outputs, leakage = excluded.leakage returning id",
            (*key, text, *bits),
        ).fetchone()
        return number, (proved, information)

    def _see(self) -> int:
        """Return the number of an image; find its near copies once its fingerprint is known."""
        image, printed = self.charge.image, self.charge.fingerprint
        row = (image, os.fsencode(self.charge.name))
        self.database.execute("insert or ignore into images (image, name) values (?, ?)", row)
        lost = "releases - (select count(*) from charges where image = images.id)"
        query = f"select id, fingerprint, {lost} from images where image = ?"
        number, known, missing = self.database.execute(query, (image,)).fetchone()
        if missing:
            raise DamagedError(f"damaged ({missing} recorded releases of an image are missing)")
        pairs = [(number, number)]
        if printed is not None and self.mode != "ignore" and known is None:
            pairs += [pair for copy in self._near(printed) for pair in ((number, copy), (copy, number))]
            self.database.execute("update images set fingerprint = ? where id = ?", (printed.bits, number))
            keys = [(key, number) for key in printed.keys]
            self.database.executemany("insert into fingerprint_keys values (?, ?)", keys)
        self.database.executemany("insert or ignore into copies values (?, ?)", pairs)
        return int(number)

    def _near(self, fingerprint: Fingerprint) -> list[int]:
        marks = ", ".join("?" * len(fingerprint.probes))
        candidates = self.database.execute(
            "select id, fingerprint from (select image as number, count(*) as shared "
            f"from fingerprint_keys where key in ({marks}) group by image order by shared desc "
            f"limit {_CANDIDATES}) join images on id = number",
            fingerprint.probes,
        ).fetchall()
        # Copies of a copy too: there may be more of them than candidates.
        query = f"select id, fingerprint from images where id in ({_COPIES}) and fingerprint is not null"
        found, seen = [], dict(candidates)
        while candidates:
            number, bits = candidates.pop()
            if near_copies(fingerprint.bits, bits):
                found.append(number)
                others = self.database.execute(query, (number,)).fetchall()
                candidates += [other for other in others if other[0] not in seen]
                seen |= dict(others)
        return found

    def _check_sums(self, image: int, proofs: Proofs | None, people: set[bytes], named: set[bytes]) -> None:
        """Check the budgets of an image and its people; if it was charged (no proofs), of who is named."""
        for scope, budget, spent, brought in self._sums(image, proofs is not None, people, named):
            subject = "this image" if scope == EVERY_IMAGE else describe(scope)
            command = partial(self._command, scope)
            try:
                cost = 0.0 if proofs is None else budget.cost(*proofs)
            except BudgetExceededError as error:
                words = f"{error} (budget of {subject}: {budget}), or count releases instead: "
                words += f"`{command('none')}`, then `{command('releases=5')}`"
                raise self._over(scope, budget, words, f", and {error.cause}") from error
            if budget.definition == "releases" or math.isinf(brought):
                spent += brought
            else:
                cost += brought
            refusal = budget.refusal(spent, cost, subject, command, copies=self.mode != "ignore")
            if refusal and (cost or brought):
                likeness = self._likeness(image) if scope == EVERY_IMAGE and self.mode == "charge" else ""
                words = f"{likeness}{': ' * bool(likeness)}"
                words += f"{'with the earlier releases of this image, ' * bool(brought)}{refusal}"
                why = f", and {budget.unheld} made before" * math.isinf(spent)
                raise self._over(scope, budget, words, why)

    def _sums(
        self, image: int, new: bool, people: set[bytes], named: set[bytes]
    ) -> Iterator[tuple[bytes, Budget, float, float]]:
        """Yield each budget with its scope, the sum spent, and what is added to it from before.

        That of an image applies to each of its near copies, with their own: so none passes it in any order.
        """
        images = "select ?" if self.mode == "ignore" else _COPIES
        for scope, budget in self._limits({EVERY_IMAGE, *people, *named}):
            if scope == EVERY_IMAGE:
                for (copy,) in self.database.execute(images, (image,)).fetchall() if new else ():
                    yield scope, budget, add_up(self.database, budget, images, copy), 0.0
                continue
            # Releases of an image that nobody named count for the person who is named now.
            brought = add_up(self.database, budget, _NEW, image, scope) if scope in named else 0.0
            if new or brought:
                yield scope, budget, sum_by_person(self.database, scope, budget), brought

    def _limits(self, scopes: set[bytes]) -> Iterator[tuple[bytes, Budget]]:
        """Yield the budgets of each scope; of a person without their own, those of every person."""
        for scope, counted in product(sorted(scopes), (False, True)):
            usual = None if scope == EVERY_IMAGE else self.budgets.get((EVERY_PERSON, counted))
            budget = self.budgets.get((scope, counted), usual)
            if budget is not None and math.isfinite(budget.amount):
                yield scope, budget

    def _over(self, scope: bytes, budget: Budget, words: str, why: str = "") -> BudgetExceededError:
        cause = f"over the budget of {'an image' if scope == EVERY_IMAGE else 'a person'}: {budget}{why}"
        return BudgetExceededError(f"{self.charge.spec}: {words}", cause=cause)

    def _command(self, scope: bytes, words: str) -> str:
        person = "" if scope == EVERY_IMAGE else f" --person {shlex.quote(tables.person_of(scope))}"
        return f"sfumato ledger budget {words}{person}{self.option}"

    def _insert(self, image: int, terms: int) -> tuple[bytes | None, bytes]:
        """Write the next charge of the chain. Returns its release and number."""
        charge, (last, link) = self.charge, witness.last(self.database)
        digest, number = tables.digest_of_release(charge.image, charge.release), secrets.token_bytes(16)
        row = (last + 1, charge.image, charge.spec, *charge.shape, now(self.database), number, digest)
        self.database.execute(
            "insert into charges values (?, ?, ?, ?, ?, ?, ?, ?)",
            (row[0], image, terms, *row[-3:], witness.link(link, row), charge.release),
        )
        self.database.execute("update images set releases = releases + 1 where id = ?", (image,))
        return charge.release, number

    def _check_naming(self, people: set[bytes]) -> None:
        """Check that all recorded releases together name nobody too often."""
        for scope, budget in self._limits(people):
            if budget.definition == "naming":
                spent, command = sum_by_person(self.database, scope, budget), partial(self._command, scope)
                if refusal := budget.refusal(spent, 0.0, describe(scope), command):
                    clock = why_clock_is_wrong(self.database)
                    raise self._over(scope, budget, f"{refusal}{'. Also, ' * bool(clock)}{clock}")

    def _likeness(self, image: int) -> str:
        """Say which released image this one resembles, and what to do if they differ; "" if there is none."""
        row = self.database.execute(
            f"select name from images where id in ({_COPIES}) and id <> ? and releases > 0 "
            "order by length(name) = 0, id limit 1",
            (image, image),
        ).fetchone()
        if row is None:
            return ""
        return (
            f"looks like a copy of {os.fsdecode(row[0]) or 'another image'}, which was released before "
            f"(different photographs? `sfumato ledger near-copies ignore{self.option}`)"
        )


def read_budgets(database: sqlite3.Connection) -> Budgets:
    """Read all budgets."""
    rows = database.execute("select scope, counted, words from budgets order by scope, counted").fetchall()
    limits = {words: NO_LIMIT if words == NO_LIMIT.words else Budget.parse(words) for _, _, words in rows}
    return {(scope, bool(counted)): limits[words] for scope, counted, words in rows}


def add_up(database: sqlite3.Connection, budget: Budget, images: str, *values: object) -> float:
    """Add up all releases of some images, a query for their numbers; infinite if one has no proof."""
    rows = database.execute(
        "select guarantees, outputs, leakage, count(*) from charges join terms on terms.id = terms "
        f"where image in ({images}) group by terms.id",
        values,
    )
    return math.fsum(count * cost_or_infinity(budget, *row) for *row, count in rows)


def sum_by_person(database: sqlite3.Connection, scope: bytes, budget: Budget) -> float:
    """Add up all releases of the images of a person, and of their near copies."""
    if budget.definition == "naming":
        proofs = proofs_of(database, scope, since=time.time() - PERIODS[budget.period])
        chance = compose(1 / budget.people, proofs, assuming=budget.assuming).chance
        return max(0.0, math.log2(chance * budget.people))
    return add_up(database, budget, _OF_PERSON, scope)


def proofs_of(database: sqlite3.Connection, scope: bytes, *, since: float = -math.inf) -> list[Proof]:
    """Collect the proofs of all releases of images of a person, and of their near copies, since a time.

    A near copy of an earlier one is no new draw. What a wrong clock dated before _EARLIEST always counts.
    """
    rows = database.execute(
        f"select guarantees, outputs, leakage, count(*), {_DRAWS} from charges join terms on "
        f"terms.id = terms where image in ({_OF_PERSON}) and (time > ? or time < ?) group by terms.id",
        (scope, since, _EARLIEST),
    )
    return [proof_of(*_proofs(*row), releases=count, draws=draws) for *row, count, draws in rows]


def now(database: sqlite3.Connection) -> float:
    """Return the time of a charge now, in seconds since 1970: the clock's, but it never runs backwards."""
    (began,) = database.execute("select value from settings where key = 'began'").fetchone()
    last = database.execute("select time from charges order by id desc limit 1").fetchone()
    return max(time.time(), _EARLIEST, float(began), *(last or ()))


def why_clock_is_wrong(database: sqlite3.Connection) -> str:
    """Say that the clock is behind the ledger, which now() replaces it by, and the cure; "" if not."""
    clock, latest = (datetime.fromtimestamp(at, UTC) for at in (time.time(), now(database)))
    if (latest - clock).total_seconds() < _UNNOTICED:
        return ""
    return (
        f"the clock of this device says {clock:%Y-%m-%d %H:%M} UTC, and the ledger was at "
        f"{latest:%Y-%m-%d %H:%M} before: releases count as of then, and none is outside of a period: set "
        "the clock"
    )


def _proofs(text: str, outputs: float | None, leakage: float | None) -> Proofs:
    """Parse a row of the table `terms`. Raises DamagedError."""
    bits = [math.inf if value is None else value for value in (outputs, leakage)]
    try:
        information = Information(outputs=bits[0], leakage=bits[1])
        return [Guarantee(**fields) for fields in json.loads(text)], information
    except (ConfigError, TypeError, ValueError) as error:
        raise DamagedError(f"damaged ({error})") from error


def cost_or_infinity(budget: Budget, *row: Any) -> float:
    """The cost of a release by a row of the table `terms`; infinite if the budget cannot hold it."""
    try:
        return budget.cost(*_proofs(*row))
    except BudgetExceededError:
        return math.inf
