"""What the tests of commands share."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(sys.executable).with_name("sfumato")


@dataclass(frozen=True)
class Said:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str


def check_mistake(said: Said, message: str) -> None:
    """It was answered by one line that says this, and by nothing else."""
    assert (said.code, said.out) == (1, "")
    (line,) = [line for line in said.err.splitlines() if line.startswith("sfumato: ")]
    assert message in line
    assert "Traceback" not in said.err


Command = Callable[..., Said]
