"""What the tests of studies share."""

from collections.abc import Iterator

import pytest

from sfumato.learn import vectors


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Forests of ten trees in this process: those of 200 take half of the time of a study of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_TREES", 10)
        yield
