"""Change one operator, number or statement of the library at a time, and print each change that no test of its room sees.

python studies/mutations.py dp --sample 60 --seed 1 2

The tests of a room run once under `coverage`, a file a process. Each change is then made in a copy of the library, and
the test files that ran its statement run until a test fails: first the tests that ran it themselves, quickest first,
then the others, which share fixtures with them. A change of what no test runs lives at once. Some changes change nothing.
"""

import argparse
import ast
import importlib
import json
import math
import multiprocessing
import os
import queue
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import coverage
import pytest
import scipy.stats

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "sklearn.linear_model", "hypothesis", "ray")  # what tests import
OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")
# The files of each room, and the tests that speak for them.
ROOMS = {
    "dp": ("dp/**/*.py", "dp/test_*.py"),
    "wire": ("wire/*.py", "wire/test_*.py"),
    "choice": ("study/choose/*.py", "study/test_*.py"),
    "access": ("serve/http/routes.py", "serve/test_app.py"),
    "ledger": ("device/ledger/*.py", "device/test_*.py"),
    "attack": ("attack/*.py", "attack/test_*.py audits/test_folder_naming.py study/test_values.py"),
    "protect": ("protect/*.py", "protect/test_*.py"),
}
_PAIRS = "< <=, <= <, > >=, >= >, == !=, != ==, and or, or and, + -, - +, * /, / *, // *, % *, ** *"
_WORDS = "floor ceil, ceil floor, min max, max min, any all, all any"
SWAPS = dict(pair.split() for pair in f"{_PAIRS}, {_WORDS}".split(", "))
FIELDS = ("annotation", "returns", "exc", "decorator_list")  # stay
NODES = (ast.JoinedStr, ast.Assert, ast.arguments)
Change = tuple[int, int, str]  # from, to, and what stands there instead


def changes(source: bytes) -> Iterator[Change]:
    """Every change of a module's functions that is tried. Annotations, messages, assertions and texts stay."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def ends(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def of(node: Any) -> Iterator[Change]:
        match node:
            case ast.Compare() | ast.BinOp() | ast.BoolOp():
                operands = [child for child in ast.iter_child_nodes(node) if hasattr(child, "lineno")]
                for (_, start), (end, _) in pairwise(map(ends, operands)):
                    between = source[start:end].decode()
                    if (old := between.strip(" ()\n")) in SWAPS:
                        yield start, end, between.replace(old, SWAPS[old])
            case ast.Constant(bool() as value):
                yield *ends(node), repr(not value)
            case ast.Constant(int() | float() as value):
                yield *ends(node), repr(value + 1)
            case ast.Name(name) | ast.Attribute(attr=name) if name in SWAPS:
                yield ends(node)[1] - len(name), ends(node)[1], SWAPS[name]
            case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Expr(ast.Call()):
                yield *ends(node), "pass"

    def walk(node: ast.AST, inside: bool) -> Iterator[Change]:
        yield from of(node) if inside else ()
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field not in FIELDS and not isinstance(child, NODES):
                    yield from walk(child, inside)

    yield from walk(ast.parse(source), inside=False)


def statement(tree: ast.AST, line: int) -> range:
    """The lines of the smallest statement around a line; of one that holds others, those before them."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or 0)]
    own = max(around, key=lambda node: node.lineno)
    held = [node.lineno for node in nodes if own.lineno < node.lineno <= (own.end_lineno or 0)]
    return range(own.lineno, max(line, min(held, default=(own.end_lineno or 0) + 1) - 1) + 1)


class Plugin:
    """Of pytest: tests that are `first` go first, file by file; a `coverage.Coverage` sees what each runs."""

    def __init__(self, files: list[str], first: dict[str, float], watch: Any = None) -> None:
        self.files, self.first, self.watch = files, first, watch
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:  # noqa: D102
        def turn(item: pytest.Item) -> tuple[bool, int, float]:
            seconds = self.first.get(item.nodeid, math.inf)
            return math.isinf(seconds), self.files.index(item.nodeid.partition("::")[0]), seconds

        items.sort(key=turn)

    def pytest_runtest_logstart(self, nodeid: str) -> None:  # noqa: D102
        if self.watch:
            self.watch.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:  # noqa: D102
        self.seconds[report.nodeid] += report.duration


