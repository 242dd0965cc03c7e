"""What every test of an exported graph needs."""

from collections.abc import Iterator

import pytest
from devices import remember_graphs


@pytest.fixture(autouse=True, scope="package")
def remembered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        remember_graphs(monkeypatch)
        yield
