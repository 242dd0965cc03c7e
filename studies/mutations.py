"""Change one operator, number or statement of the library at a time, and record whether a test sees it.

python studies/mutations.py dp --sample 100 --seed 1

A change is made in a function, in a process of its own, and tried by the tests of the room that run its line, the
fastest first, then by others of their files. What no test sees is printed and recorded, for a person to read: some
changes change nothing. The files of the library stay as they are, so tests that start Python anew see no change.
"""

import argparse
import ast
import gc
import json
import os
import random
import resource
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from inspect import CO_NEWLOCALS
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import Phase, settings

from sfumato.base.proportions import wilson

REPOSITORY = Path(__file__).resolve().parents[1]
LIBRARY = REPOSITORY / "src" / "sfumato"
RECORD = Path(__file__).parent / "results" / "mutations.json"
SLOW = 5  # seconds: tests that take longer are left out
# The files of each room, and the tests that speak for them.
ROOMS = {
    "dp": ("dp/**/*", "dp/test_*"),
    "wire": ("wire/*", "wire/test_*"),
    "choice": (
        "study/{hits,choose/recommend,choose/frontier,choose/estimates,choose/use}",
        "study/test_{recommend,estimates,many,use,bounds_of_attributes,choice}",
    ),
    "access": ("serve/http/routes", "serve/test_app"),
    "ledger": (
        "device/ledger/{ledger,charging,budgets,witness}",
        "device/test_{ledger,chain,storage,likeness,averager,releasing,charges}",
    ),
}
# An operator, and what takes its place.
SWAPS = {
    **{"Lt": "< <= >=", "LtE": "<= < >", "Gt": "> >= <=", "GtE": ">= > <", "Eq": "== !=", "NotEq": "!= =="},
    **{"In": "in not_in", "Is": "is is_not", "IsNot": "is_not is"},
    **{"NotIn": "not_in in"},  # codespell:ignore notin
    **{
        "And": "and or",
        "Or": "or and",
        "Add": "+ -",
        "Sub": "- +",
        "Mult": "* /",
        "Div": "/ *",
        "Pow": "** *",
    },
    **{"FloorDiv": "// *", "Mod": "% *", "LShift": "<< >>", "RShift": ">> <<"},
    **{"BitAnd": "& |", "BitOr": "| &", "BitXor": "^ &"},
}
_PAIRS = (("min", "max"), ("any", "all"), ("floor", "ceil"), ("amin", "amax"), ("argmin", "argmax"))
NAMES = dict(_PAIRS) | {second: first for first, second in _PAIRS}
Change = tuple[int, int, str, range]  # from, to, what stands there instead, and the lines that run it


def changes(source: bytes) -> Iterator[Change]:
    """Every change of a module's functions that is tried. Annotations, messages, assertions and texts stay."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def ends(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def between(operators: list[Any], operands: list[Any]) -> Iterator[tuple[int, int, str]]:
        for operator, (left, right) in zip(operators, pairwise(operands), strict=True):
            start, end = ends(left)[1], ends(right)[0]
            old, *new = (word.replace("_", " ") for word in SWAPS.get(type(operator).__name__, "@").split())
            yield from ((start, end, source[start:end].decode().replace(old, word, 1)) for word in new)

    def of(node: Any) -> Iterator[tuple[int, int, str]]:
        start, end = ends(node) if hasattr(node, "lineno") else (0, 0)
        match node:
            case ast.Compare(left, operators, others):
                yield from between(operators, [left, *others])
            case ast.BinOp(left, operator, right):
                yield from between([operator], [left, right])
            case ast.BoolOp(operator, values):
                yield from between([operator] * (len(values) - 1), values)
            case ast.UnaryOp(ast.Not() | ast.USub(), operand):
                yield start, end, source[slice(*ends(operand))].decode()
            case ast.Constant(bool() as value):
                yield start, end, str(not value)
            case ast.Constant(int() | float() as value):
                yield start, end, repr(value + 1 if isinstance(value, int) else 2 * value or 1.0)
            case ast.Name(name) | ast.Attribute(attr=name) if name in NAMES:
                yield start, end, source[start:end].decode().removesuffix(name) + NAMES[name]
            case ast.If(test) | ast.IfExp(test) | ast.While(test):
                if isinstance(test, ast.Name | ast.Call | ast.Attribute):
                    yield *ends(test), f"(not {source[slice(*ends(test))].decode()})"
            case ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Expr(ast.Call()):
                yield start, end, "pass"
            case ast.Assign([ast.Attribute() | ast.Subscript()]):
                yield start, end, "pass"

    def walk(node: Any, lines: range, inside: bool) -> Iterator[Change]:
        if inside and isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            lines = range(
                node.lineno, max(node.lineno, body[0].lineno - 1 if body else node.end_lineno or 0) + 1
            )
        yield from ((*change, lines) for change in of(node) if inside)
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for field, value in ast.iter_fields(node):
            stays = field in ("annotation", "returns", "exc", "decorator_list") or isinstance(
                value, ast.arguments
            )
            for child in [] if stays else value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr | ast.Assert):
                    yield from walk(child, lines, inside)

    yield from walk(ast.parse(source), range(0), inside=False)


def functions(code: CodeType) -> Iterator[CodeType]:
    """The code of every function and method of a module; what lies within them belongs to them."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from [constant] if constant.co_flags & CO_NEWLOCALS else functions(constant)


