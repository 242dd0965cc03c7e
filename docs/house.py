"""What the house measures: lines, modules, records, names, words and circles of imports.

    python docs/house.py [REVISION...]

One column for each revision of the repository, then one for the working tree. A line of code holds a token
that is neither a comment nor a docstring.
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from words import REPOSITORY, rooms
from words import program as words_of

LONG_MODULE, LONG_FUNCTION = 400, 60
RECORDS = re.compile(r"dataclass|NamedTuple|TypedDict|BaseModel|Card\b|Record\b")
FACE = "__init__"  # a package's face imports what it shows: no circle


class House:
    """The files of a revision that are text."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files

    def of(self, *folders: str, kinds: str = "py") -> Iterator[tuple[str, str]]:
        """The path and text of each file in these folders."""
        for path, text in self.files.items():
            if path.startswith(folders) and re.search(rf"\.({kinds})$", path):
                yield path, text

    def lines(self, *folders: str, kinds: str = "py") -> int:
        """Lines of the files in these folders."""
        return sum(text.count("\n") for _, text in self.of(*folders, kinds=kinds))


def read(folder: Path, names: list[str]) -> House:
    """The texts of some files; a file that is not text counts as an empty one."""
    texts = {}
    for name in names:
        try:
            texts[name] = (folder / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            texts[name] = ""
    return House(texts)


def of_revision(revision: str) -> House:
    """The files of a revision."""
    with tempfile.TemporaryDirectory() as folder:
        content = subprocess.run(
            ["git", "archive", revision], cwd=REPOSITORY, capture_output=True, check=True
        )
        with tarfile.open(fileobj=io.BytesIO(content.stdout)) as archive:
            archive.extractall(folder, filter="data")
            names = [member.name for member in archive if member.isfile()]
        return read(Path(folder), names)


def of_working_tree() -> House:
    """The files that git tracks, as they are now."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, check=True, text=True)
    return read(REPOSITORY, [name for name in listed.stdout.splitlines() if (REPOSITORY / name).exists()])


@cache
def parse(source: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(source)


def code_lines(source: str) -> int:
    """Lines that hold code, docstrings aside."""
    silent = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in silent:
            held.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(parse(source)):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            held.difference_update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(held)


def functions(house: House) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods of the library."""
    for _, source in house.of("src/"):
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def classes(house: House) -> Iterator[tuple[ast.ClassDef, bool]]:
    """Classes of the library, and whether each is a record: a dataclass, a named tuple or a model."""
    for _, source in house.of("src/"):
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ClassDef):
                yield (
                    node,
                    any(RECORDS.search(ast.unparse(each)) for each in (*node.decorator_list, *node.bases)),
                )


def circles(house: House) -> int:
    """Groups of modules of the library that import each other, also within functions."""
    modules = {
        path.removeprefix("src/").removesuffix(".py").removesuffix(f"/{FACE}").replace("/", "."): (
            path,
            source,
        )
        for path, source in house.of("src/")
    }
    imports: dict[str, set[str]] = {}
    for name, (path, source) in modules.items():
        if path.endswith(f"{FACE}.py"):
            continue
        found: set[str] = set()
        for node in ast.walk(parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module:
                parts = [f"{node.module}.{each.name}" for each in node.names]
                found.update(part if part in modules else node.module for part in parts)
        imports[name] = {each for each in found if each in modules and each != name}
    count = 0
    while True:
        try:
            TopologicalSorter(imports).prepare()
        except CycleError as error:
            count += 1
            tied = set(error.args[1])
            for name in list(imports):  # the whole circle becomes one module
                imports[name] = {each for each in imports[name] if not {name, each} <= tied}
        else:
            return count


def participles_and_idioms(house: House) -> tuple[int, float]:
    """Participle names of functions, and idioms in 10,000 words, of the library."""
    modules = list(house.of("src/"))
    counted = rooms((text for path, source in modules for text in words_of(path, source)), modules)
    kinds = Counter(finding.against for room in counted.values() for finding in room.findings)
    names = kinds.pop("participles", 0)
    return names, 1e4 * kinds.total() / max(1, sum(room.words for room in counted.values()))


MEASURES: dict[str, Callable[[House], float]] = {
    "lines of src": lambda house: house.lines("src/"),
    "code proper": lambda house: sum(code_lines(source) for _, source in house.of("src/")),
    "lines of tests": lambda house: house.lines("tests/"),
    "studies and templates": lambda house: house.lines(
        "studies/", "docs/templates/", kinds="py|sh|yaml|jinja"
    ),
    "benchmarks": lambda house: house.lines("benchmarks/"),
    "files": lambda house: len(house.files),
    "files of records": lambda house: len(list(house.of("studies/results/", kinds="jsonl?"))),
    f"modules over {LONG_MODULE} lines": lambda house: sum(
        source.count("\n") > LONG_MODULE for _, source in house.of("src/")
    ),
    f"functions over {LONG_FUNCTION} lines": lambda house: sum(
        (node.end_lineno or 0) - node.lineno >= LONG_FUNCTION for node in functions(house)
    ),
    "classes": lambda house: len(list(classes(house))),
    "of them records": lambda house: sum(is_record for _, is_record in classes(house)),
    "lines with Any": lambda house: sum(
        len(re.findall(r"^.*\bAny\b.*$", source, re.M)) for _, source in house.of("src/")
    ),
    "functions named by a participle": lambda house: participles_and_idioms(house)[0],
    "idioms in 10,000 words": lambda house: participles_and_idioms(house)[1],
    "circles of imports": circles,
}


def main(revisions: list[str]) -> None:
    """Print the table."""
    houses = {name: of_revision(name) for name in revisions} | {"now": of_working_tree()}
    print(f"| |{'|'.join(f' {name} ' for name in houses)}|")
    print(f"|---{'|---:' * len(houses)}|")
    for name, measure in MEASURES.items():
        print(f"| {name} |{'|'.join(f' {measure(house):,.0f} ' for house in houses.values())}|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
