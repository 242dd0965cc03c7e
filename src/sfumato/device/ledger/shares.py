"""Histograms and alarms, which leave once a period, whatever the images are: see sfumato.dp.naming.period.

Answers of a classifier are gathered in the ledger, each image once, and leave as ONE rounded histogram. That
is a release like any other: charged, stored, and the same bytes when it is asked for again. A transaction
takes the answers and charges the histogram. So a kill loses no answer and counts none twice: before it the
answers are still here; after it the histogram waits, and every call returns the same bytes until the service
has confirmed them, which it knows by their id. Then the next one has to wait until the period is over.
"""

import math
import sqlite3
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple

from sfumato.device.ledger import charging
from sfumato.device.ledger.budgets import PERIODS
from sfumato.dp import naming
from sfumato.errors import BudgetExceededError, ConfigError
from sfumato.wire.messages import Period, Shares

_DAY = PERIODS["day"]
_BEFORE = (
    "select time, release, number, sent from shares join charges on charges.image = shares.image "
    "where service = ? and classifier = ? and most = ? and time > ? order by charges.id"
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The release that a classifier of a service may have in each period: a histogram, or alarms.

    Attributes:
        values: the answers that a histogram counts, None for "none of these"; of an alarm its class alone.
        parts: L of a histogram; 1 for an alarm.
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
        """B: how many different outputs a period has."""
        if self.most:
            return naming.count_alarms(self.most, int(PERIODS[self.per] // _DAY))
        return naming.count_histograms(len(self.values), self.parts)

    @property
    def spec(self) -> str:
        """The name of such releases in the ledger."""
        what = f"alarms:most={self.most}" if self.most else f"rounded:values={len(self.values)}"
        return f"{what},parts={self.parts},per={self.per}"


class Prepared(NamedTuple):
    """A release to send: its bytes, and its number in the ledger."""

    content: bytes
    number: bytes
    answers: int = 0  # that were gathered and are counted now; 0 if it was prepared before
    unknown: int = 0  # gathered answers that are none of `values`: they are dropped


def prepare(database: sqlite3.Connection, plan: Plan, *, person: str | None, option: str) -> Prepared:
    """Charge the release of a plan within a transaction; or return the last one, if it was not confirmed.

    Raises:
        BudgetExceededError: the period has had its own already, or a budget of the person does not hold it.
        ConfigError: no answer was gathered.
    """
    now, most, of = charging.now(database), plan.most, (plan.service, plan.classifier)
    before = database.execute(_BEFORE, (*of, most, now - PERIODS[plan.per])).fetchall()
    if before and not before[-1][3]:
        return Prepared(before[-1][1], before[-1][2])
    if len(before) >= max(1, most):
        raise _refusal(plan, until=before[0][0] + PERIODS[plan.per])
    if before and before[-1][0] // _DAY == now // _DAY:
        raise _refusal(plan, until=(now // _DAY + 1) * _DAY)
    mine = "from gathered where service = ? and classifier = ?"
    rows = [] if most else database.execute(f"select label {mine}", of).fetchall()
    counts = Counter[str | None](label for (label,) in rows)
    given = [1] if most else [counts[label] for label in plan.values]
    if not any(given):
        raise ConfigError(
            f"{plan.classifier}: {len(rows)} answers are gathered, and none of a class that it has: gather "
            "some by `sfumato classify ... --table FILE --gather`"
        )
    number, bits = naming.number_histogram(naming.round_shares(given, plan.parts)), math.log2(plan.outputs)
    message = Shares(labels=list(plan.values), parts=plan.parts, per=plan.per, histogram=number)
    charge = charging.Charge(
        image=sha256("\n".join((*of, plan.spec, repr(now))).encode()).digest(),
        spec=plan.spec,
        shape=(1, 1, len(given)),
        guarantee=lambda pixels: None,
        release=message.model_dump_json().encode(),
        name=f"{plan.spec} of {plan.classifier}",
        person=person,
        information=naming.Information(outputs=bits, leakage=bits),
    )
    charged = charging.charge(database, [charge], option=option)
    query = "insert into shares select id, ?, ?, ?, 0 from images where image = ?"
    database.execute(query, (*of, most, charge.image))
    if not most:
        database.execute(f"delete {mine}", of)
    return Prepared(
        message.model_dump_json().encode(), charged.numbers[0], sum(given), len(rows) - sum(given)
    )


def _refusal(plan: Plan, *, until: float) -> BudgetExceededError:
    moment = datetime.fromtimestamp(math.ceil(until), UTC)
    limit = (
        f"at most {plan.most} alarms a {plan.per}, on different days" if plan.most else f"one a {plan.per}"
    )
    return BudgetExceededError(
        f"{plan.classifier}: {limit}: the next may leave from {moment:%Y-%m-%d %H:%M:%S} UTC on"
        f"{'' if plan.most else '; until then, answers are gathered'}",
        cause=f"over the number of a {plan.per}",
    )
