import sys
from pathlib import Path

import pytest
from commands import Command, Said

from sfumato.cli import main


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the user's own ledger lies: that of whoever runs the tests is not theirs, nor the cache."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "sfumato"


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path) -> Command:
    """`sfumato` with arguments, run in this process, in an empty folder and with a home of its own."""

    def run(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["sfumato", *map(str, arguments)])
        code: object = None  # main returns where nothing stopped it
        try:
            main()
        except SystemExit as stop:
            code = stop.code
        return Said(code if isinstance(code, int) else int(code is not None), *capsys.readouterr())

    return run
