"""What benchmarks say of their times: lines, runs that are compared, and growth."""

import json
import platform
import sys
from itertools import chain, repeat
from pathlib import Path

import accelerator
import bench
import pytest
import timing
import torch
from accelerator import EnoughError
from timing import Line, Turns


def line(name="protect", *, ratio=2.0, ours=2.0, **changes):
    settings = {"other": 1.0, "unit": "images a second", "against": "a loop", **changes}
    return Line(name=name, ratio=ratio, ours=ours, **settings)


@pytest.mark.parametrize(
    ("ratio", "ours", "wanted", "kept"),
    [
        (2.0, 2.0, {"bound": 2.0}, True),  # a rate, at its bound
        (1.99, 2.0, {"bound": 2.0}, False),
        (1.1, 2.0, {"bound": 1.1, "lower": True}, True),  # a time
        (1.11, 2.0, {"bound": 1.1, "lower": True}, False),
        (0.1, 1000, {"limit": 1000}, True),  # of what is ours, and not of the ratio
        (9.0, 999, {"limit": 1000}, False),
        (2.0, 5, {"bound": 1.0, "limit": 6}, False),  # both are to be kept
        (2.0, 2.0, {}, None),
    ],
)
def test_a_line_is_kept_if_it_is_at_its_bounds_or_better(ratio, ours, wanted, kept):
    assert line(ratio=ratio, ours=ours, **wanted).kept is kept


def test_what_is_wanted_is_told_in_words():
    wanted = line(bound=1.5, limit=2000, unit="ms", lower=True).wanted
    assert (wanted, line().wanted) == ("at most 1.5, at most 2,000 ms", "")


def test_a_ratio_is_the_median_within_rounds_which_a_slow_second_does_not_move():
    # In the second round all takes ten times as long, in the third the other alone.
    turns = Turns([[1.0, 2.0], [10.0, 20.0], [1.0, 20.0], [1.0, 2.0], [1.1, 2.2]])
    assert turns.ratio(0, 1) == pytest.approx(0.5)


def test_a_rate_and_a_time_of_the_same_turns_are_each_others_inverse_also_where_one_does_less():
    turns = Turns([[1.0, 4.0]] * 3)
    rate = turns.rates("fast", against="slow", count=8, unit="a second")
    cost = turns.costs("fast", against="slow")
    assert (rate.ours, rate.other, rate.ratio) == (8, 2, 4)
    assert (cost.ours, cost.other, cost.ratio) == (1000, 4000, 0.25)
    turns = Turns([[1.0, 1.0]])
    assert turns.rates("draws", against="slow", count=100, other_count=2, unit="a second").ratio == 50


@pytest.mark.parametrize(("first", "counted"), [(1.05, 1.05), (1.2, 1.0)])
def test_a_first_call_of_a_slow_function_counts_if_it_is_like_the_second(first, counted, monkeypatch):
    taken = chain([first], repeat(1.0))
    monkeypatch.setattr(timing, "_timed", lambda *_: next(taken))
    assert timing.in_turn(len, seconds=60).seconds[0] == [counted]


def test_functions_take_turns_and_a_first_call_counts_only_where_it_took_far_too_long():
    calls = []
    timing.in_turn(lambda: calls.append("ours"), lambda: calls.append("other"), seconds=0.0)
    assert calls[:2] == ["ours", "other"]
    assert len(timing.in_turn(lambda: None, seconds=0.0).seconds) == 1
    assert len(timing.in_turn(lambda: sum(range(10**5)), seconds=0.05).seconds) >= 3


@pytest.mark.parametrize(
    ("now", "lower", "marked"),
    [
        (1.75, False, False),
        (1.7, False, True),
        (3.0, False, False),
        (2.25, True, False),
        (2.35, True, True),
        (1.0, True, False),
    ],
)
def test_more_than_15_percent_worse_is_a_regression(now, lower, marked):
    before = {"protect": line(ratio=2.0, lower=lower)}
    assert bool(timing.regressions([line(ratio=now, lower=lower)], before)) is marked


