"""Sums of the charges of a ledger, in the unit of each budget."""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import NamedTuple

from sfumato.device.ledger.budgets import NO_LIMIT, Budget
from sfumato.device.ledger.scopes import EVERY_PERSON, is_named_person
from sfumato.device.ledger.tables import EARLIEST, insert_budget
from sfumato.dp.guarantee import Guarantee, proof_of
from sfumato.dp.naming import NOTHING_KNOWN, Information, Proof
from sfumato.errors import BudgetExceededError, ConfigError

_UNNOTICED = 60.0  # seconds that a clock may be behind the last charge without a word
RELEASES = "case when averaged then 1 else count(*) end"  # how many releases, for charges grouped by terms
# In the same grouping: how many charges are the first release of their image and its near copies.
_DRAWS = (
    "sum(not averaged and not exists (select 1 from images as own join copies on copies.image = own.id "
    "join images as other on other.id = copy join charges as before on before.image = other.image "
    "where own.image = charges.image and before.id < charges.id))"
)
_IN_SCOPE = "path = ?"
# Images that show a person, or have a near copy that does.
LYING_IN = (
    "from copies join images on images.id = copy join places on places.image = images.image "
    f"join folders on folders.id = folder where {_IN_SCOPE}"
)


def scope_values(scope: bytes) -> tuple[bytes]:
    """The values of _IN_SCOPE."""
    return (scope,)


class DamagedError(Exception):
    """Something in a ledger is not as the ledger wrote it."""


class Limited(NamedTuple):
    """A budget's scope, and whether it counts releases: a scope has one budget of each kind."""

    scope: bytes
    counted: bool


class Terms(NamedTuple):
    """A row of the table `terms`: the proofs that hold for releases by one spec.

    Attributes:
        number: of the row.
        guarantees: for its own number of pixels, and for others that were asked for.
        information: of one release.
        averaged: whether all charges of the row are for one release, the average of their images.
    """

    number: int
    guarantees: list[Guarantee]
    information: Information
    averaged: bool


class Selection(NamedTuple):
    """A query for digests of images, and its values."""

    query: str
    values: Sequence[object]


Proving = Callable[[int | None], Guarantee | None]  # m pixels (None: the protection's own) -> guarantee


