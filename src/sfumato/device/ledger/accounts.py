"""What was spent of a ledger's budgets: sums over charges, by what is proved of each."""

import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import NamedTuple

from sfumato.device.ledger.budgets import NO_LIMIT, Budget
from sfumato.device.ledger.scopes import EVERY_PERSON, is_folder, is_named_person
from sfumato.device.ledger.tables import insert_budget
from sfumato.dp.guarantee import Guarantee, proof_of
from sfumato.dp.naming import NOTHING_KNOWN, Information, Proof
from sfumato.errors import BudgetExceededError, ConfigError

RELEASES = "case when averaged then 1 else count(*) end"  # of charges that are grouped by their terms
# Of charges that are grouped so: how many are the first release of their image and of its near copies.
_DRAWS = (
    "sum(not averaged and not exists (select 1 from images as own join copies on copies.image = own.id "
    "join images as other on other.id = copy join charges as before on before.image = other.image "
    "where own.image = charges.image and before.id < charges.id))"
)
_IN_SCOPE = "(path = ? or substr(path, 1, ?) = ?)"  # its values: see within
# Images of which a near copy, or they themselves, lie in a folder.
LYING_IN = (
    "from copies join images on images.id = copy join places on places.image = images.image "
    f"join folders on folders.id = folder where {_IN_SCOPE}"
)


def within(scope: bytes) -> tuple[bytes, int, bytes]:
    """The values of _IN_SCOPE: a folder with all below it, or a person."""
    if not is_folder(scope):
        return scope, len(scope) + 1, scope  # nothing of that length equals it
    prefix = scope.rstrip(b"/") + b"/"
    return scope, len(prefix), prefix


class DamagedError(Exception):
    """What is in a ledger was not written by one."""


class Limited(NamedTuple):
    """The scope of a budget, and whether it counts releases: there is one of each kind."""

    scope: bytes
    counted: bool


class Terms(NamedTuple):
    """What is proved of the releases of a spec, by the number of its row.

    Attributes:
        number: of the row.
        guarantees: for its own number of pixels, and for others that were asked for.
        information: of one release.
        averaged: whether all of its charges are for one release, of the average of their images.
    """

    number: int
    guarantees: list[Guarantee]
    information: Information
    averaged: bool


class Selection(NamedTuple):
    """A query for digests of images, and its values."""

    query: str
    values: Sequence[object]


Proving = Callable[[int | None], Guarantee | None]  # m, or None for the protection's own -> what is proved


class Accounts:
    """The budgets of a ledger and what is spent of them. State: the ledger's connection."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def budgets(self) -> dict[Limited, Budget]:
        """All budgets."""
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
        """The row of a spec and shape, with what is proved of it for its own and for these pixels."""
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

    def brought(self, scope: bytes, number: int, budget: Budget) -> float:
        """The sum over the releases of an image and its near copies that do not count for a scope yet.

        Those count once the image lies in the folder, or shows the person, whenever they were made.
        """
        query = (
            "select images.image from copies as pair join images on images.id = pair.copy "
            f"where pair.image = ? and not exists (select 1 {LYING_IN} and copies.image = pair.copy)"
        )
        return self.sum_of(Selection(query, (number, *within(scope))), budget, beside=lying_in(scope))

    def unheld(self, budget: Budget) -> int:
        """Of how many images, with their near copies, there are releases that cost infinitely much."""
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

    def spent_in(self, scope: bytes, budget: Budget) -> float:
        """The sum over all releases of images that lie in a folder, or show a person, and near copies."""
        if budget.definition == "naming":
            return budget.bits(self.proofs_in(scope, since=budget.since(time.time())))
        return self.sum_of(lying_in(scope), budget)

    def sum_of(self, images: Selection, budget: Budget, *, beside: Selection | None = None) -> float:
        """The sum over all releases of some images. Infinite if nothing is proved of one of them.

        Args:
            images: whose.
            budget: in which unit.
            beside: images that are summed up apart: an average of one of them and of `images` counts there.
        """
        return math.fsum(
            count * _cost_or_infinity(budget, guarantees, information)
            for guarantees, information, count in self._released(images, beside)
        )

    def proofs_in(self, scope: bytes, *, since: float = -math.inf) -> list[Proof]:
        """What is proved of the releases of images in a folder, or of a person, and of near copies.

        Args:
            scope: the folder or person.
            since: in seconds since 1970; earlier releases are not counted; their near copies are not draws.
        """
        images = lying_in(scope)
        rows = self._database.execute(
            f"select guarantees, outputs, leakage, {RELEASES}, {_DRAWS} from charges join terms on "
            f"terms.id = terms where image in ({images.query}) and time > ? group by terms.id",
            (*images.values, since),
        )
        return [
            proof_of(_guarantees(text), _information(outputs, leakage), releases=count, draws=draws)
            for text, outputs, leakage, count, draws in rows
        ]

    def _released(
        self, images: Selection, beside: Selection | None = None
    ) -> Iterator[tuple[list[Guarantee], Information, int]]:
        """What is proved of each release of some images by each spec, and how many there are."""
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
        """Whether a release is counted for some images already: an average that was charged for another."""
        if not terms.averaged:
            return False
        query = f"select 1 from charges where terms = ? and image in ({images.query}) limit 1"
        return self._database.execute(query, (terms.number, *images.values)).fetchone() is not None

    def kept(self, limited: Limited) -> float:
        """What is kept as spent of the budget of a folder; 0 of others, which are added up when asked."""
        spent: float
        (spent,) = self._database.execute(
            "select spent from budgets where scope = ? and counted = ?", limited
        ).fetchone()
        return spent

    def keep(self, limited: Limited, spent: float) -> None:
        """Keep what is spent of the budget of a folder."""
        self._database.execute(
            "update budgets set spent = ? where scope = ? and counted = ?", (spent, *limited)
        )

    def add_up_folders(self) -> None:
        """Make what is kept as spent in folders anew from all charges."""
        for limited, budget in self.budgets().items():
            if is_folder(limited.scope):
                self.keep(limited, self.spent_in(limited.scope, budget))

    def set(self, scope: bytes, budget: Budget, spent: float) -> None:
        """Set the budget of a scope, instead of the one of its kind."""
        insert_budget(self._database, scope, budget.definition == "releases", budget, spent)

    def lift(self, scope: bytes) -> None:
        """Have no budget for a scope; for a person neither that of every person."""
        self._database.execute("delete from budgets where scope = ?", (scope,))
        if is_named_person(scope):
            for counted in (False, True):
                insert_budget(self._database, scope, counted, NO_LIMIT, 0.0)


def copies_of(number: int, *, alone: bool = False) -> Selection:
    """An image and its near copies; `alone`, without them."""
    if alone:
        return Selection("select image from images where id = ?", (number,))
    query = "select images.image from copies join images on images.id = copy where copies.image = ?"
    return Selection(query, (number,))


def lying_in(scope: bytes) -> Selection:
    """The images that lie in a folder, or show a person, and their near copies."""
    # In this order: of millions of images few show one person. Copies are pairs both ways.
    query = (
        "select image from images where id in (select copies.copy from folders cross join places on "
        "folder = folders.id cross join images on images.image = places.image cross join copies on "
        f"copies.image = images.id where {_IN_SCOPE})"
    )
    return Selection(query, within(scope))


def of_people(people: Iterable[bytes], budgets: dict[Limited, Budget]) -> Iterator[tuple[bytes, Budget]]:
    """The budgets that hold for people: their own, or that of every person."""
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
