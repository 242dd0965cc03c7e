import csv
import shutil
import sys
from pathlib import Path

import pytest
import torch
from commands import Command, Said

from sfumato import images
from sfumato.cli import main


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the user's own ledger lies: that of whoever runs the tests is not theirs, nor the cache."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home" / "sfumato"


@pytest.fixture(scope="session")
def _photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, generator = tmp_path_factory.mktemp("album") / "photos", torch.Generator().manual_seed(0)
    folder.mkdir()
    rows = [["file", "colour", "shape", "place", "person", "split"]]
    for i in range(24):
        image = torch.randint(0, 100, (3, 16, 16), generator=generator).to(torch.uint8)
        image[i % 2, :4, :4] = 255
        image[:, 8:, 8 : 12 + i // 2 % 2 * 4] = 0
        images.write(folder / f"{i}.png", image)
        split = ("train", "train", "val", "test")[i // 6]
        place = "away" if i == 23 else "ab"[i % 2]
        rows.append([f"{i}.png", ("red", "green")[i % 2], "ab"[i // 2 % 2], place, f"p{i // 3}", split])
    with (folder / "table.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


@pytest.fixture
def table(_photos: Path, tmp_path: Path) -> Path:
    """24 images of 16x16: two colours and shapes in each split, people in one, a place in the test alone."""
    return Path(shutil.copytree(_photos, tmp_path / "photos")) / "table.csv"


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
