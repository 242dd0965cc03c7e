"""Charges: each release of each image, recorded before it leaves, within all budgets that apply."""

import math
import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from sfumato.device.ledger import chain
from sfumato.device.ledger.accounts import (
    Accounts,
    DamagedError,
    Limited,
    Selection,
    Terms,
    copies_of,
    lying_in,
    of_people,
)
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.near_copies import Fingerprint
from sfumato.device.ledger.pictures import NearCopies, Pictures
from sfumato.device.ledger.scopes import (
    EVERY_IMAGE,
    describe,
    kind_of,
    option_of,
    person_scope,
)
from sfumato.device.ledger.tables import digest_of_release
from sfumato.dp.guarantee import Guarantee
from sfumato.dp.naming import NOTHING_KNOWN, Information
from sfumato.errors import BudgetExceededError


@dataclass(frozen=True, kw_only=True)
class Charge:
    """A release that is about to leave.

    Attributes:
        image: digest of the original, sfumato.images.digest.
        spec: the protection, see sfumato.device.ledger.tables.protection_key.
        shape: (C, H, W) of the original.
        guarantee: maps m pixels (None: the protection's own) to the guarantee, or None.
        release: the values as bytes, (C, h, w) uint8 or (d,) float32 of a private feature, (b,) bool of a
            code; None if the protection is deterministic.
        name: of its file, for messages on this device; may be "".
        person: who is in it, for the budgets of people; None if unknown.
        fingerprint: of the picture as read, to recognise near copies; None if it has none or is known.
        information: the most that the release can tell, in bits.
        averaged: whether the release is the average of all images that are charged with this spec. Each
            image then pays for it, and a person pays once for all.
    """

    image: bytes
    spec: str
    shape: tuple[int, int, int]
    guarantee: Callable[[int | None], Guarantee | None]
    release: bytes | None
    name: str = ""
    person: str | None = None
    fingerprint: Fingerprint | None = None
    information: Information = NOTHING_KNOWN
    averaged: bool = False


class Charged(NamedTuple):
    """A ledger's answer to charges.

    Attributes:
        releases: the release to send for each `release`: itself, or the stored one if this image and spec
            were charged before, which costs nothing now.
        new: how many were charged now.
        numbers: 16 random bytes for each, drawn at its first charge: the name of that release.
    """

    releases: list[bytes | None]
    new: int
    numbers: list[bytes]


