"""The progress reports of a running study."""

import sys
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The listeners of a running study.

    Attributes:
        cell: called before each cell with its words, and the numbers of cells done and in all.
        within: called during training with the numbers of steps done and planned.
        note: called with a sentence that the user should read.
    """

    cell: Callable[[str, int, int], None] = lambda words, done, total: None
    within: Callable[[int, int], None] = lambda done, total: None
    note: Callable[[str], None] = lambda words: None

    @classmethod
    def printed(cls) -> "Progress":
        """Prints each cell, and each note, on a line of standard error, for users of Python."""

        def cell(words: str, done: int, total: int) -> None:
            print(f"{done}/{total} {words}", file=sys.stderr, flush=True)

        return cls(cell=cell, note=lambda words: print(words, file=sys.stderr, flush=True))