def run(library: Path, files: list[str], first: dict[str, float], answer: Path | None) -> None:
    """In a fork: run test files against a library until one fails, write what they ran, and exit as pytest does."""
    os.setsid()
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    os.environ |= {"SFUMATO_INSTALLED": str(library), "PYTHONPATH": str(library)}
    sys.path.insert(0, str(library))
    if answer is None:
        os._exit(pytest.main([*OPTIONS, *files], [Plugin(files, first)]))
    watch = coverage.Coverage(data_file=None, source=[str(library)], config_file=False)
    plugin = Plugin(files, first, watch)
    with watch.collect():
        watch.switch_context(files[0])  # of what runs outside of tests
        status = pytest.main([*OPTIONS, *files], [plugin])
    data = watch.get_data()
    ran = {os.path.relpath(path, library): data.contexts_by_lineno(path) for path in data.measured_files()}
    answer.write_text(json.dumps([ran, plugin.seconds]))
    os._exit(status)


def passes(limit: float, *given: Any) -> bool:
    """Whether `run` ends well, in a fork of this process, within so many seconds."""
    child = multiprocessing.get_context("fork").Process(target=run, args=given)
    child.start()
    child.join(limit)
    if child.is_alive():
        os.killpg(child.pid or 0, signal.SIGKILL)
        child.join()
    return child.exitcode == 0


class Room:
    """Which tests of a room run each line, and copies of the library, one for each process that runs tests."""

    def __init__(self, name: str, folder: Path, jobs: int) -> None:
        globs, tests = ROOMS[name]
        self.copies: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            self.copies.put(shutil.copytree(ROOT / "src", folder / str(number)))
        self.pool = ThreadPoolExecutor(jobs)
        self.seconds: dict[str, float] = {}
        self.tests: dict[tuple[str, int], set[str]] = defaultdict(set)  # by file and line
        files = sorted({str(path) for glob in tests.split() for path in Path("tests").glob(glob)})
        for ran, seconds in self.pool.map(self.watch, files):
            self.seconds |= seconds
            for path, lines in ran.items():
                for line, names in lines.items():
                    self.tests[path, int(line)] |= set(names)
        paths = sorted(path.relative_to(ROOT / "src") for path in (ROOT / "src" / "sfumato").glob(globs))
        self.changes = [
            (path, each) for path in paths for each in changes((ROOT / "src" / path).read_bytes())
        ]

    def watch(self, file: str) -> Any:
        """What each test of a file runs, and how long it takes. Raises SystemExit if one fails."""
        library = self.copies.get()
        answer = library / "answer.json"
        if not passes(3600, library, [file], {}, answer):
            raise SystemExit(f"{file}: a test fails without a change")
        self.copies.put(library)
        return json.loads(answer.read_text())

    def life(self, changed: tuple[Path, Change]) -> dict[str, str] | None:
        """A change that no test sees; None for another."""
        name, (start, end, text) = changed
        library = self.copies.get()
        path = library / name
        source = path.read_bytes()
        line = source.count(b"\n", 0, start) + 1
        ran = set[str]().union(*(self.tests[str(name), each] for each in statement(ast.parse(source), line)))
        files: dict[str, float] = dict.fromkeys((test.partition("::")[0] for test in ran), 0.0)
        for test, seconds in self.seconds.items():
            if (file := test.partition("::")[0]) in files:
                files[file] += seconds
        path.write_bytes(source[:start] + text.encode() + source[end:])
        os.utime(path, (start, start))  # another time than before: Python compiles it again
        first = {test: self.seconds.get(test, 0.0) for test in ran}
        # What runs for ten times as long never ends, and counts as seen.
        lives = not files or passes(
            60 + 10 * sum(files.values()), library, sorted(files, key=files.__getitem__), first, None
        )
        path.write_bytes(source)
        self.copies.put(library)
        change = f"{source[start:end].decode()!r} -> {text!r}"
        return {"at": f"{name}:{line}", "change": change, "run": str(len(ran))} if lives else None


def main() -> None:
    """Try a room."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=60)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    os.chdir(ROOT)
    for name in LIBRARIES:
        importlib.import_module(name)  # once, before all forks
    with tempfile.TemporaryDirectory() as folder:
        room = Room(asked.room, Path(folder).resolve(), asked.jobs)
        for seed in asked.seed:
            began, lives = time.monotonic(), []
            chosen = random.Random(seed).sample(room.changes, min(asked.sample, len(room.changes)))
            for life in filter(None, room.pool.map(room.life, chosen)):
                lives.append(life)
                print("LIVES", *life.values(), flush=True)
            seen = len(chosen) - len(lives)
            interval = scipy.stats.binomtest(seen, len(chosen)).proportion_ci(method="wilson")
            record = {
                "changes": len(room.changes),
                "tried": len(chosen),
                "seen": seen,
                "interval": interval,
                "seed": seed,
            }
            record["seconds"] = round(time.monotonic() - began)
            print(json.dumps({"room": asked.room} | record | {"lives": lives}), flush=True)


if __name__ == "__main__":
    main()
