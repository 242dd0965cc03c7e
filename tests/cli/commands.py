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


Command = Callable[..., Said]
