"""What the tests of studies share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sfumato
from sfumato.base import registry
from sfumato.learn import vectors


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Forests of ten trees in this process: those of 200 take half of the time of a study of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_TREES", 10)
        yield


@pytest.fixture
def registering() -> Iterator[Callable[[str, str, Any], None]]:
    """`sfumato.register`, of what is forgotten after the test."""
    before = {group: dict(table) for group, table in registry._TABLES.items()}
    yield sfumato.register
    registry._ADDED.clear()
    for group, table in registry._TABLES.items():
        table.clear()
        table |= before.get(group, {})
