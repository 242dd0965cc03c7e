"""The summary of a ledger."""

import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

from sfumato.device.ledger.accounts import RELEASES, Accounts
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.scopes import is_named_person
from sfumato.device.ledger.tables import AVERAGE_OF


class Limit(NamedTuple):
    """A budget, its scope, and the sum spent: 0 for every image and for every person."""

    scope: bytes
    budget: Budget
    spent: float


class Pin(NamedTuple):
    """The protection agreed with a service, and the time of the agreement (seconds since 1970)."""

    spec: str
    since: float


@dataclass(frozen=True)
class Summary:
    """The contents of a ledger: distinct images, the pictures that they show, releases, budgets, pins."""

    images: int
    pictures: int
    releases: int
    specs: dict[str, int]
    budgets: list[Limit]
    pins: dict[tuple[str, str], Pin]


def summarise(database: sqlite3.Connection, accounts: Accounts) -> Summary:
    """Summarise an open ledger."""
    (images,) = database.execute("select count(distinct image) from charges").fetchone()
    (pictures,) = database.execute(
        "select count(*) from images where releases > 0 and not exists (select 1 from copies join images as "
        "other on other.id = copy where copies.image = images.id and copy < images.id and other.releases > 0)"
    ).fetchone()
    specs: dict[str, int] = {}
    for spec, releases in database.execute(
        f"select spec, {RELEASES} from charges join terms on terms.id = terms group by terms.id order by spec"
    ):
        key, average, _ = spec.partition(AVERAGE_OF)
        name = f"{key}, averages of several images" if average else key
        specs[name] = specs.get(name, 0) + releases
    limits = []
    for limited, budget in accounts.budgets().items():
        spent = accounts.sum_in(limited.scope, budget) if is_named_person(limited.scope) else 0.0
        limits.append(Limit(limited.scope, budget, spent))
    pins = {
        (service, classifier): Pin(spec, since)
        for service, classifier, spec, since in database.execute(
            "select * from pins order by service, classifier"
        )
    }
    return Summary(images, pictures, sum(specs.values()), specs, limits, pins)
