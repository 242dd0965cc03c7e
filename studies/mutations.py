"""Change one operator, number or statement of the library at a time, and print each change that no test of its room sees.

python studies/mutations.py dp --sample 60 --seed 1 2

The tests of a room run once under `coverage`, a file a process. Each change is then made in a copy of the library, and
the tests that ran its statement run until one fails, those of the quickest file first; all of a file whose fixtures
ran it. A change of what no test runs lives at once. Some changes change nothing.
"""

import argparse
import ast
import importlib
import json
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import scipy.stats

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src", Path("tests")
LINES = "lines.json"  # in a copy of the library: which tests ran them
LIBRARIES = ("torch", "sklearn.linear_model", "ray")  # what tests import
OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider", "-W", "ignore:Module already imported")
_AUDITS = "audits/test_folder_naming.py audits/test_gallery.py audits/test_update.py audits/test_vectors.py"
# The files of each room, and the tests that speak for them.
ROOMS = {
    "dp": ("dp/**/*.py", "dp/test_*.py"),
    "wire": ("wire/*.py", "wire/test_*.py"),
    "choice": ("study/choose/*.py", "study/test_*.py studies/test_results_page.py cli/test_card.py"),
    "access": ("serve/http/routes.py", "serve/test_app.py"),
    "ledger": ("device/ledger/*.py", "device/test_*.py cli/test_ledger.py"),
    "attack": ("attack/*.py", f"attack/test_*.py {_AUDITS} study/test_values.py study/test_many.py"),
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
    own = max((node for node in nodes if node.lineno <= line), key=lambda node: node.lineno)
    body = getattr(own, "body", None)
    return range(own.lineno, 1 + max(line, body[0].lineno - 1 if body else own.end_lineno or 0))


class Chosen:
    """A plugin of pytest: it runs the tests that are among `ran`, or whose file is, or all; `name` is told which."""

    def __init__(self, files: list[str], ran: set[str], name: Callable[[str], Any]) -> None:
        self.files, self.ran, self.name = files, ran, name

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:  # noqa: D102
        if self.ran:
            items[:] = [item for item in items if {item.nodeid, item.location[0]} & self.ran]
            items.sort(key=lambda item: (item.nodeid not in self.ran, self.files.index(item.location[0])))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:  # noqa: D102
        self.name(item.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:  # noqa: D102
        self.name("")


def run(library: Path, files: list[str], ran: set[str]) -> None:
    """In a fork: run the tests of files that are `ran` against a library; or all, and write which lines they run."""
    import coverage  # what tests of this file do without

    os.setpgrp()
    for output in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    os.environ |= {"SFUMATO_INSTALLED": str(library), "PYTHONPATH": str(library)}
    sys.path.insert(0, str(library))
    watch = coverage.Coverage(None, source=[str(library)], config_file=False)
    with nullcontext() if ran else watch.collect():
        chosen = Chosen(files, ran, str if ran else watch.switch_context)
        status = pytest.main([*OPTIONS, *files], [chosen])
    if not ran:
        data = watch.get_data()
        lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
        (library / LINES).write_text(json.dumps(lines))
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
        modules, tests = ROOMS[name]
        self.copies: queue.Queue[Path] = queue.Queue()
        for number in range(jobs):
            self.copies.put(shutil.copytree(SOURCE, folder / str(number)))
        self.pool = ThreadPoolExecutor(jobs)
        self.seconds: dict[str, float] = {}  # by file of tests
        self.tests: dict[tuple[str, int], set[str]] = defaultdict(set)  # by module and line
        list(
            self.pool.map(
                self.watch, sorted(str(path) for glob in tests.split() for path in TESTS.glob(glob))
            )
        )
        paths = sorted(path.relative_to(SOURCE) for path in SOURCE.glob(f"sfumato/{modules}"))
        self.changes = [(path, each) for path in paths for each in changes((SOURCE / path).read_bytes())]

    def watch(self, file: str) -> None:
        """Which lines the tests of a file run. Raises SystemExit if one fails."""
        library, began = self.copies.get(), time.monotonic()
        ends_well = passes(3600, library, [file], set())
        self.seconds[file] = time.monotonic() - began
        for path, lines in json.loads((library / LINES).read_text()).items():
            for line, names in lines.items():  # what runs outside of a test's own call is of the file
                self.tests[os.path.relpath(path, library), int(line)] |= {name or file for name in names}
        self.copies.put(library)
        if not ends_well:
            raise SystemExit(f"{file}: a test fails without a change")

    def life(self, changed: tuple[Path, Change]) -> dict[str, str] | None:
        """A change that no test sees; None for another."""
        name, (start, end, text) = changed
        library = self.copies.get()
        path = library / name
        source = path.read_bytes()
        line = source.count(b"\n", 0, start) + 1
        ran = set[str]().union(*(self.tests[str(name), each] for each in statement(ast.parse(source), line)))
        files = sorted({test.partition("::")[0] for test in ran}, key=self.seconds.__getitem__)
        path.write_bytes(source[:start] + text.encode() + source[end:])
        os.utime(path, (start, start))  # another time than before: Python compiles it again
        # What runs for ten times as long never ends, and counts as seen.
        limit = 60 + 10 * sum(self.seconds[file] for file in files)
        lives = not files or passes(limit, library, files, ran)
        path.write_bytes(source)
        self.copies.put(library)
        change = f"{source[start:end].decode()!r} -> {text!r}"
        return {"at": f"{name}:{line}", "change": change, "tests": str(len(ran))} if lives else None


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
    # The same draws in every run, however busy the machine is.
    hypothesis.settings.register_profile("mutations", deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutations")
    with tempfile.TemporaryDirectory() as folder:
        room = Room(asked.room, Path(folder).resolve(), asked.jobs)
        for seed in asked.seed:
            began, lives = time.monotonic(), []
            chosen = random.Random(seed).sample(room.changes, min(asked.sample, len(room.changes)))
            for life in filter(None, room.pool.map(room.life, chosen)):
                lives.append(life)
                print("LIVES", *life.values(), flush=True)
            seen, seconds = len(chosen) - len(lives), round(time.monotonic() - began)
            interval = scipy.stats.binomtest(seen, len(chosen)).proportion_ci(method="wilson")
            record = {"changes": len(room.changes), "tried": len(chosen), "seen": seen, "interval": interval}
            record |= {"seed": seed, "seconds": seconds, "lives": lives}
            print(json.dumps({asked.room: record}))


if __name__ == "__main__":
    main()
