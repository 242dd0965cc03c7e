"""What the tests cost: processor seconds and time of the slowest tests and files, in one process.

`OMP_NUM_THREADS=1 python benchmarks/suite.py [arguments of pytest]`. Processor seconds count the processes
that a test starts, and depend less than time on what else the machine does.
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SLOWEST = 30
_TICKS = os.sysconf("SC_CLK_TCK")
_rows: list[tuple[str, float, float, int]] = []  # test, processor seconds, seconds, processes started
_starts = [0]


def of_processes() -> float:
    """Processor seconds of this process, of those it waited for, and of those that still run below it."""
    parents, seconds = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it ended
            continue
        parents[folder.name] = fields[1]
        seconds[folder.name] = sum(map(int, fields[11:15])) / _TICKS
    ours, me = 0.0, str(os.getpid())
    for process in seconds:
        ancestor = process
        while ancestor in parents and ancestor != me:
            ancestor = parents[ancestor]
        ours += seconds[process] if ancestor == me else 0.0
    return ours


def pytest_configure() -> None:
    """Count each process that Python starts from here on."""
    sys.addaudithook(lambda event, _: _starts.__setitem__(0, _starts[0] + (event == "subprocess.Popen")))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Measure a test with the fixtures that it is the first to need."""
    processor, clock, starts = of_processes(), time.perf_counter(), _starts[0]
    result = yield
    # A process that ends unwaited for takes its seconds along.
    used = max(0.0, of_processes() - processor)
    _rows.append((item.nodeid.partition("@")[0], used, time.perf_counter() - clock, _starts[0] - starts))
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tables."""
    write = terminalreporter.write_line
    files: Counter[str] = Counter()
    for name, used, _, _ in _rows:
        files[name.partition("::")[0]] += used
    write(f"{len(_rows)} tests: {sum(files.values()):.0f} processor seconds, {_starts[0]} processes started")
    short = [row for row in _rows if row[1] < 0.1]
    write(f"of which {len(short)} take less than 0.1 s: {sum(row[1] for row in short):.0f} processor seconds")
    write("\n| processor s | s | test |\n|---|---|---|")
    for name, used, clock, _ in sorted(_rows, key=lambda row: -row[1])[:SLOWEST]:
        write(f"| {used:.1f} | {clock:.1f} | {name.removeprefix('tests/')} |")
    write("\n| processor s | file |\n|---|---|")
    for name, used in files.most_common(SLOWEST):
        write(f"| {used:.1f} | {name.removeprefix('tests/')} |")


if __name__ == "__main__":
    sys.exit(
        subprocess.call(
            [sys.executable, "-m", "pytest", "-p", "suite", *sys.argv[1:]], cwd=Path(__file__).parents[1]
        )
    )