class Study:
    """The tests of a room, run once as it is and once for each change. State: what they run, and what they see."""

    def __init__(self, sources: dict[str, bytes], sample: int, seed: int) -> None:
        self.sources, self.sample, self.seed = sources, sample, seed
        self.made: dict[str, Any] = {}
        self._lines: dict[str, set[tuple[str, int]]] = defaultdict(set)  # that each test runs
        self._seconds: dict[str, float] = {}
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._now = ""

    def _trace(self, frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in self.sources:
            return None
        self._lines[self._now].add((frame.f_code.co_filename, frame.f_lineno))
        return self._trace

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Stands in for pytest's own loop."""
        begun = time.monotonic()
        for item, after in pairwise([*session.items, None]):
            started, self._now = time.process_time(), item.nodeid
            threading.settrace(self._trace)
            sys.settrace(self._trace)
            reports = runtestprotocol(item, nextitem=after, log=False)
            sys.settrace(None)
            self._seconds[item.nodeid] = time.process_time() - started
            for report in reports:
                if report.failed:
                    raise pytest.UsageError(f"it fails without a change: {report.longreprtext[-2000:]}")
        gc.unfreeze()
        everything = gc.get_objects()
        for each in everything:
            if type(each) is FunctionType and each.__code__.co_filename in self.sources:
                code = each.__code__
                self._functions[code.co_filename, code.co_qualname, code.co_firstlineno].append(each)
        self._caches = [each for each in everything if type(each) is _lru_cache_wrapper]
        every = [(path, change) for path, source in self.sources.items() for change in changes(source)]
        chosen = random.Random(self.seed).sample(every, min(self.sample, len(every)))
        items = {item.nodeid: item for item in session.items}
        survivors = [said for path, change in chosen if (said := self._survives(items, path, change))]
        tried, seen = len(chosen), len(chosen) - len(survivors)
        said = {"changes": len(every), "tried": tried, "seen": seen, "interval": wilson(seen, tried)}
        self.made = {
            **said,
            "seed": self.seed,
            "seconds": round(time.monotonic() - begun),
            "lives": survivors,
        }
        return True

    def _order(self, path: str, lines: range) -> Iterator[str]:
        """The tests that run one of these lines, the fastest first; then others of their files."""
        near = {test for test, ran in self._lines.items() if any((path, line) in ran for line in lines)}
        file = {test: test.partition("::")[0] for test in self._seconds}
        beside = {file[test] for test in near}
        every = sorted(file, key=lambda test: (test not in near, file[test], self._seconds[test]))
        return (test for test in every if file[test] in beside and self._seconds[test] <= SLOW)

    def _survives(self, items: dict[str, pytest.Item], path: str, change: Change) -> dict[str, str] | None:
        """What to record of a change that no test sees; None for one that is seen."""
        (start, end, text, lines), source = change, self.sources[path]
        codes = [
            functions(compile(each, path, "exec"))
            for each in (source, source[:start] + text.encode() + source[end:])
        ]
        order = [items[test] for test in self._order(path, lines)]
        child = os.fork()
        if not child:
            try:
                cpu = 30 + int(4 * sum(self._seconds[item.nodeid] for item in order))
                resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
                signal.alarm(20 * cpu)  # it may wait for ever
                for old, new in zip(*codes, strict=True):
                    for function in self._functions[path, old.co_qualname, old.co_firstlineno]:
                        function.__code__ = new
                for cache in self._caches:
                    cache.cache_clear()
                for item, after in pairwise([*order, None]):
                    if any(report.failed for report in runtestprotocol(item, nextitem=after, log=False)):
                        os._exit(1)
                os._exit(0)
            finally:
                os._exit(1)
        lives = os.waitpid(child, 0)[1] == 0
        place = f"{Path(path).relative_to(LIBRARY)}:{len(source[:start].splitlines()) or 1}"
        what = f"{source[start:end].decode()!r} -> {text!r}"
        print(f"{'LIVES' if lives else 'seen'} {place} {what} ({len(order)} tests)", flush=True)
        return {"at": place, "change": what} if lives else None


def files(below: Path, pattern: str) -> list[Path]:
    """The Python files of a pattern, in which {a,b} is a or b."""
    before, _, names = pattern.partition("{")
    return sorted(path for name in names.rstrip("}").split(",") for path in below.glob(f"{before}{name}.py"))


def main() -> None:
    """Try the room that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--name", default="after", help="under which name it is recorded")
    asked = parser.parse_args()
    os.nice(15)
    phases = (Phase.explicit, Phase.generate)  # a failure need not be made small
    settings.register_profile("mutations", derandomize=True, database=None, deadline=None, phases=phases)
    settings.load_profile("mutations")
    sources, tests = ROOMS[asked.room]
    study = Study(
        {str(path): path.read_bytes() for path in files(LIBRARY, sources)}, asked.sample, asked.seed
    )
    os.chdir(REPOSITORY)
    options = ["-s", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*map(str, files(REPOSITORY / "tests", tests)), *options], plugins=[study])
    if not study.made:
        raise SystemExit(status)
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record.setdefault(asked.name, {})[asked.room] = study.made
    RECORD.write_text(json.dumps(record) + "\n")
    print(f"{asked.room}: {study.made['seen']} of {study.made['tried']} seen, {study.made['seconds']} s")


if __name__ == "__main__":
    main()
