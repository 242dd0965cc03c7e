"""Where the files of these tests lie."""

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from sfumato.device.ledger import Ledger

_MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where the system has one.

    A ledger waits for the disk at each commit, and hundreds of tests begin one. None is about power cuts:
    what a killed process wrote is there, on a disk or in memory.
    """
    if not os.access(_MEMORY, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(prefix="sfumato-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


@pytest.fixture
def unlimited(ledger: Ledger) -> None:
    """The ledger has none of the budgets that it begins with."""
    ledger.set_budget(None)
    ledger.set_budget(None, person="")
