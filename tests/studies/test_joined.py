"""Two services that know the same people: adversaries add up their scores (studies/joined.py)."""

from pathlib import Path

import joined
import pytest
from tests.study.test_values import lab

NOISY = "dp-pix:cell=4,epsilon=0.5"


def named(directory: Path, first: str, second: str) -> dict[str, float]:
    scores = joined.join(lab(directory), first, second, 0)
    return {words: score["top1"] for words, score in scores.items()}


def test_two_services_with_noise_of_their_own_name_more_than_one(tmp_path: Path):
    found = named(tmp_path, NOISY, NOISY)
    assert found["both"] > max(found["first"], found["second"]) + 0.05
    assert found["first"] != found["second"]  # other noise


def test_a_service_that_tells_nothing_adds_nothing(tmp_path: Path):
    found = named(tmp_path, "gaussian:sigma=40", "block:share=1")
    assert found["second"] <= 1 / 20
    assert found["both"] == pytest.approx(found["first"], abs=0.05)