def test_a_regression_says_by_what_share_and_a_slower_machine_or_a_new_line_is_none():
    before = {"protect": line(ratio=2.0, ours=100, other=50)}
    assert timing.regressions([line(ratio=1.0)], before) == {"protect": 1.0}
    assert not timing.regressions([line(ratio=2.0, ours=10, other=5), line("new", ratio=0.1)], before)


def test_a_planted_slowdown_is_marked_after_a_second_try(tmp_path, monkeypatch, capsys):
    ratios = iter([2.0, 0.9, 1.0])  # in the last run, in this one, and once more
    monkeypatch.setattr(bench, "lines", lambda name: iter([line(ratio=next(ratios))]))
    monkeypatch.setattr(bench, "RUNS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["bench.py", "--only", "releases"])
    bench.main()
    assert "worse" not in capsys.readouterr().out.replace("for what is worse", "")
    bench.main()
    printed = capsys.readouterr().out
    assert "WORSE by 122%" in printed
    assert "worse by more than 15%: protect (100%)" in printed


def test_a_run_is_read_as_it_was_written(tmp_path):
    lines = [line("one", bound=1.5), line("two", lower=True, limit=3.0)]
    path = tmp_path / "runs" / "run.json"
    timing.write(path, timing.record({"lines": [timing.as_json(each) for each in lines]}, seconds=1.0))
    assert timing.lines_of(json.loads(path.read_text())) == {"one": lines[0], "two": lines[1]}


def test_a_run_tells_the_machine_but_not_whose_it_is():
    written = json.dumps(timing.record({}, seconds=1.0))
    assert set(timing.machine()) == {"processor", "cores", "threads", "flags", "precision"}
    for secret in (str(Path.cwd()), platform.node()):
        assert secret not in written


def test_a_line_is_compared_with_the_last_run_that_has_it_on_such_a_machine(tmp_path):
    runs = (
        ("1", "this", [line("one", ratio=1.0), line("two", ratio=1.0)]),
        ("2", "this", [line("one", ratio=2.0)]),
        ("3", "another", [line("one", ratio=3.0)]),
    )
    for name, machine, lines in runs:
        written = {"machine": machine, "lines": [timing.as_json(each) for each in lines]}
        timing.write(tmp_path / f"{name}.json", written)
    assert timing.last(tmp_path / "none", {}) == {}
    found = timing.last(tmp_path, "this")
    assert {name: each.ratio for name, each in found.items()} == {"one": 2.0, "two": 1.0}


@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_the_exponent_is_the_power_with_which_time_grows(power):
    work = [1, 4, 16]
    assert timing.exponent(work, [7 * each**power for each in work]) == pytest.approx(power)


def test_what_a_job_costs_before_it_does_anything_makes_its_exponent_smaller():
    assert timing.exponent([1, 4, 16], [5 + each for each in (1, 4, 16)]) < 0.7


def test_numbers_are_told_with_three_digits():
    assert list(map(timing.short, (0.01234, 1.234, 12.34, 1234.5))) == ["0.0123", "1.23", "12.3", "1,234"]


# Accelerators. Tensors of the device "meta" have no numbers: whoever mixes them with others, copies them
# back, or asks for a number of theirs fails. The search for an image checks numbers before its first step,
# and the service's answers are copied back: these two are left out.


@pytest.mark.parametrize("job", sorted({*accelerator.JOBS} - {"gradient inversion", "service, 32 queries"}))
def test_a_step_stays_on_its_device_and_never_waits_for_it(job):
    steps = []

    def done(*_):
        steps.append(1)
        if len(steps) == 3:
            raise EnoughError

    with pytest.raises(EnoughError):
        accelerator.JOBS[job](torch.device("meta"), "float32", done)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="says what is said where there is none")
def test_without_an_accelerator_the_processor_is_timed_and_it_is_said(tmp_path, capsys):
    accelerator.main(["--only", "feature inversion", "--seconds", "0", "--out", str(tmp_path / "run.json")])
    assert "no accelerator: only the processor was timed" in capsys.readouterr().out
    (job,) = json.loads((tmp_path / "run.json").read_text())["jobs"]
    assert job["processor"] > 0
    assert "card" not in job
