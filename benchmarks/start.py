"""How long the command line takes to answer --help: no slower than 0.3 s.

python benchmarks/start.py
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from timing import Line, in_turn, show

LIMIT = 300  # ms


def lines(short: bool) -> Iterator[Line]:
    def runs(*words: str) -> None:
        subprocess.run(words, check=True, capture_output=True)

    command = str(Path(sys.executable).with_name("sfumato"))
    turns = in_turn(
        lambda: runs(command, "--help"),
        lambda: runs(sys.executable, "-c", "import typer"),
        seconds=2 if short else 5,
        waits=True,
    )
    yield turns.costs("sfumato --help", against="python -c 'import typer'", limit=LIMIT)


def main() -> None:
    show(lines(short=False))


if __name__ == "__main__":
    main()
