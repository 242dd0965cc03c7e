"""Histograms and alarms of a period: one each, whole after a kill at any step, and the same bytes again."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sfumato.device.ledger import Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.device.ledger.shares import Plan, Prepared
from sfumato.errors import BudgetExceededError, ConfigError, LedgerError
from sfumato.wire.messages import Shares

HERE = "http://127.0.0.1:9"
PLAN = Plan(service=HERE, classifier="drowsy", values=("awake", "drowsy", None))
ALARMS = replace(PLAN, values=("drowsy",), parts=1, most=2)
DAY = 86_400.0
NOW = datetime(2027, 1, 4, 9, 30, tzinfo=UTC).timestamp()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time, which a test sets."""
    at = [NOW]
    monkeypatch.setattr(time, "time", lambda: at[0])
    return at


@pytest.fixture
def ledger(clock: list[float], tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def gather(ledger: Ledger, awake: int, drowsy: int, none: int = 0, first: int = 0) -> None:
    labels = ["awake"] * awake + ["drowsy"] * drowsy + [None] * none
    ledger.gather(HERE, "drowsy", {f"{first + i}".encode(): label for i, label in enumerate(labels)})


def counts(prepared: Prepared) -> list[int]:
    return Shares.model_validate_json(prepared.content).parts_of_each()


def send(ledger: Ledger, plan: Plan = PLAN, **more: str) -> Prepared:
    prepared = ledger.prepare_shares(plan, **more)
    ledger.note_sent(prepared)
    return prepared


def test_the_answers_of_a_period_leave_as_one_rounded_histogram_that_says_no_more(ledger: Ledger):
    gather(ledger, awake=70, drowsy=25, none=5)
    prepared = send(ledger)
    assert prepared.content == b'{"labels":["awake","drowsy",null],"parts":5,"per":"quarter","histogram":19}'
    assert (counts(prepared), prepared.answers, prepared.unknown) == ([4, 1, 0], 100, 0)
    assert PLAN.outputs == 21
    assert ledger.summary().specs == {"rounded:values=3,parts=5,per=quarter": 1}
    assert (ledger.summary().images, ledger.check()) == (0, 1)


def test_an_image_counts_once_and_a_service_by_any_of_its_names(ledger: Ledger):
    gather(ledger, awake=2, drowsy=1)
    gather(ledger, awake=2, drowsy=1)
    ledger.gather("HTTP://127.0.0.1:9/", "drowsy", {b"0": "drowsy"})  # looked up again, by a newer table
    ledger.gather(HERE, "other", {b"9": "awake"})
    assert send(ledger).answers == 3
    with pytest.raises(ConfigError, match="other: 1 answers are gathered, and none of a class that it has"):
        send(ledger, replace(PLAN, classifier="other", values=("red",)))


def test_what_is_not_confirmed_is_prepared_again_with_the_same_bytes_and_number(ledger: Ledger):
    gather(ledger, awake=3, drowsy=1)
    first = ledger.prepare_shares(PLAN)
    gather(ledger, awake=9, drowsy=9, first=100)  # of the next period
    again = ledger.prepare_shares(replace(PLAN, parts=9))
    assert (again.content, again.number) == (first.content, first.number)
    assert (first.answers, again.answers) == (4, 0)
    assert ledger.check() == 1


def test_a_second_histogram_in_a_period_is_refused_with_its_end_and_loses_no_answer(
    ledger: Ledger, clock: list[float]
):
    gather(ledger, awake=3, drowsy=1)
    send(ledger)
    gather(ledger, awake=1, drowsy=3, first=100)
    clock[0] += 91 * DAY
    with pytest.raises(
        BudgetExceededError,
        match="drowsy: one a quarter: the next may leave from 2027-04-05 15:30:00 UTC on; until then",
    ):
        send(ledger)
    clock[0] += DAY / 4
    later = send(ledger)
    assert (counts(later), later.answers) == ([1, 4, 0], 4)
    clock[0] = NOW  # a clock that is set back opens no period
    with pytest.raises(BudgetExceededError, match="2027-07-05 21:30:00 UTC"):
        send(ledger)


def test_without_an_answer_nothing_is_charged_and_those_of_classes_that_left_are_counted_out(ledger: Ledger):
    with pytest.raises(ConfigError, match=r"0 answers are gathered, .*: gather some by `sfumato classify "):
        send(ledger)
    gather(ledger, awake=3, drowsy=2)
    few = send(ledger, replace(PLAN, values=("awake", "asleep")))
    assert (few.answers, few.unknown, counts(few)) == (3, 2, [5, 0])


def test_histograms_of_a_person_count_for_their_budget_and_in_what_is_proved(
    ledger: Ledger, clock: list[float]
):
    two = replace(PLAN, values=("awake", "drowsy"))
    ledger.set_budget(Budget.parse("naming=4%,of=1000,per=year"), person="anna")
    for quarter in range(2):
        gather(ledger, awake=quarter, drowsy=1)
        send(ledger, two, person="anna")
        clock[0] += 92 * DAY
    (stated,) = ledger.namings([1_000], person="anna")
    assert stated.chance == pytest.approx(36e-3)  # six histograms, twice
    gather(ledger, awake=1, drowsy=1)
    with pytest.raises(
        BudgetExceededError, match=r"the person anna somebody could name them in 21.6% of cases"
    ):
        send(ledger, two, person="anna")
    assert send(ledger, two).answers == 2  # the refusal took no answer; of nobody it counts for nobody


def test_alarms_leave_on_different_days_and_no_more_of_them_than_planned(ledger: Ledger, clock: list[float]):
    assert ALARMS.outputs == 1 + 91 + 91 * 90 // 2
    assert counts(send(ledger, ALARMS)) == [1]
    clock[0] += 14 * 3600
    with pytest.raises(
        BudgetExceededError,
        match=r"at most 2 alarms a quarter, on different days: the next may "
        r"leave from 2027-01-05 00:00:00 UTC on$",
    ):
        send(ledger, ALARMS)
    clock[0] += DAY
    send(ledger, ALARMS)
    clock[0] += 5 * DAY
    with pytest.raises(BudgetExceededError, match="from 2027-04-05 15:30:00 UTC"):
        send(ledger, ALARMS)
    clock[0] = NOW + 91.25 * DAY
    send(ledger, ALARMS)
    gather(ledger, awake=1, drowsy=0)
    send(ledger)  # histograms have periods of their own
    assert ledger.check() == 4


KILLED = """
import os, sys
from sfumato.device.ledger import Ledger, charging, shares
from sfumato.device.ledger.shares import Plan
plan = Plan(service="http://127.0.0.1:9", classifier="drowsy", values=("awake", "drowsy"))
def stop(*_, **__): os._exit(9)
ledger = Ledger(sys.argv[1])
ledger.gather(plan.service, "drowsy", {b"1": "awake", b"2": "drowsy", b"3": "awake"})
if sys.argv[2] == "before": os._exit(9)
if sys.argv[2] == "within":
    real = charging.charge
    def charge(*given, **named):
        real(*given, **named)
        os._exit(9)  # charged, and not committed
    charging.charge = charge
if sys.argv[2] == "unwitnessed": ledger._testify = stop
sys.stdout.buffer.write(ledger.prepare_shares(plan).content)
sys.stdout.flush()
os._exit(9)
"""


@pytest.mark.parametrize("when", ["before", "within", "unwitnessed", "after"])
def test_killed_at_any_step_no_answer_is_lost_and_none_leaves_twice(tmp_path: Path, when: str):
    path = tmp_path / "ledger.db"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path, when], capture_output=True, check=False, env=os.environ
    )
    assert (done.returncode, done.stderr) == (9, b"")
    plan = replace(PLAN, values=("awake", "drowsy"))
    with Ledger(path) as ledger:
        prepared = send(ledger, plan)
        assert counts(prepared) == [3, 2]
        assert prepared.answers == (3 if when in ("before", "within") else 0)
        assert done.stdout == (prepared.content if when == "after" else b"")
        assert ledger.check() == 1
        with pytest.raises(BudgetExceededError, match="one a quarter"):
            send(ledger, plan)


def test_a_histogram_that_was_changed_by_hand_is_noticed(tmp_path: Path, ledger: Ledger):
    gather(ledger, awake=3, drowsy=1)
    send(ledger)
    ledger._database.execute("update charges set release = cast('x' as blob)")
    with pytest.raises(LedgerError, match="release 1 was changed"):
        ledger.check()
