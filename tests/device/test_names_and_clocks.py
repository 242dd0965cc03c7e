"""One person under names that look alike, one service under every address, and time that never runs back."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import charges
import pytest

from sfumato.device.ledger import Charge, Ledger
from sfumato.device.ledger.budgets import Budget
from sfumato.errors import BudgetExceededError, ConfigError

NOW, DAY = 1_764_000_000.0, 86_400.0
ALIKE = ["anna", "an\u200bna", "anna ", "an\u200dna", "anna\ufe0f", "\u0430nna", "\uff41nna"]
ADDRESSES = [
    "https://cloud.example",
    "HTTPS://Cloud.Example/",
    "https://cloud.example:443",
    "https://cloud.example.",
    "https://\uff43loud.example//",
]


def charge(image: str, person: str = "anna") -> Charge:
    return charges.charge(image, bits=1.0, person=person)


def test_people_whose_names_look_alike_share_a_budget(ledger: Ledger):
    ledger.set_budget(Budget.parse("releases=7"), person="anna")
    ledger.charge([charge(f"image {row}", name) for row, name in enumerate(ALIKE)])
    assert ledger.people() == ["anna"]
    for name in ALIKE:
        with pytest.raises(BudgetExceededError, match="the person anna has 7 different releases"):
            ledger.charge([charge("another", name)])


def test_a_name_of_which_nothing_is_seen_is_refused(ledger: Ledger):
    with pytest.raises(ConfigError, match=r"'\\u200d' is not the name of a person"):
        ledger.charge([charge("image", "\u200d")])


def test_a_service_has_one_pin_under_every_way_to_type_its_address(ledger: Ledger):
    ledger.set_pin(ADDRESSES[0], "people", "blur:radius=4")
    assert {pin.spec for each in ADDRESSES if (pin := ledger.pin(each, "people"))} == {"blur:radius=4"}
    for each in ADDRESSES:
        ledger.set_pin(each, "people", "blur:radius=4")
        assert ledger.unpin(ADDRESSES[-1]) == 1


@pytest.mark.parametrize(
    "clocks",
    [
        (NOW, 1000.0, NOW + 200),  # it starts at 1970
        (NOW, NOW - 90 * DAY, NOW + 200),  # or at its last shutdown
        (NOW, NOW + 9999 * DAY, NOW + 200),  # it was years ahead once
        (1000.0, 2000.0, NOW),  # the ledger itself was begun in 1970
        (NOW, -5.0, NOW),
    ],
)
def test_a_budget_of_a_year_holds_whatever_the_clock_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clocks: tuple[float, ...]
):
    path = tmp_path / "ledger.db"
    monkeypatch.setattr(time, "time", lambda: clocks[0])
    with Ledger(path) as ledger:
        ledger.set_budget(Budget.parse("naming=1%,of=1000,per=year"), person="anna")
        left = 0
        for number, clock in enumerate(clocks):
            monkeypatch.setattr(time, "time", lambda clock=clock: clock)
            for row in range(5):
                try:
                    ledger.charge([charge(f"{number} {row}")])
                    left += clock < NOW + DAY  # far ahead, another year may have begun
                except BudgetExceededError:
                    break
        assert left == 3
    with closing(sqlite3.connect(path)) as database:
        times = [at for (at,) in database.execute("select time from charges order by id")]
    assert times == sorted(times)


def test_a_clock_that_is_behind_is_said_with_its_cure(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    assert ledger.clock == ""
    ledger.set_budget(Budget.parse("naming=0.2%,of=1000,per=year"), person="anna")
    ledger.charge([charge("a")])
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    assert ledger.clock.startswith(
        "the clock of this device says 1970-01-01 00:16 UTC, and the ledger was at"
    )
    with pytest.raises(BudgetExceededError, match=r"set the clock$"):
        ledger.charge([charge("b")])
