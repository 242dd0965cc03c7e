"""Change one operator, number or statement of the library at a time, and print each change that no test of its room sees.

python studies/mutations.py dp --sample 100 --seed 1

A change is made in a copy of the library, and the tests of its room run until one fails, those named after the
changed file first. Some changes change nothing.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The files of each room, and the tests that speak for them.
ROOMS = {
    "dp": ("dp/**/*.py", "dp/test_*.py"),
    "wire": ("wire/*.py", "wire/test_*.py"),
    "choice": ("study/choose/*.py", "study/test_*.py"),
    "access": ("serve/http/routes.py", "serve/test_app.py"),
    "ledger": ("device/ledger/*.py", "device/test_*.py"),
    "attack": ("attack/*.py", "attack/test_*.py"),
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


def main() -> None:
    """Try a room."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("room", choices=ROOMS)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    files, tests = ROOMS[asked.room]
    # What runs for ten minutes never ends, and counts as seen.
    command = ["timeout", "600", sys.executable, "-m", "pytest", "-x", "-q", "-n0", "-p", "no:cacheprovider"]
    every_test = sorted(map(str, ROOT.glob(f"tests/{tests}")))
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", folder, dirs_exist_ok=True)
        paths = sorted(Path(folder).glob(f"sfumato/{files}"))
        every = [(path, change) for path in paths for change in changes(path.read_bytes())]
        chosen = random.Random(asked.seed).sample(every, min(asked.sample, len(every)))
        given = os.environ | {"SFUMATO_INSTALLED": folder, "PYTHONPATH": folder}

        def passes(stem: str) -> bool:
            ordered = sorted(every_test, key=lambda test: stem.strip("_") not in test)
            done = subprocess.run(command + ordered, cwd=ROOT, env=given, capture_output=True, check=False)
            return done.returncode == 0

        if not passes(""):
            raise SystemExit(f"{asked.room}: a test fails without a change: run {' '.join(command[2:])}")
        lives = 0
        for path, (start, end, text) in chosen:
            source = path.read_bytes()
            path.write_bytes(source[:start] + text.encode() + source[end:])
            if passes(path.stem):
                lives, line = lives + 1, source.count(b"\n", 0, start) + 1
                print(f"LIVES {path}:{line} {source[start:end].decode()!r} -> {text!r}", flush=True)
            path.write_bytes(source)
    print(f"{asked.room}: {len(chosen) - lives} of {len(chosen)} seen")


if __name__ == "__main__":
    main()
