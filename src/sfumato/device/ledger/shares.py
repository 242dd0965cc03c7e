"""Shares and alarms: what leaves once a period, whatever the images are, see sfumato.dp.naming.period.

Answers of a classifier are gathered here, each image once. They leave as ONE rounded histogram, which is a
release like any other: charged, stored, and the same bytes when it is asked for again. A transaction takes
the answers and charges the histogram, so a kill loses none and counts none twice:

1. Before the transaction: the answers are still here, and nothing has left.
2. After it: the histogram is charged, and not `sent`. The next call returns the same bytes; the service knows
   them by their id, whether or not they arrived.
3. Once the service has confirmed: `sent`. Another one is refused until the period is over.
"""

import math
import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from sfumato.device.ledger import charging
from sfumato.device.ledger.budgets import PERIODS
from sfumato.device.ledger.charging import Charge
from sfumato.dp import naming
from sfumato.dp.naming import Information, Naming
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.wire.messages import Period, Shares

_DAY = PERIODS["day"]
_ASSUMED = "nothing is assumed of the images; that it leaves, and when, must not depend on them"
_DATED = "nothing is assumed of the images; the time of day at which an alarm leaves must not depend on them"
_BEFORE = (
    "select time, release, number, sent from shares join charges on charges.image = shares.image "
    "where service = ? and classifier = ? and most = ? and time > ? order by charges.id"
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What may leave for a classifier of a service in each period: a histogram, or alarms.

    Attributes:
        values: the answers that a histogram counts, None for "none of these"; of an alarm its class alone.
        parts: L of a histogram; 1 for an alarm.
        per: the period.
        most: k alarms, on different days (UTC); 0 for one histogram.
    """

    service: str
    classifier: str
    values: tuple[str | None, ...]
    parts: int = 5
    per: Period = "quarter"
    most: int = 0

    @property
    def outputs(self) -> int:
        """B: how many different releases there are of a period."""
        if self.most:
            return naming.count_alarms(self.most, int(PERIODS[self.per] // _DAY))
        return naming.count_histograms(len(self.values), self.parts)

    @property
    def spec(self) -> str:
        """As the ledger lists it."""
        if self.most:
            return f"alarms:most={self.most},per={self.per}"
        return f"rounded:values={len(self.values)},parts={self.parts},per={self.per}"

    def naming(self, candidates: int) -> Naming:
        """The bound on naming the person from all that leaves in a period."""
        bound = naming.counting(1 / candidates, outputs=self.outputs)
        stated = naming.make_statement(bound, candidates=candidates, prior=None, releases=1)
        return replace(stated, assumption=_DATED if self.most else _ASSUMED)


class Prepared(NamedTuple):
    """What is to be sent: its bytes, its number in the ledger, and whether it was charged now."""

    content: bytes
    number: bytes
    new: bool
    answers: int = 0  # counted now
    unknown: int = 0  # gathered answers that are none of `values`: they are dropped


def gather(
    database: sqlite3.Connection, service: str, classifier: str, answers: Mapping[bytes, str | None]
) -> None:
    """Keep answers by the digests of their images, until they leave; the last one of each image counts."""
    rows = [(service, classifier, image, label) for image, label in answers.items()]
    database.executemany("insert or replace into gathered values (?, ?, ?, ?)", rows)


def prepare(database: sqlite3.Connection, plan: Plan, *, person: str | None, option: str) -> Prepared:
    """Charge what leaves for a plan now, in a transaction; or return what did not arrive, see above.

    Raises:
        BudgetExceededError: the period has had its own already, or a budget of the person does not hold it.
        ConfigError: no answer was gathered.
    """
    now, service, classifier = charging.now(database), plan.service, plan.classifier
    since, number = now - PERIODS[plan.per], None
    before = database.execute(_BEFORE, (service, classifier, plan.most, since)).fetchall()
    if before and not before[-1][3]:
        return Prepared(before[-1][1], before[-1][2], new=False)
    if len(before) >= max(1, plan.most):
        _refuse(plan, until=before[0][0] + PERIODS[plan.per])
    if plan.most and before and before[-1][0] // _DAY == now // _DAY:
        _refuse(plan, until=(now // _DAY + 1) * _DAY)
    counts, unknown = Counter[str | None](), 0
    if not plan.most:
        rows = database.execute(
            "select label from gathered where service = ? and classifier = ?", (service, classifier)
        )
        counts.update(label for (label,) in rows)
        unknown = sum(counts[label] for label in counts.keys() - set(plan.values))
        if unknown == counts.total():
            raise ConfigError(
                f"no answer of {classifier} is gathered{f', but {unknown} of classes it lacks' * bool(unknown)}"
                ": gather them first, by `sfumato classify ... --table FILE --gather`"
            )
        database.execute("delete from gathered where service = ? and classifier = ?", (service, classifier))
    given = [counts[label] for label in plan.values]
    shares = [1] if plan.most else naming.round_shares(given, plan.parts)
    number = naming.number_histogram(shares)
    message = Shares(labels=list(plan.values), parts=plan.parts, per=plan.per, histogram=number)
    content, bits = message.model_dump_json().encode(), math.log2(plan.outputs)
    image = sha256("\n".join(("shares", service, classifier, plan.spec, repr(now))).encode()).digest()
    charge = Charge(
        image=image,
        spec=plan.spec,
        shape=(1, 1, len(shares)),
        guarantee=lambda pixels: None,
        release=content,
        name=f"{plan.spec} of {classifier}",
        person=person,
        information=Information(outputs=bits, leakage=bits),
    )
    charged = charging.charge(database, [charge], option=option)
    database.execute(
        "insert into shares select id, ?, ?, ?, 0 from images where image = ?",
        (service, classifier, plan.most, image),
    )
    return Prepared(content, charged.numbers[0], new=True, answers=sum(given), unknown=unknown)


def _refuse(plan: Plan, *, until: float) -> None:
    moment = datetime.fromtimestamp(math.ceil(until), UTC)
    limit = (
        f"at most {plan.most} alarms a {plan.per}, on different days" if plan.most else f"one a {plan.per}"
    )
    kept = "" if plan.most else "; answers are gathered until then"
    raise BudgetExceededError(
        f"{plan.classifier}: {limit}: the next may leave from {moment:%Y-%m-%d %H:%M:%S} UTC on{kept}",
        cause=f"over the number of a {plan.per}",
    )


def note_sent(database: sqlite3.Connection, number: bytes) -> None:
    """Record that the service has what was prepared."""
    query = "update shares set sent = 1 where image = (select image from charges where number = ?)"
    database.execute(query, (number,))
