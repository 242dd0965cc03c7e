"""How many lines each room has, and the ceilings above which none may grow.

    python docs/house.py                 ends with 1 if a room is above its ceiling in docs/house.toml
    python docs/house.py REVISION...     a table: these revisions beside the files of today
    python docs/house.py --lower         lowers each ceiling to the lines of today; it raises none

A room is a package of the library, or what stands beside it: tests, studies, templates of pages, benchmarks.
Lines are those of whole files, with docstrings, comments and blanks. Who needs more lines than a ceiling
raises it by hand in the same commit, whose message says why.
"""

import io
import subprocess
import sys
import tarfile
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

REPOSITORY = Path(__file__).parents[1]
CEILINGS = REPOSITORY / "docs" / "house.toml"
MODULE = 650  # lines of one module, at most

# The kinds of files that count beside the library, by the folder that they are in.
BESIDE = {
    "tests": {".py"},
    "studies": {".py", ".yaml", ".sh"},
    "templates": {".jinja"},
    "benchmarks": {".py"},
}


def room_of(path: str) -> str | None:
    """The room of a file, None where it has none."""
    parts = PurePosixPath(path).parts
    if parts[:2] == ("src", "sfumato") and path.endswith(".py"):
        return f"src/{parts[2]}" if len(parts) > 3 else "src"
    room = "templates" if parts[:2] == ("docs", "templates") else parts[0]
    return room if PurePosixPath(path).suffix in BESIDE.get(room, set()) else None


def count(files: Iterable[tuple[str, bytes]]) -> tuple[Counter[str], list[str]]:
    """Lines by room with the number of files, and a sentence for each module that is too long."""
    lines: Counter[str] = Counter()
    long = []
    for path, content in files:
        lines["files"] += 1
        room = room_of(path)
        if room is None:
            continue
        length = content.count(b"\n")
        lines[room] += length
        if room.startswith("src") and length > MODULE:
            long.append(f"{path}: {length} lines, a module has at most {MODULE}: split it by concept")
    return lines, long


def of_today() -> Iterable[tuple[str, bytes]]:
    """The files that git tracks, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True)
    for name in listed.stdout.decode().split("\0"):
        if name and (REPOSITORY / name).is_file():
            yield name, (REPOSITORY / name).read_bytes()


def of_revision(revision: str) -> Iterable[tuple[str, bytes]]:
    """The files of a revision."""
    content = subprocess.run(["git", "archive", revision], cwd=REPOSITORY, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(content.stdout)) as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None:
                yield member.name, file.read()


def excesses(lines: Counter[str], ceilings: dict[str, int]) -> list[str]:
    """A sentence for each room above its ceiling, or without one."""
    cure = "make it smaller, or raise the ceiling in docs/house.toml and say why in the commit"
    unit = {"files": ""}
    return [
        f"{room}: {lines[room]:,}{unit.get(room, ' lines')}, at most {ceilings.get(room, 0):,}: {cure}"
        for room in sorted(lines)
        if lines[room] > ceilings.get(room, 0)
    ]


def main(arguments: list[str]) -> int:
    """Compare, print or lower. Returns the exit code."""
    lines, sentences = count(of_today())
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    if arguments == ["--lower"]:
        lowered = {room: min(lines[room], ceilings.get(room, lines[room])) for room in sorted(lines)}
        rows = "".join(f'"{room}" = {number}\n' for room, number in lowered.items())
        head = "# Lines of each room, and files, at most. Lowered by `python docs/house.py --lower`.\n"
        CEILINGS.write_text(head + rows, encoding="utf-8")
    elif arguments:
        columns = [count(of_revision(revision))[0] for revision in arguments] + [lines]
        print(f"| |{'|'.join(f' {name} ' for name in (*arguments, 'today'))}|\n|---{'|---:' * len(columns)}|")
        for room in sorted({room for column in columns for room in column}):
            print(f"| {room} |{'|'.join(f' {column[room]:,} ' for column in columns)}|")
    else:
        sentences += excesses(lines, ceilings)
        print(*sentences, sep="\n", end="\n" if sentences else "")
        return 1 if sentences else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
