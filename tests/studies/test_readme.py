"""What the README says of the demo and of the main study is what their records say."""

import re
from pathlib import Path

import pytest
from results_page import engine

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(README.split())


@pytest.fixture(scope="module")
def demo() -> engine.Study:
    study = engine.study("demo")
    assert study is not None
    return study


def test_the_output_of_the_demo_is_what_its_records_give(demo):
    printed = re.search(r"```text\n(recommended: .*?)```", README, re.DOTALL)
    assert printed is not None
    lines = demo.recommendation.lines
    shown = printed[1].splitlines()[:6]
    assert shown[0] == lines[0]
    for line in shown[1:]:
        start = line.removesuffix("...").rstrip()
        assert any(each.startswith(start) for each in lines), line


def test_as_many_ways_are_compared_as_it_says(demo):
    assert len(demo.specs) == 9
    assert "compares nine ways to protect an image" in WORDS