class Accounts:
    """The budgets of a ledger and the sums spent of them. State: the ledger's connection."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def now(self) -> float:
        """Return the time of a charge now, in seconds since 1970: it never runs backwards.

        It is the clock's, but at least that of the charge before, of the ledger's beginning, and of EARLIEST.
        """
        (began,) = self._database.execute("select value from settings where key = 'began'").fetchone()
        last = self._database.execute("select time from charges order by id desc limit 1").fetchone()
        return max(time.time(), EARLIEST, float(began), *(last or ()))

    def why_clock_is_wrong(self) -> str:
        """Say that the clock is behind the ledger, which now() replaces it by, and the cure; "" if not."""
        clock, now = (datetime.fromtimestamp(at, UTC) for at in (time.time(), self.now()))
        if (now - clock).total_seconds() < _UNNOTICED:
            return ""
        return (
            f"the clock of this device says {clock:%Y-%m-%d %H:%M} UTC, and the ledger was at "
            f"{now:%Y-%m-%d %H:%M} before: releases count as of then, and none is outside of a period: set "
            "the clock"
        )

    def budgets(self) -> dict[Limited, Budget]:
        """Read all budgets."""
        rows = self._database.execute(
            "select scope, counted, definition, amount, pixels, words from budgets order by scope, counted"
        )
        return {
            Limited(scope, bool(counted)): Budget(
                definition=definition, amount=amount, pixels=pixels, words=words
            )
            for scope, counted, definition, amount, pixels, words in rows
        }

    def terms(
        self,
        spec: str,
        shape: tuple[int, int, int],
        proof: Proving,
        pixels: set[int],
        *,
        information: Information,
        averaged: bool,
    ) -> Terms:
        """Read or update the row of a spec and shape, proved for its own and for these pixels."""
        key = (spec, *shape)
        row = self._database.execute(
            "select id, guarantees, outputs, leakage from terms "
            "where spec = ? and channels = ? and height = ? and width = ?",
            key,
        ).fetchone()
        known = [] if row is None else _guarantees(row[1])
        before = NOTHING_KNOWN if row is None else _information(*row[2:])
        information = Information(
            outputs=min(before.outputs, information.outputs), leakage=min(before.leakage, information.leakage)
        )
        missing: list[int | None] = [*sorted(pixels - {guarantee.pixels for guarantee in known})]
        if row is not None and not (known and missing) and information == before:
            return Terms(row[0], known, information, averaged)
        for m in [None, *missing] if row is None else missing:
            guarantee = proof(m)
            if guarantee is not None and guarantee not in known:
                known.append(guarantee)
        text = json.dumps([asdict(guarantee) for guarantee in known])
        cursor = self._database.execute(
            "insert into terms (spec, channels, height, width, guarantees, outputs, leakage, averaged) "
            "values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do update set guarantees = excluded.guarantees, "
            "outputs = excluded.outputs, leakage = excluded.leakage returning id",
            (*key, text, _finite(information.outputs), _finite(information.leakage), averaged),
        )
        return Terms(cursor.fetchone()[0], known, information, averaged)

    def sum_earlier(self, scope: bytes, number: int, budget: Budget) -> float:
        """Add up the earlier releases of an image and its near copies that a scope does not count yet.

        They count from the moment the image shows the person, whatever their date.
        """
        query = (
            "select images.image from copies as pair join images on images.id = pair.copy "
            f"where pair.image = ? and not exists (select 1 {LYING_IN} and copies.image = pair.copy)"
        )
        return self.sum_of(Selection(query, (number, *scope_values(scope))), budget, beside=lying_in(scope))

    def count_unheld(self, budget: Budget) -> int:
        """Count the images that have, with their near copies, a release of infinite cost."""
        rows = self._database.execute("select id, guarantees, outputs, leakage from terms").fetchall()
        beyond = [
            row[0]
            for row in rows
            if math.isinf(_cost_or_infinity(budget, _guarantees(row[1]), _information(*row[2:])))
        ]
        count: int
        (count,) = self._database.execute(
            "select count(distinct copies.image) from copies join images on images.id = copy where "
            "images.image in (select image from charges where terms in (select value from json_each(?)))",
            (json.dumps(beyond),),
        ).fetchone()
        return count

    def sum_in(self, scope: bytes, budget: Budget) -> float:
        """Add up all releases of the images of a person, and of their near copies."""
        if budget.definition == "naming":
            return budget.bits(self.proofs_in(scope, since=budget.since(time.time())))
        return self.sum_of(lying_in(scope), budget)

    def sum_of(self, images: Selection, budget: Budget, *, beside: Selection | None = None) -> float:
        """Add up all releases of some images. Infinite if nothing is proved about one of them.

        Args:
            images: the images.
            budget: defines the unit.
            beside: images summed separately: an average over one of these and `images` counts there only.
        """
        return math.fsum(
            count * _cost_or_infinity(budget, guarantees, information)
            for guarantees, information, count in self._proofs_by_spec(images, beside)
        )

    def proofs_in(self, scope: bytes, *, since: float = -math.inf) -> list[Proof]:
        """Collect the proofs of all releases of images of a person, and of near copies.

        Args:
            scope: the person.
            since: seconds since 1970. Earlier releases do not count, and a near copy of one is no new draw.
                Releases that a wrong clock dated before EARLIEST always count.
        """
        images = lying_in(scope)
        rows = self._database.execute(
            f"select guarantees, outputs, leakage, {RELEASES}, {_DRAWS} from charges join terms on "
            f"terms.id = terms where image in ({images.query}) and (time > ? or time < ?) group by terms.id",
            (*images.values, since, EARLIEST),
        )
        return [
            proof_of(_guarantees(text), _information(outputs, leakage), releases=count, draws=draws)
            for text, outputs, leakage, count, draws in rows
        ]

    def _proofs_by_spec(
        self, images: Selection, beside: Selection | None = None
    ) -> Iterator[tuple[list[Guarantee], Information, int]]:
        """Yield the proofs of each spec by which some images were released, and the number of releases."""
        query = (
            f"select guarantees, outputs, leakage, {RELEASES} from charges join terms on terms.id = terms "
            f"where image in ({images.query})"
        )
        values = [*images.values]
        if beside is not None:
            query += (
                " and not (averaged and exists (select 1 from charges as other where other.terms = terms.id "
                f"and other.image in ({beside.query})))"
            )
            values += beside.values
        rows = self._database.execute(f"{query} group by terms.id", values)
        for text, outputs, leakage, count in rows:
            yield _guarantees(text), _information(outputs, leakage), count

    def counts(self, terms: Terms, images: Selection) -> bool:
        """Whether a release counts for some images already, as an average charged for another."""
        if not terms.averaged:
            return False
        query = f"select 1 from charges where terms = ? and image in ({images.query}) limit 1"
        return self._database.execute(query, (terms.number, *images.values)).fetchone() is not None

    def set(self, scope: bytes, budget: Budget) -> None:
        """Set the budget of a scope; it replaces one of the same kind."""
        insert_budget(self._database, scope, budget.definition == "releases", budget)

    def lift(self, scope: bytes) -> None:
        """Remove the budgets of a scope. A person is then also exempt from the budget of every person."""
        self._database.execute("delete from budgets where scope = ?", (scope,))
        if is_named_person(scope):
            for counted in (False, True):
                insert_budget(self._database, scope, counted, NO_LIMIT)


def copies_of(number: int, *, alone: bool = False) -> Selection:
    """Select an image and its near copies; with `alone`, the image only."""
    if alone:
        return Selection("select image from images where id = ?", (number,))
    query = "select images.image from copies join images on images.id = copy where copies.image = ?"
    return Selection(query, (number,))


def lying_in(scope: bytes) -> Selection:
    """Select the images that show a person, and their near copies."""
    # The order matters: few of millions of images show one person. Copies are pairs both ways.
    query = (
        "select image from images where id in (select copies.copy from folders cross join places on "
        "folder = folders.id cross join images on images.image = places.image cross join copies on "
        f"copies.image = images.id where {_IN_SCOPE})"
    )
    return Selection(query, scope_values(scope))


def of_people(people: Iterable[bytes], budgets: dict[Limited, Budget]) -> Iterator[tuple[bytes, Budget]]:
    """Yield the budget of each person: their own, or the one of every person."""
    for scope in people:
        for counted in (False, True):
            budget = budgets.get(Limited(scope, counted), budgets.get(Limited(EVERY_PERSON, counted)))
            if budget is not None and math.isfinite(budget.amount):
                yield scope, budget


def _guarantees(text: str) -> list[Guarantee]:
    try:
        return [Guarantee(**fields) for fields in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise DamagedError(f"damaged ({error})") from error


def _information(outputs: float | None, leakage: float | None) -> Information:
    try:
        return Information(
            outputs=math.inf if outputs is None else outputs, leakage=math.inf if leakage is None else leakage
        )
    except (ConfigError, TypeError, ValueError) as error:
        raise DamagedError(f"damaged ({error})") from error


def _finite(bits: float) -> float | None:
    return bits if math.isfinite(bits) else None


def _cost_or_infinity(budget: Budget, guarantees: Sequence[Guarantee], information: Information) -> float:
    try:
        return budget.cost(guarantees, information)
    except BudgetExceededError:
        return math.inf
