"""`sfumato data cache`: what is kept decoded on disk, and that it can be deleted."""

from pathlib import Path

import pytest
import torch
from commands import Command

from sfumato import images
from sfumato.data import folder
from sfumato.data.readers.stored import entries


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the cache lies, with the six pictures of a folder in it."""
    monkeypatch.setenv("SFUMATO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SFUMATO_MEMORY", "0")
    for number in range(6):
        grey = torch.full((3, 8, 8), number, dtype=torch.uint8)
        images.write(tmp_path / "photos" / "anna" / f"{number}.png", grey)
    folder("photos", size=8)
    return tmp_path / "cache" / "images"


def test_it_lists_and_deletes_copies_without_protection(command: Command, cache: Path):
    assert "WITHOUT protection" in command("data", "cache", "--help").out
    (entry,) = entries()
    said = command("data", "cache")
    assert (said.code, said.err) == (0, "")
    first, total = said.out.splitlines()
    assert first.split(maxsplit=2) == [f"{entry.bytes:,}", "bytes", "folder:photos, 6 x 3 x 8 x 8"]
    assert total.split(maxsplit=2) == [f"{entry.bytes:,}", "bytes", f"in {cache}"]
    assert command("data", "cache", "--clear").out.splitlines()[-1].endswith(f"deleted from {cache}")
    assert list(cache.iterdir()) == []
    assert command("data", "cache").out.split() == ["0", "bytes", "in", str(cache)]
