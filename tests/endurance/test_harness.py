"""The harness itself, and one scenario in short; `make endurance` runs all of them."""

import jobs  # noqa: F401 - registers its scenarios
import pytest
from harness import SCENARIOS, LeftOut, Scenario, Trial, line, run, run_all
from rows import Rows


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch):
    """Makes scenarios that are gone after the test."""
    monkeypatch.setattr("harness.SCENARIOS", {})

    def new(name: str, run) -> Scenario:
        import harness

        harness.SCENARIOS[name] = Scenario(name, "Doors", "a door is slammed", "it stays shut", run)
        return harness.SCENARIOS[name]

    return new


def slam(trial: Trial) -> None:
    for _ in range(trial.size(10)):
        trial.count("slams")
    trial.most("s open, at most", 0.25)
    trial.check(trial.seed == 0, "it opened")


def test_a_row_has_what_was_counted_and_did_not_hold_and_errors_are_problems(scenario):
    def raises(error: Exception):
        def run(trial: Trial) -> None:
            raise error

        return run

    assert run(scenario("door", slam))["figures"] == {"slams": 10, "s open, at most": 0.25}
    row = run(scenario("door", slam), seed=1, share=0.3)
    assert (row["figures"]["slams"], row["problems"], row["left_out"]) == (3, ["it opened"], None)
    assert line("door", row).startswith("FAILS")
    assert run(scenario("door", raises(KeyError("hinge"))))["problems"] == ["KeyError: 'hinge'"]
    row = run(scenario("door", raises(LeftOut("no door here"))))  # what a machine lacks is no problem
    assert (row["problems"], row["left_out"]) == ([], "no door here")


def test_a_record_has_a_row_a_scenario_of_its_last_run(scenario, tmp_path):
    scenario("first", slam)
    scenario("second", slam)
    record = tmp_path / "rows.jsonl"
    assert [row["problems"] for _, row in run_all([], seed=0, record=record)] == [[], []]
    list(run_all(["first"], seed=1, record=record))
    assert {name: row["seed"] for name, row in Rows(record).items()} == {"first": 1, "second": 0}


def test_a_scenario_in_short():
    row = run(SCENARIOS["ledger damaged"], share=0.005)
    assert row["problems"] == []
    assert row["figures"]["flips"] == 5
