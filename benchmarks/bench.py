"""One table of everything that is timed: each line a ratio against a peer or a bare limit in the same run.

    python benchmarks/bench.py [--only NAME ...] [--out FILE]

Each benchmark has a process of its own. Where other work shares the cores, set OMP_NUM_THREADS=1: threads
that wait for each other make it many times as long. Ratios are compared with what they last were on such a
machine, by the runs in runs/bench/, and what is more than 15% worse is marked, after a second try, of which
the better ratio counts. The times themselves are not compared: they follow the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

import timing
from timing import Line

RUNS = Path("runs/bench")
# Name -> module, function, and how many threads it has; None for those of the environment.
SUITES: dict[str, tuple[str, str, int | None]] = {
    "releases": ("devices", "releases", None),
    "noise": ("devices", "noise", 1),
    "folder": ("devices", "folder", 1),
    "episodes": ("learning", "episodes", None),
    "cells": ("learning", "cells", None),
    "meta": ("learning", "meta_steps", None),
    "inversion": ("learning", "inversion", 1),
    "metrics": ("devices", "metrics", 1),
    "store": ("serve", "store_lines", 1),
    "serve": ("serve", "service_lines", None),
    "easyfsl": ("peers", "easyfsl", None),
    "learn2learn": ("peers", "learn2learn", None),
    "opacus": ("peers", "opacus", 1),
    "start": ("devices", "start", 1),
}


class LeftOutError(Exception):
    """A benchmark that ended early, and why."""


def lines(name: str) -> Iterator[Line]:
    """Those of a benchmark, from a process of its own. Raises LeftOutError."""
    threads, environment = SUITES[name][2], dict(os.environ)
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    command = [sys.executable, __file__, "--one", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith('{"left out"'):
                raise LeftOutError(json.loads(text)["left out"])
            if text.startswith('{"name"'):
                yield from timing.lines_of({"lines": [json.loads(text)]}).values()
    if process.returncode:
        raise LeftOutError(f"ended with {process.returncode}, see above")


def one(name: str) -> None:
    """In that process: each line as JSON."""
    module, function, _ = SUITES[name]
    try:
        for line in getattr(import_module(module), function)():
            print(json.dumps(timing.as_json(line)), flush=True)
    except ModuleNotFoundError as error:
        print(json.dumps({"left out": f"left out: {error.name} is not installed"}), flush=True)


def row(line: Line, before: Mapping[str, Line]) -> str:
    """A line of the table."""
    since = ""
    if line.name in before:
        worse = line.worse_than(before[line.name])
        since = f"WORSE by {worse:.0%}" if worse > timing.REGRESSION else f"{-worse:+.0%}"
    ours, other = f"{timing.short(line.ours)} {line.unit}", f"{line.against}: {timing.short(line.other)}"
    kept = {None: "", True: "kept", False: "NOT kept"}[line.kept]
    text = f"{line.name:46s}  {ours:34s}  {other:46s}  {timing.short(line.ratio):>7s}  {line.wanted:38s}"
    return f"{text}  {kept:8s}  {since}".rstrip()


def run(name: str, before: Mapping[str, Line]) -> dict[str, Line]:
    """The lines of a benchmark, printed as they come; once more where one is worse: the better counts."""
    made: dict[str, Line] = {}
    for attempt in (1, 2):
        for line in lines(name):
            if attempt == 1 or line.worse_than(made[line.name]) < 0:
                made[line.name] = line
                print(row(line, before), flush=True)
        if not timing.regressions(made.values(), before):
            break
        if attempt == 1:
            print(f"{name}: once more, for what is worse", flush=True)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SUITES, default=list(SUITES), metavar="NAME")
    parser.add_argument("--out", type=Path, help=f"JSON; a new file in {RUNS} unless named")
    parser.add_argument("--one", choices=SUITES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.one)
        return
    facts, began = timing.machine(), time.perf_counter()
    load = os.getloadavg()[0]
    print(f"{facts['cores']} cores, threads: {facts['threads']}, {' '.join(facts['flags'])}; load {load:.1f}")
    if load > facts["cores"] / 2 and facts["threads"] != "1":
        print("other work shares the cores, and threads wait for each other: set OMP_NUM_THREADS=1")
    before = timing.last(RUNS, facts)
    made: dict[str, dict[str, Line]] = {}
    for name in options.only:
        try:
            made[name] = run(name, before)
        except LeftOutError as error:
            print(f"{name}: {error}", flush=True)
    every = [line for each in made.values() for line in each.values()]
    rows = [timing.as_json(line) | {"of": name} for name, each in made.items() for line in each.values()]
    out = options.out or RUNS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    seconds = time.perf_counter() - began
    timing.write(out, timing.record({"lines": rows}, seconds=seconds))
    print(f"{len(every)} lines in {seconds / 60:.1f} minutes, kept as {out}")
    bounds = [line.kept for line in every if line.kept is not None]
    print(f"{bounds.count(False)} of {len(bounds)} bounds not kept")
    if worse := timing.regressions(every, before):
        print(
            "worse by more than 15%: " + ", ".join(f"{name} ({share:.0%})" for name, share in worse.items())
        )


if __name__ == "__main__":
    main()
