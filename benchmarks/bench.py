"""One table of everything that is timed: each line a ratio against a peer or a bare limit in the same run.

    python benchmarks/bench.py [--only NAME ...] [--out FILE] [--against FILE] [--strict]

The benchmarks in short, some eight minutes on two quiet cores; each has a process of its own. Where other
work shares the cores, set OMP_NUM_THREADS=1: threads that wait for each other make it many times as long.
Ratios are compared with what they last were on such a machine, by the runs in runs/bench/, and what is more
than 15% worse is marked: after a second try of that benchmark, of which the better ratio counts. The times
themselves are not compared: they follow the machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import timing
from timing import Line

RUNS = Path("runs/bench")


@dataclass(frozen=True)
class Suite:
    """A function `lines` of a module, and how many threads it has; None for those of the environment."""

    module: str
    threads: int | None = None
    function: str = "lines"


SUITES = {
    "protect": Suite("protect"),
    "noise": Suite("noise", 1),
    "folder": Suite("jobs", 1, "folder"),
    "episode": Suite("episode"),
    "cells": Suite("cells"),
    "meta": Suite("meta"),
    "mask": Suite("mask", 1),
    "edge": Suite("edge", 1),
    "inversion": Suite("inversion", 1),
    "log-rank": Suite("log_rank"),
    "metrics": Suite("metrics", 1),
    "store": Suite("store", 1),
    "serve": Suite("jobs", None, "serving"),
    "study": Suite("jobs", 1, "study"),
    "easyfsl": Suite("peers", None, "easyfsl"),
    "learn2learn": Suite("peers", None, "learn2learn"),
    "opacus": Suite("peers", 1, "opacus"),
    "deface": Suite("peers", None, "deface"),
    "worlds": Suite("worlds", 1),
    "start": Suite("start", 1),
}


class LeftOutError(Exception):
    """A benchmark that ended early, and why."""


def lines(name: str) -> Iterator[Line]:
    """Those of a benchmark in short, from a process of its own. Raises LeftOutError."""
    suite, environment = SUITES[name], dict(os.environ)
    if suite.threads is not None:
        environment["OMP_NUM_THREADS"] = str(suite.threads)
    command = [sys.executable, __file__, "--one", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if text.startswith('{"left out"'):
                raise LeftOutError(json.loads(text)["left out"])
            if text.startswith('{"name"'):
                (line,) = timing.lines_of({"lines": [json.loads(text)]}).values()
                yield line
    if process.returncode:
        raise LeftOutError(f"ended with {process.returncode}, see above")


def one(name: str) -> None:
    """In that process: each line as JSON."""
    suite = SUITES[name]
    try:
        for line in getattr(import_module(suite.module), suite.function)(short=True):
            print(json.dumps(timing.as_json(line)), flush=True)
    except ModuleNotFoundError as error:
        print(json.dumps({"left out": f"left out: {error.name} is not installed"}), flush=True)


def row(*columns: str) -> str:
    widths = (-46, -34, -46, 7, -38, -8, 0)
    cells = [
        f"{text:{'<' if width < 0 else '>'}{abs(width)}s}"
        for text, width in zip(columns, widths, strict=True)
    ]
    return "  ".join(cells).rstrip()


def told(line: Line, before: Mapping[str, Line]) -> str:
    """A line of the table."""
    since = ""
    if line.name in before:
        worse = line.worse_than(before[line.name])
        since = f"WORSE by {worse:.0%}" if worse > timing.REGRESSION else f"{-worse:+.0%}"
    return row(
        line.name,
        f"{timing.short(line.ours)} {line.unit}",
        f"{line.against}: {timing.short(line.other)}",
        timing.short(line.ratio),
        line.wanted,
        {None: "", True: "kept", False: "NOT kept"}[line.kept],
        since,
    )


def run(names: list[str], before: Mapping[str, Line]) -> tuple[dict[str, list[Line]], dict[str, str]]:
    """The lines of each benchmark, printed as they come, and why some ended early."""
    found: dict[str, list[Line]] = {}
    failed: dict[str, str] = {}
    for name in names:
        found[name] = []
        try:
            for line in lines(name):
                found[name].append(line)
                print(told(line, before), flush=True)
        except LeftOutError as error:
            failed[name] = str(error)
            print(f"{name}: {error}", flush=True)
    return found, failed


def again(found: dict[str, list[Line]], before: Mapping[str, Line]) -> None:
    """Try benchmarks with a regression once more, and keep the better ratio of a line that had one."""
    for name, had in found.items():
        worse = timing.regressions(had, before)
        if not worse:
            continue
        print(f"{name}: once more, for what is worse", flush=True)
        try:
            second = {line.name: line for line in lines(name)}
        except LeftOutError as error:
            print(f"{name}: {error}", flush=True)
            continue
        for place, line in enumerate(had):
            if line.name in worse and second[line.name].worse_than(line) < 0:
                had[place] = second[line.name]
                print(told(had[place], before), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SUITES, default=list(SUITES), metavar="NAME")
    parser.add_argument("--out", type=Path, help=f"JSON; a new file in {RUNS} unless named")
    parser.add_argument("--against", type=Path, help="one earlier run, rather than the last of each line")
    parser.add_argument("--strict", action="store_true", help="status 1 where a line is worse, or one failed")
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
    if options.against is None:
        before = timing.last(RUNS, facts)
    else:
        earlier = timing.read(options.against)
        before = timing.lines_of(earlier)
        if earlier["machine"] != facts:
            print(f"{options.against} is of another machine, or other threads: ratios may differ for it")
    if find_spec("kornia") is None:
        print("left out: kornia is not installed")
    print(row("", "ours", "against", "ratio", "wanted", "kept", "since then"))
    found, failed = run(options.only, before)
    again(found, before)
    everything = [line for each in found.values() for line in each]
    worse = timing.regressions(everything, before)
    seconds = time.perf_counter() - began
    content = {
        "lines": [timing.as_json(line) | {"of": name} for name, each in found.items() for line in each],
        "left out": failed,
        "worse": worse,
    }
    out = options.out or RUNS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    timing.write(out, timing.record(content, seconds=seconds))
    print(f"{len(everything)} lines in {seconds / 60:.1f} minutes, kept as {out}")
    not_kept = sum(line.kept is False for line in everything)
    print(f"{not_kept} of {sum(line.kept is not None for line in everything)} bounds not kept")
    if worse:
        print(
            "worse by more than 15%: " + ", ".join(f"{name} ({share:.0%})" for name, share in worse.items())
        )
    if options.strict and (worse or failed):
        sys.exit(1)


if __name__ == "__main__":
    main()
