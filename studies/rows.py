"""The records of a script: studies/results/NAME.jsonl has a row for each, and a script sees them as a dictionary."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfumato.study.records import read_rows, write_rows

RESULTS = Path(__file__).parent / "results"
CURE = "take it back from the repository, or run its study again"
_NAME = "row"  # the key of a record's name


@dataclass(frozen=True)
class Rows(MutableMapping[str, dict[str, Any]]):
    """The records of a file by their names. What is set is on disk; processes that write the same file take turns.

    Attributes:
        path: of the file; it need not exist.
    """

    path: Path

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __setitem__(self, name: str, content: dict[str, Any]) -> None:
        self._change(lambda rows: {**rows, name: content})

    def __delitem__(self, name: str) -> None:
        self._change(lambda rows: {other: rows[other] for other in rows if other != name})

    def _read(self) -> dict[str, dict[str, Any]]:
        if not self.path.exists():
            return {}
        return {content.pop(_NAME): content for _, content in read_rows(self.path, CURE)}

    def _change(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.path.parent, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            rows = change(self._read())
            write_rows(self.path, [{_NAME: name, **rows[name]} for name in rows])
        finally:
            os.close(lock)


def make(records: Rows, row: str, measure: Callable[[], dict[str, Any]], *, seed: int = 0) -> None:
    """Make a record that is missing, with what it cost and what made it."""
    import torch  # what reads records does without

    import sfumato

    if row in records:
        return
    wall, processor = time.perf_counter(), time.process_time()
    found = measure()
    passed = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
    seconds = {clock: round(value, 1) for clock, value in passed.items()}
    versions = {"sfumato": sfumato.__version__, "torch": torch.__version__}
    facts = {"seconds": seconds, "threads": torch.get_num_threads(), "versions": versions, "seed": seed}
    records[row] = {**facts, **found}
    print(f"{row}: {seconds['wall']:.0f} s", flush=True)


def with_commits(text: str) -> str:
    """Names the commit behind each command of a script that left, from the table in studies/results/README.md."""
    table = (RESULTS / "README.md").read_text(encoding="utf-8")
    left = dict(re.findall(r"\| (studies/\S+\.py) \| (\w+) \|", table))

    def mark(command: re.Match[str]) -> str:
        known = "commit" in command[0] or command[1] not in left
        return command[0] if known else f"{command[0]} at commit `{left[command[1]]}`"

    return re.sub(r"`[^`\n]*(studies/[\w/]+\.py)[^`\n]*`(?!\)? (?:at|of) commit)", mark, text)
