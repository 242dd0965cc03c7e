"""What the tests share: small worlds, and where the real data lies."""

from pathlib import Path

import pytest

from sfumato import data

SHARED = Path(__file__).parents[1].parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data; tests that use it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no real data beside the repository ({SHARED.name} is absent)")
    return SHARED


@pytest.fixture(scope="session")
def small_glyphs():
    """40 characters by 12 drawers, 16x16: 26 to train on, 6 for validation, 8 to test on."""
    return data.load("glyphs", classes=40, drawers=12, size=16)