class Charges:
    """The charges of a ledger. State: the ledger's connection."""

    def __init__(
        self,
        database: sqlite3.Connection,
        accounts: Accounts,
        pictures: Pictures,
        *,
        keep_releases: bool,
        option: str,
    ) -> None:
        """`option` names the ledger to a command, with a leading space; "" for this user's own."""
        self._database = database
        self._accounts = accounts
        self._pictures = pictures
        self._keep_releases = keep_releases
        self._option = option

    def find_release(self, image: bytes, spec: str) -> bytes | None:
        """Return the stored random release of an image by a spec. Raises DamagedError if it was changed."""
        row = self._database.execute(
            "select release, digest from charges join terms on terms.id = terms where image = ? and spec = ?",
            (image, spec),
        ).fetchone()
        return None if row is None else self._undamaged(image, *row)

    def add(
        self, charge: Charge, budgets: dict[Limited, Budget], mode: NearCopies
    ) -> tuple[bytes | None, bytes, bool]:
        """Charge a release, within a transaction. Returns the release to send, its number, whether it is new.

        Args:
            charge: the release about to leave.
            budgets: all of the ledger's.
            mode: how to treat near copies.

        Raises:
            BudgetExceededError: a budget would be passed, or the image is a near copy that is refused.
            DamagedError: the ledger is damaged.
        """
        pixels = {budget.pixels for budget in budgets.values()}
        terms = self._accounts.terms(
            charge.spec,
            charge.shape,
            charge.guarantee,
            pixels,
            information=charge.information,
            averaged=charge.averaged,
        )
        row = self._database.execute(
            "select release, digest, number from charges where image = ? and terms = ?",
            (charge.image, terms.number),
        ).fetchone()
        image, joined = self._pictures.see(charge.image, charge.name, charge.fingerprint, mode)
        if row is not None:
            people = self._pictures.people_in(image)
            self._spend(charge, image, budgets, None, mode, joined=joined)
            if joined or self._pictures.people_in(image) != people:
                self._check_named(charge, image, budgets)
            return self._undamaged(charge.image, *row[:2]), row[2], False
        self._check_releases(charge.image)
        if mode == "refuse" and (likeness := self._likeness(image)):
            raise BudgetExceededError(
                f"{charge.spec}: {likeness}. Two versions of one photograph? Release one of them, or let "
                f"them share a budget with `sfumato ledger near-copies charge{self._option}`",
                cause="a near copy of an image that was released before",
            )
        self._spend(charge, image, budgets, terms, mode, joined=joined)
        self._database.execute("update images set releases = releases + 1 where image = ?", (charge.image,))
        release = charge.release if self._keep_releases else None
        before = chain.last(self._database)
        digest, number = digest_of_release(charge.image, charge.release), secrets.token_bytes(16)
        named = (before.number + 1, charge.image, charge.spec, *charge.shape)
        row = (*named, self._accounts.now(), number, digest)
        self._database.execute(
            "insert into charges (id, image, terms, time, number, digest, link, release) "
            "values (?, ?, ?, ?, ?, ?, ?, ?)",
            (row[0], charge.image, terms.number, *row[-3:], chain.link(before.link, row), release),
        )
        self._check_named(charge, image, budgets)
        return charge.release, number, True

    def _spend(
        self,
        charge: Charge,
        image: int,
        budgets: dict[Limited, Budget],
        terms: Terms | None,
        mode: NearCopies,
        *,
        joined: bool,
    ) -> None:
        """Record who is in an image, and add its release to the budgets that apply.

        The budget of an image applies to it and to each of its near copies, each with its own copies: so no
        image passes its budget, copies included, in whatever order they arrive.

        Args:
            terms: the proofs of the release; None if it was charged before: then it adds only the earlier
                releases of the image, to a person who is new to it.
            joined: whether the image has near copies only now, so that their releases count for its
                people, and its releases for theirs.

        Raises:
            BudgetExceededError: a budget would be passed.
        """
        accounts, pictures = self._accounts, self._pictures

        def add(scope: bytes, budget: Budget, spent: float, brought: float, images: Selection) -> None:
            """Raise BudgetExceededError if the sum with this release passes the budget."""
            cause = f"over the budget of {kind_of(scope)}: {budget}"
            subject = "this image" if scope == EVERY_IMAGE else describe(scope)
            command = partial(self._command, scope)
            cost = 0.0
            try:
                if terms is not None and not accounts.counts(terms, images):
                    cost = budget.cost(terms.guarantees, terms.information)
            except BudgetExceededError as error:
                message = (
                    f"{charge.spec}: {error} (budget of {subject}: {budget}), or count releases instead: "
                    f"`{command('none')}`, then `{command('releases=5')}`"
                )
                raise BudgetExceededError(message, cause=f"{cause}, and {error.cause}") from error
            if budget.definition == "releases" or math.isinf(brought):
                spent += brought
            else:
                cost += brought
            copies = mode != "ignore"
            refusal = budget.refusal(spent, cost, subject, command, copies=copies)
            if refusal and (cost or brought or joined):
                if math.isinf(spent):
                    cause += f", and {budget.unheld} made before"
                likeness = self._likeness(image) if scope == EVERY_IMAGE and mode == "charge" else ""
                before = "with the earlier releases of this image, " if brought or joined else ""
                message = f"{charge.spec}: {likeness}{': ' * bool(likeness)}{before}{refusal}"
                raise BudgetExceededError(message, cause=cause)

        for limited, budget in budgets.items():
            scope = limited.scope
            if scope == EVERY_IMAGE and terms is not None and math.isfinite(budget.amount):
                alone = mode == "ignore"
                for each in [image] if alone else pictures.copies(image):
                    copies = copies_of(each, alone=alone)
                    add(scope, budget, accounts.sum_of(copies, budget), 0.0, copies)
        named = [] if charge.person is None else [person_scope(charge.person)]
        for scope, budget in of_people(sorted({*named, *pictures.people_in(image)}), budgets):
            # Releases of an image that nobody named count for the person who is named now.
            brought = accounts.sum_earlier(scope, image, budget) if scope in named else 0.0
            if brought or joined or terms is not None:
                add(scope, budget, accounts.sum_in(scope, budget), brought, lying_in(scope))
        pictures.lay(charge.image, named)

    def _check_named(self, charge: Charge, image: int, budgets: dict[Limited, Budget]) -> None:
        """Raise BudgetExceededError if all recorded releases together name somebody in an image too often."""
        if all(budget.definition != "naming" for budget in budgets.values()):
            return
        for scope, budget in of_people(sorted(self._pictures.people_in(image)), budgets):
            if budget.definition == "naming":
                spent, command = self._accounts.sum_in(scope, budget), partial(self._command, scope)
                if refusal := budget.refusal(spent, 0.0, describe(scope), command):
                    cause = f"over the budget of {kind_of(scope)}: {budget}"
                    clock = self._accounts.why_clock_is_wrong()
                    message = f"{charge.spec}: {refusal}{'. Also, ' * bool(clock)}{clock}"
                    raise BudgetExceededError(message, cause=cause)

    def _command(self, scope: bytes, words: str) -> str:
        return f"sfumato ledger budget {words}{option_of(scope)}{self._option}"

    def _likeness(self, image: int) -> str:
        """Say which released image this one resembles, and what to do if they differ; "" if there is none."""
        name = self._pictures.name_released_copy(image)
        if name is None:
            return ""
        return (
            f"looks like a copy of {name or 'another image'}, which was released before (different "
            f"photographs? `sfumato ledger near-copies ignore{self._option}`)"
        )

    def _check_releases(self, image: bytes) -> None:
        """Raise DamagedError if a charged release of an image is missing."""
        (charged,) = self._database.execute(
            "select count(*) from charges where image = ?", (image,)
        ).fetchone()
        (known,) = self._database.execute("select releases from images where image = ?", (image,)).fetchone()
        if charged != known:
            raise DamagedError(f"damaged ({known} releases of an image are recorded, and {charged} are here)")

    def _undamaged(self, image: bytes, release: bytes | None, digest: bytes | None) -> bytes | None:
        if self._keep_releases and digest_of_release(image, release) != digest:
            raise DamagedError("damaged (a release was changed)")
        return release
