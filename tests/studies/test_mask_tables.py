"""studies/mask_tables.py: a stand-in that is added later is measured alone."""

from types import SimpleNamespace
from typing import Any

import mask_tables
import pytest

PART = SimpleNamespace(world="lfw-hair", load=dict)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The stand-ins of which something was measured, spec -> name, each time."""
    seen: list[dict[str, str]] = []

    def released(part: Any, splits: Any, named: dict[str, str], folder: str) -> dict[str, Any]:
        seen.append(named)
        return {name: {"ssim": 0.5} for name in ("none", *named.values())}

    made = {"outside:index=swap.csv": "swapped face", "outside:index=drawn.csv": "drawn face"}
    monkeypatch.setattr(mask_tables, "everybody", lambda part: (None, None))
    monkeypatch.setattr(mask_tables, "stand_ins", lambda *_: made)
    monkeypatch.setattr(mask_tables, "NAMES", {"swap": "swapped face", "drawn": "drawn face"})
    monkeypatch.setattr(mask_tables, "released", released)
    return seen


def test_what_a_record_lacks_is_measured_alone_and_the_rest_is_left(asked: list[dict[str, str]]):
    before = {"seed": 0, "settings": {"none": {"ssim": 1.0}, "swapped face": {"ssim": 0.7}}}
    after = mask_tables.completed(PART, before)
    assert asked == [{"outside:index=drawn.csv": "drawn face"}]
    assert after["settings"] == before["settings"] | {"drawn face": {"ssim": 0.5}}
    assert after["seed"] == 0


def test_a_record_that_lacks_nothing_is_left(asked: list[dict[str, str]]):
    before = {"settings": {"swapped face": {"ssim": 0.7}, "drawn face": {"ssim": 0.6}}}
    assert mask_tables.completed(PART, before) == before
    assert asked == []
